/* SPDX-License-Identifier: Apache-2.0 */
/* The largest devices there are, every granule that a driver may report, several devices at once,
 * and sizes that no device has. */
#include <stdio.h>
#include <unistd.h>

#include "allocator/arenas/arena.h"
#include "allocator/arenas/proxy.h"
#include "allocator/pool.h"
#include "bare.h"

#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)

struct large {
    struct bare *bare;
    struct ms_budget budget;
    ms_pool_t *pool;
    ms_arenas_t *arenas;
};

static struct large *make(uint64_t granule_bytes, uint64_t total_bytes)
{
    struct large *large = calloc(1, sizeof(*large));
    cr_assert_not_null(large);
    large->bare = bare_make(granule_bytes, total_bytes);
    ms_budget_init(&large->budget, total_bytes);
    struct ms_pool_config config = {.ops = &large->bare->ops,
                                    .budget = &large->budget,
                                    .wait_limit_ns = 1000000,
                                    .host_limit_bytes = total_bytes,
                                    .views = true};
    cr_assert_eq(ms_pool_create(&config, &large->pool), MS_OK);
    struct ms_event_sink nobody = {0};
    cr_assert_eq(ms_arenas_create(0, large->pool, nobody, &large->arenas), MS_OK);
    return large;
}

static void check(struct large *large)
{
    char why[200] = "";
    cr_assert(ms_pool_is_valid(large->pool, why, sizeof(why)), "%s", why);
    cr_assert_null(large->bare->violation, "%s", large->bare->violation);
    cr_assert_eq(large->bare->used_bytes, atomic_load(&large->budget.charged_bytes));
}

static void end(struct large *large)
{
    check(large);
    ms_arenas_destroy(large->arenas);
    ms_pool_destroy(large->pool, false);
    cr_assert_eq(atomic_load(&large->budget.committed_bytes), 0);
    bare_end(large->bare);
    free(large);
}

static ms_addr_t take(struct large *large, uint64_t bytes)
{
    struct ms_request request = {.bytes = bytes, .may_wait = true};
    struct ms_block_info block;
    ms_status_t status = ms_pool_alloc(large->pool, &request, &block);
    cr_assert_eq(status, MS_OK, "%lu bytes: %d", (unsigned long)bytes, status);
    cr_assert(bare_backed(large->bare, block.addr, bytes));
    return block.addr;
}

static void give(struct large *large, ms_addr_t addr)
{
    cr_assert_eq(ms_pool_free(large->pool, addr, MS_STREAM_DEVICE), MS_OK);
}

static ms_status_t refused(struct large *large, uint64_t bytes)
{
    struct ms_request request = {.bytes = bytes, .may_wait = true};
    struct ms_block_info block;
    return ms_pool_alloc(large->pool, &request, &block);
}

/* Filled with blocks of a granule; of every other one's memory one block is made, and of all. */
static void fill_and_join(uint64_t granule_bytes, uint64_t total_bytes)
{
    struct large *large = make(granule_bytes, total_bytes);
    uint64_t unit_bytes = granule_bytes < 2 * MIB ? 2 * MIB : granule_bytes;
    size_t count = total_bytes / unit_bytes;
    ms_addr_t *block = calloc(count, sizeof(*block));
    cr_assert_not_null(block);
    for (size_t k = 0; k < count; k++) {
        block[k] = take(large, unit_bytes);
    }
    cr_assert_eq(refused(large, 512), MS_ERR_NO_MEMORY);
    for (size_t k = 0; k < count; k += 2) {
        give(large, block[k]);
    }
    give(large, take(large, (count + 1) / 2 * unit_bytes));
    check(large);
    for (size_t k = 1; k < count; k += 2) {
        give(large, block[k]);
    }
    give(large, take(large, count * unit_bytes));
    free(block);
    end(large);
}

Test(scale, a_device_of_192_gib)
{
    fill_and_join(2 * MIB, 192 * GIB);
}

Test(scale, a_device_of_288_gib)
{
    fill_and_join(2 * MIB, 288 * GIB);
}

Test(scale, whatever_the_granule)
{
    static const uint64_t granule_bytes[] = {4 * KIB,  64 * KIB, 512 * KIB, 2 * MIB,
                                             16 * MIB, 32 * MIB, 512 * MIB};
    for (size_t k = 0; k < sizeof(granule_bytes) / sizeof(granule_bytes[0]); k++) {
        fill_and_join(granule_bytes[k], 24 * GIB);
    }
}

/* Tensors of every size from end to end of an arena that is the device, in whatever granule. */
static void tensors_throughout(uint64_t granule_bytes, uint64_t total_bytes)
{
    struct large *large = make(granule_bytes, total_bytes);
    ms_addr_t base = take(large, total_bytes);
    uint64_t sum_bytes = 0;
    ms_addr_t at = base;
    for (uint64_t bytes = 256; at + bytes <= base + total_bytes; bytes *= 3) {
        sum_bytes += bytes;
        cr_assert_eq(ms_arenas_allocated(large->arenas, at, bytes, 1, sum_bytes), MS_OK);
        at += bytes + 256;
    }
    ms_addr_t last = base + total_bytes - 256;
    sum_bytes += 256;
    cr_assert_eq(ms_arenas_allocated(large->arenas, last, 256, 1, sum_bytes), MS_OK);
    char why[200] = "";
    cr_assert(ms_arenas_is_valid(large->arenas, why, sizeof(why)), "%s", why);
    struct ms_arenas_stats stats;
    ms_arenas_stats(large->arenas, &stats);
    cr_assert_eq(stats.live_bytes, sum_bytes);
    cr_assert_eq(ms_arenas_allocated(large->arenas, last, 256, 1, UINT64_MAX), MS_ERR_INVALID);
    cr_assert_eq(ms_arenas_allocated(large->arenas, last, 512, 1, UINT64_MAX), MS_ERR_INVALID);
    give(large, base);
    ms_arenas_stats(large->arenas, &stats);
    cr_assert_eq(stats.live_bytes, 0);
    end(large);
}

Test(scale, tensors_on_all_of_a_device)
{
    tensors_throughout(2 * MIB, 288 * GIB);
    tensors_throughout(16 * MIB, 288 * GIB);
    tensors_throughout(512 * MIB, 288 * GIB);
}

/* What a framework's holes are worth does not depend on the size of granules either. */
static void chunks_of_holes(uint64_t granule_bytes)
{
    struct large *large = make(granule_bytes, 16 * granule_bytes);
    ms_addr_t base = take(large, 16 * granule_bytes);
    cr_assert_eq(ms_arenas_allocated(large->arenas, base, 256, 1, 256), MS_OK);
    ms_addr_t other = take(large, 15 * granule_bytes);
    cr_assert_eq(ms_arenas_allocated(large->arenas, base + 8 * granule_bytes, 256, 1, 512), MS_OK);
    cr_assert(bare_backed(large->bare, base + 8 * granule_bytes, 256));
    give(large, other);
    give(large, base);
    end(large);
}

Test(scale, holes_in_large_granules)
{
    chunks_of_holes(2 * MIB);
    chunks_of_holes(16 * MIB);
    chunks_of_holes(512 * MIB);
}

enum { DEVICES = 8 };

Test(scale, eight_devices_know_nothing_of_each_other)
{
    struct large *device[DEVICES];
    ms_addr_t block[DEVICES];
    for (int k = 0; k < DEVICES; k++) {
        device[k] = make(2 * MIB, (uint64_t)(k + 1) * GIB);
        block[k] = take(device[k], (uint64_t)(k + 1) * GIB - 2 * MIB);
    }
    for (int k = 0; k < DEVICES; k++) {
        cr_assert_eq(device[k]->bare->used_bytes, (uint64_t)(k + 1) * GIB - 2 * MIB);
        give(device[k], block[k]);
        end(device[k]);
    }
}

Test(scale, sizes_that_no_device_has)
{
    static const uint64_t bytes[] = {288 * GIB + 1,     (uint64_t)1 << 62, ((uint64_t)1 << 63) - 1,
                                     (uint64_t)1 << 63, UINT64_MAX - 511,  UINT64_MAX - 1,
                                     UINT64_MAX};
    struct large *large = make(2 * MIB, 288 * GIB);
    ms_addr_t keep = take(large, 3 * MIB);
    cr_assert_eq(refused(large, 0), MS_ERR_INVALID);
    for (size_t k = 0; k < sizeof(bytes) / sizeof(bytes[0]); k++) {
        ms_proxy_t *proxy = NULL;
        uint64_t whole_bytes = bytes[k] / (2 * MIB) * (2 * MIB);
        cr_assert_eq(refused(large, bytes[k]), MS_ERR_NO_MEMORY);
        cr_assert_neq(ms_proxy_create(large->pool, bytes[k], NULL, true, &proxy), MS_OK);
        cr_assert(whole_bytes <= 288 * GIB ||
                  ms_proxy_create(large->pool, whole_bytes, NULL, true, &proxy) != MS_OK);
        cr_assert_not(ms_pool_make_room(large->pool, bytes[k], true));
        cr_assert_eq(ms_pool_trim(large->pool, bytes[k]), 0);
        cr_assert_eq(ms_pool_touch(large->pool, keep, bytes[k]), 0);
        (void)ms_pool_promote(large->pool, bytes[k]);
        (void)ms_pool_promote_range(large->pool, keep, bytes[k]);
        cr_assert(bytes[k] < (uint64_t)1 << 62 ||
                  ms_arenas_allocated(large->arenas, keep, bytes[k], 1, UINT64_MAX) ==
                      MS_ERR_INVALID);
        check(large);
    }
    give(large, keep);
    end(large);
}

/* A framework's reservation that ends where the addresses do, and what would lie beyond. */
Test(scale, pages_at_the_end_of_all_addresses)
{
    struct large *large = make(2 * MIB, 8 * GIB);
    ms_proxy_t *proxy = NULL;
    cr_assert_eq(ms_proxy_create(large->pool, 2 * MIB, NULL, true, &proxy), MS_OK);
    ms_addr_t base = BARE_FIRST_ADDR + 1024 * GIB;
    uint64_t most = UINT64_MAX / (2 * MIB) * (2 * MIB);
    cr_assert_neq(ms_proxy_map(large->pool, proxy, base, base, 0), MS_OK);
    cr_assert_neq(ms_proxy_map(large->pool, proxy, base - 2 * MIB, base, 4 * MIB), MS_OK);
    cr_assert_neq(ms_proxy_map(large->pool, proxy, base, base, most), MS_OK);
    cr_assert_neq(ms_proxy_map(large->pool, proxy, most, base, 4 * MIB), MS_OK);
    cr_assert_neq(ms_proxy_access(large->pool, base, most), MS_OK);
    cr_assert_neq(ms_proxy_unmap(large->pool, base, most), MS_OK);
    cr_assert_eq(ms_proxy_map(large->pool, proxy, base + 2 * MIB, base, 4 * MIB), MS_OK);
    cr_assert_eq(ms_proxy_access(large->pool, base + 2 * MIB, 2 * MIB), MS_OK);
    cr_assert_neq(ms_proxy_access(large->pool, base + 2 * MIB, most), MS_OK);
    cr_assert_neq(ms_proxy_unmap(large->pool, base + 2 * MIB, most), MS_OK);
    cr_assert_eq(ms_arenas_allocated(large->arenas, base + 2 * MIB, most, 1, UINT64_MAX),
                 MS_ERR_INVALID);
    cr_assert_eq(ms_proxy_unmap(large->pool, base + 2 * MIB, 2 * MIB), MS_OK);
    ms_proxy_release(large->pool, proxy);
    ms_proxy_reservation_gone(large->pool, base);
    end(large);
}

static uint64_t resident_bytes(void)
{
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    cr_assert_not_null(file);
    cr_assert_eq(fscanf(file, "%*u %lu", &pages), 1);
    (void)fclose(file);
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* Each stream has bins of 50 KB for its free blocks, of which one that uses few sizes touches few.
 */
Test(scale, a_stream_of_one_size_takes_little_of_the_host)
{
    enum { STREAMS = 1000, MOST_BYTES = 24 << 10 };
    struct large *large = make(2 * MIB, 8 * GIB);
    const uint64_t before = resident_bytes();
    for (ms_stream_t stream = 1; stream <= STREAMS; stream++) {
        struct ms_request request = {.bytes = 96 * KIB, .stream = stream, .may_wait = true};
        struct ms_block_info block;
        cr_assert_eq(ms_pool_alloc(large->pool, &request, &block), MS_OK);
        cr_assert_eq(ms_pool_free(large->pool, block.addr, stream), MS_OK);
    }
    const uint64_t each_bytes = (resident_bytes() - before) / STREAMS;
    cr_assert(each_bytes <= MOST_BYTES, "%lu bytes a stream", (unsigned long)each_bytes);
    end(large);
}
