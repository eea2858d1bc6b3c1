#include "shim/serve/birth.h"

#include "report/verdict.h"
#include "shim/log.h"
#include "shim/serve/driver.h"
#include "shim/serve/host_bytes.h"
#include "shim/serve/release.h"
#include "shim/serve/spill.h"
#include "shim/serve/stream.h"
#include "shim/session.h"

/* A hint that the driver refuses leaves the memory good, but on the device as it pleases. */
static bool make_managed(const struct ms_device *device, uint64_t bytes, CUdeviceptr_v2 *out)
{
    if (!MS_REAL(cuMemAllocManaged) || !ms_driver()->cuMemAdvise ||
        MS_REAL(cuMemAllocManaged)(out, bytes, CU_MEM_ATTACH_GLOBAL) != CUDA_SUCCESS) {
        return false;
    }
    if (ms_driver()->cuMemAdvise(*out, bytes, CU_MEM_ADVISE_SET_PREFERRED_LOCATION,
                                 CU_DEVICE_CPU) == CUDA_SUCCESS) {
        (void)ms_driver()->cuMemAdvise(*out, bytes, CU_MEM_ADVISE_SET_ACCESSED_BY, device->handle);
        return true;
    }
    (void)MS_REAL(cuMemFree_v2)(*out);
    return false;
}

static bool make_pinned(uint64_t bytes, CUdeviceptr_v2 *out)
{
    void *memory = NULL;
    if (!MS_REAL(cuMemHostAlloc) || !ms_driver()->cuMemHostGetDevicePointer_v2 ||
        MS_REAL(cuMemHostAlloc)(
            &memory, bytes, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP) != CUDA_SUCCESS) {
        return false;
    }
    /* It is freed by this address, which is the host's own where addresses are unified. */
    if (ms_driver()->cuMemHostGetDevicePointer_v2(out, memory, 0) == CUDA_SUCCESS &&
        *out == (CUdeviceptr_v2)(uintptr_t)memory) {
        return true;
    }
    (void)MS_REAL(cuMemFreeHost)(memory);
    return false;
}

static void emit(enum ms_event_kind kind, const struct ms_grant *grant)
{
    struct ms_event event = {.kind = (uint8_t)kind,
                             .device = grant->device,
                             .site = grant->site,
                             .addr = grant->name,
                             .bytes = grant->bytes};
    ms_session_emit(&event);
}

bool ms_birth_on_host(struct ms_device *device, uint64_t bytes, uint32_t site, CUdeviceptr_v2 *out)
{
    struct ms_context *context = ms_context_current();
    struct ms_grant displaced = {0};
    char text[24];
    bool road = device->granule_bytes != 0 && device->no_host_road == NULL;
    if (road || !context || context->device != device || ms_captures_running() ||
        !ms_budget_charge(ms_spill_budget(), MS_OWNER_FORWARDED, bytes)) {
        return false;
    }
    struct ms_grant grant = {.bytes = bytes,
                             .holder = context,
                             .site = site,
                             .space = MS_SPACE_DEVICE,
                             .kind = MS_GRANT_FORWARDED,
                             .device = device->ordinal};
    bool managed = false, made = false;
    if (ms_host_take(bytes)) {
        managed = make_managed(device, bytes, out);
        made = managed || make_pinned(bytes, out);
    }
    grant.name = made ? *out : 0;
    grant.taking = managed ? MS_TAKING_MANAGED_HOST : MS_TAKING_PINNED_HOST;
    if (!made || !ms_ledger_put(&grant, &displaced)) {
        ms_budget_discharge(ms_spill_budget(), MS_OWNER_FORWARDED, bytes);
        if (made) {
            (void)(managed ? MS_REAL(cuMemFree_v2)(*out)
                           : MS_REAL(cuMemFreeHost)((void *)(uintptr_t)*out));
        }
        return false;
    }
    if (displaced.name != 0) {
        ms_release_dead(&displaced);
    }
    emit(MS_EVENT_HOST_ALLOC, &grant);
    MS_LOG_ONCE(MS_LOG_WARN,
                "device %d: no device memory was left for %s; it lies in %s, where it stays, and "
                "work on it is slow (what lives on the device cannot move: %s)",
                device->ordinal, ms_bytes_text(bytes, text, sizeof text),
                managed ? "managed memory on the host" : "pinned host memory",
                device->no_host_road ? device->no_host_road : "it cannot map memory");
    return true;
}

bool ms_birth_is(const struct ms_grant *grant)
{
    return grant->space == MS_SPACE_DEVICE && grant->kind == MS_GRANT_FORWARDED &&
           (grant->taking == MS_TAKING_MANAGED_HOST || grant->taking == MS_TAKING_PINNED_HOST);
}

CUresult ms_birth_free(const struct ms_grant *grant)
{
    if (grant->taking == MS_TAKING_MANAGED_HOST) {
        CUresult result = MS_REAL(cuMemFree_v2)(grant->name);
        ms_forwarded_freed(grant, result);
        return result;
    }
    /* As cuMemFree does; freeing host memory need not wait for the device. */
    CUresult result = ms_driver()->cuCtxSynchronize();
    if (result == CUDA_SUCCESS) {
        result = MS_REAL(cuMemFreeHost)((void *)(uintptr_t)grant->name);
    }
    ms_forwarded_freed(grant, result);
    return result;
}

void ms_birth_gone(const struct ms_grant *grant)
{
    ms_budget_discharge(ms_spill_budget(), MS_OWNER_FORWARDED, grant->bytes);
    emit(MS_EVENT_HOST_FREE, grant);
}
