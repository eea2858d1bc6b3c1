/* SPDX-License-Identifier: Apache-2.0 */
/* Registers memory as a library does whose name is the argument, with the same calls in the same
 * order, and asks for more than is left. A line for each call: call,CUresult; then "more,CUresult".
 * Contents are checked at the end.
 *
 * The calls were read in the libraries' sources (docs/coverage.md): of the network card, of which
 * the simulated GPU has none, what comes before it. */
#include <cuda.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "say.h"

#define BLOCK (101 * MIB)     /* no whole granules */
#define INTO  (3 * MIB + 256) /* in another chunk than the beginning */

static CUdeviceptr block;

static CUresult say(const char *call, CUresult result)
{
    (void)printf("%s,%d\n", call, (int)result);
    return result;
}

static void sync_memops(CUdeviceptr at)
{
    unsigned on = 1;
    (void)say("sync memops", cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, at));
}

static void dma_buf(CUdeviceptr at, size_t bytes)
{
    int fd = -1;
    if (say("dma-buf", cuMemGetHandleForAddressRange(&fd, at, bytes,
                                                     CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0)) ==
        CUDA_SUCCESS) {
        (void)close(fd);
    }
}

/* To whole pages: the host's, or GDRCopy's of 64 KiB. */
static void dma_buf_of_pages(CUdeviceptr at, size_t bytes, size_t page)
{
    const CUdeviceptr first = at & ~(CUdeviceptr)(page - 1);
    dma_buf(first, (bytes + (at - first) + page - 1) & ~(page - 1));
}

static bool retained(CUdeviceptr at)
{
    CUmemGenericAllocationHandle chunk = 0;
    /* NOLINTNEXTLINE(performance-no-int-to-ptr): the driver asks for a pointer */
    if (say("retain", cuMemRetainAllocationHandle(&chunk, (void *)at)) != CUDA_SUCCESS) {
        return false;
    }
    MUST(cuMemRelease(chunk));
    return true;
}

static void name_for_peers(CUdeviceptr at)
{
    CUipcMemHandle handle;
    (void)say("ipc handle", cuIpcGetMemHandle(&handle, at));
}

static void whole_of(CUdeviceptr at, CUdeviceptr *base, size_t *bytes)
{
    MUST(cuMemGetAddressRange(base, bytes, at));
    (void)say("range is the block",
              *base == block && *bytes == BLOCK ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

/* uct_cuda_copy_md: whole allocations, by dma-buf; uct_cuda_ipc_mem_add_reg: by name. */
static void ucx(CUdeviceptr at)
{
    CUdeviceptr base = 0;
    size_t bytes = 0;
    uint64_t id = 0;
    uint64_t types = 0;
    int legacy = 0;
    CUmemoryPool pool = NULL;
    CUpointer_attribute asked[] = {CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
                                   CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES,
                                   CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE};
    void *answers[] = {&legacy, &types, &pool};
    (void)retained(at);
    sync_memops(at);
    whole_of(at, &base, &bytes);
    dma_buf_of_pages(base, bytes, 4096);
    (void)say("buffer id", cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, at));
    (void)say("attributes", cuPointerGetAttributes(3, asked, answers, at));
    if (legacy) {
        name_for_peers(at);
    }
}

/* Its plug-in for libfabric asks what memory it is; its UCX does the rest. */
static void nixl(CUdeviceptr at)
{
    CUmemorytype type = 0;
    int managed = 0;
    int device = -1;
    CUcontext context = NULL;
    CUpointer_attribute asked[] = {
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_CONTEXT};
    void *answers[] = {&type, &managed, &device, &context};
    (void)say("attributes", cuPointerGetAttributes(4, asked, answers, at));
    ucx(at);
}

/* gdr_pin_buffer_v2 of GDRCopy 2.6, dma-buf. */
static void gdrcopy(CUdeviceptr at)
{
    int device = -1;
    const CUdeviceptr first = at & ~(CUdeviceptr)0xffff;
    (void)say("device", cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, first));
    dma_buf_of_pages(at, BLOCK - (at - block), 0x10000);
}

/* The program that pins by GDRCopy's or cuFile's kernel module sets this before. */
static void peermem(CUdeviceptr at)
{
    sync_memops(at);
}

/* nvshmemx_buffer_register: what was not mapped by handles is refused; its transports register what
 * a program allocated as local memory. */
static void nvshmem(CUdeviceptr at)
{
    if (!retained(at)) {
        sync_memops(at);
        dma_buf_of_pages(at, BLOCK - (at - block), 4096);
    }
}

/* Mooncake's RdmaContext, dma-buf of the whole; its store then names it for peers. */
static void mooncake(CUdeviceptr at)
{
    CUmemorytype type = 0;
    CUdeviceptr base = 0;
    size_t bytes = 0;
    (void)say("type", cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at));
    whole_of(at, &base, &bytes);
    dma_buf(base, bytes);
    name_for_peers(base);
}

static void none(CUdeviceptr at)
{
    (void)at;
}

static const struct {
    const char *name;
    void (*go)(CUdeviceptr at);
} libraries[] = {{"none", none},        {"ucx", ucx},         {"nixl", nixl},
                 {"gdrcopy", gdrcopy},  {"peermem", peermem}, {"nvshmem", nvshmem},
                 {"mooncake", mooncake}};

int main(int argc, char **argv)
{
    CUcontext context = NULL;
    CUdeviceptr before = 0;
    CUdeviceptr beside = 0;
    CUdeviceptr more = 0;
    unsigned char read[2] = {0, 0};
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
    MUST(cuMemAlloc(&beside, 3 * MIB + 512)); /* no whole pages: the block's have to be */
    MUST(cuMemAlloc(&before, 3 * MIB + 512));
    MUST(cuMemAlloc(&block, BLOCK));
    MUST(cuMemFree(before)); /* the pages that the block shares with it are nobody's now */
    MUST(cuMemsetD8(block, 0x5a, BLOCK));
    for (size_t i = 0; argc > 1 && i < sizeof libraries / sizeof libraries[0]; i++) {
        if (strcmp(argv[1], libraries[i].name) == 0) {
            libraries[i].go(block + INTO);
        }
    }
    (void)say("more", cuMemAlloc(&more, 150 * MIB));
    MUST(cuMemcpyDtoH(&read[0], block, 1));
    MUST(cuMemcpyDtoH(&read[1], block + BLOCK - 1, 1));
    (void)say("contents", read[0] == 0x5a && read[1] == 0x5a ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN);
    return 0;
}
