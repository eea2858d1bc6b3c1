/* SPDX-License-Identifier: Apache-2.0 */
/* Copies and memsets that reach from a chunk of the device into one of the host, and the other way
 * round, in one range: what a program does with a block of which a part has been spilled. */
#include <string.h>

#include "tests/gpu/assume.h"
#include "tests/gpu/mixed.h"

/* Across the boundary, and not at even addresses; rows of WIDTH at every PITCH. */
enum { BYTES = 1048589, BEFORE = 524299, PITCH = 4608, WIDTH = 4001, ROWS = BYTES / PITCH };

enum place { PAGEABLE, PINNED, PLAIN, ACROSS, ACROSS_BACK };

struct ends {
    struct mixed mixed[2]; /* the device's chunk first, the host's chunk first */
    CUdeviceptr plain;
    unsigned char *pinned;
    unsigned char pageable[BYTES];
    unsigned char from[BYTES], to[BYTES], seen[BYTES];
};

static bool open_ends(const struct gpu *gpu, struct ends *ends)
{
    for (unsigned i = 0; i < 2; i++) {
        if (!mixed_open(gpu, &ends->mixed[i])) {
            return false;
        }
        mixed_show(gpu, &ends->mixed[i], i, ON_DEVICE);
        mixed_show(gpu, &ends->mixed[i], 1 - i, ON_HOST);
    }
    MUST(cuMemAlloc(&ends->plain, BYTES));
    MUST(cuMemAllocHost((void **)&ends->pinned, BYTES));
    for (size_t i = 0; i < BYTES; i++) {
        ends->from[i] = (unsigned char)(i * 7 + i / 251);
    }
    return true;
}

static void close_ends(struct ends *ends)
{
    MUST(cuMemFree(ends->plain));
    MUST(cuMemFreeHost(ends->pinned));
    mixed_close(&ends->mixed[0]);
    mixed_close(&ends->mixed[1]);
}

#define ENDS(ends)           \
    static struct ends ends; \
    NEEDS(open_ends(gpu, &(ends)), "the device cannot map host memory")

static CUdeviceptr address_of(const struct ends *ends, enum place place)
{
    switch (place) {
    case PAGEABLE:
        return (CUdeviceptr)(uintptr_t)ends->pageable;
    case PINNED:
        return (CUdeviceptr)(uintptr_t)ends->pinned;
    case PLAIN:
        return ends->plain;
    default:
        return ends->mixed[place - ACROSS].at + ends->mixed[place - ACROSS].each - BEFORE;
    }
}

/* Contents of a place, there or back, so that no copy crosses a boundary. */
static void put(const struct ends *ends, enum place place, const unsigned char *bytes)
{
    CUdeviceptr at = address_of(ends, place);
    if (place == PAGEABLE || place == PINNED) {
        memcpy((void *)(uintptr_t)at, bytes, BYTES);
        return;
    }
    MUST(cuMemcpyHtoD(at, bytes, BEFORE));
    MUST(cuMemcpyHtoD(at + BEFORE, bytes + BEFORE, BYTES - BEFORE));
    MUST(cuCtxSynchronize());
}

static void get(const struct ends *ends, enum place place, unsigned char *bytes)
{
    CUdeviceptr at = address_of(ends, place);
    MUST(cuCtxSynchronize());
    if (place == PAGEABLE || place == PINNED) {
        memcpy(bytes, (void *)(uintptr_t)at, BYTES);
        return;
    }
    MUST(cuMemcpyDtoH(bytes, at, BEFORE));
    MUST(cuMemcpyDtoH(bytes + BEFORE, at + BEFORE, BYTES - BEFORE));
}

/* One function that copies BYTES, or their rows, from one place to another. */
struct way {
    const char *name;
    CUresult (*copy)(CUdeviceptr to, CUdeviceptr from);
    enum place to, from;
    bool rows;
};

static enum verdict go(struct ends *ends, const struct way *way)
{
    memset(ends->to, 0xee, BYTES);
    put(ends, way->from, ends->from);
    put(ends, way->to, ends->to);
    CUresult result = way->copy(address_of(ends, way->to), address_of(ends, way->from));
    if (result != CUDA_SUCCESS) {
        return assume_saw(DIFFERS, way->name, result);
    }
    get(ends, way->to, ends->seen);
    for (size_t row = 0; row < ROWS && way->rows; row++) {
        memcpy(ends->to + row * PITCH, ends->from + row * PITCH, WIDTH);
    }
    const unsigned char *wanted = way->rows ? ends->to : ends->from;
    size_t same = 0;
    while (same < BYTES && wanted[same] == ends->seen[same]) {
        same++;
    }
    return same == BYTES ? HOLDS : assume_saw(DIFFERS, way->name, (long long)same + 1);
}

static enum verdict go_each(const struct gpu *gpu, const struct way *ways, size_t count)
{
    ENDS(ends);
    enum verdict verdict = HOLDS;
    for (size_t i = 0; i < count && verdict == HOLDS; i++) {
        verdict = go(&ends, &ways[i]);
    }
    close_ends(&ends);
    return verdict;
}

#define GO_EACH(ways) go_each(gpu, ways, sizeof(ways) / sizeof *(ways))

static CUresult htod(CUdeviceptr to, CUdeviceptr from)
{
    return cuMemcpyHtoD(to, (const void *)(uintptr_t)from, BYTES);
}

static CUresult htod_async(CUdeviceptr to, CUdeviceptr from)
{
    return cuMemcpyHtoDAsync(to, (const void *)(uintptr_t)from, BYTES, NULL);
}

static CUresult dtoh(CUdeviceptr to, CUdeviceptr from)
{
    return cuMemcpyDtoH((void *)(uintptr_t)to, from, BYTES);
}

static CUresult dtoh_async(CUdeviceptr to, CUdeviceptr from)
{
    return cuMemcpyDtoHAsync((void *)(uintptr_t)to, from, BYTES, NULL);
}

static CUresult dtod(CUdeviceptr to, CUdeviceptr from)
{
    return cuMemcpyDtoD(to, from, BYTES);
}

static CUresult dtod_async(CUdeviceptr to, CUdeviceptr from)
{
    return cuMemcpyDtoDAsync(to, from, BYTES, NULL);
}

static CUresult any(CUdeviceptr to, CUdeviceptr from)
{
    return cuMemcpy(to, from, BYTES);
}

static CUresult any_async(CUdeviceptr to, CUdeviceptr from)
{
    return cuMemcpyAsync(to, from, BYTES, NULL);
}

static enum verdict from_host(const struct gpu *gpu)
{
    static const struct way ways[] = {
        {"cuMemcpyHtoD, pageable", htod, ACROSS, PAGEABLE, false},
        {"cuMemcpyHtoD, pageable, host first", htod, ACROSS_BACK, PAGEABLE, false},
        {"cuMemcpyHtoD, pinned", htod, ACROSS, PINNED, false},
        {"cuMemcpyHtoDAsync, pageable", htod_async, ACROSS, PAGEABLE, false},
        {"cuMemcpyHtoDAsync, pinned", htod_async, ACROSS, PINNED, false},
        {"cuMemcpyHtoDAsync, pinned, host first", htod_async, ACROSS_BACK, PINNED, false},
        {"cuMemcpy, pinned", any, ACROSS, PINNED, false},
        {"cuMemcpyAsync, pinned", any_async, ACROSS, PINNED, false},
    };
    return GO_EACH(ways);
}

static enum verdict to_host(const struct gpu *gpu)
{
    static const struct way ways[] = {
        {"cuMemcpyDtoH, pageable", dtoh, PAGEABLE, ACROSS, false},
        {"cuMemcpyDtoH, pageable, host first", dtoh, PAGEABLE, ACROSS_BACK, false},
        {"cuMemcpyDtoH, pinned", dtoh, PINNED, ACROSS, false},
        {"cuMemcpyDtoHAsync, pageable", dtoh_async, PAGEABLE, ACROSS, false},
        {"cuMemcpyDtoHAsync, pinned", dtoh_async, PINNED, ACROSS, false},
        {"cuMemcpyDtoHAsync, pinned, host first", dtoh_async, PINNED, ACROSS_BACK, false},
        {"cuMemcpy to pinned", any, PINNED, ACROSS, false},
        {"cuMemcpyAsync to pinned", any_async, PINNED, ACROSS, false},
    };
    return GO_EACH(ways);
}

static enum verdict on_device(const struct gpu *gpu)
{
    static const struct way ways[] = {
        {"cuMemcpyDtoD into it", dtod, ACROSS, PLAIN, false},
        {"cuMemcpyDtoD out of it", dtod, PLAIN, ACROSS, false},
        {"cuMemcpyDtoDAsync into it", dtod_async, ACROSS_BACK, PLAIN, false},
        {"cuMemcpyDtoDAsync out of it", dtod_async, PLAIN, ACROSS_BACK, false},
        {"cuMemcpyDtoDAsync from one to another", dtod_async, ACROSS_BACK, ACROSS, false},
        {"cuMemcpyDtoDAsync from one to another, host first", dtod_async, ACROSS, ACROSS_BACK,
         false},
        {"cuMemcpyAsync from one to another", any_async, ACROSS, ACROSS_BACK, false},
    };
    return GO_EACH(ways);
}

/* --- rows ------------------------------------------------------------------------------------- */

static CUDA_MEMCPY2D rows_of(CUdeviceptr to, CUdeviceptr from)
{
    return (CUDA_MEMCPY2D){.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                           .srcDevice = from,
                           .srcPitch = PITCH,
                           .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                           .dstDevice = to,
                           .dstPitch = PITCH,
                           .WidthInBytes = WIDTH,
                           .Height = ROWS};
}

static CUresult rows_htod(CUdeviceptr to, CUdeviceptr from)
{
    CUDA_MEMCPY2D rows = rows_of(to, from);
    rows.srcMemoryType = CU_MEMORYTYPE_HOST;
    rows.srcHost = (const void *)(uintptr_t)from;
    return cuMemcpy2D(&rows);
}

static CUresult rows_dtoh_async(CUdeviceptr to, CUdeviceptr from)
{
    CUDA_MEMCPY2D rows = rows_of(to, from);
    rows.dstMemoryType = CU_MEMORYTYPE_HOST;
    rows.dstHost = (void *)(uintptr_t)to;
    return cuMemcpy2DAsync(&rows, NULL);
}

static CUresult rows_dtod_async(CUdeviceptr to, CUdeviceptr from)
{
    CUDA_MEMCPY2D rows = rows_of(to, from);
    return cuMemcpy2DAsync(&rows, NULL);
}

static enum verdict in_rows(const struct gpu *gpu)
{
    static const struct way ways[] = {
        {"cuMemcpy2D from pageable", rows_htod, ACROSS, PAGEABLE, true},
        {"cuMemcpy2D from pinned", rows_htod, ACROSS_BACK, PINNED, true},
        {"cuMemcpy2DAsync to pinned", rows_dtoh_async, PINNED, ACROSS, true},
        {"cuMemcpy2DAsync into it", rows_dtod_async, ACROSS, PLAIN, true},
        {"cuMemcpy2DAsync from one to another", rows_dtod_async, ACROSS_BACK, ACROSS, true},
    };
    return GO_EACH(ways);
}

/* --- batches ---------------------------------------------------------------------------------- */

#if CUDA_VERSION >= 12080
typedef CUresult (*batch_12_8_t)(CUdeviceptr *to, CUdeviceptr *from, size_t *sizes, size_t count,
                                 CUmemcpyAttributes *attributes, size_t *firsts,
                                 size_t attribute_count, size_t *failed, CUstream stream);
typedef CUresult (*batch_13_0_t)(CUdeviceptr *to, CUdeviceptr *from, size_t *sizes, size_t count,
                                 CUmemcpyAttributes *attributes, size_t *firsts,
                                 size_t attribute_count, CUstream stream);

static void *batch_function(int version)
{
    void *found = NULL;
    (void)cuGetProcAddress("cuMemcpyBatchAsync", &found, version, CU_GET_PROC_ADDRESS_DEFAULT,
                           NULL);
    return found;
}

/* In two copies, of which the second crosses the boundary. */
static CUresult batch(CUdeviceptr to, CUdeviceptr from, int version)
{
    enum { FIRST = 1000 };
    CUdeviceptr tos[] = {to, to + FIRST};
    CUdeviceptr froms[] = {from, from + FIRST};
    size_t sizes[] = {FIRST, BYTES - FIRST};
    CUmemcpyAttributes attributes = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
    size_t first = 0;
    size_t failed = 0;
    CUstream stream;
    CUresult result;
    void *found = batch_function(version);
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    if (version >= 13000) {
        batch_13_0_t copy;
        memcpy(&copy, &found, sizeof copy);
        result = copy(tos, froms, sizes, 2, &attributes, &first, 1, stream);
    } else {
        batch_12_8_t copy;
        memcpy(&copy, &found, sizeof copy);
        result = copy(tos, froms, sizes, 2, &attributes, &first, 1, &failed, stream);
    }
    MUST(cuStreamSynchronize(stream));
    MUST(cuStreamDestroy(stream));
    return result;
}

static CUresult batch_12_8(CUdeviceptr to, CUdeviceptr from)
{
    return batch(to, from, 12080);
}

static CUresult batch_13_0(CUdeviceptr to, CUdeviceptr from)
{
    return batch(to, from, 13000);
}

static enum verdict in_batches(const struct gpu *gpu)
{
    static const struct way ways[] = {
        {"12.8, from pinned", batch_12_8, ACROSS, PINNED, false},
        {"12.8, to pinned", batch_12_8, PINNED, ACROSS_BACK, false},
        {"12.8, from one to another", batch_12_8, ACROSS, ACROSS_BACK, false},
        {"13.0, from pinned", batch_13_0, ACROSS_BACK, PINNED, false},
        {"13.0, to pinned", batch_13_0, PINNED, ACROSS, false},
        {"13.0, from one to another", batch_13_0, ACROSS_BACK, ACROSS, false},
    };
    NEEDS(batch_function(12080), "the driver has no cuMemcpyBatchAsync (CUDA 12.8)");
    return go_each(gpu, ways, batch_function(13000) == batch_function(12080) ? 3 : 6);
}
#else
static enum verdict in_batches(const struct gpu *gpu)
{
    (void)gpu;
    NEEDS(false, "built with headers before CUDA 12.8");
    return HOLDS;
}
#endif

/* --- memsets ---------------------------------------------------------------------------------- */

/* From a multiple of 4 that lies across the boundary. */
enum { SET_BYTES = 1048592, SET_BEFORE = 524300 };

static enum verdict look_at_set(const struct gpu *gpu, CUdeviceptr at, unsigned byte)
{
    WORKS(cuCtxSynchronize());
    GIVES(gpu_mismatches(gpu, at, SET_BEFORE, byte), 0);
    GIVES(gpu_mismatches(gpu, at + SET_BEFORE, SET_BYTES - SET_BEFORE, byte), 0);
    GIVES(gpu_mismatches(gpu, at - 1, 1, 0xee), 0);
    GIVES(gpu_mismatches(gpu, at + SET_BYTES, 1, 0xee), 0);
    return HOLDS;
}

static enum verdict set_each(const struct gpu *gpu, struct mixed *mixed)
{
    CUdeviceptr at = mixed->at + mixed->each - SET_BEFORE;
    enum verdict verdict = HOLDS;
    for (unsigned way = 0; way < 7 && verdict == HOLDS; way++) {
        unsigned byte = 0x51 + way;
        unsigned wide = byte * 0x01010101u;
        WORKS(gpu_fill(gpu, mixed->at, 2 * mixed->each, 0xee, NULL));
        switch (way) {
        case 0:
            WORKS(cuMemsetD8(at, (unsigned char)byte, SET_BYTES));
            break;
        case 1:
            WORKS(cuMemsetD8Async(at, (unsigned char)byte, SET_BYTES, NULL));
            break;
        case 2:
            WORKS(cuMemsetD16(at, (unsigned short)wide, SET_BYTES / 2));
            break;
        case 3:
            WORKS(cuMemsetD16Async(at, (unsigned short)wide, SET_BYTES / 2, NULL));
            break;
        case 4:
            WORKS(cuMemsetD32(at, wide, SET_BYTES / 4));
            break;
        case 5:
            WORKS(cuMemsetD32Async(at, wide, SET_BYTES / 4, NULL));
            break;
        default: /* rows that leave nothing out */
            WORKS(cuMemsetD2D8(at, SET_BYTES / 8, (unsigned char)byte, SET_BYTES / 8, 8));
        }
        verdict = look_at_set(gpu, at, byte);
    }
    return verdict;
}

static enum verdict memsets(const struct gpu *gpu)
{
    MIXED(mixed);
    enum verdict verdict = HOLDS;
    for (unsigned first = 0; first < 2 && verdict == HOLDS; first++) {
        mixed_show(gpu, &mixed, first, ON_DEVICE);
        mixed_show(gpu, &mixed, 1 - first, ON_HOST);
        verdict = set_each(gpu, &mixed);
    }
    mixed_close(&mixed);
    return verdict;
}

const struct assumption assume_boundary[] = {
    {"copies from the host reach across a device's and a host's chunk", from_host, false},
    {"copies to the host reach across a device's and a host's chunk", to_host, false},
    {"copies on the device reach across a device's and a host's chunk", on_device, false},
    {"copies in rows reach across a device's and a host's chunk", in_rows, false},
    {"copies in batches reach across a device's and a host's chunk", in_batches, false},
    {"memsets reach across a device's and a host's chunk", memsets, false},
    {NULL, NULL, false},
};
