/* SPDX-License-Identifier: Apache-2.0 */
/* Streams, events, both default streams: what waits for what. */
#include "check.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

/* cuda.h does not declare the per-thread flavour of these functions under its own name. */
CUresult cuLaunchHostFunc_ptsz(CUstream hStream, CUhostFn fn, void *userData);
CUresult cuStreamSynchronize_ptsz(CUstream hStream);

/* Host functions note the order in which they ran. */
static atomic_int ran;
static int place_of[16];

static void note(void *number)
{
    place_of[(intptr_t)number] = atomic_fetch_add(&ran, 1);
}

static void noted(CUstream stream, int number)
{
    OK(cuLaunchHostFunc(stream, note, (void *)(intptr_t)number));
}

/* [0]: how many of these run now; [1]: how often another one ran at the same time. */
static void be_alone(void *argument)
{
    atomic_int *under_way = argument;
    if (atomic_fetch_add(&under_way[0], 1) != 0) {
        atomic_fetch_add(&under_way[1], 1);
    }
    sched_yield();
    atomic_fetch_sub(&under_way[0], 1);
}

static void meet(void *argument)
{
    atomic_int *met = argument;
    atomic_fetch_add(met, 1);
    while (atomic_load(met) != 2) {
        sched_yield();
    }
}

static CUstream blocking(void)
{
    CUstream stream;
    OK(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
    return stream;
}

static CUstream non_blocking(void)
{
    CUstream stream;
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    return stream;
}

Test(order, a_stream_runs_in_order)
{
    begin();
    CUstream stream = non_blocking();
    for (int i = 0; i < 10; i++) {
        noted(stream, i);
    }
    OK(cuStreamSynchronize(stream));
    for (int i = 0; i < 10; i++) {
        cr_assert_eq(place_of[i], i);
    }
}

Test(order, work_is_asynchronous)
{
    begin();
    CUstream stream = non_blocking();
    volatile uint32_t *gate = shut_gate(stream);
    noted(stream, 0);
    REFUSED(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    cr_assert_eq(atomic_load(&ran), 0);
    open_gate(gate);
    OK(cuStreamSynchronize(stream));
    OK(cuStreamQuery(stream));
    cr_assert_eq(atomic_load(&ran), 1);
}

Test(order, streams_are_independent)
{
    begin();
    CUstream first = non_blocking(), second = non_blocking();
    volatile uint32_t *gate = shut_gate(first);
    noted(first, 0);
    noted(second, 1);
    OK(cuStreamSynchronize(second));
    cr_assert_eq(place_of[1], 0);
    open_gate(gate);
    OK(cuCtxSynchronize());
    cr_assert_eq(place_of[0], 1);
}

/* Those of an application, in whatever streams (seen: an H200, driver 580). */
Test(order, host_functions_run_one_at_a_time)
{
    begin();
    CUstream first = non_blocking(), second = non_blocking();
    atomic_int under_way[2] = {0};
    for (int i = 0; i < 20; i++) {
        OK(cuLaunchHostFunc(first, be_alone, under_way));
        OK(cuLaunchHostFunc(second, be_alone, under_way));
    }
    OK(cuCtxSynchronize());
    cr_assert_eq(under_way[1], 0);
}

/* Except those that stand for kernels: here each waits for the other. */
Test(order, host_functions_in_the_place_of_kernels_run_side_by_side)
{
    begin();
    CUstream first = non_blocking(), second = non_blocking();
    atomic_int met = 0;
    cr_assert_eq(simgpu_launch_as_kernel(1), 0);
    OK(cuLaunchHostFunc(first, meet, &met));
    OK(cuLaunchHostFunc(second, meet, &met));
    cr_assert_eq(simgpu_launch_as_kernel(0), 1);
    OK(cuCtxSynchronize());
    cr_assert_eq(met, 2);
}

/* Those without a stream argument also return before they have run. */
Test(order, memsets_and_copies_to_a_device_are_asynchronous)
{
    begin();
    unsigned char host = 3;
    CUdeviceptr block;
    OK(cuMemAlloc(&block, 3));
    OK(cuMemsetD8(block, 1, 3));
    OK(cuCtxSynchronize());
    volatile unsigned char *bytes = (volatile unsigned char *)block;
    simgpu_pause();
    OK(cuMemcpyHtoD(block + 2, &host, 1));
    host = 4;
    OK(cuMemsetD8(block, 2, 1));
    OK(cuMemcpyDtoD(block + 1, block, 1));
    cr_assert(bytes[0] == 1 && bytes[1] == 1 && bytes[2] == 1);
    simgpu_resume();
    OK(cuCtxSynchronize());
    cr_assert(bytes[0] == 2 && bytes[1] == 2 && bytes[2] == 3);
}

/* A kernel that takes time does not delay the call that launches it. */
Test(order, a_kernel_spins_behind_its_launch)
{
    begin();
    CUstream stream = non_blocking();
    uint64_t duration_ns = 1;
    void *parameters[] = {&duration_ns};
    simgpu_pause();
    OK(cuLaunchKernel(kernel_named("simgpu_spin"), 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
    REFUSED(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    simgpu_resume();
    OK(cuStreamSynchronize(stream));
}

/* Memory handed out again too early: the old owner's late write lands in the new owner's data. */
Test(order, a_premature_reuse_corrupts)
{
    begin();
    CUstream old_owner = non_blocking(), new_owner = non_blocking();
    CUdeviceptr block;
    OK(cuMemAlloc(&block, MIB));
    volatile uint32_t *gate = shut_gate(old_owner);
    fill(old_owner, block, MIB, 1);
    fill(new_owner, block, MIB, 2);
    cr_assert_eq(mismatches(new_owner, block, MIB, 2), 0);
    open_gate(gate);
    OK(cuStreamSynchronize(old_owner));
    cr_assert_eq(mismatches(new_owner, block, MIB, 2), MIB);
}

Test(order, an_event_makes_the_reuse_right)
{
    begin();
    CUstream old_owner = non_blocking(), new_owner = non_blocking();
    CUdeviceptr block;
    CUevent done;
    OK(cuMemAlloc(&block, MIB));
    OK(cuEventCreate(&done, CU_EVENT_DISABLE_TIMING));
    volatile uint32_t *gate = shut_gate(old_owner);
    fill(old_owner, block, MIB, 1);
    OK(cuEventRecord(done, old_owner));
    OK(cuStreamWaitEvent(new_owner, done, 0));
    fill(new_owner, block, MIB, 2);
    REFUSED(cuStreamQuery(new_owner), CUDA_ERROR_NOT_READY);
    REFUSED(cuEventQuery(done), CUDA_ERROR_NOT_READY);
    open_gate(gate);
    OK(cuStreamSynchronize(new_owner));
    OK(cuEventQuery(done));
    cr_assert_eq(mismatches(new_owner, block, MIB, 2), 0);
}

Test(order, the_legacy_stream_waits_for_blocking_streams_and_they_for_it)
{
    begin();
    CUstream first = blocking(), second = blocking();
    CUdeviceptr block;
    OK(cuMemAlloc(&block, 3));
    OK(cuMemsetD8(block, 0, 3));
    OK(cuCtxSynchronize());
    volatile uint32_t *gate = shut_gate(first);
    volatile unsigned char *bytes = (volatile unsigned char *)block;
    fill(first, block, 3, 1);
    fill(NULL, block + 1, 2, 2);
    fill(second, block + 2, 1, 3);
    REFUSED(cuStreamQuery(NULL), CUDA_ERROR_NOT_READY);
    REFUSED(cuStreamQuery(second), CUDA_ERROR_NOT_READY);
    cr_assert(bytes[0] == 0 && bytes[1] == 0 && bytes[2] == 0);
    open_gate(gate);
    OK(cuStreamSynchronize(second));
    cr_assert(bytes[0] == 1 && bytes[1] == 2 && bytes[2] == 3);
}

Test(order, non_blocking_streams_ignore_the_legacy_stream)
{
    begin();
    CUstream free_stream = non_blocking();
    volatile uint32_t *gate = shut_gate(free_stream);
    noted(free_stream, 0);
    noted(CU_STREAM_LEGACY, 1);
    OK(cuStreamSynchronize(NULL));
    cr_assert_eq(place_of[1], 0);
    open_gate(gate);
    OK(cuCtxSynchronize());
    gate = shut_gate(NULL);
    noted(NULL, 2);
    noted(free_stream, 3);
    OK(cuStreamSynchronize(free_stream));
    cr_assert_eq(place_of[3], 2);
    open_gate(gate);
    OK(cuCtxSynchronize());
}

static CUcontext shared_context;

static void *other_thread(void *gate_of_thread)
{
    OK(cuCtxSetCurrent(shared_context));
    CUstream mine = CU_STREAM_PER_THREAD;
    volatile uint32_t *gate = shut_gate(mine);
    *(volatile uint32_t **)gate_of_thread = gate;
    noted(mine, 5);
    return NULL;
}

Test(order, per_thread_streams_are_one_a_thread_and_blocking)
{
    shared_context = begin();
    pthread_t thread;
    volatile uint32_t *volatile gate = NULL;
    pthread_create(&thread, NULL, other_thread, (void *)&gate);
    pthread_join(thread, NULL);
    /* The other thread's stream is stopped; this thread's own runs on. */
    noted(CU_STREAM_PER_THREAD, 0);
    OK(cuLaunchHostFunc_ptsz(NULL, note, (void *)1));
    OK(cuStreamSynchronize_ptsz(NULL));
    cr_assert_eq(place_of[0], 0);
    cr_assert_eq(place_of[1], 1);
    /* But the legacy stream waits for both. */
    noted(CU_STREAM_LEGACY, 2);
    REFUSED(cuStreamQuery(CU_STREAM_LEGACY), CUDA_ERROR_NOT_READY);
    open_gate(gate);
    OK(cuStreamSynchronize(CU_STREAM_LEGACY));
    cr_assert_eq(place_of[5], 2);
    cr_assert_eq(place_of[2], 3);
}

Test(order, an_event_means_its_latest_record_at_the_time_of_the_wait)
{
    begin();
    CUstream first = non_blocking(), second = non_blocking();
    CUevent event;
    OK(cuEventCreate(&event, 0));
    OK(cuEventQuery(event));
    OK(cuStreamWaitEvent(second, event, 0));
    OK(cuEventRecord(event, first));
    OK(cuStreamSynchronize(first));
    OK(cuStreamWaitEvent(second, event, 0));
    volatile uint32_t *gate = shut_gate(first);
    OK(cuEventRecord(event, first));
    noted(second, 0);
    OK(cuStreamSynchronize(second)); /* it waited for the earlier record */
    REFUSED(cuEventQuery(event), CUDA_ERROR_NOT_READY);
    open_gate(gate);
    OK(cuEventSynchronize(event));
}

Test(order, events_measure_time)
{
    begin();
    CUstream stream = non_blocking();
    CUevent start, end, untimed;
    float milliseconds;
    OK(cuEventCreate(&start, 0));
    OK(cuEventCreate(&end, 0));
    OK(cuEventCreate(&untimed, CU_EVENT_DISABLE_TIMING));
    OK(cuEventRecord(start, stream));
    REFUSED(cuEventElapsedTime(&milliseconds, start, end), CUDA_ERROR_INVALID_HANDLE);
    volatile uint32_t *gate = shut_gate(stream);
    OK(cuEventRecord(end, stream));
    REFUSED(cuEventElapsedTime(&milliseconds, start, end), CUDA_ERROR_NOT_READY);
    open_gate(gate);
    OK(cuStreamSynchronize(stream));
    OK(cuEventElapsedTime(&milliseconds, start, end));
    cr_assert_geq(milliseconds, 0.0f);
    OK(cuEventRecord(untimed, stream));
    REFUSED(cuEventElapsedTime(&milliseconds, start, untimed), CUDA_ERROR_INVALID_HANDLE);
}

Test(order, destroyed_streams_and_events_finish_their_work)
{
    begin();
    CUstream stream = non_blocking(), waiter = non_blocking();
    CUevent event;
    OK(cuEventCreate(&event, 0));
    volatile uint32_t *gate = shut_gate(stream);
    noted(stream, 0);
    OK(cuEventRecord(event, stream));
    OK(cuStreamWaitEvent(waiter, event, 0));
    noted(waiter, 1);
    OK(cuEventDestroy(event));
    OK(cuStreamDestroy(stream));
    cr_assert_eq(atomic_load(&ran), 0);
    open_gate(gate);
    OK(cuCtxSynchronize());
    cr_assert_eq(place_of[0], 0);
    cr_assert_eq(place_of[1], 1);
}

static CUresult from_host_function;

static void call_the_driver(void *unused)
{
    (void)unused;
    CUdeviceptr block;
    from_host_function = cuMemAlloc(&block, 1);
}

Test(order, host_functions_may_not_call_the_driver)
{
    begin();
    OK(cuLaunchHostFunc(NULL, call_the_driver, NULL));
    OK(cuCtxSynchronize());
    cr_assert_eq(from_host_function, CUDA_ERROR_NOT_PERMITTED);
}

static CUstream callback_stream;
static CUresult callback_status = CUDA_ERROR_UNKNOWN;

static void callback(CUstream stream, CUresult status, void *argument)
{
    callback_stream = stream;
    callback_status = status;
    note(argument);
}

Test(order, callbacks_are_told_their_stream)
{
    begin();
    CUstream stream = blocking();
    OK(cuStreamAddCallback(stream, callback, (void *)3, 0));
    OK(cuStreamSynchronize(stream));
    cr_assert_eq(callback_stream, stream);
    cr_assert_eq(callback_status, CUDA_SUCCESS);
    cr_assert_eq(place_of[3], 0);
}

Test(order, pageable_sources_may_be_changed_after_the_call)
{
    begin();
    enum { BYTES = 100000 };
    static unsigned char source[BYTES];
    CUstream stream = non_blocking();
    CUdeviceptr block;
    OK(cuMemAlloc(&block, BYTES));
    memset(source, 7, BYTES);
    volatile uint32_t *gate = shut_gate(stream);
    OK(cuMemcpyHtoDAsync(block, source, BYTES, stream));
    memset(source, 9, BYTES);
    open_gate(gate);
    cr_assert_eq(mismatches(stream, block, BYTES, 7), 0);
}

Test(order, copies_to_the_host_are_done_when_the_call_is)
{
    begin();
    unsigned char bytes[1000] = {0};
    CUdeviceptr block;
    CUstream stream = blocking();
    OK(cuMemAlloc(&block, 1000));
    fill(stream, block, 1000, 4);
    OK(cuMemcpyDtoH(bytes, block, 1000)); /* the legacy stream, behind the blocking one */
    for (int i = 0; i < 1000; i++) {
        cr_assert_eq(bytes[i], 4);
    }
}

Test(order, copies_between_device_blocks_do_not_wait)
{
    begin();
    CUdeviceptr from, to;
    CUstream stream = blocking();
    OK(cuMemAlloc(&from, 1000));
    OK(cuMemAlloc(&to, 1000));
    volatile uint32_t *gate = shut_gate(stream);
    fill(stream, from, 1000, 4);
    OK(cuMemcpyDtoD(to, from, 1000));
    OK(cuMemsetD8(from, 5, 1000));
    REFUSED(cuStreamQuery(NULL), CUDA_ERROR_NOT_READY);
    open_gate(gate);
    cr_assert_eq(mismatches(NULL, to, 1000, 4), 0);
    cr_assert_eq(mismatches(NULL, from, 1000, 5), 0);
}

Test(order, values_written_by_one_stream_release_another)
{
    begin();
    CUstream first = non_blocking(), second = non_blocking();
    uint64_t *flag;
    OK(cuMemAllocHost((void **)&flag, 8));
    *flag = 0;
    OK(cuStreamWaitValue64(second, (CUdeviceptr)flag, 10, CU_STREAM_WAIT_VALUE_GEQ));
    noted(second, 1);
    noted(first, 0);
    OK(cuStreamWriteValue64(first, (CUdeviceptr)flag, 11, 0));
    OK(cuStreamSynchronize(second));
    cr_assert_eq(place_of[0], 0);
    cr_assert_eq(place_of[1], 1);
}

#if CUDA_VERSION >= 12050
Test(order, a_context_can_be_recorded_and_waited_for)
{
    CUcontext context = begin();
    CUstream first = non_blocking(), second = non_blocking();
    CUevent all;
    volatile uint32_t *gate = shut_gate(first);
    noted(first, 0);
    OK(cuEventCreate(&all, 0));
    OK(cuCtxRecordEvent(context, all));
    REFUSED(cuEventQuery(all), CUDA_ERROR_NOT_READY);
    OK(cuCtxWaitEvent(context, all));
    noted(second, 1);
    REFUSED(cuStreamQuery(second), CUDA_ERROR_NOT_READY);
    open_gate(gate);
    OK(cuCtxSynchronize());
    cr_assert_eq(place_of[0], 0);
    cr_assert_eq(place_of[1], 1);
}
#endif

Test(order, pause_holds_all_streams)
{
    begin();
    CUstream stream = non_blocking();
    simgpu_pause();
    noted(stream, 0);
    REFUSED(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    cr_assert_eq(atomic_load(&ran), 0);
    simgpu_resume();
    OK(cuStreamSynchronize(stream));
    cr_assert_eq(atomic_load(&ran), 1);
}

static void *wait_and_be_cancelled(void *stream)
{
    OK(cuStreamSynchronize(stream));
    pthread_testcancel();
    return NULL;
}

/* pthread_cancel ends a thread where it waits, but not inside the driver, whose locks it holds. */
Test(order, a_thread_cancelled_in_a_wait_leaves_the_driver_whole)
{
    begin();
    CUstream stream = non_blocking();
    volatile uint32_t *gate = shut_gate(stream);
    const uint64_t before = simgpu_calls("cuStreamSynchronize");
    pthread_t thread;
    void *end = NULL;
    cr_assert_eq(pthread_create(&thread, NULL, wait_and_be_cancelled, stream), 0);
    while (simgpu_calls("cuStreamSynchronize") == before) {
        sched_yield();
    }
    cr_assert_eq(pthread_cancel(thread), 0);
    REFUSED(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    open_gate(gate);
    cr_assert_eq(pthread_join(thread, &end), 0);
    cr_assert_eq(end, PTHREAD_CANCELED);
    OK(cuStreamQuery(stream));
    OK(cuStreamDestroy(stream));
}

Test(order, streams_say_what_they_are)
{
    CUcontext context = begin(), seen;
    CUstream stream;
    unsigned flags;
    int priority, least, greatest;
    unsigned long long first, second;
    OK(cuCtxGetStreamPriorityRange(&least, &greatest));
    cr_assert_lt(greatest, least);
    OK(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, greatest - 100));
    OK(cuStreamGetPriority(stream, &priority));
    cr_assert_eq(priority, greatest);
    OK(cuStreamGetFlags(stream, &flags));
    cr_assert_eq(flags, CU_STREAM_NON_BLOCKING);
    OK(cuStreamGetCtx(stream, &seen));
    cr_assert_eq(seen, context);
    OK(cuStreamGetId(stream, &first));
    OK(cuStreamGetId(NULL, &second));
    cr_assert_neq(first, second);
    REFUSED(cuStreamDestroy(CU_STREAM_PER_THREAD), CUDA_ERROR_INVALID_HANDLE);
    REFUSED(cuStreamCreate(&stream, 0x80), CUDA_ERROR_INVALID_VALUE);
}

enum { THREADS = 8, ROUNDS = 40 };

/* Each thread owns a block and passes it from stream to stream through an event. */
static void *pass_around(void *number)
{
    uint32_t byte = (uint32_t)(intptr_t)number + 1;
    CUstream streams[3];
    CUevent event;
    CUdeviceptr block;
    OK(cuCtxSetCurrent(shared_context));
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    for (int i = 0; i < 3; i++) {
        streams[i] = non_blocking();
    }
    for (int round = 0; round < ROUNDS; round++) {
        CUstream from = streams[round % 3], to = streams[(round + 1) % 3];
        OK(cuMemAlloc(&block, 20000));
        fill(from, block, 20000, byte);
        OK(cuEventRecord(event, from));
        OK(cuStreamWaitEvent(to, event, 0));
        cr_assert_eq(mismatches(to, block, 20000, byte), 0);
        OK(cuMemFree(block));
    }
    return NULL;
}

Test(order, many_threads_at_once)
{
    shared_context = begin();
    pthread_t threads[THREADS];
    for (intptr_t i = 0; i < THREADS; i++) {
        pthread_create(&threads[i], NULL, pass_around, (void *)i);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    OK(cuCtxSynchronize());
    cr_assert_eq(simgpu_used_bytes(0), 64 * MIB);
}
