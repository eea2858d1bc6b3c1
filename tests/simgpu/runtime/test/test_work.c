/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams, events, graphs, kernels and driver entry points through the runtime's double.
 */
#include "check.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "../../simgpu.h"

#define MIB ((size_t)1 << 20)

/* What nvcc generates for a kernel; prototypes from crt/host_runtime.h, device_functions.h. */
void **__cudaRegisterFatBinary(void *image);
void __cudaRegisterFatBinaryEnd(void **handle);
void __cudaUnregisterFatBinary(void **handle);
void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name,
                            int limit, uint3 *tid, uint3 *bid, dim3 *block, dim3 *grid, int *size);
void __cudaRegisterVar(void **handle, char *host, char *address, const char *name, int ext,
                       size_t size, int constant, int global);
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, void *stream);
cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream);

Test(streams, work_is_done_later_and_in_order)
{
    enum { SIZE = 100000 };
    cudaStream_t stream = NULL;
    void *device = NULL, *pinned = NULL;
    OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    OK(cudaMalloc(&device, SIZE));
    OK(cudaMallocHost(&pinned, SIZE));
    memset(pinned, 0, SIZE);
    simgpu_pause();
    OK(cudaMemsetAsync(device, 0x11, SIZE, stream));
    OK(cudaMemsetAsync(device, 0x22, SIZE, stream));
    OK(cudaMemcpyAsync(pinned, device, SIZE, cudaMemcpyDeviceToHost, stream));
    EXPECT(cudaStreamQuery(stream), cudaErrorNotReady);
    EXPECT(cudaGetLastError(), cudaErrorNotReady);
    cr_assert(all_are(pinned, SIZE, 0), "nothing ran while paused");
    simgpu_resume();
    OK(cudaStreamSynchronize(stream));
    OK(cudaStreamQuery(stream));
    cr_assert(all_are(pinned, SIZE, 0x22));
    OK(cudaStreamDestroy(stream));
}

Test(streams, an_event_orders_two)
{
    enum { SIZE = 70000 };
    cudaStream_t first = NULL, second = NULL;
    cudaEvent_t event = NULL;
    void *device = NULL, *pinned = NULL;
    float milliseconds = -1;
    cudaEvent_t end = NULL;
    OK(cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking));
    OK(cudaStreamCreateWithPriority(&second, cudaStreamNonBlocking, 0));
    OK(cudaEventCreate(&event));
    OK(cudaEventCreate(&end));
    OK(cudaMalloc(&device, SIZE));
    OK(cudaMallocHost(&pinned, SIZE));
    simgpu_set_delay(2000, 2000);
    OK(cudaMemsetAsync(device, 0x47, SIZE, first));
    OK(cudaEventRecord(event, first));
    EXPECT(cudaEventQuery(event), cudaErrorNotReady);
    OK(cudaStreamWaitEvent(second, event, 0));
    OK(cudaMemcpyAsync(pinned, device, SIZE, cudaMemcpyDeviceToHost, second));
    OK(cudaEventRecord(end, second));
    OK(cudaEventSynchronize(end));
    cr_assert(all_are(pinned, SIZE, 0x47));
    OK(cudaEventElapsedTime(&milliseconds, event, end));
    cr_assert_geq(milliseconds, 0.0F);
    OK(cudaEventDestroy(event));
}

static void note(void *number)
{
    *(int *)number += 1;
}

Test(streams, host_functions_run_in_order)
{
    cudaStream_t stream = NULL;
    int runs = 0;
    OK(cudaStreamCreate(&stream));
    OK(cudaLaunchHostFunc(stream, note, &runs));
    OK(cudaLaunchHostFunc(stream, note, &runs));
    OK(cudaStreamSynchronize(stream));
    cr_assert_eq(runs, 2);
}

Test(streams, memory_in_stream_order)
{
    void *pointer = NULL, *pinned = NULL;
    cudaStream_t stream = NULL;
    OK(cudaStreamCreate(&stream));
    OK(cudaMallocHost(&pinned, MIB));
    OK(cudaMallocAsync(&pointer, MIB, stream));
    OK(cudaMemsetAsync(pointer, 0x0F, MIB, stream));
    OK(cudaMemcpyAsync(pinned, pointer, MIB, cudaMemcpyDeviceToHost, stream));
    OK(cudaFreeAsync(pointer, stream));
    OK(cudaStreamSynchronize(stream));
    cr_assert(all_are(pinned, MIB, 0x0F));
}

/* Both flavours by symbol, whichever this file is compiled for. */
cudaError_t memset_legacy(void *, int, size_t, cudaStream_t) __asm__("cudaMemsetAsync");
cudaError_t memset_per_thread(void *, int, size_t, cudaStream_t) __asm__("cudaMemsetAsync_ptsz");
cudaError_t query_legacy(cudaStream_t) __asm__("cudaStreamQuery");
cudaError_t query_per_thread(cudaStream_t) __asm__("cudaStreamQuery_ptsz");

/* Documented ("Stream synchronization behavior"): the legacy default stream waits for every
 * blocking stream, and they for it; the per-thread one is an ordinary blocking stream. */
Test(streams, the_two_default_streams_order_as_documented)
{
    void *device = NULL;
    cudaStream_t apart = NULL;
    OK(cudaMalloc(&device, MIB));
    OK(cudaStreamCreateWithFlags(&apart, cudaStreamNonBlocking));
    simgpu_pause();
    OK(memset_per_thread(device, 1, MIB, NULL));
    EXPECT(query_per_thread(NULL), cudaErrorNotReady);
    /* Stream 0 of each flavour is the stream of its special handle. */
    EXPECT(query_legacy(cudaStreamPerThread), cudaErrorNotReady);
    OK(memset_legacy(device, 2, MIB, NULL));
    EXPECT(query_per_thread(cudaStreamLegacy), cudaErrorNotReady);
    OK(query_legacy(apart));
    simgpu_resume();
    OK(cudaDeviceSynchronize());
    unsigned char last = 0;
    OK(cudaMemcpy(&last, device, 1, cudaMemcpyDeviceToHost));
    cr_assert_eq(last, 2, "the legacy stream waited for the per-thread one");
}

Test(graphs, capture_records_and_does_nothing)
{
    enum { SIZE = 80000 };
    cudaStream_t stream = NULL;
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    enum cudaStreamCaptureStatus status;
    void *device = NULL, *pinned = NULL;
    size_t nodes = 0;
    OK(cudaStreamCreate(&stream));
    OK(cudaMalloc(&device, SIZE));
    OK(cudaMallocHost(&pinned, SIZE));
    memset(pinned, 0, SIZE);
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    OK(cudaStreamIsCapturing(stream, &status));
    cr_assert_eq(status, cudaStreamCaptureStatusActive);
    OK(cudaMemsetAsync(device, 0x19, SIZE, stream));
    OK(cudaMemcpyAsync(pinned, device, SIZE, cudaMemcpyDeviceToHost, stream));
    OK(cudaStreamEndCapture(stream, &graph));
    OK(cudaStreamSynchronize(stream));
    cr_assert(all_are(pinned, SIZE, 0));
    OK(cudaGraphGetNodes(graph, NULL, &nodes));
    cr_assert_eq(nodes, 2);
    OK(cudaGraphInstantiate(&exec, graph, 0));
    OK(cudaGraphLaunch(exec, stream));
    OK(cudaStreamSynchronize(stream));
    cr_assert(all_are(pinned, SIZE, 0x19));
    OK(cudaGraphExecDestroy(exec));
    OK(cudaGraphDestroy(graph));
}

Test(graphs, capture_refuses_to_wait)
{
    cudaStream_t stream = NULL;
    cudaGraph_t graph = NULL;
    OK(cudaStreamCreate(&stream));
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    EXPECT(cudaStreamSynchronize(stream), cudaErrorStreamCaptureUnsupported);
    EXPECT(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureInvalidated);
    cr_assert_null(graph);
    OK((cudaGetLastError(), cudaGetLastError()));
}

Test(graphs, nodes_by_hand)
{
    enum { SIZE = 4096 };
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    cudaGraphNode_t fill = NULL, copy = NULL, host = NULL, before[1];
    size_t count = 1;
    int runs = 0;
    enum cudaGraphNodeType type;
    void *device = NULL, *pinned = NULL;
    OK(cudaMalloc(&device, SIZE));
    OK(cudaMallocHost(&pinned, SIZE));
    OK(cudaGraphCreate(&graph, 0));
    struct cudaMemsetParams params = {
        .dst = device, .value = 0x42, .elementSize = 1, .width = SIZE, .height = 1};
    struct cudaHostNodeParams host_params = {.fn = note, .userData = &runs};
    OK(cudaGraphAddMemsetNode(&fill, graph, NULL, 0, &params));
    OK(cudaGraphAddMemcpyNode1D(&copy, graph, &fill, 1, pinned, device, SIZE,
                                cudaMemcpyDeviceToHost));
    OK(cudaGraphAddHostNode(&host, graph, &copy, 1, &host_params));
    OK(cudaGraphNodeGetType(copy, &type));
    cr_assert_eq(type, cudaGraphNodeTypeMemcpy);
#if CUDART_VERSION >= 13000
    OK(cudaGraphNodeGetDependencies(copy, before, NULL, &count));
#else
    OK(cudaGraphNodeGetDependencies(copy, before, &count));
#endif
    cr_assert_eq(count, 1);
    cr_assert_eq(before[0], fill);
    OK(cudaGraphInstantiate(&exec, graph, 0));
    OK(cudaGraphLaunch(exec, NULL));
    OK(cudaDeviceSynchronize());
    cr_assert(all_are(pinned, SIZE, 0x42));
    cr_assert_eq(runs, 1);
}

#if CUDART_VERSION >= 13000
Test(graphs, nodes_of_every_kind_by_one_function)
{
    enum { SIZE = 4096 };
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    cudaGraphNode_t fill = NULL, copy = NULL;
    void *device = NULL, *pinned = NULL;
    OK(cudaMalloc(&device, SIZE));
    OK(cudaMallocHost(&pinned, SIZE));
    OK(cudaGraphCreate(&graph, 0));
    struct cudaGraphNodeParams params = {.type = cudaGraphNodeTypeMemset};
    params.memset.dst = device;
    params.memset.value = 0x31;
    params.memset.elementSize = 1;
    params.memset.width = SIZE;
    params.memset.height = 1;
    OK(cudaGraphAddNode(&fill, graph, NULL, NULL, 0, &params));
    params = (struct cudaGraphNodeParams){.type = cudaGraphNodeTypeMemcpy};
    params.memcpy.copyParams.srcPtr = (struct cudaPitchedPtr){device, SIZE, SIZE, 1};
    params.memcpy.copyParams.dstPtr = (struct cudaPitchedPtr){pinned, SIZE, SIZE, 1};
    params.memcpy.copyParams.extent = (struct cudaExtent){SIZE, 1, 1};
    params.memcpy.copyParams.kind = cudaMemcpyDeviceToHost;
    OK(cudaGraphAddNode(&copy, graph, &fill, NULL, 1, &params));
    OK(cudaGraphInstantiate(&exec, graph, 0));
    OK(cudaGraphLaunch(exec, NULL));
    OK(cudaDeviceSynchronize());
    cr_assert(all_are(pinned, SIZE, 0x31));
}
#endif

/* As if compiled: the address of this function stands for a kernel, that array for a variable. */
static void host_side_of_fill(void)
{
}
static char host_side_of_table[64];
static char image[] = "simgpu-module\n"
                      "kernel simgpu_fill 0:8 8:8 16:4\n"
                      "global table 64\n";

static void **register_image(void)
{
    void **handle = __cudaRegisterFatBinary(image);
    __cudaRegisterFunction(handle, (const char *)host_side_of_fill, NULL, "simgpu_fill", -1, NULL,
                           NULL, NULL, NULL, NULL);
    __cudaRegisterVar(handle, host_side_of_table, NULL, "table", 0, 64, 0, 0);
    __cudaRegisterFatBinaryEnd(handle);
    return handle;
}

Test(kernels, a_launch_reaches_the_stream)
{
    enum { SIZE = 5000 };
    register_image();
    cr_assert_eq(simgpu_live("module"), 0, "nothing is loaded before it is used");
    static unsigned char back[SIZE];
    void *device = NULL;
    OK(cudaMalloc(&device, SIZE));
    uint64_t size = SIZE;
    uint32_t byte = 0x5D;
    void *arguments[] = {&device, &size, &byte};
    OK(cudaLaunchKernel((const void *)host_side_of_fill, (dim3){4, 1, 1}, (dim3){32, 1, 1},
                        arguments, 0, NULL));
    OK(cudaMemcpy(back, device, SIZE, cudaMemcpyDeviceToHost));
    cr_assert(all_are(back, SIZE, 0x5D));
    byte = 0x5E;
    cudaLaunchConfig_t config = {.gridDim = {4, 1, 1}, .blockDim = {32, 1, 1}};
    OK(cudaLaunchKernelExC(&config, (const void *)host_side_of_fill, arguments));
    OK(cudaMemcpy(back, device, SIZE, cudaMemcpyDeviceToHost));
    cr_assert(all_are(back, SIZE, 0x5E));
    cr_assert_gt(simgpu_calls("cuLaunchKernel"), 0);
    cr_assert_gt(simgpu_calls("cuLaunchKernelEx"), 0);
}

Test(kernels, an_unknown_function_is_refused)
{
    void **handle = register_image();
    EXPECT(cudaLaunchKernel((const void *)note, (dim3){1, 1, 1}, (dim3){1, 1, 1}, NULL, 0, NULL),
           cudaErrorInvalidDeviceFunction);
    __cudaUnregisterFatBinary(handle);
    EXPECT(cudaLaunchKernel((const void *)host_side_of_fill, (dim3){1, 1, 1}, (dim3){1, 1, 1}, NULL,
                            0, NULL),
           cudaErrorInvalidDeviceFunction);
}

Test(kernels, attributes_and_occupancy)
{
    struct cudaFuncAttributes attributes;
    int blocks = 0;
    register_image();
    OK(cudaFuncGetAttributes(&attributes, (const void *)host_side_of_fill));
    cr_assert_geq(attributes.binaryVersion, 50);
    cr_assert_geq(attributes.ptxVersion, 50);
    cr_assert_gt(attributes.maxThreadsPerBlock, 0);
    OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, (const void *)host_side_of_fill, 128,
                                                     0));
    cr_assert_gt(blocks, 0);
    OK(cudaFuncSetAttribute((const void *)host_side_of_fill,
                            cudaFuncAttributeMaxDynamicSharedMemorySize, 65536));
}

Test(kernels, variables)
{
    char back[64] = {0};
    size_t size = 0;
    void *address = NULL;
    register_image();
    OK(cudaGetSymbolSize(&size, host_side_of_table));
    cr_assert_eq(size, 64);
    OK(cudaGetSymbolAddress(&address, host_side_of_table));
    cr_assert_not_null(address);
    OK(cudaMemcpyToSymbol(host_side_of_table, "twelve bytes", 13, 8, cudaMemcpyHostToDevice));
    OK(cudaMemcpyFromSymbol(back, host_side_of_table, 13, 8, cudaMemcpyDeviceToHost));
    cr_assert_str_eq(back, "twelve bytes");
    OK(cudaMemcpy(back, address, sizeof(back), cudaMemcpyDeviceToHost));
    cr_assert_str_eq(back + 8, "twelve bytes", "that far into the variable");
    EXPECT(cudaMemcpyToSymbol(host_side_of_table, back, 32, 40, cudaMemcpyHostToDevice),
           cudaErrorInvalidValue);
    EXPECT(cudaGetSymbolAddress(&address, back), cudaErrorInvalidSymbol);
}

Test(kernels, launch_configurations_nest)
{
    dim3 grid, block;
    size_t shared = 0;
    void *stream = NULL;
    cr_assert_eq(__cudaPushCallConfiguration((dim3){1, 2, 3}, (dim3){4, 5, 6}, 7, (void *)8), 0);
    cr_assert_eq(__cudaPushCallConfiguration((dim3){9, 9, 9}, (dim3){9, 9, 9}, 9, NULL), 0);
    OK(__cudaPopCallConfiguration(&grid, &block, &shared, &stream));
    cr_assert_eq(grid.x, 9);
    OK(__cudaPopCallConfiguration(&grid, &block, &shared, &stream));
    cr_assert(grid.z == 3 && block.y == 5 && shared == 7 && stream == (void *)8);
    EXPECT(__cudaPopCallConfiguration(&grid, &block, &shared, &stream),
           cudaErrorMissingConfiguration);
}

static void *exported(const char *name)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    void *function = dlsym(library, name);
    cr_assert_not_null(function, "%s", name);
    return function;
}

/* Names, versions and flavours as in cudaTypedefs.h, with the symbol for each. */
Test(entry_points, are_exact)
{
    static const struct {
        const char *symbol;
        unsigned version;
        unsigned long long flags;
        const char *is;
    } cases[] = {
        {"cuMemAlloc", 3020, cudaEnableLegacyStream, "cuMemAlloc_v2"},
        {"cuMemAlloc", 12000, cudaEnablePerThreadDefaultStream, "cuMemAlloc_v2"},
        {"cuStreamSynchronize", 12000, cudaEnableLegacyStream, "cuStreamSynchronize"},
        {"cuStreamSynchronize", 12000, cudaEnablePerThreadDefaultStream,
         "cuStreamSynchronize_ptsz"},
        {"cuMemcpyHtoDAsync", 12000, cudaEnableLegacyStream, "cuMemcpyHtoDAsync_v2"},
        {"cuMemcpyHtoDAsync", 12000, cudaEnablePerThreadDefaultStream, "cuMemcpyHtoDAsync_v2_ptsz"},
        {"cuStreamGetCaptureInfo", 11030, cudaEnableLegacyStream, "cuStreamGetCaptureInfo_v2"},
        {"cuStreamGetCaptureInfo", 12030, cudaEnableLegacyStream, "cuStreamGetCaptureInfo_v3"},
        {"cuGetProcAddress", 12000, cudaEnableLegacyStream, "cuGetProcAddress_v2"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        void *function = NULL;
        enum cudaDriverEntryPointQueryResult status = cudaDriverEntryPointSymbolNotFound;
        OK(cudaGetDriverEntryPointByVersion(cases[i].symbol, &function, cases[i].version,
                                            cases[i].flags, &status));
        cr_assert_eq(status, cudaDriverEntryPointSuccess, "%s", cases[i].symbol);
        cr_assert_eq(function, exported(cases[i].is), "%s of %u is not %s", cases[i].symbol,
                     cases[i].version, cases[i].is);
    }
}

cudaError_t entry_point_legacy(
    const char *, void **, unsigned, unsigned long long,
    enum cudaDriverEntryPointQueryResult *) __asm__("cudaGetDriverEntryPointByVersion");
cudaError_t entry_point_per_thread(
    const char *, void **, unsigned, unsigned long long,
    enum cudaDriverEntryPointQueryResult *) __asm__("cudaGetDriverEntryPointByVersion_ptsz");

Test(entry_points, the_default_is_the_flavour_of_the_caller)
{
    void *function = NULL;
    OK(entry_point_legacy("cuStreamQuery", &function, 12000, cudaEnableDefault, NULL));
    cr_assert_eq(function, exported("cuStreamQuery"));
    OK(entry_point_per_thread("cuStreamQuery", &function, 12000, cudaEnableDefault, NULL));
    cr_assert_eq(function, exported("cuStreamQuery_ptsz"));
}

Test(entry_points, what_is_not_there_is_no_error)
{
    void *function = (void *)1;
    enum cudaDriverEntryPointQueryResult status = cudaDriverEntryPointSuccess;
    OK(cudaGetDriverEntryPointByVersion("cuNoSuchThing", &function, 12000, cudaEnableDefault,
                                        &status));
    cr_assert_null(function);
    cr_assert_eq(status, cudaDriverEntryPointSymbolNotFound);
    function = (void *)1;
    OK(cudaGetDriverEntryPointByVersion("cuMemPoolCreate", &function, 10000, cudaEnableDefault,
                                        &status));
    cr_assert_null(function);
    cr_assert_eq(status, cudaDriverEntryPointVersionNotSufficent);
    EXPECT(cudaGetDriverEntryPointByVersion("cuInit", &function, 99000, cudaEnableDefault, &status),
           cudaErrorInvalidValue);
}
