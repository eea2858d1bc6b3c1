/* Random calls on a pool over the dry device, compared at every step with a naive model: no
 * overlap, alignment, every live byte backed, the order of work respected, the budget exact, and no
 * failure while the request fits. The dry device watches the contracts and every premature reuse.
 *
 *   fuzz_pool [--ops N] [--seed S]
 *
 * A run is a row of worlds; each has its own device, cap and mix of calls, all from the seed, so
 * the seed and the number of the operation that it prints on failure repeat it. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/arena.h"
#include "allocator/dry.h"
#include "allocator/pool.h"
#include "model.h"

#define KIB     ((uint64_t)1 << 10)
#define MIB     ((uint64_t)1 << 20)
#define GRANULE (2 * MIB)
#define WAIT_NS ((uint64_t)10000000000u) /* virtual, so that no hiccup of the host runs it out */

enum {
    STREAMS = 6,
    WORLD_OPS = 20000,
    VALID_EVERY = 500,
    TENSORS = 256,
    DEVICE_ERROR = 999,
    UNFINISHED_MOST = 100
};

struct tensor {
    ms_addr_t addr;
    uint64_t bytes;
    uint64_t block_id;
};

struct world {
    uint64_t seed, op;
    uint64_t random;
    ms_dry_t *dry;
    struct ms_budget budget;
    ms_pool_t *pool;
    ms_arenas_t *arenas;
    struct model model;
    ms_stream_t stream[STREAMS];
    ms_stream_t next_stream;
    struct tensor tensor[TENSORS];
    size_t tensors;
    uint64_t forwarded_bytes;
    uint64_t granule_bytes, largest_bytes;
    bool capturing, stalled, armed;
    uint64_t served, refused, moved;
};

static uint64_t draw(struct world *world, uint64_t below)
{
    world->random += 0x9e3779b97f4a7c15u;
    uint64_t mixed = world->random;
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9u;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebu;
    return (mixed ^ (mixed >> 31)) % below;
}

static ms_stream_t some_stream(struct world *world)
{
    return world->stream[draw(world, STREAMS)];
}

/* ---- the calls */

/* The program's own duty: before a stream uses a block, it comes after those that did. */
static void come_after_uses(struct world *world, const struct model_block *block,
                            ms_stream_t stream)
{
    if (block->born_on != MS_STREAM_DEVICE) {
        ms_dry_stream_follows(world->dry, stream, block->born_on);
    }
    for (unsigned k = 0; k < block->uses; k++) {
        ms_dry_stream_follows(world->dry, stream, block->used_on[k]);
    }
}

static void note_use(struct model_block *block, ms_stream_t stream)
{
    for (unsigned k = 0; k < block->uses; k++) {
        if (block->used_on[k] == stream) {
            return;
        }
    }
    if (block->uses < MODEL_STREAMS) {
        block->used_on[block->uses++] = stream;
    }
}

static void use(struct world *world, size_t at)
{
    struct model_block *block = &world->model.block[at];
    ms_stream_t stream = some_stream(world);
    if (block->uses == MODEL_STREAMS) {
        return;
    }
    if (block->born_on != MS_STREAM_DEVICE && stream != block->born_on) {
        ms_dry_stream_follows(world->dry, stream, block->born_on);
    }
    uint64_t offset = draw(world, block->info.bytes);
    uint64_t bytes = draw(world, block->info.bytes - offset) + 1;
    (void)ms_dry_work(world->dry, stream, block->info.id, block->info.addr + offset, bytes,
                      draw(world, 4) == 0 ? MS_DRY_UNTIL_TOLD : draw(world, 100000));
    note_use(block, stream);
}

static uint64_t some_size(struct world *world)
{
    switch (draw(world, 8)) {
    case 0:
    case 1:
    case 2:
        return draw(world, 4 * KIB) + 1;
    case 3:
    case 4:
        return draw(world, 300 * KIB) + 1;
    case 5:
        return draw(world, 3 * MIB) + 1;
    case 6:
        return (draw(world, 6) + 1) * GRANULE - draw(world, 2) * 512;
    default:
        return draw(world, world->largest_bytes) + 1;
    }
}

/* Whether the pool has promised this much: in whole granules, what the budget has left and what
 * lies in chunks without a live byte. */
static bool promised(struct world *world, uint64_t bytes)
{
    uint64_t needed = (bytes + GRANULE - 1) / GRANULE;
    uint64_t free_granules = ms_budget_free_bytes(&world->budget) / GRANULE;
    return needed <= free_granules + model_reclaimable_bytes(&world->model) / GRANULE;
}

static void allocate(struct world *world)
{
    struct ms_request request = {.bytes = some_size(world),
                                 .stream =
                                     draw(world, 3) == 0 ? MS_STREAM_DEVICE : some_stream(world),
                                 .site = (uint32_t)draw(world, 1000),
                                 .may_wait = draw(world, 4) != 0};
    struct ms_block_info info;
    ms_status_t status = ms_pool_alloc(world->pool, &request, &info);
    if (status == MS_OK) {
        world->served++;
        size_t at = model_add(&world->model, &request, &info);
        if (!ms_dry_accessible(world->dry, info.addr, info.bytes)) {
            model_wrong(&world->model, "block at %#lx has no backing", (unsigned long)info.addr);
        }
        /* At once on its own stream, and for the device's blocks on any: the pool's promise. */
        ms_stream_t stream =
            request.stream == MS_STREAM_DEVICE ? some_stream(world) : request.stream;
        (void)ms_dry_work(world->dry, stream, info.id, info.addr, info.bytes, draw(world, 50000));
        note_use(&world->model.block[at], stream);
        return;
    }
    world->refused++;
    bool device_error = status == DEVICE_ERROR && world->armed;
    if (status != MS_ERR_NO_MEMORY && !device_error) {
        model_wrong(&world->model, "%lu bytes: status %d", (unsigned long)request.bytes, status);
    }
    bool excused = world->capturing || world->armed || world->stalled || !request.may_wait ||
                   world->granule_bytes == 0;
    if (!excused && promised(world, request.bytes)) {
        model_wrong(&world->model, "%lu bytes refused, %lu free in the budget, %lu reclaimable",
                    (unsigned long)request.bytes,
                    (unsigned long)ms_budget_free_bytes(&world->budget),
                    (unsigned long)model_reclaimable_bytes(&world->model));
    }
}

static void forget_tensors(struct world *world, uint64_t block_id)
{
    for (size_t k = 0; k < world->tensors;) {
        if (world->tensor[k].block_id == block_id) {
            world->tensor[k] = world->tensor[--world->tensors];
        } else {
            k++;
        }
    }
}

static void release(struct world *world, size_t at)
{
    struct model_block block = world->model.block[at];
    ms_stream_t stream = MS_STREAM_DEVICE;
    if (draw(world, 3) != 0) {
        bool own = block.info.stream != MS_STREAM_DEVICE && draw(world, 4) != 0;
        stream = own ? block.info.stream : some_stream(world);
        come_after_uses(world, &block, stream);
    }
    ms_status_t status = ms_pool_free(world->pool, block.info.addr, stream);
    if (status != MS_OK) {
        model_wrong(&world->model, "free of %#lx: status %d", (unsigned long)block.info.addr,
                    status);
    }
    ms_arenas_block_gone(world->arenas, block.info.addr, block.info.bytes);
    forget_tensors(world, block.info.id);
    model_remove(&world->model, at);
    if (draw(world, 16) == 0) {
        status = ms_pool_free(world->pool, block.info.addr, stream);
        if (status != MS_ERR_INVALID && world->granule_bytes != 0) {
            model_wrong(&world->model, "a second free: status %d", status);
        }
    }
}

static void look_up(struct world *world, size_t at)
{
    struct model_block *block = &world->model.block[at];
    struct ms_block_info found;
    ms_addr_t addr = block->info.addr + draw(world, block->info.bytes);
    if (draw(world, 20) == 0 && ms_pool_pin(world->pool, addr) == MS_OK) {
        block->info.pinned = true;
    }
    if (ms_pool_find(world->pool, addr, &found) != MS_OK || found.id != block->info.id ||
        found.addr != block->info.addr || found.bytes != block->info.bytes ||
        found.pinned != block->info.pinned) {
        model_wrong(&world->model, "%#lx is not found in its block", (unsigned long)addr);
    }
    ms_addr_t past = block->info.addr + block->info.bytes;
    bool other = at + 1 < world->model.blocks && world->model.block[at + 1].info.addr == past;
    if (!other && ms_pool_find(world->pool, past, &found) == MS_OK) {
        model_wrong(&world->model, "%#lx, past a block's end, is found", (unsigned long)past);
    }
}

/* ---- tensors in blocks */

static uint64_t tensor_sum(const struct world *world)
{
    uint64_t sum = 0;
    for (size_t k = 0; k < world->tensors; k++) {
        sum += world->tensor[k].bytes;
    }
    return sum;
}

static void bear(struct world *world, size_t at)
{
    const struct ms_block_info *info = &world->model.block[at].info;
    uint64_t offset = draw(world, info->bytes);
    uint64_t bytes = draw(world, info->bytes - offset) + 1;
    if (world->tensors == TENSORS) {
        return;
    }
    struct tensor born = {info->addr + offset, bytes, info->id};
    bool clash = false;
    for (size_t k = 0; k < world->tensors; k++) {
        const struct tensor *other = &world->tensor[k];
        clash |= born.addr < other->addr + other->bytes && other->addr < born.addr + born.bytes;
    }
    uint64_t total = clash ? UINT64_MAX : tensor_sum(world) + bytes;
    ms_status_t status = ms_arenas_born(world->arenas, born.addr, bytes, 1, total);
    if (status != (clash ? MS_ERR_INVALID : MS_OK)) {
        model_wrong(&world->model, "a birth is answered with %d", status);
    }
    if (!clash) {
        world->tensor[world->tensors++] = born;
    }
}

static void bury(struct world *world)
{
    if (world->tensors == 0) {
        return;
    }
    size_t k = draw(world, world->tensors);
    struct tensor dead = world->tensor[k];
    world->tensor[k] = world->tensor[--world->tensors];
    ms_status_t status = ms_arenas_died(world->arenas, dead.addr, dead.bytes, tensor_sum(world));
    if (status != MS_OK) {
        model_wrong(&world->model, "a death is answered with %d", status);
    }
}

/* ---- what happens around the pool */

static void replace_stream(struct world *world)
{
    ms_stream_t *place = &world->stream[draw(world, STREAMS)];
    ms_stream_t made = world->next_stream;
    if (ms_dry_stream_create(world->dry, made) != MS_OK) {
        return; /* too many whose work nobody has seen the end of */
    }
    world->next_stream++;
    /* Whoever used a block on the old stream goes on behind it, as a program would see to. */
    ms_dry_stream_follows(world->dry, made, *place);
    for (size_t at = 0; at < world->model.blocks; at++) {
        struct model_block *block = &world->model.block[at];
        block->born_on = block->born_on == *place ? made : block->born_on;
        for (unsigned k = 0; k < block->uses; k++) {
            block->used_on[k] = block->used_on[k] == *place ? made : block->used_on[k];
        }
    }
    ms_pool_stream_gone(world->pool, *place);
    ms_dry_stream_destroy(world->dry, *place);
    *place = made;
}

static void arm(struct world *world)
{
    if (world->armed) {
        for (int op = 0; op < MS_DRY_OP_COUNT; op++) {
            ms_dry_fail(world->dry, (enum ms_dry_op)op, 0, MS_OK);
        }
    } else {
        ms_dry_fail(world->dry, (enum ms_dry_op)draw(world, MS_DRY_OP_COUNT), draw(world, 6) + 1,
                    draw(world, 2) == 0 ? MS_ERR_NO_MEMORY : DEVICE_ERROR);
    }
    world->armed = !world->armed;
}

static void charge_elsewhere(struct world *world)
{
    if (world->forwarded_bytes != 0) {
        ms_budget_discharge(&world->budget, MS_OWNER_FORWARDED, world->forwarded_bytes);
        world->forwarded_bytes = 0;
    } else {
        uint64_t bytes = draw(world, 40 * MIB) + 1;
        if (ms_budget_charge(&world->budget, MS_OWNER_FORWARDED, bytes)) {
            world->forwarded_bytes = bytes;
        }
    }
}

static void surroundings(struct world *world)
{
    switch (draw(world, 12)) {
    case 0:
        world->capturing = !world->capturing && draw(world, 2) == 0;
        ms_dry_set_capturing(world->dry, world->capturing);
        break;
    case 1:
        world->stalled = !world->stalled && draw(world, 3) == 0;
        ms_dry_set_stalled(world->dry, world->stalled);
        break;
    case 2:
        arm(world);
        break;
    case 3:
        charge_elsewhere(world);
        break;
    case 4:
        replace_stream(world);
        break;
    case 5:
        (void)ms_pool_trim(world->pool, draw(world, 64 * MIB));
        break;
    case 6:
        if (!world->armed && ms_pool_refresh_access(world->pool) != MS_OK) {
            model_wrong(&world->model, "access was refused");
        }
        break;
    case 7:
        ms_dry_finish(world->dry, MS_STREAM_DEVICE, UINT64_MAX);
        break;
    default:
        ms_dry_advance(world->dry, draw(world, 200000));
        ms_dry_finish(world->dry, some_stream(world), draw(world, 8));
        break;
    }
}

static void step(struct world *world)
{
    struct ms_dry_stats device;
    uint64_t kind = draw(world, 100);
    size_t at = world->model.blocks == 0 ? 0 : draw(world, world->model.blocks);
    if (world->model.blocks == 0 || (kind < 38 && world->model.blocks < MODEL_BLOCKS)) {
        allocate(world);
    } else if (kind < 74) {
        release(world, at);
    } else if (kind < 82) {
        ms_dry_stats(world->dry, &device);
        if (device.unfinished_work > UNFINISHED_MOST) {
            ms_dry_finish(world->dry, MS_STREAM_DEVICE, 10);
        }
        use(world, at);
    } else if (kind < 86) {
        look_up(world, at);
    } else if (kind < 90) {
        bear(world, at);
    } else if (kind < 93) {
        bury(world);
    } else {
        surroundings(world);
    }
}

/* ---- the comparison */

static void compare(struct world *world, bool thoroughly)
{
    struct model *model = &world->model;
    const char *violation = ms_dry_violation(world->dry);
    if (violation != NULL) {
        model_wrong(model, "%s", violation);
    }
    uint64_t charged = atomic_load(&world->budget.charged_bytes);
    if (charged != model->chunk_bytes + world->forwarded_bytes ||
        charged > atomic_load(&world->budget.cap_bytes)) {
        model_wrong(model, "%" PRIu64 " bytes charged, %" PRIu64 " in chunks, cap %" PRIu64,
                    charged, model->chunk_bytes, atomic_load(&world->budget.cap_bytes));
    }
    if (!thoroughly) {
        return;
    }
    struct ms_pool_stats stats;
    struct ms_arenas_stats tensors;
    struct ms_dry_stats device;
    char why[200];
    uint64_t live_bytes = 0;
    for (size_t at = 0; at < model->blocks; at++) {
        const struct ms_block_info *info = &model->block[at].info;
        live_bytes += info->bytes;
        if (!ms_dry_accessible(world->dry, info->addr, info->bytes)) {
            model_wrong(model, "block at %#lx lost its backing", (unsigned long)info->addr);
        }
    }
    ms_pool_stats(world->pool, &stats);
    ms_arenas_stats(world->arenas, &tensors);
    ms_dry_stats(world->dry, &device);
    if (stats.live_blocks != model->blocks || stats.live_bytes != live_bytes ||
        model->blocks_told != model->blocks || model->live_told_bytes != live_bytes ||
        stats.reserved_bytes != model->chunk_bytes || device.used_bytes != model->chunk_bytes) {
        model_wrong(model, "sums differ: live %lu, told %lu, pool's %lu; chunks %lu, pool's %lu",
                    (unsigned long)live_bytes, (unsigned long)model->live_told_bytes,
                    (unsigned long)stats.live_bytes, (unsigned long)model->chunk_bytes,
                    (unsigned long)stats.reserved_bytes);
    }
    if (tensors.live_tensors != world->tensors || tensors.live_bytes != tensor_sum(world) ||
        model->tensors != world->tensors || model->tensor_bytes != tensor_sum(world) ||
        tensors.mismatched) {
        model_wrong(model, "tensors differ");
    }
    if (!ms_pool_is_valid(world->pool, why, sizeof(why)) ||
        !ms_arenas_is_valid(world->arenas, why, sizeof(why))) {
        model_wrong(model, "%s", why);
    }
    world->moved = stats.chunks_moved;
}

static bool fine(const struct world *world)
{
    if (world->model.wrong[0] == '\0') {
        return true;
    }
    (void)fprintf(stderr, "fuzz_pool: world of seed %" PRIu64 ", operation %" PRIu64 ": %s\n",
                  world->seed, world->op, world->model.wrong);
    return false;
}

/* ---- worlds */

static void begin(struct world *world, uint64_t seed)
{
    memset(world, 0, sizeof(*world));
    world->seed = seed;
    world->random = seed;
    world->granule_bytes = draw(world, 8) == 0 ? 0 : GRANULE;
    uint64_t cap_bytes = (32 + draw(world, 200)) * MIB;
    uint64_t total_bytes = draw(world, 3) == 0 ? cap_bytes + 64 * MIB : 256 * MIB;
    struct ms_dry_config device = {.granule_bytes = world->granule_bytes,
                                   .total_bytes = total_bytes,
                                   .costs = &ms_dry_default_costs};
    /* Where the device has less than the cap, other memory is not the pool's to promise. */
    world->largest_bytes = cap_bytes / (1 + draw(world, 6));
    ms_budget_init(&world->budget, cap_bytes);
    struct ms_event_sink sink = {.emit = model_event, .ctx = &world->model};
    if (ms_dry_create(&device, &world->dry) != MS_OK) {
        abort();
    }
    struct ms_pool_config config = {.ops = ms_dry_ops(world->dry),
                                    .budget = &world->budget,
                                    .sink = sink,
                                    .wait_limit_ns = WAIT_NS};
    if (ms_pool_create(&config, &world->pool) != MS_OK ||
        ms_arenas_create(0, world->pool, sink, &world->arenas) != MS_OK) {
        abort();
    }
    world->next_stream = 1;
    for (int k = 0; k < STREAMS; k++) {
        world->stream[k] = world->next_stream++;
        (void)ms_dry_stream_create(world->dry, world->stream[k]);
    }
}

/* All work is done and seen to be, the pool goes, and the device must have everything back. */
static void end(struct world *world)
{
    const struct ms_device_ops *ops = ms_dry_ops(world->dry);
    ms_mark_t all = 0;
    ms_dry_set_capturing(world->dry, false);
    ms_dry_set_stalled(world->dry, false);
    for (int op = 0; op < MS_DRY_OP_COUNT; op++) {
        ms_dry_fail(world->dry, (enum ms_dry_op)op, 0, MS_OK);
    }
    ms_dry_finish(world->dry, MS_STREAM_DEVICE, UINT64_MAX);
    if (ops->mark(ops->ctx, MS_STREAM_DEVICE, &all) == MS_OK) {
        (void)ops->mark_query(ops->ctx, all);
        ops->mark_release(ops->ctx, all);
    }
    ms_arenas_destroy(world->arenas);
    ms_pool_destroy(world->pool, false);
    struct ms_dry_stats left;
    ms_dry_stats(world->dry, &left);
    if (left.used_bytes + left.chunks + left.mappings + left.reservations + left.marks +
            left.plain_allocations + world->model.chunk_bytes + world->model.blocks_told !=
        0) {
        model_wrong(&world->model,
                    "left behind: %lu bytes, %lu chunks, %lu mappings, %lu reservations, %lu marks",
                    (unsigned long)left.used_bytes, (unsigned long)left.chunks,
                    (unsigned long)left.mappings, (unsigned long)left.reservations,
                    (unsigned long)left.marks);
    }
    const char *violation = ms_dry_violation(world->dry);
    if (violation != NULL) {
        model_wrong(&world->model, "%s", violation);
    }
    ms_dry_destroy(world->dry);
}

static bool run_world(struct world *world, uint64_t seed, uint64_t ops)
{
    begin(world, seed);
    for (world->op = 0; world->op < ops; world->op++) {
        step(world);
        compare(world, world->op % VALID_EVERY == 0);
        if (!fine(world)) {
            return false;
        }
    }
    compare(world, true);
    bool good = fine(world);
    if (good) {
        end(world);
        good = fine(world);
    }
    return good;
}

static bool number(const char *text, uint64_t *out)
{
    char *end = NULL;
    *out = strtoull(text, &end, 10);
    return end != text && *end == '\0';
}

int main(int argc, char **argv)
{
    uint64_t ops = 1000000;
    uint64_t seed = 1;
    for (int k = 1; k < argc; k += 2) {
        uint64_t *option = strcmp(argv[k], "--ops") == 0    ? &ops
                           : strcmp(argv[k], "--seed") == 0 ? &seed
                                                            : NULL;
        if (option == NULL || k + 1 == argc || !number(argv[k + 1], option)) {
            (void)fprintf(stderr, "usage: fuzz_pool [--ops N] [--seed S], not \"%s\"\n", argv[k]);
            return 2;
        }
    }
    struct world *world = malloc(sizeof(*world));
    if (world == NULL) {
        return 2;
    }
    uint64_t served = 0;
    uint64_t refused = 0;
    uint64_t moved = 0;
    bool good = true;
    for (uint64_t done = 0; done < ops && good; done += WORLD_OPS, seed++) {
        good = run_world(world, seed, ops - done < WORLD_OPS ? ops - done : WORLD_OPS);
        served += world->served;
        refused += world->refused;
        moved += world->moved;
    }
    free(world);
    printf("%" PRIu64 " operations: %" PRIu64 " allocations served, %" PRIu64 " refused, %" PRIu64
           " chunks moved\n",
           ops, served, refused, moved);
    return good ? 0 : 1;
}
