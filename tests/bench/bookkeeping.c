/* SPDX-License-Identifier: Apache-2.0 */
/* The pool's own memory: bytes of host memory for each live block, with a million of them.
 *
 *   bookkeeping [BLOCKS]
 *
 * On the dry device, by what becomes resident while they are made, the dry device's own account of
 * chunks included. Blocks of two mixtures of sizes, and tensors in one arena. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "allocator/arenas/arena.h"
#include "allocator/device/dry.h"
#include "allocator/pool.h"

#define GRANULE_BYTES ((uint64_t)2 << 20)
#define DEVICE_BYTES  ((uint64_t)1 << 40)

struct bench {
    ms_dry_t *dry;
    struct ms_budget budget;
    ms_pool_t *pool;
    ms_arenas_t *arenas;
};

static uint64_t resident_bytes(void)
{
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    if (file == NULL || fscanf(file, "%*u %lu", &pages) != 1) {
        (void)fprintf(stderr, "bookkeeping: /proc/self/statm cannot be read\n");
        exit(1);
    }
    (void)fclose(file);
    return (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void begin(struct bench *bench)
{
    struct ms_dry_config device = {.granule_bytes = GRANULE_BYTES, .total_bytes = DEVICE_BYTES};
    if (ms_dry_create(&device, &bench->dry) != MS_OK) {
        abort();
    }
    ms_budget_init(&bench->budget, DEVICE_BYTES);
    struct ms_pool_config config = {.ops = ms_dry_ops(bench->dry), .budget = &bench->budget};
    if (ms_pool_create(&config, &bench->pool) != MS_OK ||
        ms_arenas_create(0, bench->pool, config.sink, &bench->arenas) != MS_OK) {
        abort();
    }
}

static void end(struct bench *bench)
{
    ms_arenas_destroy(bench->arenas);
    ms_pool_destroy(bench->pool, true);
    ms_dry_destroy(bench->dry);
}

static uint64_t next(uint64_t *state)
{
    *state += 0x9e3779b97f4a7c15u;
    uint64_t mixed = (*state ^ (*state >> 30)) * 0xbf58476d1ce4e5b9u;
    return mixed ^ (mixed >> 31);
}

static ms_addr_t take(struct bench *bench, uint64_t bytes)
{
    struct ms_request request = {.bytes = bytes, .stream = MS_STREAM_DEVICE, .may_wait = true};
    struct ms_block_info block;
    if (ms_pool_alloc(bench->pool, &request, &block) != MS_OK) {
        abort();
    }
    return block.addr;
}

static void say(const char *what, uint64_t blocks, uint64_t bytes)
{
    (void)printf("%-28s %10" PRIu64 " %8.1f\n", what, blocks, (double)bytes / (double)blocks);
}

/* Blocks of 512 bytes to most_bytes. */
static void blocks_of(const char *what, uint64_t blocks, uint64_t most_bytes)
{
    struct bench bench;
    uint64_t state = 1;
    begin(&bench);
    uint64_t before = resident_bytes();
    for (uint64_t k = 0; k < blocks; k++) {
        (void)take(&bench, next(&state) % most_bytes + 1);
    }
    say(what, blocks, resident_bytes() - before);
    end(&bench);
}

static void tensors_of(const char *what, uint64_t tensors, uint64_t most_bytes)
{
    struct bench bench;
    uint64_t state = 1;
    begin(&bench);
    uint64_t bytes = tensors * most_bytes;
    ms_addr_t arena = take(&bench, bytes);
    uint64_t before = resident_bytes();
    for (uint64_t k = 0; k < tensors; k++) {
        if (ms_arenas_allocated(bench.arenas, arena + k * most_bytes, next(&state) % most_bytes + 1,
                                1, UINT64_MAX) != MS_OK) {
            abort();
        }
    }
    say(what, tensors, resident_bytes() - before);
    end(&bench);
}

int main(int argc, char **argv)
{
    uint64_t blocks = argc > 1 ? strtoull(argv[1], NULL, 10) : 1000000;
    if (argc > 2 || blocks == 0) {
        (void)fprintf(stderr, "usage: bookkeeping [BLOCKS]\n");
        return 2;
    }
    (void)printf("%-28s %10s %8s\n", "host memory", "live", "bytes");
    blocks_of("blocks up to 4 KiB", blocks, 4096);
    blocks_of("blocks up to 64 KiB", blocks, 65536);
    tensors_of("tensors in an arena", blocks, 4096);
    return 0;
}
