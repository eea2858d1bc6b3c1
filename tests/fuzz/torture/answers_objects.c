/* SPDX-License-Identifier: Apache-2.0 */
/* answers_job's calls on what is no memory of a block's: contexts, streams, events, memory pools,
 * host memory, the program's own mappings, arrays. */
#include <inttypes.h>
#include <stdlib.h>

#include "answers_job.h"
#include "say.h"

/* ---- contexts, streams, events ----------------------------------------------------------------
 */

void call_context_create(void)
{
    const int at = DEVICES + (int)draw(CONTEXTS - DEVICES);
    if (contexts[at] != NULL) {
        return;
    }
    const CUresult result = cuCtxCreate(&contexts[at], NULL, 0, device_of(at));
    if (result != CUDA_SUCCESS) {
        contexts[at] = NULL;
    }
    say(result, "cuCtxCreate context%d", at);
}

void call_context_destroy(void)
{
    const int at = DEVICES + (int)draw(CONTEXTS - DEVICES);
    if (contexts[at] == NULL || !one_in(3)) {
        return;
    }
    settle();
    /* On the stack it would stay current, though it is gone. */
    while (current() != -1) {
        CUcontext popped;
        MUST(cuCtxPopCurrent(&popped));
    }
    const CUresult result = cuCtxDestroy(contexts[at]);
    say(result, "cuCtxDestroy context%d", at);
    contexts[at] = NULL;
    forget_context(at);
    MUST(cuCtxSetCurrent(contexts[0]));
}

void call_context_reset(void)
{
    const int at = (int)draw(DEVICES);
    if (!one_in(8)) {
        return;
    }
    settle();
    while (current() != -1) {
        CUcontext popped;
        MUST(cuCtxPopCurrent(&popped));
    }
    say(cuDevicePrimaryCtxReset(at), "cuDevicePrimaryCtxReset %d", at);
    forget_context(at);
    MUST(cuDevicePrimaryCtxRetain(&contexts[at], at));
    MUST(cuDevicePrimaryCtxRelease(at));
    MUST(cuCtxSetCurrent(contexts[0]));
}

void call_context_change(void)
{
    const int at = (int)draw(CONTEXTS);
    CUcontext popped = NULL;
    CUresult result;
    switch (draw(4)) {
    case 0:
        result = cuCtxPopCurrent(&popped);
        say(result, "cuCtxPopCurrent: context%d", context_number(popped));
        break;
    case 1:
        if (contexts[at] == NULL) {
            return;
        }
        say(cuCtxPushCurrent(contexts[at]), "cuCtxPushCurrent context%d", at);
        break;
    default:
        if (contexts[at] == NULL && !one_in(6)) {
            return;
        }
        say(cuCtxSetCurrent(contexts[at]), "cuCtxSetCurrent context%d", at);
    }
}

void call_stream_create(void)
{
    const int at = (int)draw(STREAMS);
    if (streams[at].handle != NULL) {
        return;
    }
    const CUresult result =
        cuStreamCreate(&streams[at].handle, one_in(2) ? CU_STREAM_NON_BLOCKING : 0);
    streams[at].context = current();
    if (result != CUDA_SUCCESS) {
        streams[at].handle = NULL;
    }
    say(result, "cuStreamCreate stream%d", at);
}

void call_stream_destroy(void)
{
    const int at = (int)draw(STREAMS);
    if (streams[at].handle == NULL) {
        return;
    }
    const CUresult result = cuStreamDestroy(streams[at].handle);
    say(result, "cuStreamDestroy stream%d", at);
    streams[at].handle = NULL;
    settle();
}

void call_stream_question(void)
{
    const int at = live_stream();
    CUcontext context = NULL;
    unsigned flags = 0;
    int priority = 0;
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    const CUresult result = cuStreamGetCtx(handle_of(at), &context);
    say(result, "cuStreamGetCtx stream%d: context%d", at, context_number(context));
    say(cuStreamGetFlags(handle_of(at), &flags), "cuStreamGetFlags: %u", flags);
    say(cuStreamGetPriority(handle_of(at), &priority), "cuStreamGetPriority: %d", priority);
    say(cuStreamIsCapturing(handle_of(at), &status), "cuStreamIsCapturing: %d", (int)status);
    say(cuStreamSynchronize(handle_of(at)), "cuStreamSynchronize stream%d", at);
}

void call_event(void)
{
    const int at = (int)draw(EVENTS), stream = live_stream();
    struct event *event = &events[at];
    if (event->handle == NULL) {
        const CUresult result = cuEventCreate(&event->handle, CU_EVENT_DISABLE_TIMING);
        event->context = current();
        if (result != CUDA_SUCCESS) {
            event->handle = NULL;
        }
        say(result, "cuEventCreate event%d", at);
        return;
    }
    switch (draw(4)) {
    case 0:
        say(cuEventRecord(event->handle, handle_of(stream)), "cuEventRecord event%d stream%d", at,
            stream);
        break;
    case 1:
        say(cuStreamWaitEvent(handle_of(stream), event->handle, 0),
            "cuStreamWaitEvent event%d stream%d", at, stream);
        break;
    case 2:
        say(cuEventSynchronize(event->handle), "cuEventSynchronize event%d", at);
        break;
    default:
        say(cuEventDestroy(event->handle), "cuEventDestroy event%d", at);
        event->handle = NULL;
    }
}

/* ---- pools, host memory, mapped memory --------------------------------------------------------
 */

void call_pool(void)
{
    const int at = (int)draw(POOLS);
    const CUmemPoolProps props = {
        .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = at % DEVICES}};
    uint64_t threshold = draw(2) * (uint64_t)MIB, got = 0;
    CUmemoryPool pool = NULL;
    CUresult result;
    if (pools[at] == NULL) {
        result = cuMemPoolCreate(&pools[at], &props);
        if (result != CUDA_SUCCESS) {
            pools[at] = NULL;
        }
        say(result, "cuMemPoolCreate pool%d", at);
        return;
    }
    switch (draw(7)) {
    case 0:
        say(cuMemPoolSetAttribute(pools[at], CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold),
            "cuMemPoolSetAttribute pool%d %" PRIu64, at, threshold);
        result = cuMemPoolGetAttribute(pools[at], CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &got);
        say(result, "cuMemPoolGetAttribute pool%d: %" PRIu64, at, got);
        break;
    case 1:
        settle();
        result = cuMemPoolGetAttribute(pools[at], CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &got);
        say(result, "cuMemPoolGetAttribute pool%d used: %" PRIu64, at, got);
        break;
    case 2:
        say(cuMemPoolTrimTo(pools[at], draw(3) * MIB), "cuMemPoolTrimTo pool%d", at);
        break;
    case 3:
        result = cuDeviceGetMemPool(&pool, at % DEVICES);
        say(result, "cuDeviceGetMemPool %d: pool%d", at % DEVICES, pool_number(pool));
        break;
    case 4:
        say(cuDeviceSetMemPool(at % DEVICES, one_in(2) ? pools[at] : default_pools[at % DEVICES]),
            "cuDeviceSetMemPool %d", at % DEVICES);
        break;
    default:
        settle();
        result = cuMemPoolDestroy(pools[at]);
        say(result, "cuMemPoolDestroy pool%d", at);
        pools[at] = NULL;
        for (int i = 0; i < BLOCKS; i++) {
            if (blocks[i].pool == at) {
                blocks[i].pool = -1;
            }
        }
    }
}

void call_host(void)
{
    const int at = (int)draw(HOSTS);
    struct host *host = &hosts[at];
    void *memory = NULL;
    CUdeviceptr device = 0;
    CUresult result;
    if (host->at == NULL) {
        const size_t bytes = draw_bytes();
        if (bytes > 8 * MIB) {
            return;
        }
        host->registered = one_in(2) && bytes >= 4096;
        if (host->registered) {
            memory = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
            result = cuMemHostRegister(memory, bytes, CU_MEMHOSTREGISTER_DEVICEMAP);
            if (result != CUDA_SUCCESS) {
                free(memory);
            }
        } else {
            result = one_in(2) ? cuMemAllocHost(&memory, bytes)
                               : cuMemHostAlloc(&memory, bytes, CU_MEMHOSTALLOC_DEVICEMAP);
        }
        if (result == CUDA_SUCCESS) {
            host->at = memory;
            host->context = current();
            host->bytes = bytes;
        }
        say(result, "host%d %s %zu", at, host->registered ? "registered" : "allocated", bytes);
        return;
    }
    result = cuMemHostGetDevicePointer(&device, host->at, 0);
    say(result, "cuMemHostGetDevicePointer host%d: %s", at, place(device));
    settle();
    result = host->registered ? cuMemHostUnregister(host->at) : cuMemFreeHost(host->at);
    say(result, "host%d given back", at);
    if (result == CUDA_SUCCESS) {
        if (host->registered) {
            free(host->at);
        }
        host->at = NULL;
    }
}

void call_chunk(void)
{
    const int at = (int)draw(CHUNKS);
    struct chunk *chunk = &chunks[at];
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    const CUmemAccessDesc access = {prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    unsigned long long flags = 0;
    CUresult result;
    if (chunk->at == 0) {
        chunk->bytes = (size_t)(1 + draw(3)) * 2 * MIB;
        result = cuMemAddressReserve(&chunk->at, chunk->bytes, 0, 0, 0);
        if (result != CUDA_SUCCESS) {
            chunk->at = 0;
        }
        say(result, "cuMemAddressReserve chunk%d %zu", at, chunk->bytes);
    } else if (!chunk->held && !chunk->mapped) {
        if (one_in(4)) {
            say(cuMemAddressFree(chunk->at, chunk->bytes), "cuMemAddressFree chunk%d", at);
            chunk->at = 0;
            return;
        }
        const size_t bytes = one_in(8) ? chunk->bytes - 1 : chunk->bytes;
        result = cuMemCreate(&chunk->handle, bytes, &prop, 0);
        chunk->held = result == CUDA_SUCCESS;
        say(result, "cuMemCreate chunk%d %zu", at, bytes);
    } else if (!chunk->mapped) {
        result = cuMemMap(chunk->at, chunk->bytes, 0, chunk->handle, 0);
        chunk->mapped = result == CUDA_SUCCESS;
        say(result, "cuMemMap chunk%d", at);
        if (chunk->mapped) {
            say(cuMemSetAccess(chunk->at, chunk->bytes, &access, 1), "cuMemSetAccess chunk%d", at);
            result = cuMemGetAccess(&flags, &prop.location, chunk->at);
            say(result, "cuMemGetAccess chunk%d: %llu", at, flags);
        }
    } else if (chunk->held && one_in(2)) {
        say(cuMemRelease(chunk->handle), "cuMemRelease chunk%d", at);
        chunk->held = false;
    } else if (one_in(2)) {
        const CUresult set = cuMemsetD8(chunk->at, 1, chunk->bytes);
        say(set, "set chunk%d", at);
    } else {
        settle();
        say(cuMemUnmap(chunk->at, chunk->bytes), "cuMemUnmap chunk%d", at);
        chunk->mapped = false;
    }
}

void call_array(void)
{
    const CUDA_ARRAY_DESCRIPTOR shape = {.Width = 1 + draw(2000),
                                         .Height = draw(300),
                                         .Format = CU_AD_FORMAT_FLOAT,
                                         .NumChannels = one_in(6) ? 3 : 4};
    CUresult result;
    if (array == NULL) {
        result = cuArrayCreate(&array, &shape);
        array_context = current();
        if (result != CUDA_SUCCESS) {
            array = NULL;
        }
        say(result, "cuArrayCreate %zu x %zu of %u", shape.Width, shape.Height, shape.NumChannels);
    } else {
        say(cuArrayDestroy(array), "cuArrayDestroy");
        array = NULL;
    }
}
