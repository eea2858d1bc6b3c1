/* SPDX-License-Identifier: Apache-2.0 */
/* What cuMemFree waits for. Each case says what the host sees when the free returns.
 *
 * cuda.h, cuMemFree: no implicit synchronization for memory of cuMemAllocAsync and
 * cuMemAllocFromPoolAsync. For other memory it "may": cudaFree "causes the GPU to synchronize
 * across all executing CUDA streams" (CUDA programming guide, Stream-Ordered Memory Allocator). */
#include <cuda.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>

#include "cases.h"
#include "say.h"

#define MEMSHIM_WEAK
#include "shim/memshim.h"
#include "tests/simgpu/simgpu.h"

enum { BYTES = 4 << 20, LATE_US = 20000 };

/* The ABI that every driver has; newer headers hide it. */
CUresult cuCtxCreate_v2(CUcontext *pctx, unsigned int flags, CUdevice dev);

static CUdevice device;
static CUcontext context;
static CUstream stream;
static volatile int seen;

static void begin(void)
{
    MUST(cuInit(0));
    MUST(cuDeviceGet(&device, 0));
    MUST(cuDevicePrimaryCtxRetain(&context, device));
    MUST(cuCtxSetCurrent(context));
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
}

static void CUDA_CB write_late(void *unused)
{
    (void)unused;
    const struct timespec late = {.tv_nsec = LATE_US * 1000L};
    (void)nanosleep(&late, NULL);
    seen = 42;
}

/* Frees while work is queued that writes what the host then reads. */
static void free_and_read(CUdeviceptr at)
{
    seen = 0;
    MUST(cuLaunchHostFunc(stream, write_late, NULL));
    MUST(cuMemFree(at));
    (void)printf("%d\n", seen);
    MUST(cuStreamSynchronize(stream));
}

/* Frees while nothing can go on: a free that waits never comes back. */
static void free_while_paused(CUdeviceptr at)
{
    simgpu_pause();
    MUST(cuLaunchHostFunc(stream, write_late, NULL));
    MUST(cuMemFree(at));
    (void)printf("freed before the work was done\n");
    simgpu_resume();
    MUST(cuStreamSynchronize(stream));
}

static CUdeviceptr linear(void)
{
    CUdeviceptr at;
    MUST(cuMemAlloc(&at, BYTES));
    return at;
}

static void case_linear(void)
{
    free_and_read(linear());
}

static void case_pitch(void)
{
    CUdeviceptr at;
    size_t pitch;
    MUST(cuMemAllocPitch(&at, &pitch, 4000, 1000, 16));
    free_and_read(at);
}

static void case_managed(void)
{
    CUdeviceptr at;
    MUST(cuMemAllocManaged(&at, BYTES, CU_MEM_ATTACH_GLOBAL));
    free_and_read(at);
}

/* What a kernel or a memset wrote into host memory that is mapped for the device. */
static void case_mapped(void)
{
    unsigned char *host;
    CUdeviceptr mapped;
    MUST(cuMemHostAlloc((void **)&host, 64, CU_MEMHOSTALLOC_DEVICEMAP));
    MUST(cuMemHostGetDevicePointer(&mapped, host, 0));
    *(volatile unsigned char *)host = 0;
    CUdeviceptr at = linear();
    MUST(cuMemsetD8Async(mapped, 42, 64, stream));
    MUST(cuMemFree(at));
    (void)printf("%d\n", *(volatile unsigned char *)host);
    MUST(cuStreamSynchronize(stream));
    MUST(cuMemFreeHost(host));
}

/* The work of every context of the device, not of the current one alone. */
static void case_other_context(void)
{
    CUcontext other;
    CUstream there;
    MUST(cuCtxCreate_v2(&other, 0, device));
    MUST(cuStreamCreate(&there, CU_STREAM_NON_BLOCKING));
    seen = 0;
    MUST(cuLaunchHostFunc(there, write_late, NULL));
    MUST(cuCtxSetCurrent(context));
    MUST(cuMemFree(linear()));
    (void)printf("%d\n", seen);
    MUST(cuCtxDestroy(other));
}

static void case_default_streams(void)
{
    CUdeviceptr at = linear();
    CUdeviceptr another = linear();
    seen = 0;
    MUST(cuLaunchHostFunc(CU_STREAM_LEGACY, write_late, NULL));
    MUST(cuMemFree(at));
    (void)printf("%d\n", seen);
    seen = 0;
    MUST(cuLaunchHostFunc(CU_STREAM_PER_THREAD, write_late, NULL));
    MUST(cuMemFree(another));
    (void)printf("%d\n", seen);
}

static sem_t freed;

static void CUDA_CB wait_for_the_free(void *unused)
{
    (void)unused;
    (void)sem_wait(&freed);
}

/* The work of another device is none of this one's: here it ends after the free alone. */
static void case_other_device(void)
{
    CUdevice second;
    CUcontext other;
    CUstream there;
    CUdeviceptr at = linear();
    MUST(cuDeviceGet(&second, 1));
    MUST(cuDevicePrimaryCtxRetain(&other, second));
    MUST(cuCtxSetCurrent(other));
    MUST(cuStreamCreate(&there, CU_STREAM_NON_BLOCKING));
    MUST(sem_init(&freed, 0, 0));
    MUST(cuLaunchHostFunc(there, wait_for_the_free, NULL));
    MUST(cuMemFree(at));
    (void)sem_post(&freed);
    MUST(cuStreamSynchronize(there));
}

static void case_ordered(void)
{
    CUdeviceptr at;
    MUST(cuMemAllocAsync(&at, BYTES, stream));
    MUST(cuStreamSynchronize(stream));
    free_while_paused(at);
}

static void case_ordered_of_a_pool(void)
{
    const CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                  .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
    CUmemoryPool pool;
    CUdeviceptr at;
    MUST(cuMemPoolCreate(&pool, &props));
    MUST(cuMemAllocFromPoolAsync(&at, BYTES, pool, stream));
    MUST(cuStreamSynchronize(stream));
    free_while_paused(at);
    MUST(cuMemPoolDestroy(pool));
}

/* A block that a framework carves tensors out of: it has synchronized before it frees. */
static void case_framework(void)
{
    CUdeviceptr at = linear();
    if (memshim_range_born == NULL) {
        (void)printf("freed before the work was done\n");
        return;
    }
    memshim_range_born(device, (void *)(uintptr_t)at, 512);
    memshim_range_died(device, (void *)(uintptr_t)at, 512);
    free_while_paused(at);
}

static atomic_int stage;

static void *capture(void *mode)
{
    CUstream capturing;
    CUgraph graph;
    MUST(cuCtxSetCurrent(context));
    MUST(cuStreamCreate(&capturing, CU_STREAM_NON_BLOCKING));
    MUST(cuStreamBeginCapture(capturing, *(CUstreamCaptureMode *)mode));
    atomic_store(&stage, 1);
    while (atomic_load(&stage) != 2) {
    }
    (void)printf("the capture ended with %d\n", (int)cuStreamEndCapture(capturing, &graph));
    return NULL;
}

static void free_beside(CUstreamCaptureMode mode, CUcontext of_the_free)
{
    pthread_t thread;
    CUdeviceptr at = linear();
    MUST(cuCtxSetCurrent(of_the_free));
    MUST(pthread_create(&thread, NULL, capture, &mode));
    while (atomic_load(&stage) != 1) {
    }
    CUresult result = cuMemFree(at);
    (void)printf("freed with %d\n", (int)result);
    atomic_store(&stage, 2);
    MUST(pthread_join(thread, NULL));
    if (result != CUDA_SUCCESS) {
        MUST(cuMemFree(at));
    }
}

static void case_beside_a_global_capture(void)
{
    free_beside(CU_STREAM_CAPTURE_MODE_GLOBAL, context);
}

static void case_without_a_context_beside_a_capture(void)
{
    free_beside(CU_STREAM_CAPTURE_MODE_GLOBAL, NULL);
}

static void case_beside_a_local_capture(void)
{
    free_beside(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, context);
}

/* A capture that begins while a free waits is not harmed, and does not hold the free up. */
static void *free_on_a_thread(void *at)
{
    MUST(cuCtxSetCurrent(context));
    MUST(cuMemFree((CUdeviceptr)(uintptr_t)at));
    return NULL;
}

/* The driver's free waits within its call, memshim's asks for an event meanwhile. */
static uint64_t calls_of_a_free(void)
{
    return simgpu_calls("cuMemFree") + simgpu_calls("cuEventQuery");
}

static void case_capture_while_waiting(void)
{
    pthread_t thread;
    CUstream capturing;
    CUgraph graph;
    const struct timespec until_it_waits = {.tv_nsec = 20000000};
    CUdeviceptr at = linear();
    const uint64_t before = calls_of_a_free();
    MUST(cuStreamCreate(&capturing, CU_STREAM_NON_BLOCKING));
    MUST(sem_init(&freed, 0, 0));
    MUST(cuLaunchHostFunc(stream, wait_for_the_free, NULL));
    MUST(pthread_create(&thread, NULL, free_on_a_thread, (void *)(uintptr_t)at));
    while (calls_of_a_free() == before) {
    }
    (void)nanosleep(&until_it_waits, NULL);
    MUST(cuStreamBeginCapture(capturing, CU_STREAM_CAPTURE_MODE_GLOBAL));
    (void)sem_post(&freed);
    MUST(pthread_join(thread, NULL));
    MUST(cuStreamEndCapture(capturing, &graph));
}

static void case_no_context(void)
{
    CUdeviceptr at = linear();
    MUST(cuCtxSetCurrent(NULL));
    SAY_RESULT(cuMemFree(at));
    MUST(cuCtxSetCurrent(context));
    SAY_RESULT(cuMemFree(at));
    SAY_RESULT(cuMemFree(at));
}

enum { FREEING_MS = 100 };

static uint64_t frees(void)
{
    return simgpu_calls("cuMemFree") + simgpu_calls("cuMemFreeHost") +
           simgpu_calls("cuMemHostUnregister");
}

static atomic_bool has_freed;

/* The function frees on a thread of its own. When this returns, the driver has begun, or the pool
 * has it. */
static pthread_t while_freeing(void *(*function)(void *), void *argument)
{
    const uint64_t before = frees();
    pthread_t thread;
    MUST(pthread_create(&thread, NULL, function, argument));
    while (frees() == before && !atomic_load(&has_freed)) {
    }
    (void)nanosleep(&(struct timespec){.tv_nsec = FREEING_MS * 1000000L}, NULL);
    return thread;
}

static __attribute__((noinline)) CUdeviceptr allocate_first(void)
{
    CUdeviceptr at;
    MUST(cuMemAlloc(&at, BYTES));
    return at;
}

static __attribute__((noinline)) CUdeviceptr allocate_next(void)
{
    CUdeviceptr at;
    MUST(cuMemAlloc(&at, BYTES));
    return at;
}

static void *free_it(void *at)
{
    MUST(cuCtxSetCurrent(context));
    MUST(cuMemFree(*(CUdeviceptr *)at));
    atomic_store(&has_freed, true);
    return NULL;
}

/* The driver serves an address again as soon as it has freed it, which is before the call of the
 * thread that freed it returns (SIMGPU_DESTROY_US). */
static void case_served_again(void)
{
    CUdeviceptr first = allocate_first();
    pthread_t thread = while_freeing(free_it, &first);
    CUdeviceptr next = allocate_next();
    MUST(pthread_join(thread, NULL));
    (void)fprintf(stderr, "%s\n", next == first ? "same address" : "another address");
    MUST(cuMemFree(next));
}

/* The same of host memory: registered memory is at the same address for certain. */
static char registered[BYTES] __attribute__((aligned(4096)));

enum host_kind { PINNED, REGISTERED, BORN_THERE };
static enum host_kind host_kind;

static void pin(CUdeviceptr *at)
{
    void *memory = registered;
    MUST(host_kind == REGISTERED ? cuMemHostRegister(memory, BYTES, 0)
         : host_kind == PINNED   ? cuMemAllocHost(&memory, BYTES)
                                 : cuMemAlloc(at, BYTES));
    if (host_kind != BORN_THERE) {
        *at = (CUdeviceptr)(uintptr_t)memory;
    }
}

static void *unpin(void *at)
{
    CUdeviceptr address = *(CUdeviceptr *)at;
    void *memory = (void *)(uintptr_t)address;
    MUST(cuCtxSetCurrent(context));
    MUST(host_kind == REGISTERED ? cuMemHostUnregister(memory)
         : host_kind == PINNED   ? cuMemFreeHost(memory)
                                 : cuMemFree(address));
    atomic_store(&has_freed, true);
    return NULL;
}

static __attribute__((noinline)) void pin_first(CUdeviceptr *at)
{
    pin(at);
    (void)fputs("first\n", stderr);
}

static __attribute__((noinline)) void pin_next(CUdeviceptr *at)
{
    pin(at);
    (void)fputs("next\n", stderr);
}

/* What is allocated second stays. */
static void host_again(enum host_kind kind)
{
    CUdeviceptr first, next;
    host_kind = kind;
    pin_first(&first);
    pthread_t thread = while_freeing(unpin, &first);
    pin_next(&next);
    MUST(pthread_join(thread, NULL));
}

static void case_pinned_again(void)
{
    host_again(PINNED);
}

static void case_registered_again(void)
{
    host_again(REGISTERED);
}

/* Of a device that is full. */
static void case_born_on_the_host_again(void)
{
    CUdeviceptr all;
    size_t free_bytes, total_bytes;
    MUST(cuMemGetInfo(&free_bytes, &total_bytes));
    MUST(cuMemAlloc(&all, free_bytes & ~(size_t)(BYTES - 1)));
    host_again(BORN_THERE);
}

static void ask_about(CUdeviceptr at)
{
    unsigned type = 77, managed = 77;
    CUdeviceptr start = 77;
    CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                   CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                   CU_POINTER_ATTRIBUTE_RANGE_START_ADDR};
    void *answers[] = {&type, &managed, &start};
    SAY_RESULT(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at));
    SAY_RESULT(cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, at));
    SAY_RESULT(cuPointerGetAttributes(3, which, answers, at));
    (void)printf("%u %u %d\n", type, managed, start == at);
}

/* What was freed is no memory of the program's any more, whatever is kept there. */
static void case_gone(void)
{
    CUdeviceptr kept, gone, ordered, of_the_context;
    CUcontext other;
    MUST(cuMemAlloc(&kept, BYTES));
    MUST(cuMemAlloc(&gone, BYTES));
    MUST(cuMemAllocAsync(&ordered, BYTES, stream));
    MUST(cuStreamSynchronize(stream));
    ask_about(gone);
    MUST(cuMemFree(gone));
    MUST(cuMemFreeAsync(ordered, stream));
    MUST(cuStreamSynchronize(stream));
    MUST(cuCtxCreate_v2(&other, 0, device));
    MUST(cuMemAlloc(&of_the_context, BYTES));
    MUST(cuCtxDestroy(other));
    MUST(cuCtxSetCurrent(context));
    ask_about(gone);
    ask_about(gone + BYTES / 2);
    ask_about(ordered);
    ask_about(of_the_context);
    ask_about(kept);
    MUST(cuMemFree(kept));
}

static void case_pinned_kept(void)
{
    CUdeviceptr at;
    pin_first(&at);
    SAY_RESULT(cuMemFreeHost((void *)(uintptr_t)at));
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        {"linear", case_linear},
        {"pitch", case_pitch},
        {"managed", case_managed},
        {"mapped", case_mapped},
        {"other-context", case_other_context},
        {"default-streams", case_default_streams},
        {"other-device", case_other_device},
        {"ordered", case_ordered},
        {"ordered-of-a-pool", case_ordered_of_a_pool},
        {"framework", case_framework},
        {"beside-a-global-capture", case_beside_a_global_capture},
        {"beside-a-local-capture", case_beside_a_local_capture},
        {"capture-while-waiting", case_capture_while_waiting},
        {"no-context", case_no_context},
        {"no-context-beside-a-capture", case_without_a_context_beside_a_capture},
        {"served-again", case_served_again},
        {"pinned-again", case_pinned_again},
        {"registered-again", case_registered_again},
        {"born-on-the-host-again", case_born_on_the_host_again},
        {"pinned-kept", case_pinned_kept},
        {"gone", case_gone},
    };
    int version = 0;
    const int status = run_case(argc, argv, cases, sizeof cases / sizeof cases[0], begin);
    /* What a driver before CUDA 12.5 has not got is not called. */
    MUST(cuDriverGetVersion(&version));
    EXPECT(version >= 12050 || simgpu_calls("cuCtxRecordEvent") == 0);
    return status;
}
