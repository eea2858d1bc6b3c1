/* SPDX-License-Identifier: Apache-2.0 */
/* Every call that shows where memory physically is, each asked about a block that lies on the host:
 * what it shows is what stands behind the block from then on. Fills device 0 with known blocks,
 * more than there is room for.
 *
 * Arguments: the case, or "list" for the names of all. Ends with "done". */
#include <stdbool.h>
#include <string.h>

#include <cuda.h>

#include "cases.h"
#include "gate_entry.h"
#include "say.h"

enum { BLOCKS = 40 };
#define BLOCK_BYTES ((size_t)4 << 20)
#define WORDS       (BLOCK_BYTES / sizeof(uint32_t))

static CUdeviceptr block[BLOCKS];
static uint32_t host[WORDS];

static uint32_t content(int i)
{
    return 0x01010101u * (uint32_t)(i + 1);
}

static void check(CUdeviceptr at, size_t bytes, uint32_t word)
{
    memset(host, 0, sizeof host);
    MUST(cuMemcpyDtoH(host, at, bytes));
    for (size_t w = 0; w < bytes / sizeof(uint32_t); w++) {
        EXPECT(host[w] == word);
    }
}

static void begin(void)
{
    CUcontext context;
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
    for (int i = 0; i < BLOCKS; i++) {
        MUST(cuMemAlloc(&block[i], BLOCK_BYTES));
        MUST(cuMemsetD32(block[i], content(i), WORDS));
    }
}

/* ---- the calls. The simulated driver has no multicast and no DMA buffers, and says so. */

static CUresult sync_memops(CUdeviceptr at)
{
    unsigned int on = 1;
    return cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, at);
}

static CUresult tokens(CUdeviceptr at)
{
    CUDA_POINTER_ATTRIBUTE_P2P_TOKENS given;
    return cuPointerGetAttribute(&given, CU_POINTER_ATTRIBUTE_P2P_TOKENS, at);
}

static CUresult tokens_among_others(CUdeviceptr at)
{
    CUDA_POINTER_ATTRIBUTE_P2P_TOKENS given;
    unsigned int type = 0;
    CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                   CU_POINTER_ATTRIBUTE_P2P_TOKENS};
    void *data[] = {&type, &given};
    return cuPointerGetAttributes(2, which, data, at);
}

static CUresult dma_buffer(CUdeviceptr at)
{
    int fd = -1;
    return cuMemGetHandleForAddressRange(&fd, at, BLOCK_BYTES, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD,
                                         0);
}

static CUresult multicast(CUdeviceptr at)
{
    return cuMulticastBindAddr(0, 0, at, BLOCK_BYTES, 0);
}

static const struct {
    CUresult (*ask)(CUdeviceptr at);
    CUresult answer;
} calls[] = {
    {sync_memops, CUDA_SUCCESS},           {tokens, CUDA_SUCCESS},
    {tokens_among_others, CUDA_SUCCESS},   {dma_buffer, CUDA_ERROR_NOT_SUPPORTED},
    {multicast, CUDA_ERROR_NOT_SUPPORTED},
};
enum { CALLS = sizeof calls / sizeof calls[0] };

static int one_on_host(void)
{
    for (int i = 0; i < BLOCKS; i++) {
        if (gate_host_bytes(0, block[i]) == BLOCK_BYTES) {
            return i;
        }
    }
    EXPECT(!"a block on the host");
    return 0;
}

/* Fresh ones push out what may be pushed out. */
static void press(void)
{
    for (int i = 0; i < BLOCKS / 4; i++) {
        CUdeviceptr more;
        MUST(cuMemAlloc(&more, BLOCK_BYTES));
        MUST(cuMemsetD32(more, 0, WORDS));
    }
}

/* On the device, and it stays there. */
static void expect_fixed(int i)
{
    EXPECT(gate_host_bytes(0, block[i]) == 0);
    check(block[i], BLOCK_BYTES, content(i));
}

static void each(void)
{
    int asked[CALLS];
    for (int c = 0; c < CALLS; c++) {
        asked[c] = one_on_host();
        EXPECT(calls[c].ask(block[asked[c]]) == calls[c].answer);
        expect_fixed(asked[c]);
    }
    press();
    for (int c = 0; c < CALLS; c++) {
        expect_fixed(asked[c]);
    }
}

/* Where the memory cannot be brought back, nothing is shown; and later it can be. */
static void refused(void)
{
    for (int c = 0; c < CALLS; c++) {
        CUstream stream;
        CUgraph graph;
        int i = one_on_host();
        MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        MUST(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
        EXPECT(calls[c].ask(block[i]) == CUDA_ERROR_OUT_OF_MEMORY);
        MUST(cuStreamEndCapture(stream, &graph));
        EXPECT(gate_host_bytes(0, block[i]) == BLOCK_BYTES);
        EXPECT(calls[c].ask(block[i]) == calls[c].answer);
        expect_fixed(i);
    }
}

/* What was allocated was mapped by nobody: it has no handle (cuda.h), and being asked moves
 * nothing.
 */
static void handle(void)
{
    CUmemGenericAllocationHandle retained = 0;
    int i = one_on_host();
    EXPECT(cuMemRetainAllocationHandle(&retained, (void *)(uintptr_t)block[i]) ==
           CUDA_ERROR_INVALID_VALUE);
    EXPECT(gate_host_bytes(0, block[i]) == BLOCK_BYTES);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        {"each", each}, {"refused", refused}, {"handle", handle}};
    return run_case(argc, argv, cases, sizeof cases / sizeof cases[0], begin);
}
