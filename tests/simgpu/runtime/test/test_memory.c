/* SPDX-License-Identifier: Apache-2.0 */
/* Devices, errors and memory in the runtime double, compared with the documented semantics. Built
 * three times: with the shared library, with the static one, and with the per-thread default
 * stream. */
#include "check.h"

#include <cuda.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../simgpu.h"

#define KIB ((size_t)1024)
#define MIB (1024 * KIB)
#define GIB (1024 * MIB)

Test(device, versions)
{
    int runtime = 0, driver = 0;
    OK(cudaRuntimeGetVersion(&runtime));
    OK(cudaDriverGetVersion(&driver));
    cr_assert_eq(runtime / 1000, CUDART_VERSION / 1000);
    cr_assert_geq(driver, runtime);
}

Test(device, properties_are_the_drivers)
{
    int count = 0;
    struct {
        unsigned char before[64];
        struct cudaDeviceProp prop;
        unsigned char after[64];
    } guarded;
    memset(&guarded, 0xA5, sizeof(guarded));
    OK(cudaGetDeviceCount(&count));
    cr_assert_eq(count, 2);
    OK(cudaGetDeviceProperties(&guarded.prop, 1));
    cr_assert(all_are(guarded.before, sizeof(guarded.before), 0xA5));
    cr_assert(all_are(guarded.after, sizeof(guarded.after), 0xA5));
    cr_assert_eq(guarded.prop.totalGlobalMem, 24 * GIB);
    cr_assert_eq(guarded.prop.major, 8);
    cr_assert_eq(guarded.prop.minor, 9);
    cr_assert_eq(guarded.prop.warpSize, 32);
    cr_assert_eq(guarded.prop.unifiedAddressing, 1);
    cr_assert_eq(guarded.prop.reserved[sizeof(guarded.prop.reserved) / sizeof(int) - 1], 0);
    int value = 0;
    OK(cudaDeviceGetAttribute(&value, cudaDevAttrMaxThreadsPerBlock, 1));
    cr_assert_eq(guarded.prop.maxThreadsPerBlock, value);
    OK(cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, 1));
    cr_assert_eq(guarded.prop.multiProcessorCount, value);
}

Test(device, asking_makes_no_context)
{
    int count = 0, device = -1;
    struct cudaDeviceProp prop;
    OK(cudaGetDeviceCount(&count));
    OK(cudaGetDevice(&device));
    OK(cudaGetDeviceProperties(&prop, 0));
    cr_assert_eq(device, 0);
    cr_assert_eq(simgpu_live("context"), 0);
    OK(cudaSetDevice(1));
    OK(cudaGetDevice(&device));
    cr_assert_eq(device, 1);
    cr_assert_eq(simgpu_live("context"), 1);
}

Test(device, the_current_one_is_the_drivers_context)
{
    int device = -1;
    CUcontext context = NULL;
    OK(cudaSetDevice(1));
    cr_assert_eq(cuCtxGetCurrent(&context), CUDA_SUCCESS);
    cr_assert_not_null(context);
    OK(cudaSetDevice(0));
    cr_assert_eq(cuCtxSetCurrent(context), CUDA_SUCCESS);
    OK(cudaGetDevice(&device));
    cr_assert_eq(device, 1);
}

static void *device_of_new_thread(void *out)
{
    cudaGetDevice(out);
    return NULL;
}

Test(device, each_thread_starts_on_device_0)
{
    pthread_t thread;
    int device = -1;
    OK(cudaSetDevice(1));
    pthread_create(&thread, NULL, device_of_new_thread, &device);
    pthread_join(thread, NULL);
    cr_assert_eq(device, 0);
}

Test(errors, are_kept_until_they_are_got)
{
    void *pointer = NULL;
    EXPECT(cudaSetDevice(99), cudaErrorInvalidDevice);
    EXPECT(cudaPeekAtLastError(), cudaErrorInvalidDevice);
    OK(cudaMalloc(&pointer, MIB)); /* a success does not hide an earlier error */
    EXPECT(cudaPeekAtLastError(), cudaErrorInvalidDevice);
    EXPECT(cudaGetLastError(), cudaErrorInvalidDevice);
    OK(cudaGetLastError());
    OK(cudaFree(pointer));
}

Test(errors, out_of_memory_is_not_sticky)
{
    void *pointer = NULL;
    EXPECT(cudaMalloc(&pointer, 25 * GIB), cudaErrorMemoryAllocation);
    EXPECT(cudaGetLastError(), cudaErrorMemoryAllocation);
    OK(cudaGetLastError());
    OK(cudaMalloc(&pointer, MIB));
    OK(cudaFree(pointer));
    OK(cudaGetLastError());
}

static void *last_error_of_new_thread(void *out)
{
    *(cudaError_t *)out = cudaGetLastError();
    return NULL;
}

Test(errors, belong_to_their_thread)
{
    pthread_t thread;
    cudaError_t seen = cudaErrorUnknown;
    EXPECT(cudaSetDevice(99), cudaErrorInvalidDevice);
    pthread_create(&thread, NULL, last_error_of_new_thread, &seen);
    pthread_join(thread, NULL);
    cr_assert_eq(seen, cudaSuccess);
    EXPECT(cudaGetLastError(), cudaErrorInvalidDevice);
}

Test(errors, a_broken_context_is_sticky_until_reset)
{
    OK(cudaFree(NULL));
    simgpu_fail("cuCtxSynchronize", 1, CUDA_ERROR_ILLEGAL_ADDRESS);
    EXPECT(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
    EXPECT(cudaGetLastError(), cudaErrorIllegalAddress);
    EXPECT(cudaGetLastError(), cudaErrorIllegalAddress);
    EXPECT(cudaPeekAtLastError(), cudaErrorIllegalAddress);
    OK(cudaDeviceReset());
    OK(cudaGetLastError());
}

Test(errors, names_and_texts)
{
    cr_assert_str_eq(cudaGetErrorName(cudaErrorMemoryAllocation), "cudaErrorMemoryAllocation");
    cr_assert_str_eq(cudaGetErrorString(cudaErrorMemoryAllocation), "out of memory");
    cr_assert_str_eq(cudaGetErrorName((cudaError_t)4242), "unrecognized error code");
}

Test(memory, allocations_arrive_at_the_driver_by_name)
{
    void *pointer = NULL;
    uint64_t allocations = simgpu_calls("cuMemAlloc"), frees = simgpu_calls("cuMemFree");
    OK(cudaMalloc(&pointer, 3 * MIB));
    OK(cudaFree(pointer));
    cr_assert_eq(simgpu_calls("cuMemAlloc"), allocations + 1);
    cr_assert_eq(simgpu_calls("cuMemFree"), frees + 1);
}

Test(memory, contents_go_there_and_back)
{
    for (size_t size = 1; size <= 8 * MIB; size = size * 7 + 3) {
        unsigned char *host = malloc(size), *back = calloc(1, size);
        void *first = NULL, *second = NULL;
        for (size_t i = 0; i < size; i++) {
            host[i] = (unsigned char)(i * 131 + size);
        }
        OK(cudaMalloc(&first, size));
        OK(cudaMalloc(&second, size));
        OK(cudaMemcpy(first, host, size, cudaMemcpyHostToDevice));
        OK(cudaMemcpy(second, first, size, cudaMemcpyDeviceToDevice));
        OK(cudaMemcpy(back, second, size, cudaMemcpyDeviceToHost));
        cr_assert_eq(memcmp(host, back, size), 0, "of %zu bytes", size);
        OK(cudaMemset(first, 0x5C, size));
        OK(cudaMemcpy(back, first, size, cudaMemcpyDefault));
        cr_assert(all_are(back, size, 0x5C), "of %zu bytes", size);
        OK(cudaFree(first));
        OK(cudaFree(second));
        free(host);
        free(back);
    }
}

Test(memory, nothing_asked_nothing_given)
{
    void *pointer = (void *)1;
    OK(cudaMalloc(&pointer, 0));
    cr_assert_null(pointer);
    OK(cudaFree(NULL));
    OK(cudaFreeHost(NULL));
    OK(cudaMemcpy(NULL, NULL, 0, cudaMemcpyHostToDevice));
    EXPECT(cudaMallocManaged(&pointer, 0, cudaMemAttachGlobal), cudaErrorInvalidValue);
}

Test(memory, wrong_calls_are_refused)
{
    char local[16];
    void *pointer = NULL;
    EXPECT(cudaMalloc(NULL, MIB), cudaErrorInvalidValue);
    EXPECT(cudaFree(local), cudaErrorInvalidValue);
    OK(cudaMalloc(&pointer, MIB));
    EXPECT(cudaMemcpy(pointer, local, 1, (enum cudaMemcpyKind)17), cudaErrorInvalidMemcpyDirection);
    OK(cudaFree(pointer));
    EXPECT(cudaFree(pointer), cudaErrorInvalidValue);
}

Test(memory, info_counts_what_is_taken)
{
    size_t free_before = 0, free_after = 0, total = 0;
    void *pointer = NULL;
    OK(cudaMemGetInfo(&free_before, &total));
    cr_assert_eq(total, 24 * GIB);
    cr_assert_leq(free_before, total - 400 * MIB, "the context is charged");
    OK(cudaMalloc(&pointer, 64 * MIB));
    OK(cudaMemGetInfo(&free_after, &total));
    cr_assert_eq(free_before - free_after, 64 * MIB);
    OK(cudaFree(pointer));
}

Test(memory, rows_with_a_pitch)
{
    enum { WIDTH = 300, HEIGHT = 7 };
    unsigned char host[HEIGHT][WIDTH], back[HEIGHT][WIDTH];
    void *pointer = NULL;
    size_t pitch = 0;
    for (int y = 0; y < HEIGHT; y++) {
        memset(host[y], y + 1, WIDTH);
    }
    OK(cudaMallocPitch(&pointer, &pitch, WIDTH, HEIGHT));
    cr_assert_geq(pitch, WIDTH);
    cr_assert_eq(pitch % 32, 0);
    OK(cudaMemset2D(pointer, pitch, 0xEE, WIDTH, HEIGHT));
    OK(cudaMemcpy2D(pointer, pitch, host, WIDTH, WIDTH, HEIGHT - 1, cudaMemcpyHostToDevice));
    OK(cudaMemcpy2D(back, WIDTH, pointer, pitch, WIDTH, HEIGHT, cudaMemcpyDeviceToHost));
    cr_assert_eq(memcmp(host, back, sizeof(host) - WIDTH), 0);
    cr_assert(all_are(back[HEIGHT - 1], WIDTH, 0xEE), "the last row was not copied");
    EXPECT(cudaMemcpy2D(back, WIDTH - 1, pointer, pitch, WIDTH, HEIGHT, cudaMemcpyDeviceToHost),
           cudaErrorInvalidPitchValue);
    OK(cudaFree(pointer));
}

Test(memory, boxes)
{
    enum { WIDTH = 40, HEIGHT = 5, DEPTH = 3 };
    unsigned char host[DEPTH][HEIGHT][WIDTH], back[DEPTH][HEIGHT][WIDTH];
    struct cudaPitchedPtr box;
    struct cudaExtent extent = {WIDTH, HEIGHT, DEPTH};
    for (size_t i = 0; i < sizeof(host); i++) {
        ((unsigned char *)host)[i] = (unsigned char)i;
    }
    OK(cudaMalloc3D(&box, extent));
    OK(cudaMemset3D(box, 0x77, extent));
    struct cudaMemcpy3DParms copy = {
        .srcPtr = {.ptr = host, .pitch = WIDTH, .xsize = WIDTH, .ysize = HEIGHT},
        .dstPtr = box,
        .extent = extent,
        .kind = cudaMemcpyHostToDevice,
    };
    copy.extent.depth = DEPTH - 1;
    OK(cudaMemcpy3D(&copy));
    copy.srcPtr = box;
    copy.dstPtr =
        (struct cudaPitchedPtr){.ptr = back, .pitch = WIDTH, .xsize = WIDTH, .ysize = HEIGHT};
    copy.kind = cudaMemcpyDeviceToHost;
    copy.extent.depth = DEPTH;
    OK(cudaMemcpy3D(&copy));
    cr_assert_eq(memcmp(host, back, sizeof(host[0]) * (DEPTH - 1)), 0);
    cr_assert(all_are(back[DEPTH - 1], sizeof(back[0]), 0x77), "the last slice was not copied");
    OK(cudaFree(box.ptr));
}

Test(memory, arrays)
{
    enum { WIDTH = 16, HEIGHT = 4 };
    int host[HEIGHT][WIDTH], back[HEIGHT][WIDTH];
    struct cudaChannelFormatDesc desc =
        cudaCreateChannelDesc(32, 0, 0, 0, cudaChannelFormatKindSigned);
    struct cudaChannelFormatDesc told;
    struct cudaExtent extent;
    unsigned flags = 99;
    cudaArray_t array = NULL;
    for (int i = 0; i < WIDTH * HEIGHT; i++) {
        host[i / WIDTH][i % WIDTH] = i;
    }
    OK(cudaMallocArray(&array, &desc, WIDTH, HEIGHT, cudaArrayDefault));
    OK(cudaArrayGetInfo(&told, &extent, &flags, array));
    cr_assert_eq(memcmp(&told, &desc, sizeof(desc)), 0);
    cr_assert_eq(extent.width, WIDTH);
    cr_assert_eq(extent.height, HEIGHT);
    cr_assert_eq(flags, 0);
    OK(cudaMemcpy2DToArray(array, 0, 0, host, sizeof(host[0]), sizeof(host[0]), HEIGHT,
                           cudaMemcpyHostToDevice));
    OK(cudaMemcpy2DFromArray(back, sizeof(back[0]), array, 0, 0, sizeof(back[0]), HEIGHT,
                             cudaMemcpyDeviceToHost));
    cr_assert_eq(memcmp(host, back, sizeof(host)), 0);
    OK(cudaFreeArray(array));
    desc.y = 16;
    EXPECT(cudaMallocArray(&array, &desc, WIDTH, HEIGHT, cudaArrayDefault),
           cudaErrorInvalidChannelDescriptor);
}

Test(memory, mipmaps)
{
    struct cudaChannelFormatDesc desc =
        cudaCreateChannelDesc(8, 8, 8, 8, cudaChannelFormatKindUnsigned);
    cudaMipmappedArray_t mipmap = NULL;
    cudaArray_t level = NULL;
    struct cudaExtent extent;
    OK(cudaMallocMipmappedArray(&mipmap, &desc, (struct cudaExtent){64, 32, 0}, 3, 0));
    OK(cudaGetMipmappedArrayLevel(&level, mipmap, 1));
    OK(cudaArrayGetInfo(NULL, &extent, NULL, level));
    cr_assert_eq(extent.width, 32);
    cr_assert_eq(extent.height, 16);
    OK(cudaFreeMipmappedArray(mipmap));
}

static enum cudaMemoryType type_of(const void *pointer, struct cudaPointerAttributes *attributes)
{
    memset(attributes, 0xFF, sizeof(*attributes));
    OK(cudaPointerGetAttributes(attributes, pointer));
    return attributes->type;
}

Test(memory, pointers_know_what_they_are)
{
    struct cudaPointerAttributes attributes;
    void *device = NULL, *pinned = NULL, *managed = NULL;
    char plain[8];
    OK(cudaSetDevice(1));
    OK(cudaMalloc(&device, MIB));
    OK(cudaMallocHost(&pinned, MIB));
    OK(cudaMallocManaged(&managed, MIB, cudaMemAttachGlobal));
    cr_assert_eq(type_of((char *)device + 5, &attributes), cudaMemoryTypeDevice);
    cr_assert_eq(attributes.device, 1);
    cr_assert_eq(attributes.devicePointer, (char *)device + 5);
    cr_assert_eq(type_of(pinned, &attributes), cudaMemoryTypeHost);
    cr_assert_eq(attributes.hostPointer, pinned);
    cr_assert_eq(type_of(managed, &attributes), cudaMemoryTypeManaged);
    cr_assert_eq(type_of(plain, &attributes), cudaMemoryTypeUnregistered);
    cr_assert_null(attributes.devicePointer);
    OK(cudaFree(device));
    OK(cudaFree(managed));
    OK(cudaFreeHost(pinned));
}

Test(memory, host_memory_is_mapped)
{
    void *pinned = NULL, *device = NULL;
    unsigned flags = 0;
    char *own = NULL;
    cr_assert_eq(posix_memalign((void **)&own, 4096, 4096), 0);
    OK(cudaHostAlloc(&pinned, 4096, cudaHostAllocMapped | cudaHostAllocPortable));
    OK(cudaHostGetDevicePointer(&device, pinned, 0));
    OK(cudaMemset(device, 0x21, 4096));
    OK(cudaDeviceSynchronize());
    cr_assert(all_are(pinned, 4096, 0x21));
    OK(cudaHostGetFlags(&flags, pinned));
    cr_assert(flags & cudaHostAllocMapped);
    OK(cudaHostRegister(own, 4096, cudaHostRegisterMapped));
    EXPECT(cudaHostRegister(own, 4096, cudaHostRegisterMapped),
           cudaErrorHostMemoryAlreadyRegistered);
    OK(cudaHostGetDevicePointer(&device, own, 0));
    OK(cudaHostUnregister(own));
    EXPECT(cudaHostUnregister(own), cudaErrorHostMemoryNotRegistered);
    OK(cudaFreeHost(pinned));
    free(own);
}

Test(memory, pools)
{
    cudaMemPool_t pool = NULL;
    void *pointer = NULL;
    uint64_t keep = UINT64_MAX, used = 0;
    cudaStream_t stream = NULL;
    struct cudaMemPoolProps props = {
        .allocType = cudaMemAllocationTypePinned,
        .location = {.type = cudaMemLocationTypeDevice, .id = 0},
    };
    OK(cudaStreamCreate(&stream));
    OK(cudaMemPoolCreate(&pool, &props));
    OK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
    OK(cudaMallocFromPoolAsync(&pointer, 3 * MIB, pool, stream));
    OK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used));
    cr_assert_geq(used, 3 * MIB);
    OK(cudaMemsetAsync(pointer, 1, 3 * MIB, stream));
    OK(cudaFreeAsync(pointer, stream));
    OK(cudaStreamSynchronize(stream));
    OK(cudaMemPoolTrimTo(pool, 0));
    OK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &used));
    cr_assert_eq(used, 0);
    OK(cudaMemPoolDestroy(pool));
    OK(cudaDeviceGetDefaultMemPool(&pool, 0));
    cr_assert_not_null(pool);
    OK(cudaStreamDestroy(stream));
}

Test(memory, peers)
{
    enum { SIZE = 100000 };
    static unsigned char host[SIZE], back[SIZE];
    void *here = NULL, *there = NULL;
    int can = 0;
    memset(host, 0x3D, SIZE);
    OK(cudaDeviceCanAccessPeer(&can, 0, 1));
    cr_assert_eq(can, 1);
    OK(cudaSetDevice(1));
    OK(cudaMalloc(&there, SIZE));
    OK(cudaSetDevice(0));
    OK(cudaMalloc(&here, SIZE));
    OK(cudaDeviceEnablePeerAccess(1, 0));
    EXPECT(cudaDeviceEnablePeerAccess(1, 0), cudaErrorPeerAccessAlreadyEnabled);
    OK(cudaMemcpy(here, host, SIZE, cudaMemcpyHostToDevice));
    OK(cudaMemcpyPeer(there, 1, here, 0, SIZE));
    OK(cudaMemset(here, 0, SIZE));
    OK(cudaMemcpyPeerAsync(here, 0, there, 1, SIZE, NULL));
    OK(cudaMemcpy(back, here, SIZE, cudaMemcpyDeviceToHost));
    cr_assert_eq(memcmp(host, back, SIZE), 0);
    OK(cudaDeviceDisablePeerAccess(1));
    EXPECT(cudaDeviceDisablePeerAccess(1), cudaErrorPeerAccessNotEnabled);
}

static void *call_after_reset(void *out)
{
    *(cudaError_t *)out = cudaMalloc(&(void *){NULL}, MIB);
    return NULL;
}

struct two_calls {
    pthread_barrier_t reset_begins, reset_done;
    cudaError_t before, after;
};

static void *call_around_reset(void *argument)
{
    struct two_calls *calls = argument;
    void *pointer = NULL;
    calls->before = cudaMalloc(&pointer, MIB);
    pthread_barrier_wait(&calls->reset_begins);
    pthread_barrier_wait(&calls->reset_done);
    calls->after = cudaMalloc(&pointer, MIB);
    return NULL;
}

Test(device, reset_gives_everything_back_and_a_new_start)
{
    pthread_t thread;
    struct two_calls calls;
    void *pointer = NULL;
    int device = -1;
    pthread_barrier_init(&calls.reset_begins, NULL, 2);
    pthread_barrier_init(&calls.reset_done, NULL, 2);
    OK(cudaMalloc(&pointer, 64 * MIB));
    pthread_create(&thread, NULL, call_around_reset, &calls);
    pthread_barrier_wait(&calls.reset_begins);
    OK(cudaDeviceReset());
    cr_assert_eq(simgpu_used_bytes(0), 0);
    pthread_barrier_wait(&calls.reset_done);
    pthread_join(thread, NULL);
    cr_assert_eq(calls.before, cudaSuccess);
    cr_assert_eq(calls.after, cudaSuccess, "another thread recovers at its next call");
    OK(cudaGetDevice(&device));
    cr_assert_eq(device, 0);
    OK(cudaMalloc(&pointer, MIB));
    cudaError_t fresh = cudaErrorUnknown;
    pthread_create(&thread, NULL, call_after_reset, &fresh);
    pthread_join(thread, NULL);
    cr_assert_eq(fresh, cudaSuccess);
}

/* The other process: opens the handle from the pipe, and answers with what it read. */
static void open_in_child(int in, int out)
{
    cudaIpcMemHandle_t handle;
    unsigned char seen[64] = {0};
    void *pointer = NULL;
    if (read(in, &handle, sizeof(handle)) != (ssize_t)sizeof(handle) ||
        cudaIpcOpenMemHandle(&pointer, handle, cudaIpcMemLazyEnablePeerAccess) != cudaSuccess ||
        cudaMemcpy(seen, pointer, sizeof(seen), cudaMemcpyDeviceToHost) != cudaSuccess ||
        cudaIpcCloseMemHandle(pointer) != cudaSuccess ||
        write(out, seen, sizeof(seen)) != (ssize_t)sizeof(seen)) {
        _exit(1);
    }
    _exit(0);
}

Test(memory, another_process_opens_a_handle)
{
    int to_child[2], to_parent[2], status = 0;
    unsigned char seen[64] = {0};
    cr_assert_eq(pipe(to_child), 0);
    cr_assert_eq(pipe(to_parent), 0);
    pid_t child = fork();
    if (child == 0) {
        /* Otherwise it would wait forever for a parent that fails. */
        close(to_child[1]);
        open_in_child(to_child[0], to_parent[1]);
    }
    cudaIpcMemHandle_t handle;
    void *pointer = NULL;
    OK(cudaMalloc(&pointer, 4 * MIB));
    OK(cudaMemset(pointer, 0x6B, 4 * MIB));
    OK(cudaDeviceSynchronize());
    OK(cudaIpcGetMemHandle(&handle, pointer));
    cr_assert_eq(write(to_child[1], &handle, sizeof(handle)), (ssize_t)sizeof(handle));
    close(to_parent[1]);
    cr_assert_eq(read(to_parent[0], seen, sizeof(seen)), (ssize_t)sizeof(seen));
    cr_assert(all_are(seen, sizeof(seen), 0x6B));
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert_eq(status, 0);
    OK(cudaFree(pointer));
}
