/* SPDX-License-Identifier: Apache-2.0 */
/* Fills the device beyond its limit with blocks that nothing uses meanwhile, so that each
 * allocation moves another's bytes to the host; with "up", frees what is on the device, tells steps
 * until the rest has come back, and looks at it; with "again", fills the device once more, so that
 * what has come back goes a second time, as in every step of a training. Under memshim, whose
 * report says what moved in what time.
 *
 * spill_speed BATCH_MIB BATCHES down|up|again prints {"event": "spill", "slowest_ns", "median_ns"
 * (of an allocation), "moved_bytes", "held_ns" (of the way that was asked for), "wrong_bytes"}. */
#include <dlfcn.h>
#include <string.h>
#include <unistd.h>

#include "shim/memshim.h"
#include "tests/gpu/gpu.h"

enum { BATCHES_MAX = 256, STEPS_TOLD = 40, STEP_US = 20000 };

static struct gpu gpu;
static void (*step)(void);
static int (*stats_of)(int device, struct memshim_stats *stats);

static struct memshim_stats stats_now(void)
{
    struct memshim_stats stats = {.size = sizeof stats};
    EXPECT(stats_of(0, &stats) == 0);
    return stats;
}

static void *symbol(const char *name)
{
    void *address = dlsym(RTLD_DEFAULT, name);
    EXPECT(address != NULL);
    return address;
}

static int by_value(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a;
    uint64_t right = *(const uint64_t *)b;
    return left < right ? -1 : left > right;
}

/* A block more, filled, and a step. */
static uint64_t add(CUdeviceptr *at, size_t bytes, unsigned byte)
{
    uint64_t start_ns = gpu_now_ns();
    MUST(cuMemAlloc(at, bytes));
    uint64_t took_ns = gpu_now_ns() - start_ns;
    MUST(gpu_fill(&gpu, *at, bytes, byte, NULL));
    MUST(cuCtxSynchronize());
    step();
    return took_ns;
}

/* Memory comes back at calls of the program. */
static void let_it_come_back(void)
{
    for (int i = 0; i < STEPS_TOLD; i++) {
        CUdeviceptr small;
        step();
        MUST(cuMemAlloc(&small, MIB));
        MUST(cuMemFree(small));
        (void)usleep(STEP_US);
    }
}

int main(int argc, char **argv)
{
    static CUdeviceptr at[BATCHES_MAX];
    static uint64_t took_ns[BATCHES_MAX];
    uint64_t wrong = 0;
    EXPECT(argc == 4);
    size_t bytes = strtoull(argv[1], NULL, 10) * MIB;
    unsigned count = (unsigned)strtoul(argv[2], NULL, 10);
    EXPECT(bytes > 0 && count > 1 && count <= BATCHES_MAX);
    int again = strcmp(argv[3], "again") == 0;
    void *address = symbol("memshim_step");
    memcpy(&step, &address, sizeof address);
    address = symbol("memshim_stats");
    memcpy(&stats_of, &address, sizeof address);
    gpu_open(&gpu);
    for (unsigned i = 0; i < count; i++) {
        took_ns[i] = add(&at[i], bytes, i);
    }
    struct memshim_stats way = stats_now();
    uint64_t moved_bytes = way.spilled_bytes;
    uint64_t held_ns = way.spill_wait_ns;
    unsigned kept = count;
    if (again || strcmp(argv[3], "up") == 0) {
        kept = count / 2;
        for (unsigned i = kept; i < count; i++) {
            MUST(cuMemFree(at[i]));
        }
        let_it_come_back();
        struct memshim_stats back = stats_now();
        moved_bytes = back.promoted_bytes - way.promoted_bytes;
        held_ns = back.spill_wait_ns - way.spill_wait_ns;
        for (unsigned i = kept; again && i < count; i++) {
            took_ns[i] = add(&at[i], bytes, i);
        }
        if (again) {
            struct memshim_stats end = stats_now();
            kept = count;
            moved_bytes = end.spilled_bytes - back.spilled_bytes;
            held_ns = end.spill_wait_ns - back.spill_wait_ns;
        }
    }
    for (unsigned i = 0; i < kept; i++) {
        wrong += gpu_mismatches(&gpu, at[i], bytes, i);
    }
    qsort(took_ns, count, sizeof *took_ns, by_value);
    (void)printf("{\"event\": \"spill\", \"slowest_ns\": %llu, \"median_ns\": %llu, "
                 "\"moved_bytes\": %llu, \"held_ns\": %llu, \"wrong_bytes\": %llu}\n",
                 (unsigned long long)took_ns[count - 1], (unsigned long long)took_ns[count / 2],
                 (unsigned long long)moved_bytes, (unsigned long long)held_ns,
                 (unsigned long long)wrong);
    return wrong == 0 ? 0 : 1;
}
