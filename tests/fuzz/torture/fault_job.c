/* SPDX-License-Identifier: Apache-2.0 */
/* A program on the simulated GPU that has more alive than the device may hold, while calls of the
 * driver fail at set moments: one, and after it several on end. It makes each call again that
 * failed, and goes on where memory is refused. All that lives is read after every step, by its
 * address: what is not mapped ends the program there.
 *
 * Arguments: a seed, and optionally the number of the call that fails, counted from the first step,
 * its error, how many calls later the next fails (0: none does), and how many do then. Ends with a
 * line of JSON. */
#include <cuda.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "simgpu.h"

enum { BLOCKS = 14, STEPS = 60, ATTEMPTS = 400 };
#define MIB        ((size_t)1 << 20)
#define PAGE_BYTES ((size_t)64 << 10)

static struct {
    CUdeviceptr at;
    size_t bytes;
    uint32_t word;
} block[BLOCKS];
static unsigned blocks;
static size_t live_bytes;
static bool was_full;
static uint64_t state, refused;

static uint64_t draw(uint64_t below)
{
    uint64_t x = state += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return (x ^ (x >> 31)) % below;
}

static void must(bool holds, const char *what)
{
    if (!holds) {
        (void)printf("%s\n", what);
        exit(1);
    }
}

/* The call, made until it works: failures end some time. */
#define INSIST(call)                                       \
    do {                                                   \
        int attempts = ATTEMPTS;                           \
        while ((call) != CUDA_SUCCESS && --attempts > 0) { \
        }                                                  \
        must(attempts > 0, #call " never works");          \
    } while (0)

static void fill(unsigned i, CUstream stream)
{
    block[i].word = (uint32_t)draw(UINT32_MAX);
    size_t words = block[i].bytes / sizeof(uint32_t);
    if (draw(2) == 0) {
        INSIST(cuMemsetD32(block[i].at, block[i].word, words));
    } else {
        INSIST(cuMemsetD32Async(block[i].at, block[i].word, words, stream));
    }
    INSIST(cuStreamSynchronize(stream));
    INSIST(cuCtxSynchronize());
}

static void make(CUstream stream)
{
    size_t bytes = (2 + draw(4)) * MIB;
    CUdeviceptr at = 0;
    CUresult result = draw(3) == 0 ? cuMemAllocAsync(&at, bytes, stream) : cuMemAlloc(&at, bytes);
    if (result != CUDA_SUCCESS) {
        refused++;
        return;
    }
    live_bytes += bytes;
    block[blocks].at = at;
    block[blocks].bytes = bytes;
    fill(blocks++, stream);
}

/* Also where it reports an error, of earlier work, the block is gone. */
static void let_go(unsigned i, CUstream stream)
{
    if (draw(2) == 0) {
        (void)cuMemFree(block[i].at);
    } else {
        (void)cuMemFreeAsync(block[i].at, stream);
    }
    live_bytes -= block[i].bytes;
    block[i] = block[--blocks];
}

static void check_all(void)
{
    for (unsigned i = 0; i < blocks; i++) {
        const volatile uint32_t *words = (const volatile uint32_t *)(uintptr_t)block[i].at;
        for (size_t at = 0; at < block[i].bytes; at += PAGE_BYTES) {
            must(words[at / sizeof(uint32_t)] == block[i].word, "a block has lost its contents");
        }
    }
}

/* Nothing is freed before all blocks were alive at once: every seed needs more than the cap. */
static void step(CUstream stream)
{
    uint64_t kind = draw(10);
    was_full = was_full || blocks == BLOCKS;
    if (blocks == 0 || (blocks < BLOCKS && (kind < 6 || (kind < 8 && !was_full)))) {
        make(stream);
    } else if (kind < 8 || blocks == BLOCKS) {
        let_go((unsigned)draw(blocks), stream);
    } else {
        fill((unsigned)draw(blocks), stream);
    }
}

static uint64_t argument(int argc, char **argv, int index)
{
    return index < argc ? strtoull(argv[index], NULL, 10) : 0;
}

int main(int argc, char **argv)
{
    CUcontext context;
    CUstream stream;
    size_t most_bytes = 0;
    state = argument(argc, argv, 1);
    must(cuInit(0) == CUDA_SUCCESS && cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS &&
             cuCtxSetCurrent(context) == CUDA_SUCCESS &&
             cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS,
         "no device");
    uint64_t before = simgpu_calls("any");
    uint64_t nth = argument(argc, argv, 2);
    uint64_t then = argument(argc, argv, 4);
    int error = (int)argument(argc, argv, 3);
    must(nth == 0 || simgpu_fail("any", nth, error) == 0, "no such failure");
    must(then == 0 || simgpu_fail_then("any", then, argument(argc, argv, 5), error) == 0,
         "no such failure");
    for (int i = 0; i < STEPS; i++) {
        step(stream);
        check_all();
        most_bytes = live_bytes > most_bytes ? live_bytes : most_bytes;
    }
    simgpu_fail_clear();
    uint64_t calls = simgpu_calls("any") - before;
    check_all();
    while (blocks > 0) {
        must(cuMemFree(block[--blocks].at) == CUDA_SUCCESS, "a block cannot be freed");
    }
    (void)printf("{\"calls\": %" PRIu64 ", \"refused\": %" PRIu64 ", \"most_bytes\": %zu}\n", calls,
                 refused, most_bytes);
    return 0;
}
