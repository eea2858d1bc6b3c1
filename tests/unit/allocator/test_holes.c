/* SPDX-License-Identifier: Apache-2.0 */
/* Chunks of holes: when they may be taken, what covers them, and that an allocation finds them
 * back. */
#include <pthread.h>

#include "rig.h"

#include "allocator/arenas/arena.h"
#include "allocator/arenas/proxy.h"
#include "allocator/pool_state.h"

#define S1   ((ms_stream_t)101)
#define HOST (256 * MIB)

struct scene {
    struct rig *rig;
    ms_arenas_t *arenas;
    struct ms_block_info block; /* 20 MiB on granules */
    uint64_t total;
};

static struct scene build_as(struct rig_wishes wishes)
{
    struct scene scene = {.rig = rig_make_as(wishes)};
    struct ms_event_sink sink = {.emit = rig_note, .ctx = scene.rig};
    cr_assert_eq(ms_dry_stream_create(scene.rig->dry, S1), MS_OK);
    cr_assert_eq(ms_arenas_create(3, scene.rig->pool, sink, &scene.arenas), MS_OK);
    scene.block = rig_alloc(scene.rig, 20 * MIB, MS_STREAM_DEVICE);
    return scene;
}

/* 40 MiB in all. */
static struct scene build(uint64_t host_limit_bytes)
{
    return build_as((struct rig_wishes){.granule_bytes = GRANULE,
                                        .total_bytes = 256 * MIB,
                                        .cap_bytes = 40 * MIB,
                                        .host_limit_bytes = host_limit_bytes});
}

static void check(struct scene *scene)
{
    char why[256] = "";
    rig_check(scene->rig);
    cr_assert(ms_arenas_is_valid(scene->arenas, why, sizeof(why)), "%s", why);
}

static void end(struct scene *scene)
{
    check(scene);
    ms_arenas_destroy(scene->arenas);
    rig_end(scene->rig);
}

static ms_addr_t at(const struct scene *scene, uint64_t mib)
{
    return scene->block.addr + mib * MIB;
}

static void born(struct scene *scene, uint64_t mib, uint64_t bytes)
{
    scene->total += bytes;
    cr_assert_eq(ms_arenas_allocated(scene->arenas, at(scene, mib), bytes, 5, scene->total), MS_OK);
    cr_assert(ms_dry_accessible(scene->rig->dry, at(scene, mib), bytes));
    check(scene);
}

static void died(struct scene *scene, uint64_t mib, uint64_t bytes)
{
    scene->total -= bytes;
    cr_assert_eq(ms_arenas_freed(scene->arenas, at(scene, mib), bytes, scene->total), MS_OK);
    check(scene);
}

/* Work of a tensor, until told. */
static void work(struct scene *scene, uint64_t mib, uint64_t bytes)
{
    cr_assert_eq(
        ms_dry_work(scene->rig->dry, S1, 1000 + mib, at(scene, mib), bytes, MS_DRY_UNTIL_TOLD),
        MS_OK);
}

/* The arena's first and last granule stay in use; the 16 MiB between them are a hole. */
static void hollow(struct scene *scene)
{
    born(scene, 0, MIB);
    born(scene, 18, MIB);
}

Test(holes, a_block_that_fits_only_with_the_holes_chunks_gets_them)
{
    struct scene scene = build(HOST);
    hollow(&scene);
    cr_assert_eq(rig_stats(scene.rig).hole_bytes, 16 * MIB);
    struct ms_block_info block = rig_alloc(scene.rig, 30 * MIB, MS_STREAM_DEVICE);
    check(&scene);
    struct ms_pool_stats stats = rig_stats(scene.rig);
    cr_assert_eq(stats.holes_taken, 5, "no more than are missing");
    cr_assert_eq(stats.unbacked_bytes, 10 * MIB);
    cr_assert_eq(stats.hole_bytes, 6 * MIB);
    cr_assert_eq(stats.host_reserve_bytes, 10 * MIB);
    cr_assert_eq(atomic_load(&scene.rig->budget.charged_bytes), 40 * MIB);
    cr_assert(ms_dry_accessible(scene.rig->dry, block.addr, 30 * MIB));
    cr_assert_eq(ms_dry_calls(scene.rig->dry, MS_DRY_FENCE_WAIT), 0);
    end(&scene);
}

/* Some days of fences at full rate. */
Test(holes, epochs_go_on_beyond_32_bits)
{
    struct scene scene = build(HOST);
    scene.rig->pool->epochs.current = UINT32_MAX - 1;
    scene.rig->pool->epochs.done = UINT32_MAX - 2;
    hollow(&scene);
    for (uint64_t round = 0; round < 4; round++) {
        born(&scene, 2, 16 * MIB);
        died(&scene, 2, 16 * MIB);
        struct ms_block_info block = rig_alloc(scene.rig, 30 * MIB, MS_STREAM_DEVICE);
        cr_assert_geq(rig_stats(scene.rig).holes_taken, 5 * (round + 1));
        rig_free(scene.rig, block, MS_STREAM_DEVICE);
        check(&scene);
    }
    cr_assert_gt(scene.rig->pool->epochs.current, UINT32_MAX);
    end(&scene);
}

Test(holes, nothing_moves_while_memory_is_ample)
{
    struct scene scene = build(HOST);
    hollow(&scene);
    (void)rig_alloc(scene.rig, 20 * MIB, MS_STREAM_DEVICE);
    cr_assert_eq(rig_stats(scene.rig).unmaps, 0);
    cr_assert_eq(rig_stats(scene.rig).host_reserve_bytes, 0);
    end(&scene);
}

Test(holes, a_birth_gets_its_granules_back_when_memory_is_free_again)
{
    struct scene scene = build(HOST);
    hollow(&scene);
    struct ms_block_info block = rig_alloc(scene.rig, 36 * MIB, MS_STREAM_DEVICE);
    cr_assert_eq(rig_stats(scene.rig).unbacked_bytes, 16 * MIB);
    rig_free(scene.rig, block, MS_STREAM_DEVICE);
    born(&scene, 3, 12 * MIB);
    work(&scene, 3, 12 * MIB);
    struct ms_pool_stats stats = rig_stats(scene.rig);
    cr_assert_eq(stats.unbacked_bytes, 2 * MIB, "only what the tensor touches");
    cr_assert_eq(stats.host_backed_bytes, 0);
    cr_assert_eq(stats.holes_backed, 7);
    end(&scene);
}

Test(holes, a_birth_takes_another_hole_when_nothing_else_is_free)
{
    struct scene scene = build(HOST);
    hollow(&scene);
    (void)rig_alloc(scene.rig, 30 * MIB, MS_STREAM_DEVICE); /* takes 8 to 18 MiB */
    cr_assert_eq(rig_stats(scene.rig).holes_taken, 5);
    born(&scene, 14, MIB);
    work(&scene, 14, MIB);
    struct ms_pool_stats stats = rig_stats(scene.rig);
    cr_assert_eq(stats.holes_taken, 6);
    cr_assert_eq(stats.holes_backed, 1);
    cr_assert_eq(stats.unbacked_bytes, 10 * MIB, "one for one");
    cr_assert_eq(stats.host_backed_bytes, 0);
    end(&scene);
}

Test(holes, the_last_rung_of_a_birth_is_host_memory_and_the_device_comes_back_first)
{
    struct scene scene = build(HOST);
    hollow(&scene);
    struct ms_block_info block = rig_alloc(scene.rig, 36 * MIB, MS_STREAM_DEVICE);
    born(&scene, 4, 2 * MIB);
    work(&scene, 4, 2 * MIB);
    cr_assert_eq(rig_stats(scene.rig).host_backed_bytes, 2 * MIB);
    cr_assert_eq(rig_stats(scene.rig).peak_host_backed_bytes, 2 * MIB);
    ms_dry_finish(scene.rig->dry, S1, 1);
    died(&scene, 4, 2 * MIB);
    cr_assert_eq(rig_stats(scene.rig).hole_bytes, 2 * MIB);
    cr_assert_eq(ms_pool_takeable_bytes(scene.rig->pool), 0, "it is the host's");
    rig_free(scene.rig, block, MS_STREAM_DEVICE);
    born(&scene, 4, 2 * MIB);
    cr_assert_eq(rig_stats(scene.rig).host_backed_bytes, 2 * MIB, "it was there");
    died(&scene, 4, 2 * MIB);
    born(&scene, 8, 2 * MIB);
    cr_assert_eq(rig_stats(scene.rig).host_backed_bytes, 0, "nothing live was on it");
    end(&scene);
}

Test(holes, nothing_is_taken_that_could_not_be_put_back)
{
    struct ms_block_info none;
    struct scene scene = build(0);
    hollow(&scene);
    cr_assert_eq(rig_try(scene.rig, 22 * MIB, MS_STREAM_DEVICE, &none), MS_ERR_NO_MEMORY);
    cr_assert_eq(rig_stats(scene.rig).unmaps, 0);
    end(&scene);
    scene = build(9 * MIB); /* four granules */
    hollow(&scene);
    cr_assert_eq(rig_try(scene.rig, 30 * MIB, MS_STREAM_DEVICE, &none), MS_ERR_NO_MEMORY);
    (void)rig_alloc(scene.rig, 28 * MIB, MS_STREAM_DEVICE);
    cr_assert_eq(rig_stats(scene.rig).holes_taken, 4);
    end(&scene);
    scene = build_as((struct rig_wishes){.granule_bytes = GRANULE,
                                         .total_bytes = 256 * MIB,
                                         .cap_bytes = 40 * MIB,
                                         .host_limit_bytes = HOST,
                                         .no_host = true});
    hollow(&scene);
    cr_assert_eq(rig_try(scene.rig, 22 * MIB, MS_STREAM_DEVICE, &none), MS_ERR_NO_MEMORY);
    cr_assert_eq(rig_stats(scene.rig).unmaps, 0);
    end(&scene);
}

Test(holes, work_of_the_dead_is_waited_for)
{
    struct scene scene = build(HOST);
    hollow(&scene);
    born(&scene, 2, 16 * MIB);
    work(&scene, 2, 16 * MIB);
    died(&scene, 2, 16 * MIB);
    ms_dry_set_stalled(scene.rig->dry, true);
    struct ms_block_info none;
    cr_assert_eq(rig_try(scene.rig, 22 * MIB, MS_STREAM_DEVICE, &none), MS_ERR_NO_MEMORY);
    cr_assert_eq(rig_stats(scene.rig).unmaps, 0);
    cr_assert_eq(ms_pool_takeable_bytes(scene.rig->pool), 16 * MIB, "in time");
    check(&scene);
    ms_dry_set_stalled(scene.rig->dry, false);
    (void)rig_alloc(scene.rig, 22 * MIB, MS_STREAM_DEVICE);
    cr_assert_eq(rig_stats(scene.rig).holes_taken, 1);
    end(&scene);
}

Test(holes, an_arena_that_a_stream_captures_in_is_left_alone)
{
    struct scene scene = build(HOST);
    hollow(&scene);
    ms_dry_set_capturing(scene.rig->dry, true);
    born(&scene, 4, 512);
    died(&scene, 4, 512);
    ms_dry_set_capturing(scene.rig->dry, false);
    cr_assert_eq(rig_count(scene.rig, MS_EVENT_ARENA_FROZEN), 1);
    cr_assert_eq(rig_stats(scene.rig).hole_bytes, 16 * MIB);
    cr_assert_eq(ms_pool_takeable_bytes(scene.rig->pool), 0);
    struct ms_block_info none;
    cr_assert_eq(rig_try(scene.rig, 22 * MIB, MS_STREAM_DEVICE, &none), MS_ERR_NO_MEMORY);
    cr_assert_eq(rig_stats(scene.rig).unmaps, 0);
    end(&scene);
}

Test(holes, those_of_a_kept_arena_are_its_owners)
{
    struct scene scene = build(HOST);
    ms_arenas_keep(scene.arenas, scene.block.addr);
    for (uint64_t mib = 0; mib < 20; mib += 4) {
        cr_assert_eq(ms_arenas_kept_allocated(scene.arenas, at(&scene, mib), 512, 5), MS_OK);
        ms_arenas_kept_freed(scene.arenas, at(&scene, mib));
        check(&scene);
    }
    struct ms_block_info none;
    cr_assert_eq(rig_try(scene.rig, 22 * MIB, MS_STREAM_DEVICE, &none), MS_ERR_NO_MEMORY);
    cr_assert_eq(rig_stats(scene.rig).holes_taken, 0);
    end(&scene);
}

Test(holes, while_a_stream_captures_births_are_backed_from_what_is_known_idle)
{
    struct scene scene = build(HOST);
    hollow(&scene);
    (void)rig_alloc(scene.rig, 30 * MIB, MS_STREAM_DEVICE);
    uint64_t fences = ms_dry_calls(scene.rig->dry, MS_DRY_FENCE_TAKE);
    ms_dry_set_capturing(scene.rig->dry, true);
    born(&scene, 16, 512);
    cr_assert_eq(rig_stats(scene.rig).holes_taken, 5, "this arena is frozen now");
    cr_assert_eq(rig_stats(scene.rig).host_backed_bytes, 2 * MIB);
    cr_assert_eq(ms_dry_calls(scene.rig->dry, MS_DRY_FENCE_TAKE), fences);
    ms_dry_set_capturing(scene.rig->dry, false);
    end(&scene);
}

Test(holes, a_pinned_arena_is_whole_and_stays_so)
{
    struct scene scene = build(HOST);
    hollow(&scene);
    struct ms_block_info other = rig_alloc(scene.rig, 24 * MIB, MS_STREAM_DEVICE);
    cr_assert_eq(rig_stats(scene.rig).unbacked_bytes, 4 * MIB);
    rig_free(scene.rig, other, MS_STREAM_DEVICE);
    cr_assert_eq(ms_pool_pin(scene.rig->pool, at(&scene, 5)), MS_OK);
    cr_assert(ms_dry_accessible(scene.rig->dry, scene.block.addr, scene.block.bytes));
    check(&scene);
    struct ms_block_info none;
    cr_assert_eq(rig_try(scene.rig, 24 * MIB, MS_STREAM_DEVICE, &none), MS_ERR_NO_MEMORY);
    end(&scene);
}

Test(holes, a_wrong_total_backs_all_and_ends_it)
{
    struct scene scene = build(HOST);
    hollow(&scene);
    (void)rig_alloc(scene.rig, 28 * MIB, MS_STREAM_DEVICE);
    cr_assert_eq(rig_stats(scene.rig).unbacked_bytes, 8 * MIB);
    cr_assert_eq(ms_arenas_freed(scene.arenas, at(&scene, 0), MIB, 77), MS_ERR_NOT_READY);
    struct ms_pool_stats stats = rig_stats(scene.rig);
    cr_assert(stats.frozen);
    cr_assert_eq(stats.unbacked_bytes, 0);
    cr_assert_eq(stats.host_backed_bytes, 8 * MIB, "that is all there was");
    cr_assert(ms_dry_accessible(scene.rig->dry, scene.block.addr, scene.block.bytes));
    struct ms_block_info none;
    cr_assert_eq(rig_try(scene.rig, 2 * MIB, MS_STREAM_DEVICE, &none), MS_ERR_NO_MEMORY);
    end(&scene);
}

Test(holes, a_freed_arena_leaves_holes_where_it_had_them)
{
    struct scene scene = build(HOST);
    hollow(&scene);
    struct ms_block_info other = rig_alloc(scene.rig, 36 * MIB, MS_STREAM_DEVICE);
    born(&scene, 4, 2 * MIB); /* on the host */
    rig_free(scene.rig, scene.block, MS_STREAM_DEVICE);
    check(&scene);
    struct ms_pool_stats stats = rig_stats(scene.rig);
    cr_assert_eq(stats.unbacked_bytes + stats.earmarked_bytes, 0);
    cr_assert_eq(stats.hole_bytes, 0);
    struct ms_arenas_stats tensors;
    ms_arenas_stats(scene.arenas, &tensors);
    cr_assert_eq(tensors.live_tensors, 0);
    rig_free(scene.rig, other, MS_STREAM_DEVICE);
    (void)rig_alloc(scene.rig, 40 * MIB, MS_STREAM_DEVICE);
    cr_assert_eq(rig_stats(scene.rig).host_backed_bytes, 0);
    end(&scene);
}

Test(holes, what_begins_right_behind_a_live_tensor_goes_last)
{
    struct scene scene = build(HOST);
    born(&scene, 0, MIB);
    born(&scene, 17, MIB); /* ends where the last granule, the highest, begins */
    (void)rig_alloc(scene.rig, 32 * MIB, MS_STREAM_DEVICE);
    check(&scene);
    cr_assert_eq(rig_stats(scene.rig).holes_taken, 6);
    cr_assert(ms_dry_accessible(scene.rig->dry, at(&scene, 18), GRANULE));
    cr_assert_not(ms_dry_accessible(scene.rig->dry, at(&scene, 14), GRANULE));
    (void)rig_alloc(scene.rig, 4 * MIB, MS_STREAM_DEVICE);
    cr_assert_not(ms_dry_accessible(scene.rig->dry, at(&scene, 18), GRANULE));
    end(&scene);
}

Test(holes, a_forwarded_charge_gets_room_out_of_holes)
{
    struct scene scene = build(HOST);
    hollow(&scene);
    cr_assert(ms_pool_make_room(scene.rig->pool, 36 * MIB, false));
    cr_assert(ms_budget_charge(&scene.rig->budget, MS_OWNER_FORWARDED, 36 * MIB));
    cr_assert_not(ms_pool_make_room(scene.rig->pool, MIB, false));
    cr_assert_eq(rig_stats(scene.rig).unbacked_bytes, 16 * MIB);
    check(&scene);
    ms_budget_discharge(&scene.rig->budget, MS_OWNER_FORWARDED, 36 * MIB);
    born(&scene, 4, 12 * MIB);
    cr_assert_eq(rig_stats(scene.rig).host_backed_bytes, 0);
    end(&scene);
}

/* Without any host memory: what is given back is the holes' cover. */
Test(holes, charged_bytes_fall_and_the_budget_covers_the_holes)
{
    struct scene scene = build(0);
    struct ms_block_info idle = rig_alloc(scene.rig, 4 * MIB, MS_STREAM_DEVICE);
    rig_free(scene.rig, idle, MS_STREAM_DEVICE);
    hollow(&scene);
    cr_assert_eq(atomic_load(&scene.rig->budget.charged_bytes), 24 * MIB);
    ms_pool_lower(scene.rig->pool, 13 * MIB);
    check(&scene);
    struct ms_pool_stats stats = rig_stats(scene.rig);
    cr_assert_eq(atomic_load(&scene.rig->budget.charged_bytes), 12 * MIB, "in whole chunks");
    cr_assert_eq(stats.free_bytes, 0, "idle ones go first");
    cr_assert_eq(stats.unbacked_bytes, 8 * MIB);
    cr_assert_eq(stats.earmarked_bytes, 8 * MIB);
    ms_pool_lower(scene.rig->pool, 0);
    cr_assert_eq(atomic_load(&scene.rig->budget.charged_bytes), 4 * MIB, "live tensors stay");
    born(&scene, 2, 16 * MIB);
    cr_assert_eq(atomic_load(&scene.rig->budget.charged_bytes), 20 * MIB);
    cr_assert_eq(rig_stats(scene.rig).earmarked_bytes, 0);
    end(&scene);
}

Test(holes, what_is_earmarked_goes_to_the_host_when_the_room_is_needed)
{
    struct scene scene = build(HOST);
    hollow(&scene);
    struct ms_block_info block = rig_alloc(scene.rig, 36 * MIB, MS_STREAM_DEVICE);
    rig_free(scene.rig, block, MS_STREAM_DEVICE);
    cr_assert_eq(ms_pool_trim(scene.rig->pool, 0), 36 * MIB);
    /* With all of that free, the budget covers obligations: an allocation settles that. */
    born(&scene, 2, 512);
    struct ms_pool_stats stats = rig_stats(scene.rig);
    cr_assert_eq(stats.earmarked_bytes, 14 * MIB);
    cr_assert_eq(stats.host_reserve_bytes, 0);
    (void)rig_alloc(scene.rig, 34 * MIB, MS_STREAM_DEVICE);
    stats = rig_stats(scene.rig);
    cr_assert_eq(stats.earmarked_bytes, 0);
    cr_assert_eq(stats.host_reserve_bytes, 14 * MIB);
    end(&scene);
}

/* So many fences are under way that the last deaths get none; then all are done at once. */
Test(holes, what_died_after_the_last_fence_is_waited_for)
{
    struct scene scene = build(HOST);
    struct ms_block_info other = rig_alloc(scene.rig, 20 * MIB, MS_STREAM_DEVICE);
    for (uint64_t mib = 0; mib < 20; mib += 2) {
        born(&scene, mib, GRANULE);
        work(&scene, mib, GRANULE);
    }
    for (uint64_t mib = 0; mib < 20; mib += 2) {
        died(&scene, mib, GRANULE);
        cr_assert_not(ms_pool_make_room(scene.rig->pool, 30 * MIB, false));
    }
    ms_dry_finish(scene.rig->dry, MS_STREAM_DEVICE, UINT64_MAX);
    ms_proxy_t *proxy = NULL;
    cr_assert_eq(ms_proxy_create(scene.rig->pool, 20 * MIB, NULL, true, &proxy), MS_OK);
    check(&scene);
    ms_proxy_release(scene.rig->pool, proxy);
    rig_free(scene.rig, other, MS_STREAM_DEVICE);
    end(&scene);
}

Test(holes, what_is_imposed_moves_cover_to_the_host)
{
    struct scene scene = build(HOST);
    hollow(&scene);
    struct ms_block_info block = rig_alloc(scene.rig, 36 * MIB, MS_STREAM_DEVICE);
    rig_free(scene.rig, block, MS_STREAM_DEVICE);
    (void)ms_pool_trim(scene.rig->pool, 0);
    born(&scene, 2, 512);
    ms_budget_impose(&scene.rig->budget, MS_OWNER_CONTEXT, 34 * MIB);
    cr_assert_not(ms_pool_make_room(scene.rig->pool, MIB, false));
    cr_assert_eq(rig_stats(scene.rig).earmarked_bytes, 0);
    born(&scene, 6, 512);
    check(&scene);
    ms_budget_discharge(&scene.rig->budget, MS_OWNER_CONTEXT, 34 * MIB);
    end(&scene);
}

/* ---- threads */

enum { WORKERS = 5, ROUNDS = 20000, TENSORS = 10 / WORKERS, BETWEEN = 50 };

static pthread_barrier_t gate; /* so that they take turns often */

struct worker {
    struct scene *scene;
    uint64_t random;
    unsigned self;
    uint64_t failed;
};

static uint64_t draw(struct worker *worker, uint64_t below)
{
    worker->random = worker->random * 6364136223846793005u + 1442695040888963407u;
    return (worker->random >> 33) % below;
}

/* Each has two granules of the arena for its tensors, and takes and frees blocks for which the
 * others' holes are needed. */
static void *work_along(void *argument)
{
    struct worker *worker = argument;
    struct scene *scene = worker->scene;
    bool live[TENSORS] = {false};
    struct ms_block_info block = {0};
    for (int round = 0; round < ROUNDS; round++) {
        if (round % BETWEEN == 0) {
            pthread_barrier_wait(&gate);
        }
        uint64_t k = draw(worker, TENSORS);
        ms_addr_t addr = scene->block.addr + (k * WORKERS + worker->self) * GRANULE;
        ms_status_t status = MS_OK;
        if (live[k]) {
            status = ms_arenas_freed(scene->arenas, addr, 512 * KIB, UINT64_MAX);
        } else {
            status = ms_arenas_allocated(scene->arenas, addr, 512 * KIB, 1, UINT64_MAX);
            worker->failed += ms_dry_accessible(scene->rig->dry, addr, 512 * KIB) ? 0 : 1;
        }
        worker->failed += status != MS_OK ? 1 : 0;
        live[k] = !live[k];
        if (draw(worker, 8) == 0) {
            if (block.addr != 0) {
                (void)ms_pool_free(scene->rig->pool, block.addr, MS_STREAM_DEVICE);
                block.addr = 0;
            } else if (rig_try(scene->rig, (1 + draw(worker, 2)) * GRANULE, MS_STREAM_DEVICE,
                               &block) != MS_OK) {
                block.addr = 0;
            }
        }
    }
    return NULL;
}

Test(holes, threads_that_take_from_each_other_find_everything_backed)
{
    struct scene scene = build_as((struct rig_wishes){.granule_bytes = GRANULE,
                                                      .total_bytes = 256 * MIB,
                                                      .cap_bytes = 20 * MIB,
                                                      .host_limit_bytes = HOST});
    scene.rig->events = RIG_EVENTS; /* no log of so many */
    cr_assert_eq(pthread_barrier_init(&gate, NULL, WORKERS), 0);
    struct worker worker[WORKERS];
    pthread_t thread[WORKERS];
    for (unsigned k = 0; k < WORKERS; k++) {
        worker[k] = (struct worker){.scene = &scene, .random = k + 1, .self = k};
        cr_assert_eq(pthread_create(&thread[k], NULL, work_along, &worker[k]), 0);
    }
    for (unsigned k = 0; k < WORKERS; k++) {
        pthread_join(thread[k], NULL);
        cr_assert_eq(worker[k].failed, 0);
    }
    cr_assert_gt(rig_stats(scene.rig).holes_taken, 100);
    end(&scene);
}
