/* SPDX-License-Identifier: Apache-2.0 */
/* What the driver answers about memory of every road. A line for each: road,question,answer; an
 * answer is a CUresult, and behind a space what was learned, without addresses. Contents are
 * checked: a copy that does not arrive ends the program.
 *
 * Argument `opened`: the same of memory that another process allocated. `textures`: whether memory
 * of every road can be bound to a texture. */
#include <cuda.h>
#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "say.h"

#define BLOCK  (5 * MIB)
#define OFFSET (3 * MIB + 256) /* in another chunk than the beginning */

static CUcontext context;
static CUstream stream;
static CUmemoryPool own_pool, default_pool;
static int talk[2]; /* from the process that shares its memory to the one that opens it */

struct memory {
    const char *road;
    CUdeviceptr at;
    size_t bytes;
};

static void say(const struct memory *memory, const char *question, CUresult result,
                const char *learned)
{
    (void)printf("%s,%s,%d%s%s\n", memory->road, question, (int)result, *learned ? " " : "",
                 result == CUDA_SUCCESS ? learned : "");
}

/* --- roads ------------------------------------------------------------------------------------ */

static CUdeviceptr alloc(void)
{
    CUdeviceptr at = 0;
    MUST(cuMemAlloc(&at, BLOCK));
    return at;
}

static CUdeviceptr alloc_async(void)
{
    CUdeviceptr at = 0;
    MUST(cuMemAllocAsync(&at, BLOCK, stream));
    return at;
}

static CUdeviceptr alloc_from_pool(void)
{
    CUdeviceptr at = 0;
    MUST(cuMemAllocFromPoolAsync(&at, BLOCK, own_pool, stream));
    return at;
}

static CUdeviceptr alloc_pitch(void)
{
    CUdeviceptr at = 0;
    size_t pitch = 0;
    MUST(cuMemAllocPitch(&at, &pitch, 5 * KIB, KIB, 4));
    return at;
}

static CUdeviceptr alloc_managed(void)
{
    CUdeviceptr at = 0;
    MUST(cuMemAllocManaged(&at, BLOCK, CU_MEM_ATTACH_GLOBAL));
    return at;
}

/* Two chunks, as a program maps them. */
static CUdeviceptr map_chunks(void)
{
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .requestedHandleTypes =
                                          CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    const CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUdeviceptr at = 0;
    MUST(cuMemAddressReserve(&at, 6 * MIB, 0, 0, 0));
    for (unsigned i = 0; i < 2; i++) {
        CUmemGenericAllocationHandle chunk = 0;
        MUST(cuMemCreate(&chunk, i == 0 ? 2 * MIB : 4 * MIB, &prop, 0));
        MUST(cuMemMap(at + (CUdeviceptr)i * 2 * MIB, i == 0 ? 2 * MIB : 4 * MIB, 0, chunk, 0));
        MUST(cuMemRelease(chunk));
    }
    MUST(cuMemSetAccess(at, 6 * MIB, &access, 1));
    return at;
}

/* More than the device may hold follows: under memshim its contents lie on the host. Elsewhere
 * there is room for all. */
static CUdeviceptr alloc_cold(void)
{
    CUdeviceptr cold = alloc();
    const char *warm = getenv("ATTRIBUTES_WARM_MIB");
    CUdeviceptr at = 0;
    if (warm) {
        MUST(cuMemAlloc(&at, strtoull(warm, NULL, 10) * MIB));
    }
    return cold;
}

static CUdeviceptr open_shared(void)
{
    CUipcMemHandle name;
    CUdeviceptr at = 0;
    EXPECT(read(talk[0], &name, sizeof name) == sizeof name);
    MUST(cuIpcOpenMemHandle(&at, name, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    return at;
}

/* --- attributes ------------------------------------------------------------------------------- */

#define NAME(attribute) [CU_POINTER_ATTRIBUTE_##attribute] = #attribute
static const char *const names[] = {NAME(CONTEXT),
                                    NAME(MEMORY_TYPE),
                                    NAME(DEVICE_POINTER),
                                    NAME(HOST_POINTER),
                                    NAME(P2P_TOKENS),
                                    NAME(SYNC_MEMOPS),
                                    NAME(BUFFER_ID),
                                    NAME(IS_MANAGED),
                                    NAME(DEVICE_ORDINAL),
                                    NAME(IS_LEGACY_CUDA_IPC_CAPABLE),
                                    NAME(RANGE_START_ADDR),
                                    NAME(RANGE_SIZE),
                                    NAME(MAPPED),
                                    NAME(ALLOWED_HANDLE_TYPES),
                                    NAME(IS_GPU_DIRECT_RDMA_CAPABLE),
                                    NAME(ACCESS_FLAGS),
                                    NAME(MEMPOOL_HANDLE),
                                    NAME(MAPPING_SIZE),
                                    NAME(MAPPING_BASE_ADDR),
                                    NAME(MEMORY_BLOCK_ID),
                                    NAME(IS_HW_DECOMPRESS_CAPABLE)};
enum { ATTRIBUTES = sizeof names / sizeof names[0] };

static bool is_address(int attribute)
{
    return attribute == CU_POINTER_ATTRIBUTE_DEVICE_POINTER ||
           attribute == CU_POINTER_ATTRIBUTE_HOST_POINTER ||
           attribute == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR ||
           attribute == CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR;
}

static const char *owner_text(int attribute, uint64_t value)
{
    if (attribute == CU_POINTER_ATTRIBUTE_CONTEXT) {
        return value == (uint64_t)(uintptr_t)context ? "current" : value ? "other" : "none";
    }
    return value == (uint64_t)(uintptr_t)own_pool       ? "own"
           : value == (uint64_t)(uintptr_t)default_pool ? "default"
           : value                                      ? "other"
                                                        : "none";
}

static const char *text_of(int attribute, uint64_t value, CUdeviceptr at, char text[32])
{
    if (attribute == CU_POINTER_ATTRIBUTE_CONTEXT ||
        attribute == CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE) {
        return owner_text(attribute, value);
    }
    if (attribute == CU_POINTER_ATTRIBUTE_BUFFER_ID ||
        attribute == CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID) {
        return value ? "some" : "none";
    }
    if (is_address(attribute)) {
        (void)snprintf(text, 32, value ? "%+lld" : "none", (long long)(value - at));
    } else {
        (void)snprintf(text, 32, "%llu", (unsigned long long)value);
    }
    return text;
}

static void ask_attributes(const struct memory *memory, CUdeviceptr at, const char *where)
{
    uint64_t values[ATTRIBUTES][2] = {{0}};
    CUpointer_attribute all[ATTRIBUTES];
    void *data[ATTRIBUTES];
    char question[96];
    char text[32];
    unsigned count = 0;
    for (int i = CU_POINTER_ATTRIBUTE_CONTEXT; i < ATTRIBUTES; i++) {
        uint64_t value[2] = {0};
        CUresult result = cuPointerGetAttribute(value, (CUpointer_attribute)i, at);
        (void)snprintf(question, sizeof question, "%s %s", names[i], where);
        say(memory, question, result,
            i == CU_POINTER_ATTRIBUTE_P2P_TOKENS ? "" : text_of(i, value[0], memory->at, text));
        if (i != CU_POINTER_ATTRIBUTE_P2P_TOKENS) {
            all[count] = (CUpointer_attribute)i;
            data[count] = values[count];
            count++;
        }
    }
    CUresult result = cuPointerGetAttributes(count, all, data, at);
    for (unsigned i = 0; i < count; i++) {
        (void)snprintf(question, sizeof question, "all: %s %s", names[all[i]], where);
        say(memory, question, result, text_of((int)all[i], values[i][0], memory->at, text));
    }
}

/* --- ranges and handles ----------------------------------------------------------------------- */

static void ask_range(const struct memory *memory, CUdeviceptr at, const char *where)
{
    CUdeviceptr base = 0;
    size_t bytes = 0;
    char question[96];
    char text[64];
    CUresult result = cuMemGetAddressRange(&base, &bytes, at);
    (void)snprintf(question, sizeof question, "address range %s", where);
    (void)snprintf(text, sizeof text, "%+lld %zu", (long long)(base - memory->at), bytes);
    say(memory, question, result, text);
}

static void ask_dma_buf(const struct memory *memory, size_t offset, size_t bytes, const char *where)
{
    int fd = -1;
    char question[96];
    CUresult result = cuMemGetHandleForAddressRange(&fd, memory->at + offset, bytes,
                                                    CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
    (void)snprintf(question, sizeof question, "dma-buf %s", where);
    say(memory, question, result, "");
    if (fd >= 0) {
        (void)close(fd);
    }
}

static void ask_handles(const struct memory *memory)
{
    CUmemGenericAllocationHandle chunk = 0;
    CUmemAllocationProp prop = {0};
    CUipcMemHandle name;
    unsigned long long flags = 0;
    const CUmemLocation device = {.type = CU_MEM_LOCATION_TYPE_DEVICE};
    char text[64] = "";
    CUresult result = cuMemRetainAllocationHandle(&chunk, (void *)(uintptr_t)memory->at);
    say(memory, "retained handle", result, "");
    if (result == CUDA_SUCCESS) {
        MUST(cuMemGetAllocationPropertiesFromHandle(&prop, chunk));
        (void)snprintf(text, sizeof text, "%d %d %d %d", (int)prop.type, (int)prop.location.type,
                       (int)prop.requestedHandleTypes, (int)prop.allocFlags.gpuDirectRDMACapable);
        say(memory, "its properties", result, text);
        MUST(cuMemRelease(chunk));
    }
    say(memory, "name for other processes", cuIpcGetMemHandle(&name, memory->at), "");
    result = cuMemGetAccess(&flags, &device, memory->at);
    (void)snprintf(text, sizeof text, "%llu", flags);
    say(memory, "access", result, text);
    ask_dma_buf(memory, 0, 2 * MIB, "of its beginning");
    ask_dma_buf(memory, 0, 4 * MIB, "of several chunks");
    ask_dma_buf(memory, 64 * KIB, 64 * KIB, "of a part");
    ask_dma_buf(memory, 100, 100, "not aligned");
}

/* --- copies ----------------------------------------------------------------------------------- */

static void must_hold(const unsigned char *host, size_t bytes, unsigned char value)
{
    for (size_t i = 0; i < bytes; i++) {
        EXPECT(host[i] == value);
    }
}

static void ask_copies(const struct memory *memory)
{
    static unsigned char host[BLOCK];
    CUdeviceptr other = 0;
    MUST(cuMemAlloc(&other, BLOCK));
    CUresult result = cuMemsetD8(memory->at, 9, BLOCK);
    say(memory, "set", result, "");
    result = cuMemcpy((CUdeviceptr)(uintptr_t)host, memory->at, BLOCK);
    say(memory, "copy to the host by address", result, "");
    must_hold(host, result == CUDA_SUCCESS ? BLOCK : 0, 9);
    memset(host, 4, BLOCK);
    say(memory, "copy from the host", cuMemcpyHtoD(memory->at, host, BLOCK), "");
    say(memory, "copy to the device", cuMemcpyDtoD(other, memory->at, BLOCK), "");
    say(memory, "peer copy", cuMemcpyPeer(other, context, memory->at, context, BLOCK), "");
    say(memory, "copy beyond its end", cuMemcpyDtoD(other, memory->at + MIB, BLOCK), "");
    const CUDA_MEMCPY2D plane = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                                 .srcDevice = memory->at,
                                 .srcPitch = 5 * KIB,
                                 .dstMemoryType = CU_MEMORYTYPE_HOST,
                                 .dstHost = host,
                                 .dstPitch = 4 * KIB,
                                 .WidthInBytes = 4 * KIB,
                                 .Height = KIB};
    memset(host, 0, BLOCK);
    result = cuMemcpy2D(&plane);
    say(memory, "copy of a plane", result, "");
    must_hold(host, result == CUDA_SUCCESS ? 4 * MIB : 0, 4);
    const CUDA_MEMCPY3D space = {.srcMemoryType = CU_MEMORYTYPE_UNIFIED,
                                 .srcDevice = memory->at,
                                 .srcPitch = KIB,
                                 .srcHeight = KIB,
                                 .dstMemoryType = CU_MEMORYTYPE_HOST,
                                 .dstHost = host,
                                 .dstPitch = KIB,
                                 .dstHeight = KIB,
                                 .WidthInBytes = KIB,
                                 .Height = KIB,
                                 .Depth = 5};
    memset(host, 0, BLOCK);
    result = cuMemcpy3D(&space);
    say(memory, "copy of a space", result, "");
    must_hold(host, result == CUDA_SUCCESS ? BLOCK : 0, 4);
    say(memory, "set of a plane", cuMemsetD2D8(memory->at, 5 * KIB, 1, 4 * KIB, KIB), "");
    MUST(cuCtxSynchronize());
    MUST(cuMemFree(other));
}

static void ask_advice(const struct memory *memory)
{
    const CUmemLocation device = {.type = CU_MEM_LOCATION_TYPE_DEVICE};
    unsigned on = 1;
    say(memory, "prefetch", cuMemPrefetchAsync(memory->at, BLOCK, device, 0, stream), "");
    say(memory, "advice", cuMemAdvise(memory->at, BLOCK, CU_MEM_ADVISE_SET_READ_MOSTLY, device),
        "");
    say(memory, "attribute of a range",
        cuMemRangeGetAttribute(&on, sizeof on, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, memory->at,
                               BLOCK),
        "");
    on = 1;
    say(memory, "synchronous operations",
        cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, memory->at), "");
    ask_attributes(memory, memory->at, "at the end");
}

/* --- textures --------------------------------------------------------------------------------- */

static void ask_texture(const struct memory *memory, const char *question,
                        const CUDA_RESOURCE_DESC *resource)
{
    const CUDA_TEXTURE_DESC texture = {.flags = CU_TRSF_READ_AS_INTEGER};
    CUtexObject object = 0;
    CUresult result = cuTexObjectCreate(&object, resource, &texture, NULL);
    say(memory, question, result, "");
    if (result == CUDA_SUCCESS) {
        MUST(cuTexObjectDestroy(object));
    }
}

static void ask_textures(const struct memory *memory)
{
    const CUDA_RESOURCE_DESC line = {.resType = CU_RESOURCE_TYPE_LINEAR,
                                     .res.linear = {.devPtr = memory->at,
                                                    .format = CU_AD_FORMAT_UNSIGNED_INT32,
                                                    .numChannels = 1,
                                                    .sizeInBytes = BLOCK}};
    const CUDA_RESOURCE_DESC plane = {.resType = CU_RESOURCE_TYPE_PITCH2D,
                                      .res.pitch2D = {.devPtr = memory->at,
                                                      .format = CU_AD_FORMAT_UNSIGNED_INT32,
                                                      .numChannels = 1,
                                                      .width = KIB,
                                                      .height = KIB,
                                                      .pitchInBytes = 5 * KIB}};
    ask_texture(memory, "texture of a line", &line);
    ask_texture(memory, "texture of a plane", &plane);
}

/* --- all of it -------------------------------------------------------------------------------- */

struct road {
    const char *name;
    CUdeviceptr (*make)(void);
    size_t bytes;
};

static const struct road roads[] = {
    {"cold", alloc_cold, BLOCK},      {"alloc", alloc, BLOCK},
    {"pitch", alloc_pitch, BLOCK},    {"async", alloc_async, BLOCK},
    {"pool", alloc_from_pool, BLOCK}, {"managed", alloc_managed, BLOCK},
    {"mapped", map_chunks, 6 * MIB},
};

static void use_device(void)
{
    const CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                  .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    MUST(cuMemPoolCreate(&own_pool, &props));
    MUST(cuDeviceGetDefaultMemPool(&default_pool, 0));
}

static struct memory make(const struct road *road)
{
    const struct memory memory = {road->name, road->make(), road->bytes};
    MUST(cuStreamSynchronize(stream));
    return memory;
}

static void ask_all(const struct road *road)
{
    const struct memory memory = make(road);
    ask_attributes(&memory, memory.at, "at its beginning");
    ask_attributes(&memory, memory.at + OFFSET, "inside");
    ask_range(&memory, memory.at, "at its beginning");
    ask_range(&memory, memory.at + OFFSET, "inside");
    ask_range(&memory, memory.at + memory.bytes - 1, "at its last byte");
    ask_handles(&memory);
    ask_copies(&memory);
    ask_advice(&memory);
}

/* The child opens and asks; its status becomes the program's. */
static int share(void)
{
    const struct road opened = {"opened", open_shared, BLOCK};
    CUipcMemHandle name;
    int status = 1;
    MUST(pipe(talk));
    const pid_t child = fork();
    EXPECT(child >= 0);
    use_device();
    if (child == 0) {
        ask_all(&opened);
        return 0;
    }
    MUST(cuIpcGetMemHandle(&name, alloc()));
    EXPECT(write(talk[1], &name, sizeof name) == sizeof name);
    EXPECT(waitpid(child, &status, 0) == child);
    return status != 0;
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "opened") == 0) {
        return share();
    }
    use_device();
    for (size_t i = 0; i < sizeof roads / sizeof roads[0]; i++) {
        if (argc > 1 && strcmp(argv[1], "textures") == 0) {
            const struct memory memory = make(&roads[i]);
            ask_textures(&memory);
        } else {
            ask_all(&roads[i]);
        }
    }
    return 0;
}
