/* SPDX-License-Identifier: Apache-2.0 */
/* The stage of a random test. See stage.h. */
#include "stage.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "allocator/base/arithmetic.h"

uint64_t draw(struct dice *dice, uint64_t below)
{
    dice->state += 0x9e3779b97f4a7c15u;
    uint64_t mixed = dice->state;
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9u;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebu;
    return (mixed ^ (mixed >> 31)) % below;
}

/* ---- the watched device: the dry one's table, with a look before or after some calls */

static const struct ms_device_ops *below(const struct stage *stage)
{
    return ms_dry_ops(stage->dry);
}

/* A device's calls take time, now and then much, in which other threads go on. */
static void linger(const struct stage *stage)
{
    static _Thread_local struct dice chance;

    if (!stage->config.crowded) {
        return;
    }
    if (chance.state == 0) {
        chance.state = (uint64_t)(uintptr_t)&chance;
    }
    if (draw(&chance, 8) == 0) {
        struct timespec time = {.tv_nsec = (long)draw(&chance, 200000)};
        (void)nanosleep(&time, NULL);
    }
}

/* The first failure brings on the second. */
static ms_status_t noted(struct stage *stage, ms_status_t status)
{
    linger(stage);
    if (status != MS_OK && stage->second.waits) {
        stage->second.waits = false;
        if (stage->second.op == MS_DRY_OP_COUNT) {
            ms_dry_fail_run(stage->dry, stage->second.nth, stage->second.count,
                            stage->second.status);
        } else {
            ms_dry_fail(stage->dry, stage->second.op, stage->second.nth, stage->second.status);
        }
    }
    return status;
}

/* Of a call that says so when the work is not done yet: no failure. */
static ms_status_t noted_wait(struct stage *stage, ms_status_t status)
{
    return status == MS_ERR_NOT_READY ? status : noted(stage, status);
}

static ms_status_t watch_chunk_create(void *ctx, uint64_t bytes, enum ms_location location,
                                      const void *properties, ms_handle_t *out)
{
    struct stage *stage = ctx;
    if (location == MS_LOCATION_HOST ? stage->host_refuses : stage->device_refuses) {
        return MS_ERR_NO_MEMORY;
    }
    struct ms_dry_stats device;
    ms_dry_stats(stage->dry, &device);
    uint64_t charged_bytes = atomic_load(&stage->budget.charged_bytes);
    if (!stage->config.crowded && location == MS_LOCATION_DEVICE &&
        device.used_bytes + bytes + stage->forwarded_bytes + stage->imposed_bytes > charged_bytes) {
        model_wrong(&stage->model, "the device is asked before the budget");
    }
    const struct ms_device_ops *ops = below(stage);
    return noted(stage, ops->chunk_create(ops->ctx, bytes, location, properties, out));
}

static ms_status_t watch_map(void *ctx, ms_addr_t addr, uint64_t bytes, ms_handle_t chunk)
{
    struct stage *stage = ctx;
    const struct ms_device_ops *ops = below(stage);
    ms_status_t status = noted(stage, ops->map(ops->ctx, addr, bytes, chunk));
    if (status == MS_OK) {
        model_mapped(&stage->model, addr, bytes, chunk);
    }
    return status;
}

static ms_status_t watch_set_access(void *ctx, ms_addr_t addr, uint64_t bytes)
{
    struct stage *stage = ctx;
    const struct ms_device_ops *ops = below(stage);
    ms_status_t status = noted(stage, ops->set_access(ops->ctx, addr, bytes));
    if (status == MS_OK) {
        model_accessed(&stage->model, addr, bytes);
    }
    return status;
}

static ms_status_t watch_unmap(void *ctx, ms_addr_t addr, uint64_t bytes)
{
    struct stage *stage = ctx;
    const struct ms_device_ops *ops = below(stage);
    model_unmapping(&stage->model, addr, bytes);
    ms_status_t status = noted(stage, ops->unmap(ops->ctx, addr, bytes));
    if (status == MS_OK) {
        model_unmapped(&stage->model, addr, bytes);
    } else {
        stage->lost = true;
    }
    return status;
}

static ms_status_t watch_fence_wait(void *ctx, ms_fence_t fence, uint64_t timeout_ns)
{
    struct stage *stage = ctx;
    const struct ms_device_ops *ops = below(stage);
    if (stage->capturing) {
        model_wrong(&stage->model, "somebody waits for the device while a stream captures");
    }
    return noted_wait(stage, ops->fence_wait(ops->ctx, fence, timeout_ns));
}

static ms_status_t watch_address_reserve(void *ctx, uint64_t bytes, uint64_t alignment,
                                         ms_addr_t *out)
{
    const struct ms_device_ops *ops = below(ctx);
    return noted(ctx, ops->address_reserve(ops->ctx, bytes, alignment, out));
}

static ms_status_t watch_address_free(void *ctx, ms_addr_t addr, uint64_t bytes)
{
    const struct ms_device_ops *ops = below(ctx);
    return noted(ctx, ops->address_free(ops->ctx, addr, bytes));
}

static ms_status_t watch_chunk_release(void *ctx, ms_handle_t chunk)
{
    const struct ms_device_ops *ops = below(ctx);
    ms_status_t status = noted(ctx, ops->chunk_release(ops->ctx, chunk));
    ((struct stage *)ctx)->lost |= status != MS_OK;
    return status;
}

static ms_status_t watch_fence_take(void *ctx, ms_stream_t stream, ms_fence_t *out)
{
    const struct ms_device_ops *ops = below(ctx);
    return noted(ctx, ops->fence_take(ops->ctx, stream, out));
}

static ms_status_t watch_fence_query(void *ctx, ms_fence_t fence)
{
    const struct ms_device_ops *ops = below(ctx);
    return noted_wait(ctx, ops->fence_query(ops->ctx, fence));
}

static ms_status_t watch_stream_wait(void *ctx, ms_stream_t stream, ms_fence_t fence)
{
    const struct ms_device_ops *ops = below(ctx);
    return noted(ctx, ops->stream_wait(ops->ctx, stream, fence));
}

static void watch_fence_release(void *ctx, ms_fence_t fence)
{
    const struct ms_device_ops *ops = below(ctx);
    ops->fence_release(ops->ctx, fence);
}

static ms_status_t watch_plain_alloc(void *ctx, uint64_t bytes, ms_addr_t *out)
{
    const struct ms_device_ops *ops = below(ctx);
    return noted(ctx, ops->plain_alloc(ops->ctx, bytes, out));
}

static ms_status_t watch_plain_free(void *ctx, ms_addr_t addr)
{
    const struct ms_device_ops *ops = below(ctx);
    return noted(ctx, ops->plain_free(ops->ctx, addr));
}

static ms_status_t watch_halt(void *ctx, uint64_t timeout_ns)
{
    struct stage *stage = ctx;
    const struct ms_device_ops *ops = below(stage);
    if (stage->halt_refuses) {
        return MS_ERR_NOT_READY;
    }
    (void)pthread_rwlock_wrlock(&stage->gate);
    ms_status_t status = noted(stage, ops->halt(ops->ctx, timeout_ns));
    if (status == MS_OK) {
        model_halted(&stage->model, true);
    } else {
        (void)pthread_rwlock_unlock(&stage->gate);
    }
    return status;
}

static void watch_resume(void *ctx)
{
    struct stage *stage = ctx;
    const struct ms_device_ops *ops = below(stage);
    model_halted(&stage->model, false);
    ops->resume(ops->ctx);
    (void)pthread_rwlock_unlock(&stage->gate);
}

static ms_status_t watch_copy(void *ctx, ms_addr_t to, ms_addr_t from, uint64_t bytes)
{
    const struct ms_device_ops *ops = below(ctx);
    return noted(ctx, ops->copy(ops->ctx, to, from, bytes));
}

static ms_status_t watch_copy_wait(void *ctx, uint64_t left)
{
    const struct ms_device_ops *ops = below(ctx);
    return noted(ctx, ops->copy_wait(ops->ctx, left));
}

static uint64_t watch_now_ns(void *ctx)
{
    const struct ms_device_ops *ops = below(ctx);
    return ops->now_ns(ops->ctx);
}

void stage_work(struct stage *stage, ms_stream_t stream, uint64_t owner, ms_addr_t addr,
                uint64_t bytes, uint64_t duration_ns)
{
    (void)pthread_rwlock_rdlock(&stage->gate);
    (void)ms_dry_work(stage->dry, stream, owner, addr, bytes, duration_ns);
    (void)pthread_rwlock_unlock(&stage->gate);
}

void stage_add_block(struct stage *stage, const struct ms_request *request,
                     const struct ms_block_info *info)
{
    (void)pthread_rwlock_rdlock(&stage->gate);
    model_add_block(&stage->model, request, info);
    model_touch(&stage->model, MODEL_LIVE, info->addr, info->bytes, 1);
    (void)pthread_rwlock_unlock(&stage->gate);
}

bool stage_accessible(struct stage *stage, ms_addr_t addr, uint64_t bytes)
{
    (void)pthread_rwlock_rdlock(&stage->gate);
    bool accessible = ms_dry_accessible(stage->dry, addr, bytes);
    (void)pthread_rwlock_unlock(&stage->gate);
    return accessible;
}

void stage_write(struct stage *stage, ms_addr_t addr, uint64_t bytes, uint64_t tag)
{
    (void)pthread_rwlock_rdlock(&stage->gate);
    ms_dry_write(stage->dry, addr, bytes, tag);
    (void)pthread_rwlock_unlock(&stage->gate);
}

void stage_expect(struct stage *stage, ms_addr_t addr, uint64_t bytes, uint64_t tag)
{
    (void)pthread_rwlock_rdlock(&stage->gate);
    bool kept = stage->model.plain || ms_dry_holds(stage->dry, addr, bytes, tag);
    (void)pthread_rwlock_unlock(&stage->gate);
    if (!kept) {
        model_wrong(&stage->model, "%lu bytes at %#lx have lost their contents",
                    (unsigned long)bytes, (unsigned long)addr);
    }
}

static const struct ms_device_ops watched = {
    .halt = watch_halt,
    .resume = watch_resume,
    .copy = watch_copy,
    .copy_wait = watch_copy_wait,
    .now_ns = watch_now_ns,
    .address_reserve = watch_address_reserve,
    .address_free = watch_address_free,
    .chunk_create = watch_chunk_create,
    .chunk_release = watch_chunk_release,
    .map = watch_map,
    .set_access = watch_set_access,
    .unmap = watch_unmap,
    .fence_take = watch_fence_take,
    .fence_query = watch_fence_query,
    .fence_wait = watch_fence_wait,
    .stream_wait = watch_stream_wait,
    .fence_release = watch_fence_release,
    .plain_alloc = watch_plain_alloc,
    .plain_free = watch_plain_free,
};

/* ---- begin and end */

/* The device hands addresses out upwards: none that is of interest lies below this one. */
static void find_first_address(struct stage *stage)
{
    const struct ms_device_ops *ops = below(stage);
    ms_addr_t addr = 0;
    if (ops->granule_bytes != 0 &&
        ops->address_reserve(ops->ctx, ops->granule_bytes, 0, &addr) == MS_OK) {
        (void)ops->address_free(ops->ctx, addr, ops->granule_bytes);
    }
    stage->model.first_addr = addr;
}

void stage_begin(struct stage *stage, const struct stage_config *config)
{
    memset(stage, 0, sizeof(*stage));
    stage->config = *config;
    struct ms_dry_config device = {.granule_bytes = config->granule_bytes,
                                   .total_bytes = config->total_bytes,
                                   .costs = config->costs};
    ms_budget_init(&stage->budget, config->cap_bytes);
    if (ms_dry_create(&device, &stage->dry) != MS_OK ||
        !model_begin(&stage->model, config->granule_bytes == 0, &stage->budget)) {
        abort();
    }
    stage->model.views = config->views;
    stage->model.page_bytes = config->page_bytes;
    (void)pthread_rwlock_init(&stage->gate, NULL);
    find_first_address(stage);
    stage->ops = watched;
    stage->ops.ctx = stage;
    stage->ops.granule_bytes = config->granule_bytes;
    stage->ops.total_bytes = config->total_bytes;
    stage->ops.captures = below(stage)->captures;
    struct ms_event_sink sink = {.emit = model_event, .ctx = &stage->model};
    struct ms_pool_config pool = {.ops = &stage->ops,
                                  .budget = &stage->budget,
                                  .sink = sink,
                                  .wait_limit_ns = config->wait_limit_ns,
                                  .host_limit_bytes = config->host_limit_bytes,
                                  .choice = config->choice,
                                  .spill_limit_bytes = config->spill_limit_bytes,
                                  .spill_choice = config->spill_choice,
                                  .halt_limit_ns = config->wait_limit_ns,
                                  .views = config->views,
                                  .page_bytes = config->page_bytes};
    if (ms_pool_create(&pool, &stage->pool) != MS_OK ||
        ms_arenas_create(0, stage->pool, sink, &stage->arenas) != MS_OK) {
        abort();
    }
    stage->next_stream = 1;
    for (int k = 0; k < STREAMS; k++) {
        stage->stream[k] = stage->next_stream++;
        (void)ms_dry_stream_create(stage->dry, stage->stream[k]);
    }
}

void stage_calm(struct stage *stage)
{
    stage->capturing = stage->stalled = stage->armed = false;
    stage->device_refuses = stage->host_refuses = stage->halt_refuses = false;
    stage->second.waits = false;
    ms_dry_fail_run(stage->dry, 0, 0, MS_OK);
    ms_dry_set_capturing(stage->dry, false);
    ms_dry_set_stalled(stage->dry, false);
    for (int op = 0; op < MS_DRY_OP_COUNT; op++) {
        ms_dry_fail(stage->dry, (enum ms_dry_op)op, 0, MS_OK);
    }
}

void stage_end(struct stage *stage)
{
    struct model *model = &stage->model;
    stage_calm(stage);
    (void)stage_settle(stage);
    model->over = true;
    ms_arenas_destroy(stage->arenas);
    ms_pool_destroy(stage->pool, false);
    struct ms_dry_stats left;
    ms_dry_stats(stage->dry, &left);
    const struct model_recorded *told = &model->told;
    if (left.used_bytes + left.host_bytes + left.chunks + left.mappings + left.reservations +
            left.fences + left.plain_allocations !=
        0) {
        model_wrong(model,
                    "left behind: %lu bytes, %lu on the host, %lu chunks, %lu mappings, %lu "
                    "reservations, %lu fences",
                    (unsigned long)left.used_bytes, (unsigned long)left.host_bytes,
                    (unsigned long)left.chunks, (unsigned long)left.mappings,
                    (unsigned long)left.reservations, (unsigned long)left.fences);
    }
    if (told->chunks + told->mappings + told->blocks + told->arenas + told->pages != 0) {
        model_wrong(model, "the events leave %lu chunks, %lu mappings, %lu blocks, %lu pages",
                    (unsigned long)told->chunks, (unsigned long)told->mappings,
                    (unsigned long)told->blocks, (unsigned long)told->pages);
    }
    if (atomic_load(&stage->budget.charged_bytes) !=
            stage->forwarded_bytes + stage->imposed_bytes ||
        atomic_load(&stage->budget.earmarked_bytes) != 0) {
        model_wrong(model, "the budget is left charged");
    }
    if (ms_dry_violation(stage->dry) != NULL) {
        model_wrong(model, "%s", ms_dry_violation(stage->dry));
    }
    ms_dry_destroy(stage->dry);
    stage->dry = NULL;
    (void)pthread_rwlock_destroy(&stage->gate);
}

/* ---- the comparison */

static void compare_sums(struct stage *stage, const struct ms_pool_stats *stats)
{
    struct model *model = &stage->model;
    const struct model_recorded *told = &model->told;
    struct ms_dry_stats device;
    ms_dry_stats(stage->dry, &device);
    if (stats->live_blocks != model->blocks || told->blocks != model->blocks ||
        stats->live_bytes != told->block_bytes) {
        model_wrong(model, "%zu blocks, the pool counts %lu of %lu bytes; told %lu of %lu bytes",
                    model->blocks, (unsigned long)stats->live_blocks,
                    (unsigned long)stats->live_bytes, (unsigned long)told->blocks,
                    (unsigned long)told->block_bytes);
    }
    if (stats->reserved_bytes != told->device_bytes || device.used_bytes != told->device_bytes) {
        model_wrong(model, "device chunks: %lu bytes by the events, %lu by the pool, %lu there",
                    (unsigned long)told->device_bytes, (unsigned long)stats->reserved_bytes,
                    (unsigned long)device.used_bytes);
    }
    if (stats->host_reserve_bytes + stats->host_backed_bytes != told->host_bytes ||
        stats->host_backed_bytes != told->host_mapped_bytes ||
        device.host_bytes != told->host_bytes) {
        model_wrong(model, "host chunks: %lu bytes by the events, %lu + %lu by the pool, %lu there",
                    (unsigned long)told->host_bytes, (unsigned long)stats->host_reserve_bytes,
                    (unsigned long)stats->host_backed_bytes, (unsigned long)device.host_bytes);
    }
    const struct ms_spill_stats *spill = &stats->spill;
    if (spill->down_bytes != told->down_bytes || spill->up_bytes != told->up_bytes ||
        spill->spills != told->spills || spill->promotions != told->promotions ||
        spill->spilled_bytes > told->host_mapped_bytes ||
        spill->peak_spilled_bytes > stage->config.spill_limit_bytes) {
        model_wrong(model, "%lu bytes spilled and %lu promoted, told %lu and %lu; %lu are there",
                    (unsigned long)spill->down_bytes, (unsigned long)spill->up_bytes,
                    (unsigned long)told->down_bytes, (unsigned long)told->up_bytes,
                    (unsigned long)spill->spilled_bytes);
    }
    if (told->host_bytes > stage->config.host_limit_bytes) {
        model_wrong(model, "%lu bytes on the host, more than the limit",
                    (unsigned long)told->host_bytes);
    }
}

static void compare_arenas(struct stage *stage, const struct ms_pool_stats *stats)
{
    struct model *model = &stage->model;
    struct ms_arenas_stats tensors;
    ms_arenas_stats(stage->arenas, &tensors);
    if (tensors.live_tensors != stage->tensors || tensors.live_bytes != stage->tensor_bytes ||
        model->told.tensors != stage->tensors || model->told.tensor_bytes != stage->tensor_bytes) {
        model_wrong(model, "%lu tensors of %lu bytes; counted %lu of %lu, told %lu of %lu",
                    (unsigned long)stage->tensors, (unsigned long)stage->tensor_bytes,
                    (unsigned long)tensors.live_tensors, (unsigned long)tensors.live_bytes,
                    (unsigned long)model->told.tensors, (unsigned long)model->told.tensor_bytes);
    }
    if (tensors.mismatched != stage->mismatched ||
        tensors.invalid_reports != stage->invalid_reports) {
        model_wrong(model, "%lu invalid reports, %lu counted; mismatched: %d",
                    (unsigned long)stage->invalid_reports, (unsigned long)tensors.invalid_reports,
                    tensors.mismatched);
    }
    if (model->told.page_bytes != stage->page_bytes) {
        model_wrong(model, "%lu bytes of pages are mapped, %lu told",
                    (unsigned long)stage->page_bytes, (unsigned long)model->told.page_bytes);
    }
    /* What a failing device has not given back covers holes, or has to be covered later. */
    if (stats->unbacked_bytes > stats->earmarked_bytes + stats->host_reserve_bytes &&
        !stage->lost) {
        model_wrong(model, "%lu bytes unbacked, %lu earmarked and %lu set aside on the host",
                    (unsigned long)stats->unbacked_bytes, (unsigned long)stats->earmarked_bytes,
                    (unsigned long)stats->host_reserve_bytes);
    }
    if (stats->earmarked_bytes != atomic_load(&stage->budget.earmarked_bytes)) {
        model_wrong(model, "the pool and the budget disagree on what is earmarked");
    }
    struct model_arenas sums = model_arena_sums(model);
    sums.unbacked_bytes += stage->loose_bytes;
    /* What could not be unmapped again stands there still, and counts as no backing. */
    bool exact =
        stats->unbacked_bytes == sums.unbacked_bytes && stats->hole_bytes == sums.hole_bytes;
    bool near =
        stats->unbacked_bytes >= sums.unbacked_bytes && stats->hole_bytes <= sums.hole_bytes;
    if (!model->plain && !exact && !(stage->lost && near)) {
        model_wrong(model, "%lu bytes of arenas are unbacked and %lu in holes, not %lu and %lu",
                    (unsigned long)sums.unbacked_bytes, (unsigned long)sums.hole_bytes,
                    (unsigned long)stats->unbacked_bytes, (unsigned long)stats->hole_bytes);
    }
    const uint64_t takeable = ms_pool_takeable_bytes(stage->pool);
    const uint64_t least = model_takeable_bytes(model);
    if (!stage->lost && (takeable > stats->hole_bytes || takeable < least)) {
        model_wrong(model, "%lu bytes of %lu in holes are called takeable, and at least %lu are",
                    (unsigned long)takeable, (unsigned long)stats->hole_bytes,
                    (unsigned long)least);
    }
}

void stage_compare(struct stage *stage, bool thoroughly)
{
    struct model *model = &stage->model;
    const char *violation = ms_dry_violation(stage->dry);
    if (violation != NULL) {
        model_wrong(model, "%s", violation);
    }
    uint64_t charged = atomic_load(&stage->budget.charged_bytes);
    uint64_t cap = atomic_load(&stage->budget.cap_bytes);
    uint64_t earmarked = atomic_load(&stage->budget.earmarked_bytes);
    uint64_t others = stage->forwarded_bytes + stage->imposed_bytes;
    if (charged != model->told.device_bytes + others ||
        (charged + earmarked > cap && stage->imposed_bytes == 0)) {
        model_wrong(model,
                    "%" PRIu64 " bytes charged, %" PRIu64 " in chunks, %" PRIu64
                    " earmarked, cap %" PRIu64,
                    charged, model->told.device_bytes, earmarked, cap);
    }
    if (!thoroughly) {
        return;
    }
    struct ms_pool_stats stats;
    char why[200];
    ms_pool_stats(stage->pool, &stats);
    compare_sums(stage, &stats);
    compare_arenas(stage, &stats);
    model_compare_cells(model);
    if (!ms_pool_is_valid(stage->pool, why, sizeof(why)) ||
        !ms_arenas_is_valid(stage->arenas, why, sizeof(why))) {
        model_wrong(model, "%s", why);
    }
}

/* ---- what goes on around */

bool stage_excuses(const struct stage *stage, ms_status_t status)
{
    return (stage->armed && (status == DEVICE_ERROR || status == MS_ERR_NO_MEMORY)) ||
           ((stage->device_refuses || stage->imposed_bytes != 0) && status == MS_ERR_NO_MEMORY);
}

bool stage_settle(struct stage *stage)
{
    const struct ms_device_ops *ops = below(stage);
    ms_fence_t all = 0;
    ms_dry_finish(stage->dry, MS_STREAM_DEVICE, UINT64_MAX);
    if (ops->fence_take(ops->ctx, MS_STREAM_DEVICE, &all) != MS_OK) {
        return false;
    }
    ms_status_t status = ops->fence_query(ops->ctx, all);
    ops->fence_release(ops->ctx, all);
    return status == MS_OK;
}

uint64_t stage_total(struct stage *stage, int64_t by_bytes)
{
    atomic_fetch_add(&stage->tensors, by_bytes > 0 ? 1 : UINT64_MAX);
    uint64_t total = atomic_fetch_add(&stage->tensor_bytes, (uint64_t)by_bytes);
    return stage->config.crowded ? UINT64_MAX : total + (uint64_t)by_bytes;
}

struct stage_room stage_room(struct stage *stage)
{
    uint64_t limit_bytes = stage->config.host_limit_bytes;
    uint64_t used_bytes = model_host_bytes(&stage->model);
    return (struct stage_room){.free_bytes = ms_budget_free_bytes(&stage->budget),
                               .host_bytes = ms_less(limit_bytes, used_bytes)};
}

bool stage_promises_all(struct stage *stage, uint64_t bytes, struct stage_room room)
{
    bool excused = stage->capturing || stage->armed || stage->stalled || stage->config.crowded ||
                   stage->model.plain || stage->device_refuses || stage->host_refuses ||
                   stage->lost || stage->imposed_bytes != 0;
    if (excused || stage->config.total_bytes < atomic_load(&stage->budget.cap_bytes)) {
        return false;
    }
    uint64_t needed = (bytes + GRANULE - 1) / GRANULE;
    if (stage->config.spill_limit_bytes == 0) {
        /* What was born on the host comes before new pages, and what is free in front of a page is
         * used with it. */
        struct ms_pool_stats stats;
        ms_pool_stats(stage->pool, &stats);
        needed += (stats.host_backed_bytes + stats.front_bytes) / GRANULE;
    }
    /* What is taken out of arenas must be covered on the host. */
    uint64_t takeable = model_takeable_bytes(&stage->model);
    uint64_t granules = room.free_bytes / GRANULE;
    granules += model_reclaimable_bytes(&stage->model) / GRANULE;
    granules += (takeable < room.host_bytes ? takeable : room.host_bytes) / GRANULE;
    return needed <= granules;
}

bool stage_promises(struct stage *stage, uint64_t bytes)
{
    return stage_promises_all(stage, bytes, stage_room(stage));
}

void stage_replace_stream(struct stage *stage, unsigned place)
{
    ms_stream_t made = stage->next_stream;
    if (ms_dry_stream_create(stage->dry, made) != MS_OK) {
        return; /* too many whose work nobody has seen the end of */
    }
    stage->next_stream++;
    ms_stream_t old = stage->stream[place];
    ms_dry_stream_follows(stage->dry, made, old);
    ms_pool_stream_gone(stage->pool, old);
    ms_dry_stream_destroy(stage->dry, old);
    stage->stream[place] = made;
}

void stage_follow(struct stage *stage, ms_stream_t stream, uint32_t mask)
{
    for (unsigned place = 0; place < STREAMS; place++) {
        if ((mask >> place & 1) != 0 && stage->stream[place] != stream) {
            ms_dry_stream_follows(stage->dry, stream, stage->stream[place]);
        }
    }
}
