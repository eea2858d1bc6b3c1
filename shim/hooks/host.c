/* SPDX-License-Identifier: Apache-2.0 */
/* Pinned host memory. The driver serves it. It is counted as host memory and never charged to a
 * device. */
#include "shim/hooks/serve.h"
#include "shim/policy/grant.h"
#include "shim/policy/host_blocks.h"
#include "shim/policy/oom.h"
#include "shim/sites/site.h"

/* Recorded for the current device: the memory does not lie there, but the report shows it there. */
static CUresult pinned(CUresult result, void *addr, uint64_t bytes)
{
    const bool refused = result == CUDA_ERROR_OUT_OF_MEMORY;
    struct ms_context *context =
        (result == CUDA_SUCCESS && addr) || refused ? ms_context_current() : NULL;
    if (context && refused) {
        ms_oom_of_host(context->device, bytes);
    } else if (context) {
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
            ms_grant_emit_host(MS_EVENT_HOST_FREE, &displaced);
        }
        if (noted) {
            ms_grant_emit_host(MS_EVENT_HOST_ALLOC, &grant);
        }
    }
    return result;
}

/* not_host: the driver's answer if this is memory of the device. */
static CUresult unpinned(CUresult (*real)(void *), void *addr, CUresult not_host)
{
    struct ms_grant grant;
    struct ms_grant displaced;
    if (ms_ledger_find(MS_SPACE_DEVICE, (uint64_t)(uintptr_t)addr, &grant) &&
        ms_host_block_is(&grant)) {
        return not_host; /* the program asked for the device's memory */
    }
    bool known = ms_ledger_take(MS_SPACE_HOST, (uint64_t)(uintptr_t)addr, &grant);
    if (known) { /* recorded first: another thread may get the address before real returns */
        ms_grant_emit_host(MS_EVENT_HOST_FREE, &grant);
    }
    CUresult result = real(addr);
    if (known && result != CUDA_SUCCESS && ms_ledger_put(&grant, &displaced)) {
        ms_grant_emit_host(MS_EVENT_HOST_ALLOC, &grant);
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
    return unpinned(MS_REAL(cuMemFreeHost), p, CUDA_ERROR_INVALID_VALUE);
}

CUresult ms_serve_cuMemHostUnregister(void *p)
{
    return unpinned(MS_REAL(cuMemHostUnregister), p, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
}
