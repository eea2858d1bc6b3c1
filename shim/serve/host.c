/* Pinned host memory: the driver's, counted on the host's side and never charged to a device. */
#include "shim/serve/release.h"
#include "shim/session.h"
#include "shim/sites/site.h"

static void emit(enum ms_event_kind kind, const struct ms_grant *grant)
{
    struct ms_event event = {.kind = (uint8_t)kind,
                             .device = grant->device,
                             .site = grant->site,
                             .addr = grant->name,
                             .bytes = grant->bytes};
    ms_session_emit(&event);
}

/* Told to the current device, which is not where it lies but where the report is. */
static CUresult pinned(CUresult result, void *addr, uint64_t bytes)
{
    struct ms_context *context = result == CUDA_SUCCESS && addr ? ms_context_current() : NULL;
    if (context) {
        struct ms_grant grant = {.name = (uint64_t)(uintptr_t)addr,
                                 .bytes = bytes,
                                 .holder = context,
                                 .site = ms_site_capture(bytes),
                                 .space = MS_SPACE_HOST,
                                 .kind = MS_GRANT_HOST,
                                 .device = context->device->ordinal};
        struct ms_grant displaced = {0};
        bool noted = ms_ledger_put(&grant, &displaced);
        if (displaced.name != 0) {
            emit(MS_EVENT_HOST_FREE, &displaced);
        }
        if (noted) {
            emit(MS_EVENT_HOST_ALLOC, &grant);
        }
    }
    return result;
}

static CUresult unpinned(CUresult (*real)(void *), void *addr)
{
    struct ms_grant grant;
    struct ms_grant displaced;
    bool known = ms_ledger_take(MS_SPACE_HOST, (uint64_t)(uintptr_t)addr, &grant);
    CUresult result = real(addr);
    if (known && result == CUDA_SUCCESS) {
        emit(MS_EVENT_HOST_FREE, &grant);
    } else if (known) {
        (void)ms_ledger_put(&grant, &displaced);
    }
    return result;
}

CUresult ms_serve_cuMemAllocHost(void **pp, unsigned int bytesize)
{
    CUresult result = MS_REAL(cuMemAllocHost)(pp, bytesize);
    return pinned(result, pp && result == CUDA_SUCCESS ? *pp : NULL, bytesize);
}

CUresult ms_serve_cuMemAllocHost_v2(void **pp, size_t bytesize)
{
    CUresult result = MS_REAL(cuMemAllocHost_v2)(pp, bytesize);
    return pinned(result, pp && result == CUDA_SUCCESS ? *pp : NULL, bytesize);
}

CUresult ms_serve_cuMemHostAlloc(void **pp, size_t bytesize, unsigned int Flags)
{
    CUresult result = MS_REAL(cuMemHostAlloc)(pp, bytesize, Flags);
    return pinned(result, pp && result == CUDA_SUCCESS ? *pp : NULL, bytesize);
}

CUresult ms_serve_cuMemHostRegister(void *p, size_t bytesize, unsigned int Flags)
{
    return pinned(MS_REAL(cuMemHostRegister)(p, bytesize, Flags), p, bytesize);
}

CUresult ms_serve_cuMemHostRegister_v2(void *p, size_t bytesize, unsigned int Flags)
{
    return pinned(MS_REAL(cuMemHostRegister_v2)(p, bytesize, Flags), p, bytesize);
}

CUresult ms_serve_cuMemFreeHost(void *p)
{
    return unpinned(MS_REAL(cuMemFreeHost), p);
}

CUresult ms_serve_cuMemHostUnregister(void *p)
{
    return unpinned(MS_REAL(cuMemHostUnregister), p);
}
