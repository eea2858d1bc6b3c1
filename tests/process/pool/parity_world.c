/* SPDX-License-Identifier: Apache-2.0 */
/* Making, passing and clearing away. What the driver refuses to make is left out; what was made is
 * the same with and without memshim. */
#include "parity_world.h"

#include <dlfcn.h>
#include <string.h>

#include "say.h"

enum { BLOCK_BYTES = 1 << 16, CHUNK_BYTES = 2 << 20, PASSED_BYTES = 4096, SCRATCH_BYTES = 1 << 16 };

struct driver_of_parity cu;

static const char image[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
                            ".visible .entry nothing()\n{\n    ret;\n}\n";
/* Where parameters that are pointers point to, all zero before each call. */
static _Alignas(4096) unsigned char scratch[SCRATCH_BYTES];
static _Alignas(4096) unsigned char register_here[CHUNK_BYTES];

static const CUmemAllocationProp chunk_of_device = {
    .type = CU_MEM_ALLOCATION_TYPE_PINNED,
    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
static const CUmemPoolProps pool_of_device = {
    .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
static const CUmemAccessDesc access_of_device = {
    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
static const CUDA_ARRAY_DESCRIPTOR shape = {64, 4, CU_AD_FORMAT_FLOAT, 1};
static const CUDA_ARRAY3D_DESCRIPTOR shape_3d = {64, 4, 2, CU_AD_FORMAT_FLOAT, 1, 0};

static void find(const char *symbol, void *function)
{
    void *address = dlsym(cu.library, symbol);
    if (address == NULL) {
        (void)fprintf(stderr, "the driver lacks %s\n", symbol);
        exit(1);
    }
    memcpy(function, &address, sizeof address);
}

void world_open(void)
{
    cu.library = dlopen("libcuda.so.1", RTLD_NOW);
    EXPECT(cu.library != NULL);
    find("cuInit", &cu.cuInit);
    find("cuDeviceGetDefaultMemPool", &cu.cuDeviceGetDefaultMemPool);
    find("cuDevicePrimaryCtxRetain", &cu.cuDevicePrimaryCtxRetain);
    find("cuCtxCreate_v2", &cu.cuCtxCreate);
    find("cuCtxDestroy_v2", &cu.cuCtxDestroy);
    find("cuCtxPopCurrent_v2", &cu.cuCtxPopCurrent);
    find("cuCtxSetCurrent", &cu.cuCtxSetCurrent);
    find("cuCtxSynchronize", &cu.cuCtxSynchronize);
    find("cuMemAlloc_v2", &cu.cuMemAlloc);
    find("cuMemFree_v2", &cu.cuMemFree);
    find("cuMemAllocManaged", &cu.cuMemAllocManaged);
    find("cuMemAllocAsync", &cu.cuMemAllocAsync);
    find("cuMemFreeAsync", &cu.cuMemFreeAsync);
    find("cuMemAllocHost_v2", &cu.cuMemAllocHost);
    find("cuMemFreeHost", &cu.cuMemFreeHost);
    find("cuMemPoolCreate", &cu.cuMemPoolCreate);
    find("cuMemPoolDestroy", &cu.cuMemPoolDestroy);
    find("cuMemAddressReserve", &cu.cuMemAddressReserve);
    find("cuMemAddressFree", &cu.cuMemAddressFree);
    find("cuMemCreate", &cu.cuMemCreate);
    find("cuMemRelease", &cu.cuMemRelease);
    find("cuMemMap", &cu.cuMemMap);
    find("cuMemUnmap", &cu.cuMemUnmap);
    find("cuMemSetAccess", &cu.cuMemSetAccess);
    find("cuStreamCreate", &cu.cuStreamCreate);
    find("cuStreamDestroy_v2", &cu.cuStreamDestroy);
    find("cuStreamIsCapturing", &cu.cuStreamIsCapturing);
    find("cuStreamBeginCapture_v2", &cu.cuStreamBeginCapture);
    find("cuStreamEndCapture", &cu.cuStreamEndCapture);
    find("cuLaunchHostFunc", &cu.cuLaunchHostFunc);
    find("cuModuleLoadData", &cu.cuModuleLoadData);
    find("cuModuleGetFunction", &cu.cuModuleGetFunction);
    find("cuModuleUnload", &cu.cuModuleUnload);
    find("cuGraphCreate", &cu.cuGraphCreate);
    find("cuGraphAddEmptyNode", &cu.cuGraphAddEmptyNode);
    find("cuGraphInstantiateWithFlags", &cu.cuGraphInstantiate);
    find("cuGraphExecDestroy", &cu.cuGraphExecDestroy);
    find("cuGraphDestroy", &cu.cuGraphDestroy);
    find("cuArrayCreate_v2", &cu.cuArrayCreate);
    find("cuArrayDestroy", &cu.cuArrayDestroy);
}

void world_first(struct world *world)
{
    MUST(cu.cuInit(0));
    MUST(cu.cuDevicePrimaryCtxRetain(&world->context, 0));
    if (cu.cuDevicePrimaryCtxRetain(&world->second, 1) != CUDA_SUCCESS) {
        world->second = world->context;
    }
    MUST(cu.cuCtxSetCurrent(world->context));
}

static bool is(const char *symbol, const char *prefix)
{
    return strncmp(symbol, prefix, strlen(prefix)) == 0;
}

static void make_mapping(struct world *world)
{
    CUdeviceptr at = 0;
    if (cu.cuMemAddressReserve(&at, CHUNK_BYTES, 0, 0, 0) != CUDA_SUCCESS) {
        return;
    }
    if (cu.cuMemCreate(&world->mapped_chunk, CHUNK_BYTES, &chunk_of_device, 0) == CUDA_SUCCESS &&
        cu.cuMemMap(at, CHUNK_BYTES, 0, world->mapped_chunk, 0) == CUDA_SUCCESS) {
        (void)cu.cuMemSetAccess(at, CHUNK_BYTES, &access_of_device, 1);
        world->mapped = at;
    }
}

void world_begin(struct world *world, const char *symbol)
{
    memset(scratch, 0, sizeof scratch);
    MUST(cu.cuStreamCreate(&world->stream, CU_STREAM_NON_BLOCKING));
    MUST(cu.cuMemAlloc(&world->block, BLOCK_BYTES));
    (void)cu.cuMemAllocAsync(&world->ordered, BLOCK_BYTES, world->stream);
    (void)cu.cuMemAllocManaged(&world->managed, BLOCK_BYTES, CU_MEM_ATTACH_GLOBAL);
    (void)cu.cuMemAllocHost(&world->host, BLOCK_BYTES);
    (void)cu.cuMemPoolCreate(&world->pool, &pool_of_device);
    (void)cu.cuDeviceGetDefaultMemPool(&world->default_pool, 0);
    (void)cu.cuMemCreate(&world->chunk, CHUNK_BYTES, &chunk_of_device, 0);
    (void)cu.cuMemAddressReserve(&world->reserved, CHUNK_BYTES, 0, 0, 0);
    make_mapping(world);
    MUST(cu.cuModuleLoadData(&world->module, image));
    (void)cu.cuModuleGetFunction(&world->kernel, world->module, "nothing");
    (void)cu.cuGraphCreate(&world->graph, 0);
    (void)cu.cuGraphAddEmptyNode(&world->node, world->graph, NULL, 0);
    (void)cu.cuGraphInstantiate(&world->exec, world->graph, 0);
    (void)cu.cuArrayCreate(&world->array, &shape);
    if (is(symbol, "cuCtxDestroy") || is(symbol, "cuCtxDetach")) {
        CUcontext popped;
        MUST(cu.cuCtxCreate(&world->spare, 0, 0));
        MUST(cu.cuCtxPopCurrent(&popped));
    }
    if (is(symbol, "cuDevicePrimaryCtxRelease")) {
        MUST(cu.cuDevicePrimaryCtxRetain(&world->context, 0));
    }
    MUST(cu.cuCtxSynchronize());
}

/* All that lives in the first context, or on its device, went with it. */
static void forget(struct world *world)
{
    CUcontext context = world->context;
    CUcontext second = world->second;
    const CUdeviceptr mapped = world->mapped, reserved = world->reserved;
    const CUmemGenericAllocationHandle chunk = world->chunk, mapped_chunk = world->mapped_chunk;
    *world = (struct world){.context = context,
                            .second = second,
                            .mapped = mapped,
                            .reserved = reserved,
                            .chunk = chunk,
                            .mapped_chunk = mapped_chunk};
}

void world_called(struct world *world, const char *symbol, CUresult result)
{
    if (result != CUDA_SUCCESS) {
        return;
    }
    if (is(symbol, "cuDevicePrimaryCtxReset")) {
        forget(world);
    } else if (is(symbol, "cuCtxD") && !is(symbol, "cuCtxDisable")) {
        world->spare = NULL;
    } else if (is(symbol, "cuMemFreeAsync")) {
        world->ordered = 0;
    } else if (is(symbol, "cuMemFreeHost")) {
        world->host = NULL;
    } else if (is(symbol, "cuMemFree")) {
        world->block = 0;
    } else if (is(symbol, "cuMemPoolDestroy")) {
        world->pool = NULL;
    } else if (is(symbol, "cuMemAddressFree")) {
        world->reserved = 0;
    } else if (is(symbol, "cuMemRelease")) {
        world->chunk = 0;
    } else if (is(symbol, "cuMemMap")) {
        (void)cu.cuMemUnmap(world->reserved, CHUNK_BYTES);
    } else if (is(symbol, "cuStreamDestroy")) {
        world->stream = NULL;
    } else if (is(symbol, "cuModuleUnload")) {
        world->module = NULL;
    } else if (is(symbol, "cuGraphExecDestroy")) {
        world->exec = NULL;
    } else if (is(symbol, "cuArrayDestroy")) {
        world->array = NULL;
    }
}

void world_end(struct world *world)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    CUgraph captured = NULL;
    MUST(cu.cuDevicePrimaryCtxRetain(&world->context, 0));
    MUST(cu.cuCtxSetCurrent(world->context));
    if (world->stream != NULL && cu.cuStreamIsCapturing(world->stream, &status) == CUDA_SUCCESS &&
        status != CU_STREAM_CAPTURE_STATUS_NONE) {
        (void)cu.cuStreamEndCapture(world->stream, &captured);
    }
#define CLEAR(what, call)  \
    do {                   \
        if ((what) != 0) { \
            (void)cu.call; \
            (what) = 0;    \
        }                  \
    } while (0)
    CLEAR(world->array, cuArrayDestroy(world->array));
    CLEAR(world->exec, cuGraphExecDestroy(world->exec));
    CLEAR(world->graph, cuGraphDestroy(world->graph));
    CLEAR(world->module, cuModuleUnload(world->module));
    CLEAR(world->mapped, cuMemUnmap(world->mapped, CHUNK_BYTES));
    CLEAR(world->mapped_chunk, cuMemRelease(world->mapped_chunk));
    CLEAR(world->reserved, cuMemAddressFree(world->reserved, CHUNK_BYTES));
    CLEAR(world->chunk, cuMemRelease(world->chunk));
    CLEAR(world->host, cuMemFreeHost(world->host));
    CLEAR(world->managed, cuMemFree(world->managed));
    CLEAR(world->ordered, cuMemFreeAsync(world->ordered, world->stream));
    CLEAR(world->block, cuMemFree(world->block));
    CLEAR(world->pool, cuMemPoolDestroy(world->pool));
    CLEAR(world->stream, cuStreamDestroy(world->stream));
    CLEAR(world->spare, cuCtxDestroy(world->spare));
#undef CLEAR
}

/* --- arguments -------------------------------------------------------------------------------- */

static void CUDA_CB host_function(void *unused)
{
    (void)unused;
}

static void CUDA_CB callback(CUstream stream, CUresult result, void *unused)
{
    (void)stream;
    (void)result;
    (void)unused;
}

static uint64_t address_for(const struct world *world, const char *symbol)
{
    if (is(symbol, "cuMemMap") || is(symbol, "cuMemAddressFree")) {
        return world->reserved;
    }
    if (is(symbol, "cuMemUnmap") || is(symbol, "cuMemSetAccess") || is(symbol, "cuMemGetAccess") ||
        is(symbol, "cuMemRetain") || is(symbol, "cuMulticastBindAddr")) {
        return world->mapped;
    }
    if (is(symbol, "cuMemPrefetch") || is(symbol, "cuStreamAttachMem")) {
        return world->managed;
    }
    if (is(symbol, "cuMemAddressReserve")) {
        return 0;
    }
    return is(symbol, "cuMemFreeAsync") ? world->ordered : world->block;
}

/* Of integers, by the name: what is a size is small, what counts things is 1, the rest is 0. */
static uint64_t number_for(const char *symbol, const char *name)
{
    static const char *const sizes[] = {"ByteCount", "bytesize", "Bytesize", "length", "N"};
    static const char *const ones[] = {"gridDim", "blockDim", "grid_", "numMipmapLevels"};
    bool chunks = is(symbol, "cuMemCreate") || is(symbol, "cuMemMap") || is(symbol, "cuMemUnmap") ||
                  is(symbol, "cuMemAddress") || is(symbol, "cuMemSetAccess");
    if (strcmp(name, "size") == 0 || (is(symbol, "cuMemPrefetch") && strcmp(name, "count") == 0)) {
        return chunks ? CHUNK_BYTES : PASSED_BYTES;
    }
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        if (strcmp(name, sizes[i]) == 0) {
            return PASSED_BYTES;
        }
    }
    for (size_t i = 0; i < sizeof ones / sizeof ones[0]; i++) {
        if (is(name, ones[i])) {
            return 1;
        }
    }
    if (is(name, "Width") || strcmp(name, "ElementSizeBytes") == 0) {
        return is(name, "Width") ? 64 : 4;
    }
    if (strcmp(name, "Height") == 0 || strcmp(name, "count") == 0) {
        return strcmp(name, "Height") == 0 ? 4 : 1;
    }
    if (strstr(name, "Pitch") != NULL) {
        return 512;
    }
    return is(symbol, "cuMemAllocManaged") || is(symbol, "cuStreamAttachMem") ? 1 : 0;
}

static uint64_t of(const void *pointer)
{
    return (uint64_t)(uintptr_t)pointer;
}

static uint64_t pointer_for(const struct world *world, const char *symbol, const char *type,
                            const char *name)
{
    if (is(type, "const CUmemAllocationProp")) {
        return of(&chunk_of_device);
    }
    if (is(type, "const CUmemPoolProps")) {
        return of(&pool_of_device);
    }
    if (is(type, "const CUmemAccessDesc")) {
        return of(&access_of_device);
    }
    if (is(type, "const CUDA_ARRAY_DESCRIPTOR")) {
        return of(&shape);
    }
    if (is(type, "const CUDA_ARRAY3D_DESCRIPTOR")) {
        return of(&shape_3d);
    }
    if (strstr(type, "CUmemLocation") != NULL) {
        return of(&chunk_of_device.location);
    }
    if (strcmp(name, "image") == 0 || strcmp(name, "code") == 0) {
        return of(image);
    }
    if (is(symbol, "cuMemHostRegister")) {
        return of(register_here);
    }
    if (is(symbol, "cuMemFreeHost")) {
        return of(world->host);
    }
    if (strcmp(name, "name") == 0) {
        return of("nothing");
    }
    if (is(name, "dependencies") || is(name, "dependencyData") || strcmp(name, "extra") == 0 ||
        strcmp(name, "kernelParams") == 0) {
        return 0;
    }
    return of(scratch);
}

static uint64_t handle_for(const struct world *world, const char *symbol, const char *type,
                           const char *name)
{
    const struct {
        const char *type;
        uint64_t value;
    } handles[] = {
        {"CUstreamCaptureMode", CU_STREAM_CAPTURE_MODE_RELAXED},
        {"CUstreamCallback", of((void *)(uintptr_t)callback)},
        {"CUstream", world->legacy ? 0 : of(world->stream)},
        {"CUcontext", of(world->spare != NULL ? world->spare : world->context)},
        {"CUmemoryPool", of(is(symbol, "cuMemPoolDestroy") ? world->pool : world->default_pool)},
        {"CUmodule", of(world->module)},
        {"CUfunction", of(world->kernel)},
        {"CUgraphNode", of(world->node)},
        {"CUgraphExec", of(world->exec)},
        {"CUgraph", of(world->graph)},
        {"CUarray", of(world->array)},
        {"CUhostFn", of((void *)(uintptr_t)host_function)},
        {"CUmemGenericAllocationHandle", world->chunk},
        {"CUmemLocation", 1}, /* by value: device 0 */
        {"CUmemPool_attribute", CU_MEMPOOL_ATTR_USED_MEM_HIGH},
        {"CUpointer_attribute", CU_POINTER_ATTRIBUTE_MEMORY_TYPE},
        {"CUmemAllocationHandleType", CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR},
        {"CUmemAllocationType", CU_MEM_ALLOCATION_TYPE_PINNED},
    };
    if (is(type, "CUdeviceptr_v1") || is(type, "CUdevice ") || is(type, "CUdevice_v1")) {
        return 0;
    }
    if (is(type, "CUdeviceptr")) {
        return address_for(world, symbol);
    }
    for (size_t i = 0; i < sizeof handles / sizeof handles[0]; i++) {
        if (is(type, handles[i].type)) {
            return handles[i].value;
        }
    }
    return is(type, "CU") ? 0 : number_for(symbol, name);
}

uint64_t world_argument(struct world *world, const char *symbol, const char *parameter, bool valid)
{
    while (*parameter == ' ') {
        parameter++;
    }
    const char *name = strrchr(parameter, ' ');
    if (name == NULL) {
        return 0; /* void */
    }
    name++;
    bool is_pointer = strchr(parameter, '*') != NULL;
    while (*name == '*') {
        name++;
    }
    if (is_pointer) {
        return valid ? pointer_for(world, symbol, parameter, name) : 0;
    }
    bool is_number = !(parameter[0] == 'C' && parameter[1] == 'U');
    return is_number && !valid ? 0 : handle_for(world, symbol, parameter, name);
}
