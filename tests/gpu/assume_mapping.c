/* SPDX-License-Identifier: Apache-2.0 */
/* Virtual memory management: what the pool stands on. */
#include "tests/gpu/assume.h"

#define ENOUGH ((size_t)64)

struct window {
    CUdeviceptr at;
    size_t granule;
    CUmemGenericAllocationHandle chunk[2];
};

/* Addresses for 8 granules, and two chunks of one. */
static bool open_window(const struct gpu *gpu, struct window *window)
{
    CUmemAllocationProp prop = gpu_device_memory(gpu);
    window->granule = gpu->granule_bytes;
    if (window->granule == 0) {
        return false;
    }
    MUST(cuMemAddressReserve(&window->at, 8 * window->granule, 0, 0, 0));
    MUST(cuMemCreate(&window->chunk[0], window->granule, &prop, 0));
    MUST(cuMemCreate(&window->chunk[1], window->granule, &prop, 0));
    return true;
}

static void close_window(const struct window *window)
{
    MUST(cuMemRelease(window->chunk[0]));
    MUST(cuMemRelease(window->chunk[1]));
    MUST(cuMemAddressFree(window->at, 8 * window->granule));
}

#define WINDOW(window)    \
    struct window window; \
    NEEDS(open_window(gpu, &(window)), "the device cannot map memory")

static CUresult show(const struct gpu *gpu, CUdeviceptr at, size_t bytes,
                     CUmemGenericAllocationHandle chunk)
{
    CUresult result = cuMemMap(at, bytes, 0, chunk, 0);
    return result == CUDA_SUCCESS ? gpu_allow(gpu, at, bytes) : result;
}

static enum verdict granule(const struct gpu *gpu)
{
    NEEDS(gpu->granule_bytes != 0, "the device cannot map memory");
    GIVES(gpu->granule_bytes, 2 * MIB);
    return HOLDS;
}

static enum verdict creating_charges(const struct gpu *gpu)
{
    WINDOW(window);
    CUmemAllocationProp prop = gpu_device_memory(gpu);
    CUmemGenericAllocationHandle chunk;
    size_t before = gpu_free_bytes();
    WORKS(cuMemCreate(&chunk, 64 * MIB, &prop, 0));
    GIVES(before - gpu_free_bytes(), 64 * MIB);
    WORKS(cuMemRelease(chunk));
    GIVES(before - gpu_free_bytes(), 0);
    close_window(&window);
    return HOLDS;
}

static enum verdict addresses_cost_nothing(const struct gpu *gpu)
{
    CUdeviceptr at;
    NEEDS(gpu->granule_bytes != 0, "the device cannot map memory");
    size_t before = gpu_free_bytes();
    WORKS(cuMemAddressReserve(&at, 1024 * GIB, 0, 0, 0));
    GIVES(before - gpu_free_bytes(), 0);
    WORKS(cuMemAddressFree(at, 1024 * GIB));
    return HOLDS;
}

static enum verdict mapping_charges_nothing(const struct gpu *gpu)
{
    WINDOW(window);
    size_t before = gpu_free_bytes();
    WORKS(show(gpu, window.at, window.granule, window.chunk[0]));
    GIVES(before - gpu_free_bytes(), 0);
    WORKS(cuMemUnmap(window.at, window.granule));
    GIVES(before - gpu_free_bytes(), 0);
    close_window(&window);
    return HOLDS;
}

static enum verdict released_stays_until_unmapped(const struct gpu *gpu)
{
    WINDOW(window);
    CUmemAllocationProp prop = gpu_device_memory(gpu);
    CUmemGenericAllocationHandle chunk;
    size_t before = gpu_free_bytes();
    size_t bytes = 4 * window.granule;
    WORKS(cuMemCreate(&chunk, bytes, &prop, 0));
    WORKS(show(gpu, window.at, bytes, chunk));
    WORKS(cuMemRelease(chunk));
    GIVES(before - gpu_free_bytes(), bytes);
    WORKS(cuMemsetD8(window.at, 3, bytes));
    GIVES(gpu_mismatches(gpu, window.at, bytes, 3), 0);
    WORKS(cuMemUnmap(window.at, bytes));
    GIVES(before - gpu_free_bytes(), 0);
    close_window(&window);
    return HOLDS;
}

static enum verdict only_whole_chunks(const struct gpu *gpu)
{
    CUmemAllocationProp prop = gpu_device_memory(gpu);
    WINDOW(window);
    CUmemGenericAllocationHandle chunk;
    WORKS(cuMemCreate(&chunk, 2 * window.granule, &prop, 0));
    GIVES(cuMemMap(window.at, window.granule, window.granule, chunk, 0), CUDA_ERROR_NOT_SUPPORTED);
    GIVES(cuMemMap(window.at, window.granule, 0, chunk, 0), CUDA_ERROR_NOT_SUPPORTED);
    WORKS(cuMemRelease(chunk));
    close_window(&window);
    return HOLDS;
}

static enum verdict no_mapping_over_another(const struct gpu *gpu)
{
    WINDOW(window);
    WORKS(cuMemMap(window.at, window.granule, 0, window.chunk[0], 0));
    REFUSED(cuMemMap(window.at, window.granule, 0, window.chunk[1], 0));
    WORKS(cuMemUnmap(window.at, window.granule));
    close_window(&window);
    return HOLDS;
}

static enum verdict only_into_reservations(const struct gpu *gpu)
{
    WINDOW(window);
    CUdeviceptr outside = window.at + 8 * window.granule;
    REFUSED(cuMemMap(outside - window.granule, 2 * window.granule, 0, window.chunk[0], 0));
    close_window(&window);
    return HOLDS;
}

static enum verdict whole_mappings_are_unmapped(const struct gpu *gpu)
{
    CUmemAllocationProp prop = gpu_device_memory(gpu);
    WINDOW(window);
    CUmemGenericAllocationHandle chunk;
    WORKS(cuMemCreate(&chunk, 2 * window.granule, &prop, 0));
    WORKS(cuMemMap(window.at, 2 * window.granule, 0, chunk, 0));
    REFUSED(cuMemUnmap(window.at, window.granule));
    WORKS(cuMemUnmap(window.at, 2 * window.granule));
    WORKS(cuMemRelease(chunk));
    close_window(&window);
    return HOLDS;
}

static enum verdict neighbours_in_one_call(const struct gpu *gpu)
{
    WINDOW(window);
    WORKS(cuMemMap(window.at, window.granule, 0, window.chunk[0], 0));
    WORKS(cuMemMap(window.at + window.granule, window.granule, 0, window.chunk[1], 0));
    WORKS(gpu_allow(gpu, window.at, 2 * window.granule));
    WORKS(gpu_fill(gpu, window.at, 2 * window.granule, 9, NULL));
    GIVES(gpu_mismatches(gpu, window.at, 2 * window.granule, 9), 0);
    WORKS(cuMemUnmap(window.at, 2 * window.granule));
    close_window(&window);
    return HOLDS;
}

/* Whether kernels can use it: copies ask the driver first, so that nothing faults. */
static bool is_accessible(const struct gpu *gpu, CUdeviceptr at)
{
    unsigned long long flags = 0;
    CUmemLocation location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = gpu->device};
    return cuMemGetAccess(&flags, &location, at) == CUDA_SUCCESS &&
           flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
}

/* cuda.h wants every byte mapped; nothing may depend on a refusal. */
static enum verdict access_over_a_hole(const struct gpu *gpu)
{
    WINDOW(window);
    size_t bytes = window.granule;
    CUmemAllocationProp prop = gpu_device_memory(gpu);
    CUmemGenericAllocationHandle late;
    WORKS(cuMemCreate(&late, bytes, &prop, 0));
    for (CUdeviceptr i = 0; i < 2; i++) {
        WORKS(cuMemMap(window.at + 2 * i * bytes, bytes, 0, window.chunk[i], 0));
    }
    bool given = gpu_allow(gpu, window.at, 3 * bytes) == CUDA_SUCCESS;
    assume_whether("is access over a hole between mappings given?", given);
    for (CUdeviceptr i = 0; i < 2; i++) {
        CUdeviceptr at = window.at + 2 * i * bytes;
        bool told = is_accessible(gpu, at);
        assume_whether(i == 0 ? "has what is mapped before such a hole access then?"
                              : "has what is mapped behind such a hole access then?",
                       told);
        if (!told) {
            WORKS(gpu_allow(gpu, at, bytes));
        }
        WORKS(gpu_fill(gpu, at, bytes, 0x31, NULL));
        GIVES(gpu_mismatches(gpu, at, bytes, 0x31), 0);
    }
    WORKS(cuMemMap(window.at + bytes, bytes, 0, late, 0));
    assume_whether("has what is mapped into such a hole later access, too?",
                   is_accessible(gpu, window.at + bytes));
    WORKS(cuMemUnmap(window.at + bytes, 2 * bytes));
    assume_whether("is access over a hole behind the last mapping given?",
                   gpu_allow(gpu, window.at, 2 * bytes) == CUDA_SUCCESS);
    WORKS(cuMemUnmap(window.at, bytes));
    assume_whether("is access over nothing mapped given?",
                   gpu_allow(gpu, window.at, bytes) == CUDA_SUCCESS);
    WORKS(cuMemRelease(late));
    close_window(&window);
    return HOLDS;
}

/* A hole's chunk is taken and put elsewhere; another is put in its place. */
static enum verdict contents_move_with_the_chunk(const struct gpu *gpu)
{
    WINDOW(window);
    size_t bytes = window.granule;
    WORKS(show(gpu, window.at, bytes, window.chunk[0]));
    WORKS(gpu_fill(gpu, window.at, bytes, 0x5a, NULL));
    WORKS(cuCtxSynchronize());
    WORKS(cuMemUnmap(window.at, bytes));
    WORKS(show(gpu, window.at + 4 * bytes, bytes, window.chunk[0]));
    WORKS(show(gpu, window.at, bytes, window.chunk[1]));
    WORKS(gpu_fill(gpu, window.at, bytes, 0x11, NULL));
    GIVES(gpu_mismatches(gpu, window.at + 4 * bytes, bytes, 0x5a), 0);
    GIVES(gpu_mismatches(gpu, window.at, bytes, 0x11), 0);
    WORKS(cuMemUnmap(window.at, bytes));
    WORKS(cuMemUnmap(window.at + 4 * bytes, bytes));
    close_window(&window);
    return HOLDS;
}

/* The same addresses, another chunk, hundreds of times: what kernels see is what is mapped now. */
static enum verdict no_stale_translations(const struct gpu *gpu)
{
    WINDOW(window);
    size_t bytes = window.granule;
    CUdeviceptr home = window.at + 4 * bytes;
    for (unsigned round = 0; round < 2; round++) {
        WORKS(show(gpu, home, bytes, window.chunk[round]));
        WORKS(gpu_fill(gpu, home, bytes, 0x20 + round, NULL));
        WORKS(cuCtxSynchronize());
        WORKS(cuMemUnmap(home, bytes));
    }
    for (unsigned round = 0; round < ENOUGH; round++) {
        WORKS(show(gpu, window.at, bytes, window.chunk[round % 2]));
        GIVES(gpu_mismatches(gpu, window.at, bytes, 0x20 + round % 2), 0);
        WORKS(cuMemUnmap(window.at, bytes));
    }
    close_window(&window);
    return HOLDS;
}

static enum verdict two_views_of_one_chunk(const struct gpu *gpu)
{
    WINDOW(window);
    size_t bytes = window.granule;
    WORKS(show(gpu, window.at, bytes, window.chunk[0]));
    WORKS(show(gpu, window.at + 2 * bytes, bytes, window.chunk[0]));
    WORKS(gpu_fill(gpu, window.at, bytes, 0x77, NULL));
    WORKS(cuCtxSynchronize());
    GIVES(gpu_mismatches(gpu, window.at + 2 * bytes, bytes, 0x77), 0);
    WORKS(cuMemUnmap(window.at, bytes));
    GIVES(gpu_mismatches(gpu, window.at + 2 * bytes, bytes, 0x77), 0);
    WORKS(cuMemUnmap(window.at + 2 * bytes, bytes));
    close_window(&window);
    return HOLDS;
}

/* Disjoint bytes, at 512-byte steps, written at once through both. */
static enum verdict views_written_at_once(const struct gpu *gpu)
{
    enum { STEP = 512, STEPS = 256 };
    CUstream streams[2];
    WINDOW(window);
    size_t bytes = window.granule;
    CUdeviceptr views[2] = {window.at, window.at + 2 * bytes};
    for (int i = 0; i < 2; i++) {
        WORKS(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
        WORKS(show(gpu, views[i], bytes, window.chunk[0]));
    }
    for (CUdeviceptr i = 0; i < STEPS; i++) {
        WORKS(gpu_fill(gpu, views[i % 2] + i * STEP, STEP, (unsigned)i, streams[i % 2]));
    }
    WORKS(cuCtxSynchronize());
    for (CUdeviceptr i = 0; i < STEPS; i++) {
        GIVES(gpu_mismatches(gpu, views[0] + i * STEP, STEP, (unsigned)i), 0);
    }
    for (int i = 0; i < 2; i++) {
        WORKS(cuStreamDestroy(streams[i]));
        WORKS(cuMemUnmap(views[i], bytes));
    }
    close_window(&window);
    return HOLDS;
}

static enum verdict retain_gives_the_handle(const struct gpu *gpu)
{
    WINDOW(window);
    CUmemGenericAllocationHandle again = 0;
    WORKS(cuMemMap(window.at, window.granule, 0, window.chunk[0], 0));
    WORKS(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)window.at));
    SO(again == window.chunk[0]);
    WORKS(cuMemRelease(again));
    WORKS(cuMemUnmap(window.at, window.granule));
    close_window(&window);
    return HOLDS;
}

static enum verdict range_is_the_mapping(const struct gpu *gpu)
{
    WINDOW(window);
    CUdeviceptr base = 0;
    size_t bytes = 0;
    WORKS(cuMemMap(window.at, window.granule, 0, window.chunk[0], 0));
    WORKS(cuMemMap(window.at + window.granule, window.granule, 0, window.chunk[1], 0));
    WORKS(gpu_allow(gpu, window.at, 2 * window.granule));
    WORKS(cuMemGetAddressRange(&base, &bytes, window.at + window.granule + 100));
    SO(base == window.at + window.granule);
    GIVES(bytes, window.granule);
    WORKS(cuMemUnmap(window.at, 2 * window.granule));
    close_window(&window);
    return HOLDS;
}

/* The attributes tell of the reservation, whatever is mapped in it. */
static enum verdict attributes_tell_the_reservation(const struct gpu *gpu)
{
    WINDOW(window);
    CUdeviceptr base = 0;
    size_t bytes = 0;
    CUdeviceptr at = window.at + window.granule;
    WORKS(show(gpu, at, window.granule, window.chunk[0]));
    WORKS(cuPointerGetAttribute(&base, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, at + 100));
    WORKS(cuPointerGetAttribute(&bytes, CU_POINTER_ATTRIBUTE_RANGE_SIZE, at + 100));
    SO(base == window.at);
    GIVES(bytes, 8 * window.granule);
    WORKS(cuPointerGetAttribute(&base, CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, at + 100));
    WORKS(cuPointerGetAttribute(&bytes, CU_POINTER_ATTRIBUTE_MAPPING_SIZE, at + 100));
    SO(base == at);
    GIVES(bytes, window.granule);
    WORKS(cuMemUnmap(at, window.granule));
    close_window(&window);
    return HOLDS;
}

/* Asking for tokens marks mapped memory, which cuPointerSetAttribute cannot. */
static enum verdict tokens_mark_mapped_memory(const struct gpu *gpu)
{
    WINDOW(window);
    CUDA_POINTER_ATTRIBUTE_P2P_TOKENS tokens;
    unsigned marked = 2;
    WORKS(show(gpu, window.at, window.granule, window.chunk[0]));
    WORKS(cuPointerGetAttribute(&marked, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, window.at));
    GIVES(marked, 0);
    WORKS(cuPointerGetAttribute(&tokens, CU_POINTER_ATTRIBUTE_P2P_TOKENS, window.at));
    WORKS(cuPointerGetAttribute(&marked, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, window.at));
    GIVES(marked, 1);
    WORKS(cuMemUnmap(window.at, window.granule));
    close_window(&window);
    return HOLDS;
}

/* "cuMemCreate() with the usage flag CU_MEM_CREATE_USAGE_HW_DECOMPRESS" (cuda.h), beside all else
 * that the pool's chunks are made with. */
static enum verdict chunks_decompress(const struct gpu *gpu)
{
    WINDOW(window);
    CUmemAllocationProp prop = gpu_device_memory(gpu);
    CUmemGenericAllocationHandle chunk;
    unsigned capable = 0;
    int rdma = 0;
    WORKS(cuDeviceGetAttribute(&rdma, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED,
                               gpu->device));
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    prop.allocFlags.gpuDirectRDMACapable = rdma != 0;
    prop.allocFlags.usage = CU_MEM_CREATE_USAGE_HW_DECOMPRESS;
    WORKS(cuMemCreate(&chunk, window.granule, &prop, 0));
    WORKS(show(gpu, window.at, window.granule, chunk));
    WORKS(
        cuPointerGetAttribute(&capable, CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE, window.at));
    GIVES(capable, 1);
    WORKS(gpu_fill(gpu, window.at, window.granule, 7, NULL));
    GIVES(gpu_mismatches(gpu, window.at, window.granule, 7), 0);
    WORKS(cuMemUnmap(window.at, window.granule));
    WORKS(cuMemRelease(chunk));
    close_window(&window);
    return HOLDS;
}

static enum verdict mapped_is_device_memory(const struct gpu *gpu)
{
    WINDOW(window);
    unsigned kind = 0;
    WORKS(show(gpu, window.at, window.granule, window.chunk[0]));
    WORKS(cuPointerGetAttribute(&kind, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, window.at + 5));
    GIVES(kind, CU_MEMORYTYPE_DEVICE);
    WORKS(cuMemUnmap(window.at, window.granule));
    close_window(&window);
    return HOLDS;
}

static enum verdict no_ipc_of_mapped(const struct gpu *gpu)
{
    WINDOW(window);
    CUipcMemHandle handle;
    WORKS(show(gpu, window.at, window.granule, window.chunk[0]));
    REFUSED(cuIpcGetMemHandle(&handle, window.at));
    WORKS(cuMemUnmap(window.at, window.granule));
    close_window(&window);
    return HOLDS;
}

static enum verdict access_is_told(const struct gpu *gpu)
{
    WINDOW(window);
    unsigned long long flags = 77;
    CUmemLocation location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = gpu->device};
    WORKS(cuMemMap(window.at, window.granule, 0, window.chunk[0], 0));
    WORKS(gpu_allow(gpu, window.at, window.granule));
    WORKS(cuMemGetAccess(&flags, &location, window.at));
    GIVES(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    WORKS(cuMemUnmap(window.at, window.granule));
    close_window(&window);
    return HOLDS;
}

static enum verdict mapped_addresses_stay(const struct gpu *gpu)
{
    WINDOW(window);
    WORKS(cuMemMap(window.at, window.granule, 0, window.chunk[0], 0));
    REFUSED(cuMemAddressFree(window.at, 8 * window.granule));
    WORKS(cuMemUnmap(window.at, window.granule));
    close_window(&window);
    return HOLDS;
}

static enum verdict sizes_are_granular(const struct gpu *gpu)
{
    WINDOW(window);
    CUmemAllocationProp prop = gpu_device_memory(gpu);
    CUmemGenericAllocationHandle chunk;
    GIVES(cuMemCreate(&chunk, window.granule / 2, &prop, 0), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMemCreate(&chunk, 0, &prop, 0), CUDA_ERROR_INVALID_VALUE);
    close_window(&window);
    return HOLDS;
}

static enum verdict too_much_is_out_of_memory(const struct gpu *gpu)
{
    WINDOW(window);
    CUmemAllocationProp prop = gpu_device_memory(gpu);
    CUmemGenericAllocationHandle chunk;
    size_t before = gpu_free_bytes();
    size_t bytes = 4096 * GIB;
    GIVES(cuMemCreate(&chunk, bytes, &prop, 0), CUDA_ERROR_OUT_OF_MEMORY);
    GIVES(before - gpu_free_bytes(), 0);
    WORKS(show(gpu, window.at, window.granule, window.chunk[0]));
    WORKS(gpu_fill(gpu, window.at, window.granule, 1, NULL));
    GIVES(gpu_mismatches(gpu, window.at, window.granule, 1), 0);
    WORKS(cuMemUnmap(window.at, window.granule));
    close_window(&window);
    return HOLDS;
}

/* What a kernel was given before its backing changed hands is what it finds after: the address. */
static enum verdict graphs_keep_addresses(const struct gpu *gpu)
{
    WINDOW(window);
    CUstream stream;
    CUgraph graph;
    CUgraphExec exec;
    size_t bytes = window.granule;
    WORKS(show(gpu, window.at, bytes, window.chunk[0]));
    WORKS(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    WORKS(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    WORKS(gpu_fill(gpu, window.at, bytes, 0x42, stream));
    WORKS(cuStreamEndCapture(stream, &graph));
    WORKS(cuGraphInstantiateWithFlags(&exec, graph, 0));
    for (unsigned round = 0; round < 4; round++) {
        WORKS(cuMemUnmap(window.at, bytes));
        WORKS(show(gpu, window.at, bytes, window.chunk[round % 2]));
        WORKS(cuMemsetD8(window.at, 0, bytes));
        WORKS(cuCtxSynchronize()); /* the stream is not ordered behind the memset */
        WORKS(cuGraphLaunch(exec, stream));
        WORKS(cuStreamSynchronize(stream));
        GIVES(gpu_mismatches(gpu, window.at, bytes, 0x42), 0);
    }
    WORKS(cuGraphExecDestroy(exec));
    WORKS(cuGraphDestroy(graph));
    WORKS(cuStreamDestroy(stream));
    WORKS(cuMemUnmap(window.at, bytes));
    close_window(&window);
    return HOLDS;
}

static enum verdict beside_a_capture(const struct gpu *gpu)
{
    WINDOW(window);
    CUstream stream;
    CUgraph graph = NULL;
    size_t bytes = window.granule;
    CUstreamCaptureStatus status;
    WORKS(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    WORKS(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CUresult shown = show(gpu, window.at, bytes, window.chunk[0]);
    WORKS(cuStreamIsCapturing(stream, &status));
    GIVES(shown, CUDA_SUCCESS);
    GIVES(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
    WORKS(cuStreamEndCapture(stream, &graph));
    SO(graph != NULL);
    WORKS(cuGraphDestroy(graph));
    WORKS(cuMemUnmap(window.at, bytes));
    WORKS(cuStreamDestroy(stream));
    close_window(&window);
    return HOLDS;
}

static enum verdict released_twice(const struct gpu *gpu)
{
    CUmemAllocationProp prop = gpu_device_memory(gpu);
    CUmemGenericAllocationHandle chunk;
    NEEDS(gpu->granule_bytes != 0, "the device cannot map memory");
    WORKS(cuMemCreate(&chunk, gpu->granule_bytes, &prop, 0));
    WORKS(cuMemRelease(chunk));
    GIVES(cuMemRelease(chunk), CUDA_ERROR_INVALID_VALUE);
    return HOLDS;
}

static enum verdict work_on_no_memory(const struct gpu *gpu)
{
    WINDOW(window);
    char byte;
    REFUSED(cuMemcpyDtoH(&byte, window.at, 1));
    return HOLDS;
}

const struct assumption assume_mapping[] = {
    {"memory is mapped in granules of 2 MiB", granule, false},
    {"creating a chunk takes its bytes, releasing it gives them back", creating_charges, false},
    {"reserved addresses cost no device memory, 1 TiB of them", addresses_cost_nothing, false},
    {"mapping and unmapping take no device memory", mapping_charges_nothing, false},
    {"a released chunk lives until it is unmapped", released_stays_until_unmapped, false},
    {"only whole chunks are mapped, and a part is not supported", only_whole_chunks, false},
    {"no mapping over another", no_mapping_over_another, false},
    {"mappings lie inside one reservation", only_into_reservations, false},
    {"only whole mappings are unmapped", whole_mappings_are_unmapped, false},
    {"neighbours get access, and are unmapped, in one call", neighbours_in_one_call, false},
    {"what is mapped beside a hole can get access", access_over_a_hole, false},
    {"contents move with the chunk", contents_move_with_the_chunk, false},
    {"kernels see what is mapped now", no_stale_translations, false},
    {"two mappings of one chunk show the same bytes", two_views_of_one_chunk, false},
    {"two mappings of one chunk can be written at once, 512 bytes apart", views_written_at_once,
     false},
    {"retaining an address gives the handle that was mapped", retain_gives_the_handle, false},
    {"the range of a mapped address is its mapping", range_is_the_mapping, false},
    {"attributes tell the reservation and the mapping", attributes_tell_the_reservation, false},
    {"asking for tokens sets SYNC_MEMOPS of mapped memory", tokens_mark_mapped_memory, false},
    {"chunks can be made for hardware decompression", chunks_decompress, false},
    {"mapped memory is device memory", mapped_is_device_memory, false},
    {"mapped memory has no IPC handle", no_ipc_of_mapped, false},
    {"access that was set is told", access_is_told, false},
    {"addresses with mappings are not freed", mapped_addresses_stay, false},
    {"chunks of no bytes or of parts of a granule are refused", sizes_are_granular, false},
    {"a chunk too large is out of memory and harms nothing", too_much_is_out_of_memory, false},
    {"a graph replays over memory whose backing was exchanged", graphs_keep_addresses, false},
    {"mapping does not end another stream's capture", beside_a_capture, false},
    {"a handle is released once", released_twice, true},
    {"copies from unmapped addresses are refused", work_on_no_memory, true},
    {NULL, NULL, false},
};
