/* SPDX-License-Identifier: Apache-2.0 */
/* Every device call of every rung fails once, at every position, in two ways: as out of memory and
 * with an error of the device's own. Whatever happens, the books hold, nothing leaks, live blocks
 * stay as they are, and the pool works on afterwards. */
#include "rig.h"

#define S1 ((ms_stream_t)101)
#define S2 ((ms_stream_t)102)

enum { DEVICE_ERROR = 999, BLOCKS = 24 };

struct scene {
    struct rig *rig;
    struct ms_block_info keep[BLOCKS];
    unsigned kept;
};

/* Memory in which half the chunks are free and apart, with the cap nearly reached. */
static void build(struct scene *scene, uint64_t granule_bytes)
{
    *scene = (struct scene){.rig = rig_make(granule_bytes, 256 * MIB, 50 * MIB)};
    cr_assert_eq(ms_dry_stream_create(scene->rig->dry, S1), MS_OK);
    cr_assert_eq(ms_dry_stream_create(scene->rig->dry, S2), MS_OK);
    struct ms_block_info block[BLOCKS];
    for (unsigned k = 0; k < BLOCKS; k++) {
        block[k] = rig_alloc(scene->rig, 2 * MIB, S1);
        rig_work(scene->rig, block[k], S1);
    }
    for (unsigned k = 0; k < BLOCKS; k++) {
        if (k % 2 == 0) {
            rig_free(scene->rig, block[k], k % 4 == 0 ? S1 : MS_STREAM_DEVICE);
        } else {
            scene->keep[scene->kept++] = block[k];
        }
    }
}

/* Goes through reuse, expansion beside free memory, taking, waiting and trimming. */
static void act(struct scene *scene)
{
    static const struct {
        uint64_t bytes;
        ms_stream_t stream;
    } request[] = {{MIB, S2},     {5 * MIB, S2},  {24 * MIB, MS_STREAM_DEVICE},
                   {3 * MIB, S1}, {60 * MIB, S1}, {2 * MIB, MS_STREAM_DEVICE}};
    for (size_t k = 0; k < sizeof(request) / sizeof(request[0]); k++) {
        struct ms_block_info block;
        ms_status_t status = rig_try(scene->rig, request[k].bytes, request[k].stream, &block);
        cr_assert(status == MS_OK || status == MS_ERR_NO_MEMORY || status == DEVICE_ERROR, "%d",
                  status);
        if (status == MS_OK) {
            cr_assert(ms_dry_accessible(scene->rig->dry, block.addr, block.bytes));
            rig_work(scene->rig, block, request[k].stream == S1 ? S1 : S2);
            rig_free(scene->rig, block, request[k].stream);
        }
        rig_check(scene->rig);
    }
    ms_dry_finish(scene->rig->dry, MS_STREAM_DEVICE, UINT64_MAX);
    (void)ms_pool_trim(scene->rig->pool, 2 * MIB);
    ms_pool_stream_gone(scene->rig->pool, S2);
    (void)ms_pool_refresh_access(scene->rig->pool);
    rig_check(scene->rig);
}

static void aftermath(struct scene *scene)
{
    for (unsigned k = 0; k < scene->kept; k++) {
        struct ms_block_info found;
        cr_assert_eq(ms_pool_find(scene->rig->pool, scene->keep[k].addr, &found), MS_OK);
        cr_assert_eq(found.id, scene->keep[k].id);
        rig_work(scene->rig, found, S1);
    }
    ms_dry_finish(scene->rig->dry, MS_STREAM_DEVICE, UINT64_MAX);
    /* Chunks that cannot move serve what fits between the live blocks. */
    bool moves = ms_dry_ops(scene->rig->dry)->granule_bytes != 0;
    (void)rig_alloc(scene->rig, moves ? 20 * MIB : 2 * MIB, S1);
    rig_check(scene->rig);
}

static void fail_everywhere(enum ms_dry_op op, ms_status_t status, uint64_t granule_bytes)
{
    for (uint64_t nth = 1;; nth++) {
        struct scene scene;
        build(&scene, granule_bytes);
        uint64_t before = ms_dry_calls(scene.rig->dry, op);
        ms_dry_fail(scene.rig->dry, op, nth, status);
        act(&scene);
        bool failed = ms_dry_calls(scene.rig->dry, op) - before >= nth;
        ms_dry_fail(scene.rig->dry, op, 0, MS_OK);
        aftermath(&scene);
        if (op == MS_DRY_UNMAP || op == MS_DRY_PLAIN_FREE) {
            /* What could not be unmapped once may be stuck for good; all else must be given back.
             */
            rig_check(scene.rig);
        }
        rig_end(scene.rig);
        if (!failed) {
            cr_assert_gt(nth, 1, "op %d is never called: this tests nothing", (int)op);
            return;
        }
    }
}

#define FAIL_TEST(op, granule)                                   \
    Test(pool_faults, op##_fails_at_every_position_##granule)    \
    {                                                            \
        fail_everywhere(MS_DRY_##op, MS_ERR_NO_MEMORY, granule); \
        fail_everywhere(MS_DRY_##op, DEVICE_ERROR, granule);     \
    }

FAIL_TEST(CHUNK_CREATE, GRANULE)
FAIL_TEST(CHUNK_RELEASE, GRANULE)
FAIL_TEST(MAP, GRANULE)
FAIL_TEST(SET_ACCESS, GRANULE)
FAIL_TEST(UNMAP, GRANULE)
FAIL_TEST(FENCE_TAKE, GRANULE)
FAIL_TEST(FENCE_QUERY, GRANULE)
FAIL_TEST(FENCE_WAIT, GRANULE)
FAIL_TEST(STREAM_WAIT, GRANULE)
FAIL_TEST(PLAIN_ALLOC, 0)
FAIL_TEST(PLAIN_FREE, 0)

/* The first call of a pool's life, which the scene is past. */
Test(pool_faults, addresses_refused)
{
    static const ms_status_t status[2] = {MS_ERR_NO_MEMORY, DEVICE_ERROR};
    for (int k = 0; k < 2; k++) {
        struct rig *rig = rig_make(GRANULE, 64 * MIB, 64 * MIB);
        struct ms_block_info block;
        ms_dry_fail(rig->dry, MS_DRY_ADDRESS_RESERVE, 1, status[k]);
        ms_status_t got = rig_try(rig, MIB, S1, &block);
        cr_assert_eq(got, status[k] == DEVICE_ERROR ? DEVICE_ERROR : MS_OK,
                     "out of addresses means fewer at a time");
        rig_check(rig);
        (void)rig_alloc(rig, MIB, S1);
        rig_end(rig);
    }
}

/* A failure while what has just been done is being undone: two at once. */
Test(pool_faults, undoing_fails_too)
{
    static const enum ms_dry_op first[3] = {MS_DRY_MAP, MS_DRY_SET_ACCESS, MS_DRY_CHUNK_CREATE};
    static const enum ms_dry_op then[2] = {MS_DRY_UNMAP, MS_DRY_CHUNK_RELEASE};
    for (int a = 0; a < 3; a++) {
        for (int b = 0; b < 2; b++) {
            struct rig *rig = rig_make(GRANULE, 64 * MIB, 64 * MIB);
            struct ms_block_info keep = rig_alloc(rig, 512, S1);
            struct ms_block_info block;
            ms_dry_fail(rig->dry, first[a], a == 1 ? 1 : 2, DEVICE_ERROR);
            ms_dry_fail(rig->dry, then[b], 1, DEVICE_ERROR);
            cr_assert_eq(rig_try(rig, 8 * MIB, S1, &block), DEVICE_ERROR);
            rig_check(rig);
            (void)rig_alloc(rig, 8 * MIB, S1);
            rig_free(rig, keep, S1);
            rig_end(rig);
        }
    }
}

Test(pool_faults, a_device_error_is_handed_through)
{
    struct rig *rig = rig_make(GRANULE, 64 * MIB, 64 * MIB);
    struct ms_block_info block;
    ms_dry_fail(rig->dry, MS_DRY_CHUNK_CREATE, 1, DEVICE_ERROR);
    cr_assert_eq(rig_try(rig, MIB, S1, &block), DEVICE_ERROR);
    cr_assert_eq(atomic_load(&rig->budget.charged_bytes), 0);
    cr_assert_eq(rig_stats(rig).failed_allocations, 1);
    rig_end(rig);
}
