/* SPDX-License-Identifier: Apache-2.0 */
/* Pairs of an allocation and a free in stream order, by several threads:
 *
 *   contention THREADS STREAMS DEVICES PAIRS
 *
 * Thread t works on device t % DEVICES and takes its STREAMS streams in turn, from the t-th on, so
 * that threads share streams where there are fewer of those. PAIRS are all of them together. One
 * line: CPU nanoseconds a pair of the whole process, and wall nanoseconds a pair as a thread sees
 * it. */
#include <pthread.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "driver.h"
#include "say.h"
#include "timing.h"

#define MOST_DEVICES 8
#define MOST_STREAMS 1024
#define MOST_THREADS 64
#define BYTES        (96 * KIB)

static struct driver cu;
static struct {
    CUcontext context;
    CUstream streams[MOST_STREAMS];
} devices[MOST_DEVICES];
static unsigned thread_count, stream_count, device_count;
static uint64_t pairs_each;
static pthread_barrier_t start;

static void walk(unsigned thread, uint64_t pairs)
{
    const CUstream *streams = devices[thread % device_count].streams;
    for (uint64_t i = 0; i < pairs; i++) {
        CUdeviceptr block;
        CUstream stream = streams[(thread + i) % stream_count];
        MUST(cu.cuMemAllocAsync(&block, BYTES, stream));
        MUST(cu.cuMemFreeAsync(block, stream));
    }
}

static void *work(void *argument)
{
    const unsigned thread = (unsigned)(uintptr_t)argument;
    MUST(cu.cuCtxSetCurrent(devices[thread % device_count].context));
    walk(thread, stream_count + 100);
    (void)pthread_barrier_wait(&start);
    (void)pthread_barrier_wait(&start);
    walk(thread, pairs_each);
    return NULL;
}

static uint64_t cpu_ns(void)
{
    struct rusage used;
    (void)getrusage(RUSAGE_SELF, &used);
    return (uint64_t)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1000000000u +
           (uint64_t)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1000u;
}

static void open_devices(void)
{
    MUST(cu.cuInit(0));
    for (unsigned d = 0; d < device_count; d++) {
        CUdevice device;
        MUST(cu.cuDeviceGet(&device, (int)d));
        MUST(cu.cuDevicePrimaryCtxRetain(&devices[d].context, device));
        MUST(cu.cuCtxSetCurrent(devices[d].context));
        for (unsigned s = 0; s < stream_count; s++) {
            MUST(cu.cuStreamCreate(&devices[d].streams[s], CU_STREAM_NON_BLOCKING));
        }
    }
}

static unsigned number(const char *text, unsigned most)
{
    const unsigned long value = strtoul(text, NULL, 10);
    EXPECT(value >= 1 && value <= most);
    return (unsigned)value;
}

int main(int argc, char **argv)
{
    pthread_t threads[MOST_THREADS];
    EXPECT(argc == 5);
    thread_count = number(argv[1], MOST_THREADS);
    stream_count = number(argv[2], MOST_STREAMS);
    device_count = number(argv[3], MOST_DEVICES);
    pairs_each = strtoull(argv[4], NULL, 10) / thread_count;
    cu = driver_open();
    open_devices();
    (void)pthread_barrier_init(&start, NULL, thread_count + 1);
    for (unsigned t = 0; t < thread_count; t++) {
        EXPECT(pthread_create(&threads[t], NULL, work, (void *)(uintptr_t)t) == 0);
    }
    (void)pthread_barrier_wait(&start);
    const uint64_t cpu = cpu_ns(), begin = now_ns();
    (void)pthread_barrier_wait(&start);
    for (unsigned t = 0; t < thread_count; t++) {
        (void)pthread_join(threads[t], NULL);
    }
    const double wall = (double)(now_ns() - begin), used = (double)(cpu_ns() - cpu);
    (void)printf("%.0f %.0f\n", used / (double)(pairs_each * thread_count),
                 wall / (double)pairs_each);
    (void)fflush(stdout);
    _exit(0);
}
