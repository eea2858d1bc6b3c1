/* SPDX-License-Identifier: Apache-2.0 */
/* Threads and streams that allocate, fill by a kernel, check by a kernel and free, all of it
 * queued: a block that is handed out before its last use is over has another's bytes when it is
 * looked at. Blocks that are kept are checked again and again while the others come and go, so that
 * moving them shows, too. Kernels that only take time keep the streams apart.
 *
 * reuse SEED SECONDS LIVE_MIB [FUNCTION]: most MiB kept in all; a function that the driver is not
 * to have. Prints a line of JSON: blocks, checked bytes, refused (out of memory), wrong_bytes. Ends
 * with 1 where a byte was wrong. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "tests/gpu/gpu.h"

enum { THREADS = 4, STREAMS = 3, KEPT = 48, SPIN_MAX_NS = 200000 };

static struct gpu gpu;
static uint64_t first_seed;
static uint64_t end_ns;
static size_t kept_max_bytes; /* of a thread */
static _Atomic uint64_t blocks, checked, refused;
static void (*tell_step)(void);

struct kept {
    CUdeviceptr at;
    size_t bytes;
    unsigned byte;
};

struct worker {
    pthread_t thread;
    uint64_t seed;
    unsigned number;
    CUstream streams[STREAMS];
    CUdeviceptr wrong; /* 64 bits: bytes found to differ */
    struct kept kept[KEPT];
    size_t kept_bytes;
};

static uint64_t draw(struct worker *self)
{
    return next_random(&self->seed);
}

/* Many small ones, some of several granules. */
static size_t draw_bytes(struct worker *self)
{
    uint64_t value = draw(self);
    size_t most = value % 8 == 0 ? 24 * MIB : value % 8 < 4 ? 3 * MIB : 256 * KIB;
    return (value >> 8) % most + 1;
}

static CUresult allocate(struct worker *self, CUdeviceptr *at, size_t bytes, CUstream stream)
{
    return draw(self) % 3 == 0 ? cuMemAlloc(at, bytes) : cuMemAllocAsync(at, bytes, stream);
}

/* What was queued on `stream` is behind what is queued on `other` next. */
static void order(CUstream stream, CUstream other)
{
    CUevent event;
    MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    MUST(cuEventRecord(event, stream));
    MUST(cuStreamWaitEvent(other, event, 0));
    MUST(cuEventDestroy(event));
}

static void give_back(struct worker *self, CUdeviceptr at, CUstream stream)
{
    CUstream other = self->streams[draw(self) % STREAMS];
    switch (draw(self) % 4) {
    case 0:
        MUST(cuStreamSynchronize(stream)); /* a stream's memory is not waited for (cuda.h) */
        MUST(cuMemFree(at));
        break;
    case 1:
        order(stream, other);
        MUST(cuMemFreeAsync(at, other));
        break;
    default:
        MUST(cuMemFreeAsync(at, stream));
    }
}

static void look(struct worker *self, const struct kept *one, CUstream stream)
{
    MUST(gpu_check(&gpu, one->at, one->bytes, one->byte, self->wrong, stream));
    atomic_fetch_add(&checked, one->bytes);
}

/* Whatever a kept block is used for is ordered behind its last use by an event of the device. */
static void use_kept(struct worker *self, CUstream stream)
{
    struct kept *one = &self->kept[draw(self) % KEPT];
    if (one->at == 0) {
        return;
    }
    for (int i = 0; i < STREAMS; i++) {
        if (self->streams[i] != stream) {
            order(self->streams[i], stream);
        }
    }
    look(self, one, stream);
    if (draw(self) % 3 == 0) {
        one->byte = (unsigned)draw(self) % 256;
        MUST(gpu_fill(&gpu, one->at, one->bytes, one->byte, stream));
    }
    if (draw(self) % 4 == 0) {
        self->kept_bytes -= one->bytes;
        give_back(self, one->at, stream);
        one->at = 0;
    }
    for (int i = 0; i < STREAMS; i++) {
        if (self->streams[i] != stream) {
            order(stream, self->streams[i]);
        }
    }
}

static void one_round(struct worker *self)
{
    CUstream stream = self->streams[draw(self) % STREAMS];
    struct kept *place = &self->kept[draw(self) % KEPT];
    struct kept block = {.bytes = draw_bytes(self), .byte = (unsigned)draw(self) % 256};
    if (draw(self) % 4 == 0) {
        MUST(gpu_spin(&gpu, draw(self) % SPIN_MAX_NS, stream));
    }
    CUresult result = allocate(self, &block.at, block.bytes, stream);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        atomic_fetch_add(&refused, 1);
        return;
    }
    MUST(result);
    atomic_fetch_add(&blocks, 1);
    MUST(gpu_fill(&gpu, block.at, block.bytes, block.byte, stream));
    look(self, &block, stream);
    if (place->at == 0 && self->kept_bytes + block.bytes <= kept_max_bytes && draw(self) % 2) {
        for (int i = 0; i < STREAMS; i++) {
            if (self->streams[i] != stream) {
                order(stream, self->streams[i]);
            }
        }
        *place = block;
        self->kept_bytes += block.bytes;
    } else {
        give_back(self, block.at, stream);
    }
    use_kept(self, stream);
}

/* As much is kept from the beginning as may be, however little time there is. */
static void keep_all(struct worker *self)
{
    for (int i = 0; i < KEPT; i++) {
        struct kept *one = &self->kept[i];
        one->bytes = kept_max_bytes / KEPT;
        one->byte = (unsigned)i;
        CUresult result = cuMemAllocAsync(&one->at, one->bytes, self->streams[0]);
        if (result == CUDA_ERROR_OUT_OF_MEMORY) {
            one->at = 0;
            atomic_fetch_add(&refused, 1);
            continue;
        }
        MUST(result);
        MUST(gpu_fill(&gpu, one->at, one->bytes, one->byte, self->streams[0]));
        self->kept_bytes += one->bytes;
    }
    for (int i = 1; i < STREAMS; i++) {
        order(self->streams[0], self->streams[i]);
    }
}

static void *work(void *argument)
{
    struct worker *self = argument;
    MUST(cuCtxSetCurrent(gpu.context));
    keep_all(self);
    for (unsigned round = 0; gpu_now_ns() < end_ns; round++) {
        one_round(self);
        if (round % 64 == 0) {
            MUST(cuStreamSynchronize(self->streams[0]));
            if (self->number == 0 && tell_step != NULL) {
                tell_step();
            }
        }
    }
    return NULL;
}

static void prepare(struct worker *self, unsigned number)
{
    self->number = number;
    self->seed = first_seed * THREADS + number;
    MUST(cuMemAlloc(&self->wrong, sizeof(uint64_t)));
    MUST(cuMemsetD8(self->wrong, 0, sizeof(uint64_t)));
    for (int i = 0; i < STREAMS; i++) {
        MUST(cuStreamCreate(&self->streams[i], CU_STREAM_NON_BLOCKING));
    }
}

/* Looks at what is left, and returns the bytes that were ever found to differ. */
static uint64_t finish(struct worker *self)
{
    uint64_t wrong = 0;
    MUST(cuCtxSynchronize());
    for (int i = 0; i < KEPT; i++) {
        if (self->kept[i].at != 0) {
            look(self, &self->kept[i], NULL);
        }
    }
    MUST(cuMemcpyDtoH(&wrong, self->wrong, sizeof wrong));
    for (int i = 0; i < KEPT; i++) {
        if (self->kept[i].at != 0) {
            MUST(cuMemFree(self->kept[i].at));
        }
    }
    return wrong;
}

/* The simulated GPU counts its calls. */
static void check_left_out(const char *function)
{
    uint64_t (*calls)(const char *);
    void *address = dlsym(RTLD_DEFAULT, "simgpu_calls");
    memcpy(&calls, &address, sizeof calls);
    EXPECT(calls == NULL || calls(function) == 0);
}

int main(int argc, char **argv)
{
    static struct worker workers[THREADS];
    uint64_t wrong = 0;
    EXPECT(argc == 4 || argc == 5);
    if (argc == 5) {
        gpu_leave_out(argv[4]);
    }
    first_seed = strtoull(argv[1], NULL, 10);
    kept_max_bytes = strtoull(argv[3], NULL, 10) * MIB / THREADS;
    void *address = dlsym(RTLD_DEFAULT, "memshim_step");
    memcpy(&tell_step, &address, sizeof address);
    gpu_open(&gpu);
    for (unsigned i = 0; i < THREADS; i++) {
        prepare(&workers[i], i);
    }
    MUST(cuCtxSynchronize());
    EXPECT(kept_max_bytes >= KEPT);
    end_ns = gpu_now_ns() + (uint64_t)(strtod(argv[2], NULL) * 1e9);
    for (int i = 0; i < THREADS; i++) {
        MUST(pthread_create(&workers[i].thread, NULL, work, &workers[i]));
    }
    for (int i = 0; i < THREADS; i++) {
        MUST(pthread_join(workers[i].thread, NULL));
    }
    for (int i = 0; i < THREADS; i++) {
        wrong += finish(&workers[i]);
    }
    if (argc == 5) {
        check_left_out(argv[4]);
    }
    (void)printf("{\"event\": \"reuse\", \"blocks\": %llu, \"checked_bytes\": %llu, "
                 "\"refused\": %llu, \"wrong_bytes\": %llu}\n",
                 (unsigned long long)blocks, (unsigned long long)checked,
                 (unsigned long long)refused, (unsigned long long)wrong);
    return wrong == 0 ? 0 : 1;
}
