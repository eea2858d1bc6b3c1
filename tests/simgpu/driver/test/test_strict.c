/* SPDX-License-Identifier: Apache-2.0 */
/* The use of destroyed handles, which the driver API leaves undefined. */
#include "check.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

static CUstream destroyed_stream(void)
{
    CUstream stream;
    begin();
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuStreamDestroy(stream));
    return stream;
}

static CUcontext destroyed_context(void)
{
    CUcontext own;
    begin();
    OK(create_context(&own));
    OK(cuCtxDestroy(own));
    return own;
}

static CUmemGenericAllocationHandle new_chunk(void)
{
    CUmemGenericAllocationHandle chunk;
    CUmemAllocationProp properties = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
    };
    OK(cuMemCreate(&chunk, 2 * MIB, &properties, 0));
    return chunk;
}

/* Ends the test by the wrong signal if the call before did not abort. */
#define NOT_REACHED() raise(SIGKILL)

Test(strict, a_stream, .signal = SIGABRT)
{
    CUstream stream = destroyed_stream();
    cuStreamQuery(stream);
    NOT_REACHED();
}

Test(strict, a_stream_twice, .signal = SIGABRT)
{
    CUstream stream = destroyed_stream();
    cuStreamDestroy(stream);
    NOT_REACHED();
}

Test(strict, a_stream_with_work_in_it, .signal = SIGABRT)
{
    CUstream stream;
    begin();
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    shut_gate(stream);
    OK(cuStreamDestroy(stream));
    cuStreamQuery(stream);
    NOT_REACHED();
}

Test(strict, an_event, .signal = SIGABRT)
{
    CUevent event;
    begin();
    OK(cuEventCreate(&event, 0));
    OK(cuEventDestroy(event));
    cuStreamWaitEvent(NULL, event, 0);
    NOT_REACHED();
}

Test(strict, a_context, .signal = SIGABRT)
{
    CUcontext own = destroyed_context();
    cuCtxSetCurrent(own);
    NOT_REACHED();
}

Test(strict, a_stream_of_a_destroyed_context, .signal = SIGABRT)
{
    CUcontext own;
    CUstream stream;
    begin();
    OK(create_context(&own));
    OK(cuStreamCreate(&stream, 0));
    OK(cuCtxDestroy(own));
    cuStreamSynchronize(stream);
    NOT_REACHED();
}

Test(strict, an_event_of_a_reset_primary_context, .signal = SIGABRT)
{
    CUevent event;
    begin();
    OK(cuEventCreate(&event, 0));
    OK(cuDevicePrimaryCtxReset(0));
    cuEventQuery(event);
    NOT_REACHED();
}

Test(strict, a_memory_handle, .signal = SIGABRT)
{
    begin();
    CUmemGenericAllocationHandle chunk = new_chunk();
    OK(cuMemRelease(chunk));
    cuMemRelease(chunk);
    NOT_REACHED();
}

Test(strict, a_memory_handle_whose_memory_is_still_mapped, .signal = SIGABRT)
{
    CUdeviceptr at;
    begin();
    CUmemGenericAllocationHandle chunk = new_chunk();
    OK(cuMemAddressReserve(&at, 4 * MIB, 0, 0, 0));
    OK(cuMemMap(at, 2 * MIB, 0, chunk, 0));
    OK(cuMemRelease(chunk));
    cuMemMap(at + 2 * MIB, 2 * MIB, 0, chunk, 0);
    NOT_REACHED();
}

Test(strict, a_memory_handle_that_was_asked_for_again_is_good)
{
    CUdeviceptr at;
    begin();
    CUmemGenericAllocationHandle chunk = new_chunk(), again;
    OK(cuMemAddressReserve(&at, 2 * MIB, 0, 0, 0));
    OK(cuMemMap(at, 2 * MIB, 0, chunk, 0));
    OK(cuMemRelease(chunk));
    OK(cuMemRetainAllocationHandle(&again, (void *)at));
    OK(cuMemUnmap(at, 2 * MIB));
    OK(cuMemRelease(again));
    cr_assert_eq(simgpu_live("chunk"), 0);
}

Test(strict, a_pool, .signal = SIGABRT)
{
    CUmemoryPool pool;
    CUmemPoolProps properties = {
        .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
    };
    begin();
    OK(cuMemPoolCreate(&pool, &properties));
    OK(cuMemPoolDestroy(pool));
    cuMemPoolTrimTo(pool, 0);
    NOT_REACHED();
}

Test(strict, a_graph, .signal = SIGABRT)
{
    CUgraph graph;
    CUgraphExec exec;
    begin();
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphDestroy(graph));
    cuGraphInstantiate(&exec, graph, 0);
    NOT_REACHED();
}

Test(strict, an_executable_graph, .signal = SIGABRT)
{
    CUgraph graph;
    CUgraphExec exec;
    begin();
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphInstantiate(&exec, graph, 0));
    OK(cuGraphExecDestroy(exec));
    cuGraphLaunch(exec, NULL);
    NOT_REACHED();
}

Test(strict, a_node_of_a_graph, .signal = SIGABRT)
{
    CUgraph graph;
    CUgraphNode node;
    begin();
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddEmptyNode(&node, graph, NULL, 0));
    OK(cuGraphDestroyNode(node));
    cuGraphDestroyNode(node);
    NOT_REACHED();
}

Test(strict, a_function_of_an_unloaded_module, .signal = SIGABRT)
{
    CUmodule module;
    CUfunction function;
    begin();
    OK(cuModuleLoadData(&module, "\177ELF anything"));
    OK(cuModuleGetFunction(&function, module, "any_name"));
    OK(cuModuleUnload(module));
    cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
    NOT_REACHED();
}

Test(strict, a_handle_is_not_given_to_the_next_that_asks, .signal = SIGABRT)
{
    CUstream stream = destroyed_stream(), other;
    for (int i = 0; i < 1000; i++) {
        OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
        OK(cuStreamDestroy(other));
    }
    OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    cuStreamQuery(stream);
    NOT_REACHED();
}

static pthread_barrier_t both;

static void *ask_current(void *context)
{
    CUdeviceptr block;
    OK(cuCtxSetCurrent(context));
    pthread_barrier_wait(&both); /* the context is current here */
    pthread_barrier_wait(&both); /* the context is destroyed */
    REFUSED(cuMemAlloc(&block, MIB), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    REFUSED(cuStreamSynchronize(NULL), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    REFUSED(cuCtxSynchronize(), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    OK(cuCtxSetCurrent(NULL));
    return NULL;
}

/* "attempting to access ctx from those threads will result in the error
 * CUDA_ERROR_CONTEXT_IS_DESTROYED" (cuda.h, cuCtxDestroy). */
Test(strict, what_is_current_elsewhere_is_an_error)
{
    pthread_t thread;
    CUcontext own;
    begin();
    OK(create_context(&own));
    pthread_barrier_init(&both, NULL, 2);
    cr_assert_eq(pthread_create(&thread, NULL, ask_current, own), 0);
    pthread_barrier_wait(&both);
    OK(cuCtxDestroy(own));
    pthread_barrier_wait(&both);
    pthread_join(thread, NULL);
}

static void *destroy_context(void *context)
{
    OK(cuCtxDestroy(context));
    return NULL;
}

/* cuCtxDestroy waits for the work, and by then has destroyed the context's handles. */
Test(strict, a_use_while_a_context_is_being_destroyed, .signal = SIGABRT)
{
    pthread_t thread;
    CUcontext own;
    CUstream stream;
    begin();
    OK(create_context(&own));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    shut_gate(stream);
    cr_assert_eq(pthread_create(&thread, NULL, destroy_context, own), 0);
    CUresult status;
    do {
        usleep(100);
        status = cuStreamQuery(stream);
    } while (status == CUDA_ERROR_NOT_READY);
    NOT_REACHED();
}
