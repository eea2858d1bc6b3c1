/* SPDX-License-Identifier: Apache-2.0 */
/* A program that calls the driver at random, rightly and wrongly, and says what each call answered:
 * results, addresses by the block that they lie in, attributes, and what memory holds. One thread,
 * and no two streams at one block at once, so that all of it follows from the seed. What it says
 * must be the same with and without memshim (torture.py compares).
 *
 *   answers_job SEED CALLS [no-peers]   no-peers: the devices have no access to each other; what
 *                                       names a stream stays with its device (docs/coverage.md)
 *
 * Kept away from: handles that were destroyed (undefined in cuda.h), and what docs/coverage.md says
 * differs. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>

#include <cuda.h>

#include "say.h"

enum {
    DEVICES = 2,
    CONTEXTS = 5, /* the first DEVICES are the primary ones */
    STREAMS = 6,
    EVENTS = 4,
    BLOCKS = 20,
    POOLS = 3,
    HOSTS = 4,
    CHUNKS = 4,
    LIVE_BYTES = 256 * 1024 * 1024
};

enum road { ALLOCATED, PITCHED, MANAGED, ORDERED, FROM_POOL };

struct block {
    CUdeviceptr at; /* 0: an empty place */
    size_t bytes;
    enum road road;
    int context; /* that was current when it was made */
    int stream;  /* the last whose work used it; -1: none */
    int pool;
};

struct stream {
    CUstream handle;
    int context;
};

struct event {
    CUevent handle;
    int context;
};

struct host {
    unsigned char *at;
    size_t bytes;
    int context;
    bool registered; /* malloc'd and registered, not allocated by the driver */
};

/* Physical memory that the program maps itself, each in a reservation of its own. */
struct chunk {
    CUmemGenericAllocationHandle handle;
    CUdeviceptr at; /* of the reservation */
    size_t bytes;
    bool held, mapped;
};

static uint64_t random_state;
static unsigned call_number;
static bool peers = true;
static size_t live_bytes;
static CUcontext contexts[CONTEXTS];
static struct stream streams[STREAMS];
static struct event events[EVENTS];
static struct block blocks[BLOCKS];
static CUmemoryPool pools[POOLS], default_pools[DEVICES];
static struct host hosts[HOSTS];
static struct chunk chunks[CHUNKS];
static CUarray array;
static int array_context;
static unsigned char bounce[64 * 1024];

static unsigned draw(unsigned below)
{
    return (unsigned)(next_random(&random_state) % below);
}

static bool one_in(unsigned many)
{
    return draw(many) == 0;
}

__attribute__((format(printf, 2, 3))) static void say(CUresult result, const char *form, ...)
{
    va_list arguments;
    va_start(arguments, form);
    (void)printf("%u ", call_number);
    (void)vprintf(form, arguments);
    (void)printf(" -> %d\n", (int)result);
    va_end(arguments);
}

/* ---- names of things, the same in every process -----------------------------------------------
 */

static int context_number(CUcontext context)
{
    for (int i = 0; i < CONTEXTS; i++) {
        if (context != NULL && contexts[i] == context) {
            return i;
        }
    }
    return context == NULL ? -1 : -2;
}

static int device_of(int context)
{
    return context < DEVICES ? context : context % DEVICES;
}

static int current(void)
{
    CUcontext context = NULL;
    MUST(cuCtxGetCurrent(&context));
    return context_number(context);
}

/* Of a block, a chunk's reservation or host memory; a string that the next eight calls leave. */
static const char *place(CUdeviceptr at)
{
    static char texts[8][40];
    static unsigned next;
    char *text = texts[next++ % 8];
    (void)snprintf(text, sizeof texts[0], at == 0 ? "null" : "elsewhere");
    for (int i = 0; i < BLOCKS; i++) {
        if (blocks[i].at != 0 && at >= blocks[i].at && at <= blocks[i].at + blocks[i].bytes) {
            (void)snprintf(text, sizeof texts[0], "block%d+%zu", i, (size_t)(at - blocks[i].at));
            if (at < blocks[i].at + blocks[i].bytes) {
                return text;
            }
        }
    }
    for (int i = 0; i < HOSTS; i++) {
        const uintptr_t from = (uintptr_t)hosts[i].at;
        if (from != 0 && at >= from && at < from + hosts[i].bytes) {
            (void)snprintf(text, sizeof texts[0], "host%d+%zu", i, (size_t)(at - from));
        }
    }
    for (int i = 0; i < CHUNKS; i++) {
        if (chunks[i].at != 0 && at >= chunks[i].at && at < chunks[i].at + chunks[i].bytes) {
            (void)snprintf(text, sizeof texts[0], "chunk%d+%zu", i, (size_t)(at - chunks[i].at));
        }
    }
    return text;
}

static int pool_number(CUmemoryPool pool)
{
    for (int i = 0; i < POOLS; i++) {
        if (pool != NULL && pools[i] == pool) {
            return i;
        }
    }
    for (int i = 0; i < DEVICES; i++) {
        if (pool == default_pools[i]) {
            return POOLS + i;
        }
    }
    return pool == NULL ? -1 : -2;
}

/* ---- choices ----------------------------------------------------------------------------------
 */

static size_t draw_bytes(void)
{
    static const size_t sizes[] = {1,       3,       256,         511,         512,     4096,
                                   65536,   65537,   MIB - 1,     MIB,         MIB + 1, 2 * MIB,
                                   2 * MIB, 3 * MIB, 2 * MIB + 1, 5 * MIB + 8, 33 * MIB};
    static const size_t wrong[] = {0, (size_t)1 << 40, SIZE_MAX, SIZE_MAX - 1, SIZE_MAX / 2 + 1};
    if (one_in(25)) {
        return wrong[draw(sizeof wrong / sizeof wrong[0])];
    }
    return sizes[draw(sizeof sizes / sizeof sizes[0])];
}

static int free_block(void)
{
    if (live_bytes > LIVE_BYTES) {
        return -1;
    }
    for (int i = 0; i < BLOCKS; i++) {
        if (blocks[i].at == 0) {
            return i;
        }
    }
    return -1;
}

static int live_block(void)
{
    const int from = (int)draw(BLOCKS);
    for (int i = 0; i < BLOCKS; i++) {
        const int at = (from + i) % BLOCKS;
        if (blocks[at].at != 0) {
            return at;
        }
    }
    return -1;
}

/* A stream of the current context; -1 stands for the null stream. */
static int live_stream(void)
{
    const int here = current(), from = (int)draw(STREAMS);
    for (int i = 0; i < STREAMS && !one_in(4); i++) {
        const int at = (from + i) % STREAMS;
        if (streams[at].handle != NULL && streams[at].context == here) {
            return at;
        }
    }
    return -1;
}

static CUstream handle_of(int stream)
{
    return stream < 0 ? NULL : streams[stream].handle;
}

/* All work of all contexts is done: what follows may use any block. */
static void settle(void)
{
    for (int i = 0; i < CONTEXTS; i++) {
        if (contexts[i] == NULL) {
            continue;
        }
        MUST(cuCtxPushCurrent(contexts[i]));
        MUST(cuCtxSynchronize());
        CUcontext popped;
        MUST(cuCtxPopCurrent(&popped));
    }
    for (int i = 0; i < BLOCKS; i++) {
        blocks[i].stream = -1;
    }
}

/* Work of this stream may use this block: that of others is over. */
static void use(int block, int stream)
{
    if (blocks[block].stream != -1 && blocks[block].stream != stream) {
        settle();
    }
    blocks[block].stream = stream;
}

static void forget(int block)
{
    live_bytes -= blocks[block].bytes;
    blocks[block] = (struct block){0};
}

/* What a context had is gone with it. */
static void forget_context(int context)
{
    for (int i = 0; i < BLOCKS; i++) {
        if (blocks[i].at != 0 && blocks[i].context == context) {
            forget(i);
        }
    }
    for (int i = 0; i < STREAMS; i++) {
        if (streams[i].context == context) {
            streams[i].handle = NULL;
        }
    }
    for (int i = 0; i < EVENTS; i++) {
        if (events[i].context == context) {
            events[i].handle = NULL;
        }
    }
    for (int i = 0; i < HOSTS; i++) {
        if (hosts[i].context == context) {
            hosts[i].at = NULL;
        }
    }
    if (array_context == context) {
        array = NULL;
    }
}

/* ---- allocations ------------------------------------------------------------------------------
 */

static void keep(int at, CUdeviceptr block, size_t bytes, enum road road, int stream, int pool)
{
    blocks[at] = (struct block){block, bytes, road, current(), stream, pool};
    live_bytes += bytes;
    /* Its contents are known from here on. */
    const CUresult result =
        cuMemsetD8Async(block, (unsigned char)call_number, bytes, handle_of(stream));
    say(result, "  set block%d", at);
    if (stream < 0) {
        settle();
    }
}

static void call_alloc(void)
{
    const int at = free_block();
    if (at < 0) {
        return;
    }
    CUdeviceptr block = 0;
    const size_t bytes = draw_bytes();
    const CUresult result = cuMemAlloc(&block, bytes);
    say(result, "cuMemAlloc block%d %zu", at, bytes);
    if (result == CUDA_SUCCESS) {
        keep(at, block, bytes, ALLOCATED, -1, -1);
    }
}

static void call_alloc_pitch(void)
{
    static const unsigned elements[] = {4, 8, 16, 0, 3};
    const int at = free_block();
    if (at < 0) {
        return;
    }
    CUdeviceptr block = 0;
    size_t pitch = 0;
    const size_t width = draw_bytes() % (MIB + 1), rows = draw(5);
    const unsigned element = elements[draw(one_in(5) ? 5 : 3)];
    const CUresult result = cuMemAllocPitch(&block, &pitch, width, rows, element);
    say(result, "cuMemAllocPitch block%d %zu x %zu of %u: pitch %zu", at, width, rows, element,
        result == CUDA_SUCCESS ? pitch : 0);
    if (result == CUDA_SUCCESS) {
        keep(at, block, pitch * rows, PITCHED, -1, -1);
    }
}

static void call_alloc_managed(void)
{
    const int at = free_block();
    if (at < 0) {
        return;
    }
    CUdeviceptr block = 0;
    const size_t bytes = draw_bytes() % (4 * MIB); /* it never spills */
    const unsigned flags = one_in(10) ? draw(8) : CU_MEM_ATTACH_GLOBAL;
    const CUresult result = cuMemAllocManaged(&block, bytes, flags);
    say(result, "cuMemAllocManaged block%d %zu %u", at, bytes, flags);
    if (result == CUDA_SUCCESS) {
        keep(at, block, bytes, MANAGED, -1, -1);
    }
}

static void call_alloc_async(void)
{
    const int at = free_block(), stream = live_stream();
    if (at < 0) {
        return;
    }
    CUdeviceptr block = 0;
    const size_t bytes = draw_bytes();
    const CUresult result = cuMemAllocAsync(&block, bytes, handle_of(stream));
    say(result, "cuMemAllocAsync block%d %zu stream%d", at, bytes, stream);
    if (result == CUDA_SUCCESS) {
        keep(at, block, bytes, ORDERED, stream, -1);
    }
}

static void call_alloc_from_pool(void)
{
    const int at = free_block(), stream = live_stream(), pool = (int)draw(POOLS + DEVICES);
    if (at < 0 || (pool < POOLS && pools[pool] == NULL)) {
        return;
    }
    /* Memory of a pool of another device would have to be accessible first. */
    const int device = pool < POOLS ? pool % DEVICES : pool - POOLS;
    if (current() < 0 || device_of(current()) != device) {
        return;
    }
    CUdeviceptr block = 0;
    const size_t bytes = draw_bytes();
    CUmemoryPool from = pool < POOLS ? pools[pool] : default_pools[pool - POOLS];
    const CUresult result = cuMemAllocFromPoolAsync(&block, bytes, from, handle_of(stream));
    say(result, "cuMemAllocFromPoolAsync block%d %zu pool%d stream%d", at, bytes, pool, stream);
    if (result == CUDA_SUCCESS) {
        keep(at, block, bytes, FROM_POOL, stream, pool);
    }
}

static void call_free(void)
{
    const int at = live_block();
    if (at < 0) {
        say(cuMemFree(0), "cuMemFree null");
        return;
    }
    const size_t offset = one_in(12) ? 1 + draw((unsigned)(blocks[at].bytes & 0xffffff) + 1) : 0;
    const CUdeviceptr block = blocks[at].at;
    const char *named = place(block + offset);
    settle();
    /* The end of one block can be the beginning of another. */
    if (offset != 0 && offset >= blocks[at].bytes) {
        return;
    }
    const CUresult result = cuMemFree(block + offset);
    say(result, "cuMemFree %s", named);
    if (result != CUDA_SUCCESS || offset != 0) {
        return;
    }
    forget(at);
    if (one_in(4)) {
        say(cuMemFree(block), "cuMemFree again");
    }
}

static void call_free_async(void)
{
    const int at = live_block(), stream = live_stream();
    if (at < 0) {
        return;
    }
    const CUdeviceptr block = blocks[at].at;
    use(at, stream);
    const size_t offset = one_in(12) && blocks[at].bytes > 1 ? 1 : 0;
    const CUresult result = cuMemFreeAsync(block + offset, handle_of(stream));
    say(result, "cuMemFreeAsync block%d+%zu (%d) stream%d", at, offset, (int)blocks[at].road,
        stream);
    if (result == CUDA_SUCCESS && offset == 0) {
        forget(at);
    }
    settle();
}

/* ---- contents ---------------------------------------------------------------------------------
 */

struct part {
    int block;
    size_t offset, bytes;
};

/* Some bytes of a block that may be used on the stream, or on the one that is left there instead: a
 * multiple of the unit and aligned to it; none where there is no block. */
static struct part draw_part(unsigned unit, int *stream)
{
    struct part part = {.block = live_block()};
    if (part.block < 0 || current() < 0) {
        return (struct part){.block = -1};
    }
    const size_t bytes = blocks[part.block].bytes;
    part.offset = next_random(&random_state) % bytes / unit * unit;
    const size_t rest = (bytes - part.offset) / unit;
    part.bytes = rest == 0 ? 0 : (one_in(3) ? rest : next_random(&random_state) % rest) * unit;
    if (!peers && device_of(current()) != device_of(blocks[part.block].context)) {
        *stream = -1;
    }
    use(part.block, *stream);
    return part;
}

static CUdeviceptr at_part(const struct part *part)
{
    return blocks[part->block].at + part->offset;
}

static void call_set(void)
{
    const unsigned unit = 1u << draw(3);
    int stream = one_in(2) ? live_stream() : -1;
    const struct part part = draw_part(unit, &stream);
    if (part.block < 0) {
        return;
    }
    const size_t count = part.bytes / unit, misaligned = unit > 1 && one_in(10) ? 1 : 0;
    const CUdeviceptr at = at_part(&part) + misaligned;
    if (misaligned != 0 && count < 2) {
        return;
    }
    CUstream handle = handle_of(stream);
    const bool async = one_in(2);
    CUresult result;
    if (unit == 1) {
        result = async ? cuMemsetD8Async(at, 0x5a, count, handle) : cuMemsetD8(at, 0x5a, count);
    } else if (unit == 2) {
        result = async ? cuMemsetD16Async(at, 0x1234, count - misaligned, handle)
                       : cuMemsetD16(at, 0x1234, count - misaligned);
    } else {
        result = async ? cuMemsetD32Async(at, call_number, count - misaligned, handle)
                       : cuMemsetD32(at, call_number, count - misaligned);
    }
    say(result, "cuMemsetD%u%s %s %zu stream%d", 8 * unit, async ? "Async" : "", place(at), count,
        stream);
    settle();
}

static void call_read(void)
{
    int stream = one_in(2) ? live_stream() : -1;
    const struct part part = draw_part(1, &stream);
    if (part.block < 0) {
        return;
    }
    const size_t bytes = part.bytes < sizeof bounce ? part.bytes : sizeof bounce;
    memset(bounce, 0, sizeof bounce);
    const CUresult result =
        one_in(2) ? cuMemcpyDtoHAsync(bounce, at_part(&part), bytes, handle_of(stream))
                  : cuMemcpyDtoH(bounce, at_part(&part), bytes);
    settle();
    say(result, "read %s %zu: %016" PRIx64, place(at_part(&part)), bytes,
        hash_bytes(bounce, bytes));
}

static void call_write(void)
{
    int stream = one_in(2) ? live_stream() : -1;
    const struct part part = draw_part(1, &stream);
    if (part.block < 0) {
        return;
    }
    const size_t bytes = part.bytes < sizeof bounce ? part.bytes : sizeof bounce;
    for (size_t i = 0; i < bytes; i++) {
        bounce[i] = (unsigned char)(i * 7 + call_number);
    }
    const CUresult result =
        one_in(2) ? cuMemcpyHtoDAsync(at_part(&part), bounce, bytes, handle_of(stream))
                  : cuMemcpyHtoD(at_part(&part), bounce, bytes);
    settle();
    say(result, "write %s %zu", place(at_part(&part)), bytes);
}

static void call_copy(void)
{
    int stream = live_stream();
    const struct part from = draw_part(1, &stream), to = draw_part(1, &stream);
    if (from.block < 0 || from.block == to.block) {
        return;
    }
    const size_t bytes = from.bytes < to.bytes ? from.bytes : to.bytes;
    const CUdeviceptr target = at_part(&to), source = at_part(&from);
    CUcontext target_context = contexts[blocks[to.block].context];
    CUcontext source_context = contexts[blocks[from.block].context];
    CUresult result;
    const unsigned kind = draw(5);
    switch (kind) {
    case 0:
        result = cuMemcpyDtoD(target, source, bytes);
        break;
    case 1:
        result = cuMemcpyDtoDAsync(target, source, bytes, handle_of(stream));
        break;
    case 2:
        result = cuMemcpyPeer(target, target_context, source, source_context, bytes);
        break;
    case 3:
        result = cuMemcpyAsync(target, source, bytes, handle_of(stream));
        break;
    default:
        result = cuMemcpyPeerAsync(target, target_context, source, source_context, bytes,
                                   handle_of(stream));
    }
    say(result, "copy %u %s to %s %zu stream%d", kind, place(source), place(target), bytes, stream);
    settle();
}

static void call_copy_2d(void)
{
    int stream = -1;
    const struct part from = draw_part(1, &stream), to = draw_part(1, &stream);
    if (from.block < 0 || from.block == to.block) {
        return;
    }
    const size_t rows = 1 + draw(4), pitch = 1 + draw(512);
    const size_t width = one_in(15) ? pitch + 1 : 1 + draw((unsigned)pitch);
    if (from.bytes < rows * pitch + 1 || to.bytes < rows * pitch + 1) {
        return;
    }
    const CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                                .srcDevice = at_part(&from),
                                .srcPitch = pitch,
                                .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                                .dstDevice = at_part(&to),
                                .dstPitch = pitch,
                                .WidthInBytes = width,
                                .Height = rows};
    const unsigned kind = draw(3);
    const CUresult result = kind == 0   ? cuMemcpy2D(&copy)
                            : kind == 1 ? cuMemcpy2DUnaligned(&copy)
                                        : cuMemcpy2DAsync(&copy, NULL);
    settle();
    say(result, "copy 2D %u %s to %s %zu x %zu of %zu", kind, place(copy.srcDevice),
        place(copy.dstDevice), width, rows, pitch);
}

/* ---- questions --------------------------------------------------------------------------------
 */

static CUdeviceptr draw_address(void)
{
    const int block = live_block(), host = (int)draw(HOSTS), chunk = (int)draw(CHUNKS);
    switch (draw(10)) {
    case 0:
        return hosts[host].at == NULL ? 0 : (CUdeviceptr)(uintptr_t)hosts[host].at + draw(2);
    case 1:
        return chunks[chunk].mapped ? chunks[chunk].at + draw(5000) : 0;
    case 2:
        return 0;
    default:
        return block < 0 ? 0
                         : blocks[block].at +
                               (one_in(2) ? 0 : next_random(&random_state) % blocks[block].bytes);
    }
}

static void call_attribute(void)
{
    static const CUpointer_attribute asked[] = {
        CU_POINTER_ATTRIBUTE_CONTEXT,          CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
        CU_POINTER_ATTRIBUTE_DEVICE_POINTER,   CU_POINTER_ATTRIBUTE_HOST_POINTER,
        CU_POINTER_ATTRIBUTE_SYNC_MEMOPS,      CU_POINTER_ATTRIBUTE_IS_MANAGED,
        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,   CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
        CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE,
        CU_POINTER_ATTRIBUTE_MAPPED,           CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES,
        CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE};
    const CUpointer_attribute attribute = asked[draw(sizeof asked / sizeof asked[0])];
    const CUdeviceptr at = draw_address();
    uint64_t value = 0;
    const CUresult result = cuPointerGetAttribute(&value, attribute, at);
    char text[40] = "";
    if (result != CUDA_SUCCESS) {
        value = 0;
    } else if (attribute == CU_POINTER_ATTRIBUTE_CONTEXT) {
        value = (uint64_t)context_number((CUcontext)(uintptr_t)value); /* NOLINT */
    } else if (attribute == CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE) {
        value = (uint64_t)pool_number((CUmemoryPool)(uintptr_t)value); /* NOLINT */
    } else if (attribute == CU_POINTER_ATTRIBUTE_DEVICE_POINTER ||
               attribute == CU_POINTER_ATTRIBUTE_HOST_POINTER ||
               attribute == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR) {
        (void)snprintf(text, sizeof text, "%s", place(value));
        value = 0;
    }
    say(result, "cuPointerGetAttribute %d %s: %" PRId64 "%s", (int)attribute, place(at),
        (int64_t)value, text);
}

static void call_range(void)
{
    const CUdeviceptr at = draw_address();
    CUdeviceptr base = 0;
    size_t bytes = 0;
    const unsigned which = draw(4);
    const CUresult result =
        cuMemGetAddressRange(which == 1 ? NULL : &base, which == 2 ? NULL : &bytes, at);
    say(result, "cuMemGetAddressRange %u %s: %s %zu", which, place(at), place(base), bytes);
}

static void call_info(void)
{
    size_t available = 0, total = 0;
    const CUresult result = cuMemGetInfo(&available, &total);
    say(result, "cuMemGetInfo: %d", available <= total);
}

static void call_retain_handle(void)
{
    const CUdeviceptr at = draw_address();
    CUmemGenericAllocationHandle handle = 0;
    const CUresult result =
        cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)at); /* NOLINT */
    say(result, "cuMemRetainAllocationHandle %s", place(at));
    if (result == CUDA_SUCCESS) {
        say(cuMemRelease(handle), "  cuMemRelease");
    }
}

/* ---- contexts, streams, events ----------------------------------------------------------------
 */

static void call_context_create(void)
{
    const int at = DEVICES + (int)draw(CONTEXTS - DEVICES);
    if (contexts[at] != NULL) {
        return;
    }
    const CUresult result = cuCtxCreate(&contexts[at], NULL, 0, device_of(at));
    if (result != CUDA_SUCCESS) {
        contexts[at] = NULL;
    }
    say(result, "cuCtxCreate context%d", at);
}

static void call_context_destroy(void)
{
    const int at = DEVICES + (int)draw(CONTEXTS - DEVICES);
    if (contexts[at] == NULL || !one_in(3)) {
        return;
    }
    settle();
    /* On the stack it would stay current, though it is gone. */
    while (current() != -1) {
        CUcontext popped;
        MUST(cuCtxPopCurrent(&popped));
    }
    const CUresult result = cuCtxDestroy(contexts[at]);
    say(result, "cuCtxDestroy context%d", at);
    contexts[at] = NULL;
    forget_context(at);
    MUST(cuCtxSetCurrent(contexts[0]));
}

static void call_context_reset(void)
{
    const int at = (int)draw(DEVICES);
    if (!one_in(8)) {
        return;
    }
    settle();
    while (current() != -1) {
        CUcontext popped;
        MUST(cuCtxPopCurrent(&popped));
    }
    say(cuDevicePrimaryCtxReset(at), "cuDevicePrimaryCtxReset %d", at);
    forget_context(at);
    MUST(cuDevicePrimaryCtxRetain(&contexts[at], at));
    MUST(cuDevicePrimaryCtxRelease(at));
    MUST(cuCtxSetCurrent(contexts[0]));
}

static void call_context_change(void)
{
    const int at = (int)draw(CONTEXTS);
    CUcontext popped = NULL;
    CUresult result;
    switch (draw(4)) {
    case 0:
        result = cuCtxPopCurrent(&popped);
        say(result, "cuCtxPopCurrent: context%d", context_number(popped));
        break;
    case 1:
        if (contexts[at] == NULL) {
            return;
        }
        say(cuCtxPushCurrent(contexts[at]), "cuCtxPushCurrent context%d", at);
        break;
    default:
        if (contexts[at] == NULL && !one_in(6)) {
            return;
        }
        say(cuCtxSetCurrent(contexts[at]), "cuCtxSetCurrent context%d", at);
    }
}

static void call_stream_create(void)
{
    const int at = (int)draw(STREAMS);
    if (streams[at].handle != NULL) {
        return;
    }
    const CUresult result =
        cuStreamCreate(&streams[at].handle, one_in(2) ? CU_STREAM_NON_BLOCKING : 0);
    streams[at].context = current();
    if (result != CUDA_SUCCESS) {
        streams[at].handle = NULL;
    }
    say(result, "cuStreamCreate stream%d", at);
}

static void call_stream_destroy(void)
{
    const int at = (int)draw(STREAMS);
    if (streams[at].handle == NULL) {
        return;
    }
    const CUresult result = cuStreamDestroy(streams[at].handle);
    say(result, "cuStreamDestroy stream%d", at);
    streams[at].handle = NULL;
    settle();
}

static void call_stream_question(void)
{
    const int at = live_stream();
    CUcontext context = NULL;
    unsigned flags = 0;
    int priority = 0;
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    const CUresult result = cuStreamGetCtx(handle_of(at), &context);
    say(result, "cuStreamGetCtx stream%d: context%d", at, context_number(context));
    say(cuStreamGetFlags(handle_of(at), &flags), "cuStreamGetFlags: %u", flags);
    say(cuStreamGetPriority(handle_of(at), &priority), "cuStreamGetPriority: %d", priority);
    say(cuStreamIsCapturing(handle_of(at), &status), "cuStreamIsCapturing: %d", (int)status);
    say(cuStreamSynchronize(handle_of(at)), "cuStreamSynchronize stream%d", at);
}

static void call_event(void)
{
    const int at = (int)draw(EVENTS), stream = live_stream();
    struct event *event = &events[at];
    if (event->handle == NULL) {
        const CUresult result = cuEventCreate(&event->handle, CU_EVENT_DISABLE_TIMING);
        event->context = current();
        if (result != CUDA_SUCCESS) {
            event->handle = NULL;
        }
        say(result, "cuEventCreate event%d", at);
        return;
    }
    switch (draw(4)) {
    case 0:
        say(cuEventRecord(event->handle, handle_of(stream)), "cuEventRecord event%d stream%d", at,
            stream);
        break;
    case 1:
        say(cuStreamWaitEvent(handle_of(stream), event->handle, 0),
            "cuStreamWaitEvent event%d stream%d", at, stream);
        break;
    case 2:
        say(cuEventSynchronize(event->handle), "cuEventSynchronize event%d", at);
        break;
    default:
        say(cuEventDestroy(event->handle), "cuEventDestroy event%d", at);
        event->handle = NULL;
    }
}

/* ---- pools, host memory, mapped memory --------------------------------------------------------
 */

static void call_pool(void)
{
    const int at = (int)draw(POOLS);
    const CUmemPoolProps props = {
        .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = at % DEVICES}};
    uint64_t threshold = draw(2) * (uint64_t)MIB, got = 0;
    CUmemoryPool pool = NULL;
    CUresult result;
    if (pools[at] == NULL) {
        result = cuMemPoolCreate(&pools[at], &props);
        if (result != CUDA_SUCCESS) {
            pools[at] = NULL;
        }
        say(result, "cuMemPoolCreate pool%d", at);
        return;
    }
    switch (draw(7)) {
    case 0:
        say(cuMemPoolSetAttribute(pools[at], CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold),
            "cuMemPoolSetAttribute pool%d %" PRIu64, at, threshold);
        result = cuMemPoolGetAttribute(pools[at], CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &got);
        say(result, "cuMemPoolGetAttribute pool%d: %" PRIu64, at, got);
        break;
    case 1:
        settle();
        result = cuMemPoolGetAttribute(pools[at], CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &got);
        say(result, "cuMemPoolGetAttribute pool%d used: %" PRIu64, at, got);
        break;
    case 2:
        say(cuMemPoolTrimTo(pools[at], draw(3) * MIB), "cuMemPoolTrimTo pool%d", at);
        break;
    case 3:
        result = cuDeviceGetMemPool(&pool, at % DEVICES);
        say(result, "cuDeviceGetMemPool %d: pool%d", at % DEVICES, pool_number(pool));
        break;
    case 4:
        say(cuDeviceSetMemPool(at % DEVICES, one_in(2) ? pools[at] : default_pools[at % DEVICES]),
            "cuDeviceSetMemPool %d", at % DEVICES);
        break;
    default:
        settle();
        result = cuMemPoolDestroy(pools[at]);
        say(result, "cuMemPoolDestroy pool%d", at);
        pools[at] = NULL;
        for (int i = 0; i < BLOCKS; i++) {
            if (blocks[i].pool == at) {
                blocks[i].pool = -1;
            }
        }
    }
}

static void call_host(void)
{
    const int at = (int)draw(HOSTS);
    struct host *host = &hosts[at];
    void *memory = NULL;
    CUdeviceptr device = 0;
    CUresult result;
    if (host->at == NULL) {
        const size_t bytes = draw_bytes();
        if (bytes > 8 * MIB) {
            return;
        }
        host->registered = one_in(2) && bytes >= 4096;
        if (host->registered) {
            memory = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
            result = cuMemHostRegister(memory, bytes, CU_MEMHOSTREGISTER_DEVICEMAP);
            if (result != CUDA_SUCCESS) {
                free(memory);
            }
        } else {
            result = one_in(2) ? cuMemAllocHost(&memory, bytes)
                               : cuMemHostAlloc(&memory, bytes, CU_MEMHOSTALLOC_DEVICEMAP);
        }
        if (result == CUDA_SUCCESS) {
            host->at = memory;
            host->context = current();
            host->bytes = bytes;
        }
        say(result, "host%d %s %zu", at, host->registered ? "registered" : "allocated", bytes);
        return;
    }
    result = cuMemHostGetDevicePointer(&device, host->at, 0);
    say(result, "cuMemHostGetDevicePointer host%d: %s", at, place(device));
    settle();
    result = host->registered ? cuMemHostUnregister(host->at) : cuMemFreeHost(host->at);
    say(result, "host%d given back", at);
    if (result == CUDA_SUCCESS) {
        if (host->registered) {
            free(host->at);
        }
        host->at = NULL;
    }
}

static void call_chunk(void)
{
    const int at = (int)draw(CHUNKS);
    struct chunk *chunk = &chunks[at];
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    const CUmemAccessDesc access = {prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    unsigned long long flags = 0;
    CUresult result;
    if (chunk->at == 0) {
        chunk->bytes = (size_t)(1 + draw(3)) * 2 * MIB;
        result = cuMemAddressReserve(&chunk->at, chunk->bytes, 0, 0, 0);
        if (result != CUDA_SUCCESS) {
            chunk->at = 0;
        }
        say(result, "cuMemAddressReserve chunk%d %zu", at, chunk->bytes);
    } else if (!chunk->held && !chunk->mapped) {
        if (one_in(4)) {
            say(cuMemAddressFree(chunk->at, chunk->bytes), "cuMemAddressFree chunk%d", at);
            chunk->at = 0;
            return;
        }
        const size_t bytes = one_in(8) ? chunk->bytes - 1 : chunk->bytes;
        result = cuMemCreate(&chunk->handle, bytes, &prop, 0);
        chunk->held = result == CUDA_SUCCESS;
        say(result, "cuMemCreate chunk%d %zu", at, bytes);
    } else if (!chunk->mapped) {
        result = cuMemMap(chunk->at, chunk->bytes, 0, chunk->handle, 0);
        chunk->mapped = result == CUDA_SUCCESS;
        say(result, "cuMemMap chunk%d", at);
        if (chunk->mapped) {
            say(cuMemSetAccess(chunk->at, chunk->bytes, &access, 1), "cuMemSetAccess chunk%d", at);
            result = cuMemGetAccess(&flags, &prop.location, chunk->at);
            say(result, "cuMemGetAccess chunk%d: %llu", at, flags);
        }
    } else if (chunk->held && one_in(2)) {
        say(cuMemRelease(chunk->handle), "cuMemRelease chunk%d", at);
        chunk->held = false;
    } else if (one_in(2)) {
        const CUresult set = cuMemsetD8(chunk->at, 1, chunk->bytes);
        say(set, "set chunk%d", at);
    } else {
        settle();
        say(cuMemUnmap(chunk->at, chunk->bytes), "cuMemUnmap chunk%d", at);
        chunk->mapped = false;
    }
}

static void call_array(void)
{
    const CUDA_ARRAY_DESCRIPTOR shape = {.Width = 1 + draw(2000),
                                         .Height = draw(300),
                                         .Format = CU_AD_FORMAT_FLOAT,
                                         .NumChannels = one_in(6) ? 3 : 4};
    CUresult result;
    if (array == NULL) {
        result = cuArrayCreate(&array, &shape);
        array_context = current();
        if (result != CUDA_SUCCESS) {
            array = NULL;
        }
        say(result, "cuArrayCreate %zu x %zu of %u", shape.Width, shape.Height, shape.NumChannels);
    } else {
        say(cuArrayDestroy(array), "cuArrayDestroy");
        array = NULL;
    }
}

/* ---- the walk ---------------------------------------------------------------------------------
 */

static const struct {
    void (*call)(void);
    unsigned weight;
} calls[] = {{call_alloc, 12},
             {call_alloc_pitch, 4},
             {call_alloc_managed, 3},
             {call_alloc_async, 10},
             {call_alloc_from_pool, 6},
             {call_free, 16},
             {call_free_async, 12},
             {call_set, 8},
             {call_read, 12},
             {call_write, 8},
             {call_copy, 10},
             {call_copy_2d, 4},
             {call_attribute, 14},
             {call_range, 6},
             {call_info, 1},
             {call_retain_handle, 3},
             {call_context_create, 3},
             {call_context_destroy, 2},
             {call_context_change, 8},
             {call_stream_create, 4},
             {call_stream_destroy, 2},
             {call_stream_question, 2},
             {call_event, 4},
             {call_pool, 6},
             {call_host, 4},
             {call_chunk, 8},
             {call_array, 2},
             {call_context_reset, 1}};

int main(int count, char **arguments)
{
    if (count != 3 && !(count == 4 && strcmp(arguments[3], "no-peers") == 0)) {
        (void)fputs("usage: answers_job SEED CALLS [no-peers]\n", stderr);
        return 2;
    }
    peers = count == 3;
    MUST(setvbuf(stdout, NULL, _IOLBF, 0)); /* what memshim says comes between lines */
    random_state = strtoull(arguments[1], NULL, 0);
    const unsigned last = (unsigned)strtoul(arguments[2], NULL, 0);
    unsigned weights = 0;
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        weights += calls[i].weight;
    }
    MUST(cuInit(0));
    for (int i = 0; i < DEVICES; i++) {
        MUST(cuDevicePrimaryCtxRetain(&contexts[i], i));
        MUST(cuDeviceGetDefaultMemPool(&default_pools[i], i));
    }
    MUST(cuCtxSetCurrent(contexts[0]));
    for (call_number = 1; call_number <= last; call_number++) {
        unsigned chosen = draw(weights);
        size_t at = 0;
        while (chosen >= calls[at].weight) {
            chosen -= calls[at++].weight;
        }
        calls[at].call();
    }
    (void)puts("end");
    return 0;
}
