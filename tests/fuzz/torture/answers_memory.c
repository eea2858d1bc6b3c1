/* SPDX-License-Identifier: Apache-2.0 */
/* answers_job's calls on memory: it is allocated and freed, filled, copied and asked about. */
#include <inttypes.h>
#include <string.h>

#include "answers_job.h"
#include "say.h"

static unsigned char bounce[64 * 1024];

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

void call_alloc(void)
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

void call_alloc_pitch(void)
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

void call_alloc_managed(void)
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

void call_alloc_async(void)
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

void call_alloc_from_pool(void)
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

void call_free(void)
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

void call_free_async(void)
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

void call_set(void)
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

void call_read(void)
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

void call_write(void)
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

void call_copy(void)
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

void call_copy_2d(void)
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

void call_attribute(void)
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

void call_range(void)
{
    const CUdeviceptr at = draw_address();
    CUdeviceptr base = 0;
    size_t bytes = 0;
    const unsigned which = draw(4);
    const CUresult result =
        cuMemGetAddressRange(which == 1 ? NULL : &base, which == 2 ? NULL : &bytes, at);
    say(result, "cuMemGetAddressRange %u %s: %s %zu", which, place(at), place(base), bytes);
}

void call_info(void)
{
    size_t available = 0, total = 0;
    const CUresult result = cuMemGetInfo(&available, &total);
    say(result, "cuMemGetInfo: %d", available <= total);
}

void call_retain_handle(void)
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
