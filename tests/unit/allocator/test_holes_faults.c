/* SPDX-License-Identifier: Apache-2.0 */
/* Every device call of the repair fails once, at every position, in two ways. Whatever happens, the
 * books hold, obligations stay covered, nothing leaks, and all goes on afterwards. */
#include "rig.h"

#include "allocator/arenas/arena.h"
#include "allocator/arenas/proxy.h"

#define S1       ((ms_stream_t)101)
#define PAGE     (8 * MIB)
#define RESERVED (256 * MIB)

/* With AMPLE and nothing charged yet, a page is made whole; then all but CAP is taken by others. */
#define AMPLE (32 * PAGE)
#define CAP   (48 * MIB)

enum { DEVICE_ERROR = 999, TENSORS = 12 };

struct scene {
    struct rig *rig;
    ms_arenas_t *arenas;
    ms_addr_t base;
    ms_addr_t tensor[TENSORS];
    uint64_t bytes[TENSORS];
    unsigned refused; /* allocations */
};

static void build(struct scene *scene)
{
    *scene = (struct scene){.rig = rig_make_as((struct rig_wishes){.granule_bytes = GRANULE,
                                                                   .total_bytes = 256 * MIB,
                                                                   .cap_bytes = AMPLE,
                                                                   .host_limit_bytes = 64 * MIB})};
    struct ms_event_sink sink = {.emit = rig_note, .ctx = scene->rig};
    const struct ms_device_ops *ops = ms_dry_ops(scene->rig->dry);
    cr_assert_eq(ms_dry_stream_create(scene->rig->dry, S1), MS_OK);
    cr_assert_eq(ms_arenas_create(3, scene->rig->pool, sink, &scene->arenas), MS_OK);
    cr_assert_eq(ops->address_reserve(ops->ctx, RESERVED, GRANULE, &scene->base), MS_OK);
}

static void check(struct scene *scene)
{
    char why[256] = "";
    rig_check(scene->rig);
    cr_assert(ms_arenas_is_valid(scene->arenas, why, sizeof(why)), "%s", why);
}

static void expected(ms_status_t status)
{
    cr_assert(status == MS_OK || status == MS_ERR_NO_MEMORY || status == DEVICE_ERROR, "%d",
              status);
}

static void born(struct scene *scene, unsigned k, ms_addr_t addr, uint64_t bytes)
{
    ms_status_t status = ms_arenas_allocated(scene->arenas, addr, bytes, 1, UINT64_MAX);
    expected(status);
    check(scene);
    scene->tensor[k] = addr;
    scene->bytes[k] = bytes;
    if (status == MS_OK) {
        cr_assert_eq(ms_dry_work(scene->rig->dry, S1, 100 + k, addr, bytes, MS_DRY_UNTIL_TOLD),
                     MS_OK);
    } else {
        scene->refused++;
    }
}

static void died(struct scene *scene, unsigned k)
{
    if (scene->bytes[k] != 0) {
        cr_assert_eq(ms_arenas_freed(scene->arenas, scene->tensor[k], scene->bytes[k], UINT64_MAX),
                     MS_OK);
        scene->bytes[k] = 0;
    }
    check(scene);
}

static void add_page(struct scene *scene, uint64_t mib)
{
    ms_pool_t *pool = scene->rig->pool;
    ms_addr_t addr = scene->base + mib * MIB;
    ms_proxy_t *proxy = NULL;
    ms_status_t status = ms_proxy_create(pool, PAGE, NULL, true, &proxy);
    expected(status);
    check(scene);
    if (status != MS_OK) {
        return;
    }
    status = ms_proxy_map(pool, proxy, addr, scene->base, RESERVED);
    expected(status);
    check(scene);
    if (status == MS_OK && ms_proxy_access(pool, addr, PAGE) != MS_OK) {
        expected(ms_proxy_unmap(pool, addr, PAGE)); /* as a framework would */
    }
    check(scene);
    ms_proxy_release(pool, proxy);
    check(scene);
}

static bool mapped(struct scene *scene, uint64_t mib)
{
    struct ms_proxy_info info;
    return ms_proxy_at(scene->rig->pool, scene->base + mib * MIB, &info) == MS_OK;
}

static void synchronize(struct scene *scene)
{
    const struct ms_device_ops *ops = ms_dry_ops(scene->rig->dry);
    ms_fence_t all = 0;
    ms_dry_finish(scene->rig->dry, MS_STREAM_DEVICE, UINT64_MAX);
    if (ops->fence_take(ops->ctx, MS_STREAM_DEVICE, &all) == MS_OK) {
        while (ops->fence_query(ops->ctx, all) != MS_OK) {
        }
        ops->fence_release(ops->ctx, all);
    }
}

static void remove_page(struct scene *scene, uint64_t mib)
{
    if (mapped(scene, mib)) {
        ms_arenas_block_gone(scene->arenas, scene->base + mib * MIB, PAGE);
        synchronize(scene);
        expected(ms_proxy_unmap(scene->rig->pool, scene->base + mib * MIB, PAGE));
        check(scene);
    }
}

static void free_block(struct scene *scene, struct ms_block_info *block)
{
    if (block->addr != 0) {
        cr_assert_eq(ms_pool_free(scene->rig->pool, block->addr, MS_STREAM_DEVICE), MS_OK);
        check(scene);
        block->addr = 0;
    }
}

static void try_block(struct scene *scene, uint64_t bytes, struct ms_block_info *out)
{
    *out = (struct ms_block_info){0};
    expected(rig_try(scene->rig, bytes, MS_STREAM_DEVICE, out));
    check(scene);
}

/* Through taking, earmarking, the host, waiting, pages whole, lazy and in pieces, and back. */
static void act(struct scene *scene)
{
    struct ms_block_info arena;
    struct ms_block_info big;
    struct ms_block_info small;
    add_page(scene, 0);
    ms_budget_impose(&scene->rig->budget, MS_OWNER_FORWARDED, AMPLE - CAP);
    try_block(scene, 16 * MIB, &arena);
    add_page(scene, 8);
    if (arena.addr != 0) {
        born(scene, 0, arena.addr, MIB);
        born(scene, 1, arena.addr + 6 * MIB, 2 * MIB);
        born(scene, 2, arena.addr + 14 * MIB, MIB);
        died(scene, 1);
    }
    if (mapped(scene, 0) && mapped(scene, 8)) {
        born(scene, 3, scene->base, MIB);
        born(scene, 4, scene->base + 7 * MIB, 3 * MIB); /* over both pages */
    }
    try_block(scene, 22 * MIB, &big); /* takes chunks of holes */
    add_page(scene, 16);              /* lazy */
    if (mapped(scene, 16)) {
        born(scene, 5, scene->base + 17 * MIB, 4 * MIB);
    }
    if (arena.addr != 0) {
        born(scene, 6, arena.addr + 4 * MIB, 9 * MIB); /* onto the host, some of it */
        died(scene, 6);
    }
    ms_dry_finish(scene->rig->dry, MS_STREAM_DEVICE, UINT64_MAX);
    try_block(scene, 4 * MIB, &small);
    free_block(scene, &big);
    if (arena.addr != 0) {
        born(scene, 7, arena.addr + 8 * MIB, 5 * MIB);
    }
    remove_page(scene, 8);
    (void)ms_pool_make_room(scene->rig->pool, 20 * MIB, true);
    check(scene);
    free_block(scene, &arena);
    for (unsigned k = 0; k < 3; k++) {
        scene->bytes[k] = 0; /* they died with it */
    }
    scene->bytes[6] = 0;
    scene->bytes[7] = 0;
    free_block(scene, &small);
    (void)ms_pool_trim(scene->rig->pool, 0);
    check(scene);
}

static void end(struct scene *scene)
{
    const struct ms_device_ops *ops = ms_dry_ops(scene->rig->dry);
    remove_page(scene, 0);
    remove_page(scene, 8);
    remove_page(scene, 16);
    /* After all that, everything but what could not be unmapped can still be had. */
    struct ms_block_info all;
    try_block(scene, 40 * MIB, &all);
    cr_assert_neq(all.addr, 0);
    ms_proxy_reservation_gone(scene->rig->pool, scene->base);
    check(scene);
    ms_arenas_destroy(scene->arenas);
    synchronize(scene);
    ms_pool_destroy(scene->rig->pool, false);
    ms_budget_discharge(&scene->rig->budget, MS_OWNER_FORWARDED, AMPLE - CAP);
    cr_assert_eq(ops->address_free(ops->ctx, scene->base, RESERVED), MS_OK);
    struct ms_dry_stats left;
    ms_dry_stats(scene->rig->dry, &left);
    cr_assert_eq(left.used_bytes + left.host_bytes, 0);
    cr_assert_eq(left.chunks + left.mappings + left.fences + left.reservations, 0);
    cr_assert_eq(atomic_load(&scene->rig->budget.committed_bytes), 0);
    cr_assert_null(ms_dry_violation(scene->rig->dry), "%s", ms_dry_violation(scene->rig->dry));
    ms_dry_destroy(scene->rig->dry);
    free(scene->rig);
}

Test(holes_faults, the_scene_needs_every_part)
{
    struct scene scene;
    build(&scene);
    act(&scene);
    struct ms_pool_stats stats = rig_stats(scene.rig);
    cr_assert_gt(stats.holes_taken, 4);
    cr_assert_gt(stats.holes_backed, 4);
    cr_assert_gt(stats.peak_host_backed_bytes, 0);
    cr_assert_eq(scene.refused, 0, "without faults no birth fails");
    end(&scene);
}

static void fail_everywhere(enum ms_dry_op op, ms_status_t status)
{
    for (uint64_t nth = 1;; nth++) {
        struct scene scene;
        build(&scene);
        uint64_t before = ms_dry_calls(scene.rig->dry, op);
        ms_dry_fail(scene.rig->dry, op, nth, status);
        act(&scene);
        bool failed = ms_dry_calls(scene.rig->dry, op) - before >= nth;
        ms_dry_fail(scene.rig->dry, op, 0, MS_OK);
        end(&scene);
        if (!failed) {
            cr_assert_gt(nth, 3, "op %d is hardly called: this tests nothing", (int)op);
            return;
        }
    }
}

#define FAIL_TEST(op)                                   \
    Test(holes_faults, op##_fails_at_every_position)    \
    {                                                   \
        fail_everywhere(MS_DRY_##op, MS_ERR_NO_MEMORY); \
        fail_everywhere(MS_DRY_##op, DEVICE_ERROR);     \
    }

FAIL_TEST(CHUNK_CREATE)
FAIL_TEST(CHUNK_RELEASE)
FAIL_TEST(MAP)
FAIL_TEST(SET_ACCESS)
FAIL_TEST(UNMAP)
FAIL_TEST(FENCE_TAKE)
FAIL_TEST(FENCE_QUERY)

/* An arena with one tensor; half of it is unbacked, and earmarked in a budget that has one granule
 * more. */
enum { ARENA_GRANULES = 8, OBLIGATION_GRANULES = 4 };

static struct ms_block_info build_earmarked(struct scene *scene)
{
    build(scene);
    ms_budget_impose(&scene->rig->budget, MS_OWNER_FORWARDED, AMPLE - CAP);
    uint64_t rest_bytes = CAP - ARENA_GRANULES * GRANULE;
    struct ms_block_info arena = rig_alloc(scene->rig, ARENA_GRANULES * GRANULE, MS_STREAM_DEVICE);
    struct ms_block_info rest = rig_alloc(scene->rig, rest_bytes, MS_STREAM_DEVICE);
    cr_assert_eq(ms_arenas_allocated(scene->arenas, arena.addr, GRANULE, 1, UINT64_MAX), MS_OK);
    synchronize(scene);
    struct ms_block_info second =
        rig_alloc(scene->rig, OBLIGATION_GRANULES * GRANULE, MS_STREAM_DEVICE); /* from holes */
    free_block(scene, &second);
    free_block(scene, &rest);
    synchronize(scene);
    (void)ms_pool_trim(scene->rig->pool, 0);
    (void)ms_pool_promote(scene->rig->pool, 0); /* memory is ample: the cover leaves the host */
    (void)rig_alloc(scene->rig, rest_bytes - GRANULE, MS_STREAM_DEVICE);
    struct ms_pool_stats stats = rig_stats(scene->rig);
    cr_assert_eq(stats.unbacked_bytes, OBLIGATION_GRANULES * GRANULE);
    cr_assert_eq(stats.earmarked_bytes, OBLIGATION_GRANULES * GRANULE);
    cr_assert_eq(stats.host_reserve_bytes, 0);
    cr_assert_eq(ms_budget_free_bytes(&scene->rig->budget), GRANULE);
    return arena;
}

/* An allocation fails, and so does giving back the chunk that was made for it with what was
 * earmarked. A block gets that chunk, and another one the rest of the budget, only if all holes
 * stay covered. */
Test(holes_faults, the_chunk_of_a_failed_birth_still_covers_its_hole)
{
    enum { FIRST = 20, LENGTHS = 30 };
    unsigned refused = 0;
    for (uint64_t nth = 1; nth <= FIRST; nth++) {
        for (uint64_t count = 1; count <= LENGTHS; count++) {
            struct scene scene;
            struct ms_block_info blocks[2];
            struct ms_block_info arena = build_earmarked(&scene);
            ms_addr_t addr = arena.addr + GRANULE;
            uint64_t bytes = (ARENA_GRANULES - 1) * GRANULE;
            ms_dry_fail_run(scene.rig->dry, nth, count, DEVICE_ERROR);
            ms_status_t status = ms_arenas_allocated(scene.arenas, addr, bytes, 1, UINT64_MAX);
            refused += status != MS_OK ? 1 : 0;
            check(&scene);
            cr_assert_eq(ms_arenas_freed(scene.arenas, addr, bytes, UINT64_MAX), MS_OK);
            try_block(&scene, GRANULE, &blocks[0]);
            try_block(&scene, GRANULE, &blocks[1]);
            ms_dry_fail_run(scene.rig->dry, 0, 0, MS_OK);
            status = ms_arenas_allocated(scene.arenas, addr, bytes, 1, UINT64_MAX);
            cr_assert_eq(status, MS_OK, "%lu calls failed from call %lu on, then a birth: %d",
                         (unsigned long)count, (unsigned long)nth, status);
            check(&scene);
            ms_arenas_destroy(scene.arenas);
            const struct ms_device_ops *ops = ms_dry_ops(scene.rig->dry);
            cr_assert_eq(ops->address_free(ops->ctx, scene.base, RESERVED), MS_OK);
            rig_end(scene.rig);
        }
    }
    cr_assert_gt(refused, LENGTHS, "hardly a birth fails: this tests nothing");
}
