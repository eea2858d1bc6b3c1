/* SPDX-License-Identifier: Apache-2.0 */
/* A preload that stamps PyTorch's tensors on the simulated GPU.
 *
 * Kernels do nothing there, so memory that is handed out without backing, twice, or too early would
 * go unnoticed. This library sees every tensor's birth and death through the same report of libc10
 * as memshim (shim/frameworks/torch.c), writes words that name the tensor into it, on the stream
 * that is current at its birth, and looks at them at its death, on the same stream. What the job's
 * own copies and memsets overwrote is excused (simgpu_watch_writes); all else that is wrong ends
 * the process with status STAMP_STATUS and a line that begins with "stamp:". At each birth and
 * death the range must also be mapped, from the host's view.
 *
 * It is preloaded before memshim, so that a tensor is backed before its stamp is queued, and
 * looked at in work that is queued before memshim learns of its death. It needs SIMGPU_CONTENTS=
 * full. Values that a job reads back and never wrote are its stamps, not zeros.
 *
 * No call that a capture forbids is made: what is born or dies on a capturing stream is only
 * probed. STAMP_STEP: bytes from one stamped word of a tensor to the next, default 4096.
 *
 * For jobs (ctypes.CDLL(None)): stamp_pause(1) stops stamping births (not looking at deaths), 0
 * goes on; stamp_check() looks at all live tensors, with the device at rest. */
#include <cuda.h>
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "simgpu.h"
#include "words.h"

#define USAGE         _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE
#define TEXT_OF(name) #name
#define TEXT(name)    TEXT_OF(name)
#define DEVICES       16
#define BUCKETS       4096
#define TORCH_CUDA    1 /* c10::DeviceType::CUDA */

typedef uint16_t torch_device_t; /* c10::Device: two signed bytes, type and index */
typedef void (*usage_t)(void *, int64_t, size_t, size_t, torch_device_t);

/* c10::cuda::CUDAStream holds a c10::Stream: a Device and a 64-bit id; returned in registers. */
struct torch_stream {
    torch_device_t device;
    int64_t id;
};

#define EXPORT __attribute__((visibility("default")))
EXPORT void USAGE(void *ptr, int64_t bytes, size_t total_allocated, size_t total_reserved,
                  torch_device_t device);
EXPORT void stamp_pause(int paused);
EXPORT uint64_t stamp_check(void);

/* A live tensor, from the host's view. */
struct owner {
    uint64_t addr, bytes, number;
    CUstream stream;
    struct stamp_tensor *stamp; /* null: not stamped */
    struct owner *next;
};

static struct {
    usage_t chained; /* memshim's, or libc10's own */
    struct torch_stream (*current_stream)(int8_t device);
    CUstream (*stream_handle)(const struct torch_stream *stream);
    CUresult (*retain)(CUcontext *context, CUdevice device);
    CUresult (*push)(CUcontext context);
    CUresult (*pop)(CUcontext *context);
    CUresult (*synchronize)(void);
    CUresult (*is_capturing)(CUstream stream, CUstreamCaptureStatus *status);
    CUresult (*launch_host)(CUstream stream, CUhostFn function, void *argument);
    void (*watch_writes)(void (*watch)(uint64_t at, uint64_t bytes));
} to;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct owner *owners[BUCKETS]; /* under lock */
static CUcontext contexts[DEVICES];   /* under lock; null: no tensor there yet */
static _Atomic int paused;
static pid_t process;

/* --- Getting in --------------------------------------------------------------------------------
 */

static void find(void *slot, void *library, const char *name)
{
    void *symbol = dlsym(library, name);
    if (symbol == NULL) {
        stamp_fail("%s was not found", name);
    }
    memcpy(slot, &symbol, sizeof(symbol));
}

static void find_driver(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    find(&to.retain, driver, "cuDevicePrimaryCtxRetain");
    find(&to.push, driver, "cuCtxPushCurrent_v2");
    find(&to.pop, driver, "cuCtxPopCurrent_v2");
    find(&to.synchronize, driver, "cuCtxSynchronize");
    find(&to.is_capturing, driver, "cuStreamIsCapturing");
    find(&to.launch_host, driver, "cuLaunchHostFunc");
    find(&to.watch_writes, driver, "simgpu_watch_writes");
}

/* A fault inside of work: the address tells more than the core. */
static void on_fault(int number, siginfo_t *info, void *context)
{
    char text[96];
    (void)context;
    int length = snprintf(text, sizeof(text), "stamp: FAULT at 0x%llx, thread %d\n",
                          (unsigned long long)(uintptr_t)info->si_addr, (int)gettid());
    (void)!write(STDERR_FILENO, text, (size_t)length);
    (void)signal(number, SIG_DFL);
}

static void say_end(void)
{
    if (getpid() != process) {
        return;
    }
    uint64_t live = stamp_check();
    (void)fprintf(
        stderr,
        "stamp: births %llu, not stamped %llu, verified %llu, forgotten %llu, live %llu, "
        "words right %llu, overwritten %llu\n",
        (unsigned long long)stamp_counts.births, (unsigned long long)stamp_counts.not_stamped,
        (unsigned long long)stamp_counts.verified, (unsigned long long)stamp_counts.forgotten,
        (unsigned long long)live, (unsigned long long)stamp_counts.words,
        (unsigned long long)stamp_counts.overwritten);
}

/* libc10 is in nobody's global scope; memshim, where it is preloaded, is behind this library. */
static void find_chained(void)
{
    to.chained = (usage_t)dlsym(RTLD_NEXT, TEXT(USAGE));
    if (to.chained == NULL) {
        find(&to.chained, dlopen("libc10.so", RTLD_NOW | RTLD_NOLOAD), TEXT(USAGE));
    }
}

/* At the first tensor of a device. */
static void begin(void)
{
    process = getpid();
    void *torch_cuda = dlopen("libc10_cuda.so", RTLD_NOW | RTLD_NOLOAD);
    find(&to.current_stream, torch_cuda, "_ZN3c104cuda20getCurrentCUDAStreamEa");
    find(&to.stream_handle, torch_cuda, "_ZNK3c104cuda10CUDAStream6streamEv");
    find_driver();
    const char *step = getenv("STAMP_STEP");
    if (step != NULL && strtoull(step, NULL, 10) >= 8) {
        stamp_words_step(strtoull(step, NULL, 10));
    }
    to.watch_writes(stamp_words_overwritten);
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    (void)sigaction(SIGSEGV, &action, NULL);
    (void)sigaction(SIGBUS, &action, NULL);
    (void)atexit(say_end);
}

/* --- Contexts and streams ----------------------------------------------------------------------
 */

static CUcontext context_of(int device)
{
    pthread_mutex_lock(&lock);
    if (contexts[device] == NULL && to.retain(&contexts[device], device) != CUDA_SUCCESS) {
        stamp_fail("device %d has no context", device);
    }
    CUcontext context = contexts[device];
    pthread_mutex_unlock(&lock);
    return context;
}

static bool captures(CUstream stream)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    return to.is_capturing(stream, &status) != CUDA_SUCCESS ||
           status != CU_STREAM_CAPTURE_STATUS_NONE;
}

/* False, and nothing queued, while the stream captures. */
static bool queue(int device, CUstream stream, CUhostFn function, void *argument)
{
    CUcontext popped;
    if (to.push(context_of(device)) != CUDA_SUCCESS) {
        return false;
    }
    bool queued = !captures(stream) && to.launch_host(stream, function, argument) == CUDA_SUCCESS;
    (void)to.pop(&popped);
    return queued;
}

static void write_words(void *tensor)
{
    stamp_words_write(tensor);
}

static void end_words(void *tensor)
{
    stamp_words_end(tensor);
}

/* --- Births and deaths -------------------------------------------------------------------------
 */

static struct owner **bucket_of(uint64_t addr)
{
    return &owners[addr / 512 % BUCKETS];
}

static void born(int device, uint64_t addr, uint64_t bytes)
{
    struct torch_stream current = to.current_stream((int8_t)device);
    struct owner *owner = calloc(1, sizeof(*owner));
    struct stamp_tensor *stamp = calloc(1, sizeof(*stamp));
    uint64_t number = atomic_fetch_add(&stamp_counts.births, 1) + 1;
    stamp_words_probe(addr, bytes, number, "at its birth");
    *stamp = (struct stamp_tensor){.addr = addr, .bytes = bytes, .number = number};
    *owner = (struct owner){.addr = addr,
                            .bytes = bytes,
                            .number = number,
                            .stream = to.stream_handle(&current),
                            .stamp = stamp};
    if (paused || !queue(device, owner->stream, write_words, stamp)) {
        atomic_fetch_add(&stamp_counts.not_stamped, 1);
        free(stamp);
        owner->stamp = NULL;
    }
    pthread_mutex_lock(&lock);
    owner->next = *bucket_of(addr);
    *bucket_of(addr) = owner;
    pthread_mutex_unlock(&lock);
}

static struct owner *take_owner(uint64_t addr)
{
    pthread_mutex_lock(&lock);
    struct owner **link = bucket_of(addr);
    while (*link != NULL && (*link)->addr != addr) {
        link = &(*link)->next;
    }
    struct owner *owner = *link;
    if (owner != NULL) {
        *link = owner->next;
    }
    pthread_mutex_unlock(&lock);
    return owner;
}

static void died(int device, uint64_t addr)
{
    struct owner *owner = take_owner(addr);
    if (owner == NULL) {
        stamp_fail("a tensor at 0x%llx dies that was never born", (unsigned long long)addr);
    }
    stamp_words_probe(addr, owner->bytes, owner->number, "at its death");
    if (owner->stamp != NULL && !queue(device, owner->stream, end_words, owner->stamp)) {
        stamp_words_forget(owner->stamp);
    }
    free(owner);
}

/* PyTorch holds its allocator's lock meanwhile. */
void USAGE(void *ptr, int64_t bytes, size_t total_allocated, size_t total_reserved,
           torch_device_t device)
{
    static pthread_once_t chain = PTHREAD_ONCE_INIT, first = PTHREAD_ONCE_INIT;
    pthread_once(&chain, find_chained);
    int index = device >> 8;
    bool ours = (device & 0xff) == TORCH_CUDA && index >= 0 && index < DEVICES;
    if (ours) {
        pthread_once(&first, begin);
    }
    ours = ours && getpid() == process;
    if (ours && bytes < 0) {
        died(index, (uint64_t)(uintptr_t)ptr);
    }
    to.chained(ptr, bytes, total_allocated, total_reserved, device);
    if (ours && bytes > 0) {
        born(index, (uint64_t)(uintptr_t)ptr, (uint64_t)bytes);
    }
}

void stamp_pause(int on)
{
    paused = on;
}

uint64_t stamp_check(void)
{
    for (int device = 0; device < DEVICES; device++) {
        CUcontext popped;
        if (contexts[device] != NULL && to.push(contexts[device]) == CUDA_SUCCESS) {
            (void)to.synchronize();
            (void)to.pop(&popped);
        }
    }
    return stamp_words_verify_all();
}
