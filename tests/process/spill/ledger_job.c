/* SPDX-License-Identifier: Apache-2.0 */
/* Memory on the host whose account the program keeps itself, for the report to be held against.
 *
 *   moved    cold blocks, hot ones, and one too many behind work that takes its time; the cold ones
 *            used where they lie; room again, until they are back
 *   thrash   steps of which each fourth has no room for what the others brought back. Argument:
 *            how often
 *
 * Says in a line of JSON what it did. What it wrote must be there at the end. */
#include <string.h>
#include <unistd.h>

#define MEMSHIM_WEAK
#include "clock.h"
#include "driver.h"
#include "say.h"
#include "shim/memshim.h"

enum { COLD = 12, HOT = 16, PIECES = 12, QUIET_STEPS = 3, STEPS_BACK = 16 };
#define BLOCK_BYTES (4 * MIB)

static struct driver cu;
static CUstream stream;
static CUdeviceptr cold[COLD], hot[HOT];

/* Never inline, and each a call site of its own. */
static __attribute__((noinline)) CUdeviceptr make_cold(void)
{
    CUdeviceptr at;
    MUST(cu.cuMemAlloc(&at, BLOCK_BYTES));
    return at;
}

static __attribute__((noinline)) CUdeviceptr make_hot(void)
{
    CUdeviceptr at;
    MUST(cu.cuMemAlloc(&at, BLOCK_BYTES));
    return at;
}

static __attribute__((noinline)) CUdeviceptr make_more(size_t bytes)
{
    CUdeviceptr at;
    MUST(cu.cuMemAlloc(&at, bytes));
    return at;
}

static void fill(const CUdeviceptr *blocks, int count, unsigned char byte)
{
    for (int i = 0; i < count; i++) {
        MUST(cu.cuMemsetD8Async(blocks[i], (unsigned char)(byte + i), BLOCK_BYTES, stream));
    }
}

static void check(const CUdeviceptr *blocks, int count, unsigned char byte)
{
    static unsigned char seen[BLOCK_BYTES];
    for (int i = 0; i < count; i++) {
        MUST(cu.cuMemcpyDtoHAsync(seen, blocks[i], BLOCK_BYTES, stream));
        MUST(cu.cuStreamSynchronize(stream));
        EXPECT(seen[0] == (unsigned char)(byte + i));
        EXPECT(memcmp(seen, seen + 1, BLOCK_BYTES - 1) == 0);
    }
}

static void make_all(void)
{
    for (int i = 0; i < COLD; i++) {
        cold[i] = make_cold();
    }
    fill(cold, COLD, 1);
    for (int i = 0; i < HOT; i++) {
        hot[i] = make_hot();
    }
    fill(hot, HOT, 101);
    MUST(cu.cuStreamSynchronize(stream));
}

static void move(void)
{
    make_all();
    fill(hot, HOT, 101);
    uint64_t begin = now_ns();
    CUdeviceptr more = make_more(8 * BLOCK_BYTES);
    uint64_t down_ns = now_ns() - begin;
    fill(cold, COLD, 1);
    MUST(cu.cuStreamSynchronize(stream));
    MUST(cu.cuMemFree(more));
    begin = now_ns();
    for (int i = 0; i < STEPS_BACK; i++) {
        memshim_step();
        more = make_more(KIB);
        MUST(cu.cuMemFree(more));
        (void)usleep(10000);
    }
    (void)printf("{\"down_ns\": %llu, \"up_ns\": %llu}\n", (unsigned long long)down_ns,
                 (unsigned long long)(now_ns() - begin));
}

/* Never the same twice: nobody can foretell them. */
static void take(uint64_t *seed, size_t bytes)
{
    CUdeviceptr pieces[PIECES];
    int count = 0;
    while (bytes > 0) {
        size_t part = (next_random(seed) % 64 + 1) * 64 * KIB;
        part = part < bytes && count + 1 < PIECES ? part : bytes;
        pieces[count++] = make_more(part);
        bytes -= part;
    }
    fill(hot, HOT, 101);
    while (count > 0) {
        MUST(cu.cuMemFree(pieces[--count]));
    }
}

static void thrash(unsigned long times)
{
    uint64_t seed = 1;
    make_all();
    while (times-- > 0) {
        for (int i = 0; i < QUIET_STEPS; i++) {
            memshim_step();
            take(&seed, 24 * MIB);
        }
        memshim_step();
        take(&seed, 40 * MIB);
    }
    (void)printf("{}\n");
}

int main(int argc, char **argv)
{
    CUcontext context;
    EXPECT(argc >= 2);
    cu = driver_use(&context);
    MUST(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    if (strcmp(argv[1], "thrash") == 0) {
        EXPECT(argc == 3);
        thrash(strtoul(argv[2], NULL, 10));
    } else {
        move();
    }
    check(cold, COLD, 1);
    check(hot, HOT, 101);
    return 0;
}
