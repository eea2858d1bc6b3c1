/* SPDX-License-Identifier: Apache-2.0 */
/* A pool on a dry device, for tests: small, with a log of events. */
#ifndef MEMSHIM_TESTS_RIG_H
#define MEMSHIM_TESTS_RIG_H

#include <criterion/criterion.h>
#include <stdlib.h>

#include "allocator/device/dry.h"
#include "allocator/pool.h"

#define KIB     ((uint64_t)1 << 10)
#define MIB     ((uint64_t)1 << 20)
#define GRANULE (2 * MIB)

#define RIG_WAIT_NS      ((uint64_t)1000000000) /* virtual */
#define RIG_WAIT_MOST_NS (10 * RIG_WAIT_NS)

enum { RIG_EVENTS = 4096 };

struct rig {
    ms_dry_t *dry;
    struct ms_budget budget;
    ms_pool_t *pool;
    struct ms_event event[RIG_EVENTS];
    size_t events;
};

static inline void rig_note(void *ctx, const struct ms_event *event)
{
    struct rig *rig = ctx;
    if (rig->events < RIG_EVENTS) {
        rig->event[rig->events++] = *event;
    }
}

struct rig_wishes {
    uint64_t granule_bytes, total_bytes, cap_bytes, host_limit_bytes;
    bool no_host, views, uses_untold;
    const struct ms_choice *choice;
    uint64_t spill_limit_bytes, page_bytes;
    uint64_t wait_ns; /* 0: RIG_WAIT_NS */
    const struct ms_spill_choice *spill_choice;
    struct ms_budget *spill_budget;
    bool (*is_optimizers)(void *sites, uint32_t site);
    const struct ms_dry_costs *costs;
};

static inline struct rig *rig_make_as(struct rig_wishes wishes)
{
    struct rig *rig = calloc(1, sizeof(*rig));
    const uint64_t wait_ns = wishes.wait_ns != 0 ? wishes.wait_ns : RIG_WAIT_NS;
    struct ms_dry_config device = {.granule_bytes = wishes.granule_bytes,
                                   .total_bytes = wishes.total_bytes,
                                   .no_host = wishes.no_host,
                                   .uses_untold = wishes.uses_untold,
                                   .costs = wishes.costs};
    cr_assert_eq(ms_dry_create(&device, &rig->dry), MS_OK);
    ms_budget_init(&rig->budget, wishes.cap_bytes);
    struct ms_pool_config config = {.device = 3,
                                    .ops = ms_dry_ops(rig->dry),
                                    .budget = &rig->budget,
                                    .sink = {.emit = rig_note, .ctx = rig},
                                    .wait_limit_ns = wait_ns,
                                    .wait_most_ns = 10 * wait_ns,
                                    .host_limit_bytes = wishes.host_limit_bytes,
                                    .choice = wishes.choice,
                                    .spill_limit_bytes = wishes.spill_limit_bytes,
                                    .spill_budget = wishes.spill_budget,
                                    .halt_limit_ns = wait_ns,
                                    .spill_choice = wishes.spill_choice,
                                    .is_optimizers = wishes.is_optimizers,
                                    .views = wishes.views,
                                    .page_bytes = wishes.page_bytes};
    cr_assert_eq(ms_pool_create(&config, &rig->pool), MS_OK);
    return rig;
}

static inline struct rig *rig_make(uint64_t granule_bytes, uint64_t total_bytes, uint64_t cap_bytes)
{
    return rig_make_as((struct rig_wishes){
        .granule_bytes = granule_bytes, .total_bytes = total_bytes, .cap_bytes = cap_bytes});
}

/* The pool's books are in order, and nothing that the device checks was violated. */
static inline void rig_check(struct rig *rig)
{
    char why[256] = "";
    cr_assert(ms_pool_is_valid(rig->pool, why, sizeof(why)), "%s", why);
    const char *violation = ms_dry_violation(rig->dry);
    cr_assert_null(violation, "%s", violation);
    struct ms_dry_stats device;
    ms_dry_stats(rig->dry, &device);
    cr_assert_eq(device.used_bytes, atomic_load(&rig->budget.by_owner_bytes[MS_OWNER_POOL]),
                 "the device holds %lu bytes, %lu are charged", (unsigned long)device.used_bytes,
                 (unsigned long)atomic_load(&rig->budget.by_owner_bytes[MS_OWNER_POOL]));
    struct ms_pool_stats stats;
    ms_pool_stats(rig->pool, &stats);
    cr_assert_eq(device.host_bytes, stats.host_reserve_bytes + stats.host_backed_bytes);
}

/* Checks, takes all apart, and sees that the device got everything back. */
static inline void rig_end(struct rig *rig)
{
    rig_check(rig);
    const struct ms_device_ops *ops = ms_dry_ops(rig->dry);
    ms_fence_t all = 0;
    ms_dry_set_stalled(rig->dry, false);
    cr_assert_eq(ops->fence_take(ops->ctx, MS_STREAM_DEVICE, &all), MS_OK);
    cr_assert_eq(ops->fence_wait(ops->ctx, all, UINT64_MAX), MS_OK);
    ops->fence_release(ops->ctx, all);
    ms_pool_destroy(rig->pool, false);
    struct ms_dry_stats left;
    ms_dry_stats(rig->dry, &left);
    cr_assert_eq(left.used_bytes + left.host_bytes, 0);
    cr_assert_eq(atomic_load(&rig->budget.committed_bytes),
                 atomic_load(&rig->budget.charged_bytes));
    cr_assert_eq(left.chunks + left.mappings + left.fences + left.reservations, 0);
    cr_assert_eq(left.plain_allocations, 0);
    cr_assert_eq(atomic_load(&rig->budget.by_owner_bytes[MS_OWNER_POOL]), 0);
    cr_assert_null(ms_dry_violation(rig->dry), "%s", ms_dry_violation(rig->dry));
    ms_dry_destroy(rig->dry);
    free(rig);
}

static inline ms_status_t rig_try(struct rig *rig, uint64_t bytes, ms_stream_t stream,
                                  struct ms_block_info *out)
{
    struct ms_request request = {.bytes = bytes, .stream = stream, .site = 7, .may_wait = true};
    return ms_pool_alloc(rig->pool, &request, out);
}

static inline struct ms_block_info rig_alloc(struct rig *rig, uint64_t bytes, ms_stream_t stream)
{
    struct ms_block_info block = {0};
    cr_assert_eq(rig_try(rig, bytes, stream, &block), MS_OK, "%lu bytes", (unsigned long)bytes);
    cr_assert_eq(block.addr % MS_BLOCK_ALIGNMENT_BYTES, 0);
    cr_assert_eq(block.bytes, bytes);
    cr_assert(ms_dry_accessible(rig->dry, block.addr, bytes));
    return block;
}

/* A block with contents of its own, and whether they are still there. */
static inline struct ms_block_info rig_write_new(struct rig *rig, uint64_t bytes)
{
    struct ms_block_info block = rig_alloc(rig, bytes, MS_STREAM_DEVICE);
    ms_dry_write(rig->dry, block.addr, block.bytes, block.id);
    return block;
}

static inline void rig_check_contents(struct rig *rig, const struct ms_block_info *block)
{
    cr_assert(ms_dry_accessible(rig->dry, block->addr, block->bytes));
    cr_assert(ms_dry_holds(rig->dry, block->addr, block->bytes, block->id),
              "block %lu lost its contents", (unsigned long)block->id);
}

static inline void rig_free(struct rig *rig, struct ms_block_info block, ms_stream_t stream)
{
    cr_assert_eq(ms_pool_free(rig->pool, block.addr, stream), MS_OK);
}

static inline void rig_work(struct rig *rig, struct ms_block_info block, ms_stream_t stream)
{
    cr_assert_eq(
        ms_dry_work(rig->dry, stream, block.id, block.addr, block.bytes, MS_DRY_UNTIL_TOLD), MS_OK);
}

static inline struct ms_pool_stats rig_stats(struct rig *rig)
{
    struct ms_pool_stats stats;
    ms_pool_stats(rig->pool, &stats);
    return stats;
}

static inline size_t rig_count(const struct rig *rig, enum ms_event_kind kind)
{
    size_t count = 0;
    for (size_t at = 0; at < rig->events; at++) {
        count += rig->event[at].kind == kind ? 1 : 0;
    }
    return count;
}

#endif
