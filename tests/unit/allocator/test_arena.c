/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors inside blocks, as a framework's allocator reports them. */
#include "rig.h"

#include "allocator/arenas/arena.h"

#define S1 ((ms_stream_t)101)

struct scene {
    struct rig *rig;
    ms_arenas_t *arenas;
    struct ms_block_info block;
};

static struct scene build(void)
{
    struct scene scene = {.rig = rig_make(GRANULE, 64 * MIB, 64 * MIB)};
    struct ms_event_sink sink = {.emit = rig_note, .ctx = scene.rig};
    cr_assert_eq(ms_arenas_create(3, scene.rig->pool, sink, &scene.arenas), MS_OK);
    scene.block = rig_alloc(scene.rig, 20 * MIB, MS_STREAM_DEVICE);
    return scene;
}

static struct ms_arenas_stats stats_of(struct scene *scene)
{
    struct ms_arenas_stats stats;
    char why[256] = "";
    cr_assert(ms_arenas_is_valid(scene->arenas, why, sizeof(why)), "%s", why);
    ms_arenas_stats(scene->arenas, &stats);
    return stats;
}

static void end(struct scene *scene)
{
    (void)stats_of(scene);
    ms_arenas_destroy(scene->arenas);
    rig_end(scene->rig);
}

Test(arena, births_and_deaths_are_counted_and_told)
{
    struct scene scene = build();
    ms_addr_t addr = scene.block.addr;
    cr_assert_eq(ms_arenas_allocated(scene.arenas, addr, 1024, 5, 1024), MS_OK);
    cr_assert_eq(ms_arenas_allocated(scene.arenas, addr + 4096, 512, 6, 1536), MS_OK);
    cr_assert_eq(ms_arenas_freed(scene.arenas, addr, 1024, 512), MS_OK);
    struct ms_arenas_stats stats = stats_of(&scene);
    cr_assert_eq(stats.live_tensors, 1);
    cr_assert_eq(stats.live_bytes, 512);
    cr_assert_eq(stats.peak_live_bytes, 1536);
    cr_assert_eq(stats.allocations, 2);
    cr_assert_eq(stats.frees, 1);
    cr_assert_not(stats.mismatched);
    cr_assert_eq(rig_count(scene.rig, MS_EVENT_BLOCK_ARENA), 1, "at the first birth only");
    cr_assert_eq(rig_count(scene.rig, MS_EVENT_TENSOR_ALLOC), 2);
    const struct ms_event *last = &scene.rig->event[scene.rig->events - 1];
    cr_assert_eq(last->kind, MS_EVENT_TENSOR_FREE);
    cr_assert_eq(last->addr, addr);
    cr_assert_eq(last->bytes, 1024);
    const struct ms_event *born = last - 1;
    cr_assert_eq(born->aux, scene.block.id, "the arena's block");
    cr_assert_eq(born->site, 6);
    cr_assert_eq(born->device, 3);
    struct ms_block_info found;
    cr_assert_eq(ms_pool_find(scene.rig->pool, addr, &found), MS_OK);
    cr_assert(found.arena);
    end(&scene);
}

static bool is_this(void *ctx, const struct ms_holder *holder)
{
    return holder == ctx;
}

/* The state of an arena's holes stands in the place of its holder. */
Test(arena, an_arena_has_the_holder_that_its_block_had)
{
    struct scene scene = build();
    struct ms_holder holder = {.kind = 1};
    struct ms_block_info block, found;
    for (int held = 0; held < 2; held++) {
        const struct ms_request request = {
            .bytes = 8 * MIB, .stream = S1, .site = 7, .holder = &holder};
        cr_assert_eq(ms_pool_alloc(scene.rig->pool, &request, &block), MS_OK);
        cr_assert_eq(ms_arenas_allocated(scene.arenas, block.addr, 1024, 5, UINT64_MAX), MS_OK);
        cr_assert_eq(ms_pool_find(scene.rig->pool, block.addr, &found), MS_OK);
        cr_assert(found.arena);
        cr_assert_eq(found.holder, &holder);
        cr_assert_eq(found.site, 7);
        cr_assert_eq(found.bytes, 8 * MIB);
        cr_assert_eq(holder.used_bytes, 8 * MIB);
        if (held) {
            ms_pool_free_held(scene.rig->pool, is_this, &holder);
        } else {
            cr_assert_eq(ms_pool_free(scene.rig->pool, block.addr, S1), MS_OK);
        }
        cr_assert_eq(holder.used_bytes, 0);
        rig_check(scene.rig);
    }
    end(&scene);
}

Test(arena, memory_that_the_program_mapped_itself_has_no_block)
{
    struct scene scene = build();
    cr_assert_eq(ms_arenas_allocated(scene.arenas, 0x500000000000u, 512, 5, UINT64_MAX), MS_OK);
    cr_assert_eq(rig_count(scene.rig, MS_EVENT_BLOCK_ARENA), 0);
    cr_assert_eq(scene.rig->event[scene.rig->events - 1].aux, 0);
    end(&scene);
}

Test(arena, what_is_unmapped_sleeps_until_it_is_mapped_again)
{
    struct scene scene = build();
    const ms_addr_t own = (ms_addr_t)1 << 46;
    cr_assert_eq(ms_arenas_allocated(scene.arenas, own, MIB, 5, MIB), MS_OK);
    cr_assert_eq(ms_arenas_allocated(scene.arenas, own + MIB, MIB, 6, 2 * MIB), MS_OK);
    cr_assert_eq(ms_arenas_allocated(scene.arenas, scene.block.addr, MIB, 7, 3 * MIB), MS_OK);
    ms_arenas_unmapped(scene.arenas, own, 2 * MIB);
    cr_assert_eq(stats_of(&scene).live_bytes, MIB);
    cr_assert_eq(rig_count(scene.rig, MS_EVENT_TENSOR_FREE), 2);
    /* Its owner counts on, and frees one of them meanwhile. */
    cr_assert_eq(ms_arenas_allocated(scene.arenas, scene.block.addr + MIB, MIB, 8, 4 * MIB), MS_OK);
    cr_assert_eq(ms_arenas_freed(scene.arenas, own + MIB, MIB, 3 * MIB), MS_OK);
    cr_assert_eq(rig_count(scene.rig, MS_EVENT_TENSOR_FREE), 2, "it was not live");
    ms_arenas_mapped(scene.arenas, own, 2 * MIB);
    struct ms_arenas_stats stats = stats_of(&scene);
    cr_assert_eq(stats.live_bytes, 3 * MIB);
    cr_assert_eq(stats.invalid_reports, 0);
    const struct ms_event *last = &scene.rig->event[scene.rig->events - 1];
    cr_assert_eq(last->kind, MS_EVENT_TENSOR_ALLOC);
    cr_assert_eq(last->addr, own);
    cr_assert_eq(last->site, 5, "it is live at its own line again");
    cr_assert_eq(ms_arenas_freed(scene.arenas, own, MIB, 2 * MIB), MS_OK);
    cr_assert_not(stats_of(&scene).mismatched);
    end(&scene);
}

Test(arena, no_pool_no_harm)
{
    ms_arenas_t *arenas = NULL;
    cr_assert_eq(ms_arenas_create(0, NULL, (struct ms_event_sink){0}, &arenas), MS_OK);
    cr_assert_eq(ms_arenas_allocated(arenas, 0x1000, 512, 5, 512), MS_OK);
    cr_assert_eq(ms_arenas_freed(arenas, 0x1000, 512, 0), MS_OK);
    ms_arenas_destroy(arenas);
}

Test(arena, impossible_reports_are_refused_and_harmless)
{
    struct scene scene = build();
    ms_addr_t addr = scene.block.addr;
    cr_assert_eq(ms_arenas_allocated(scene.arenas, addr + 1024, 1024, 5, UINT64_MAX), MS_OK);
    cr_assert_eq(ms_arenas_allocated(scene.arenas, addr + 1024, 512, 5, 0), MS_ERR_INVALID);
    cr_assert_eq(ms_arenas_allocated(scene.arenas, addr + 512, 513, 5, 0), MS_ERR_INVALID);
    cr_assert_eq(ms_arenas_allocated(scene.arenas, addr + 2047, 1, 5, 0), MS_ERR_INVALID);
    cr_assert_eq(ms_arenas_allocated(scene.arenas, addr, 0, 5, 0), MS_ERR_INVALID);
    cr_assert_eq(ms_arenas_allocated(scene.arenas, UINT64_MAX - 10, 100, 5, 0), MS_ERR_INVALID);
    cr_assert_eq(ms_arenas_freed(scene.arenas, addr, 1024, 0), MS_ERR_INVALID);
    cr_assert_eq(stats_of(&scene).invalid_reports, 6);
    cr_assert_eq(stats_of(&scene).live_bytes, 1024);
    cr_assert_eq(ms_arenas_allocated(scene.arenas, addr + 512, 512, 5, UINT64_MAX), MS_OK,
                 "up to the neighbour");
    cr_assert_eq(ms_arenas_allocated(scene.arenas, addr + 2048, 512, 5, UINT64_MAX), MS_OK);
    end(&scene);
}

Test(arena, the_first_wrong_total_is_noticed_once)
{
    struct scene scene = build();
    ms_addr_t addr = scene.block.addr;
    cr_assert_eq(ms_arenas_allocated(scene.arenas, addr, 512, 5, 512), MS_OK);
    cr_assert_eq(ms_arenas_allocated(scene.arenas, addr + 512, 512, 5, UINT64_MAX), MS_OK);
    cr_assert_eq(ms_arenas_freed(scene.arenas, addr, 512, 1024), MS_ERR_NOT_READY);
    cr_assert_eq(ms_arenas_freed(scene.arenas, addr + 512, 512, 1024), MS_OK, "said once");
    cr_assert(stats_of(&scene).mismatched);
    end(&scene);
}

Test(arena, a_kept_one_bears_pieces_that_were_not_told)
{
    struct scene scene = build();
    ms_addr_t addr = scene.block.addr;
    struct ms_block_info other = rig_alloc(scene.rig, MIB, MS_STREAM_DEVICE);
    ms_arenas_keep(scene.arenas, addr);
    ms_arenas_keep(scene.arenas, 0x500000000000u);
    cr_assert_eq(stats_of(&scene).kept_arenas, 1);
    cr_assert_eq(ms_arenas_kept_allocated(scene.arenas, addr, 4096, 5), MS_OK);
    cr_assert_eq(ms_arenas_kept_allocated(scene.arenas, addr + MIB, 1000, 5), MS_OK);
    cr_assert_eq(ms_arenas_kept_allocated(scene.arenas, addr + MIB + 1000, 24, 5), MS_OK);
    ms_arenas_kept_freed(scene.arenas, addr + 512);
    cr_assert_eq(stats_of(&scene).live_bytes, 4096 + 1000 + 24);
    /* The frees of all three were missed. */
    cr_assert_eq(ms_arenas_kept_allocated(scene.arenas, addr + 512, 2 * MIB, 5), MS_OK);
    cr_assert_eq(stats_of(&scene).live_bytes, 2 * MIB);
    cr_assert_eq(ms_arenas_kept_allocated(scene.arenas, other.addr, 512, 5), MS_OK);
    cr_assert_eq(stats_of(&scene).live_bytes, 2 * MIB, "a block that nobody told of");
    cr_assert_eq(ms_arenas_kept_allocated(scene.arenas, addr, 21 * MIB, 5), MS_OK);
    cr_assert_eq(stats_of(&scene).live_bytes, 2 * MIB, "more than the block");
    ms_arenas_kept_freed(scene.arenas, addr + 512);
    cr_assert_eq(stats_of(&scene).live_bytes, 0);
    cr_assert_eq(stats_of(&scene).invalid_reports, 0);
    end(&scene);
}

Test(arena, tensors_die_with_their_block)
{
    struct scene scene = build();
    struct ms_block_info other = rig_alloc(scene.rig, 2 * MIB, MS_STREAM_DEVICE);
    for (unsigned k = 0; k < 10; k++) {
        cr_assert_eq(
            ms_arenas_allocated(scene.arenas, scene.block.addr + k * MIB, 4096, 5, UINT64_MAX),
            MS_OK);
    }
    cr_assert_eq(ms_arenas_allocated(scene.arenas, other.addr, 512, 5, UINT64_MAX), MS_OK);
    rig_free(scene.rig, scene.block, MS_STREAM_DEVICE);
    ms_arenas_block_gone(scene.arenas, scene.block.addr, scene.block.bytes);
    cr_assert_eq(stats_of(&scene).live_tensors, 1);
    cr_assert_eq(stats_of(&scene).live_bytes, 512);
    cr_assert_eq(rig_count(scene.rig, MS_EVENT_TENSOR_FREE), 10);
    end(&scene);
}

Test(arena, a_freed_arena_says_so)
{
    struct scene scene = build();
    cr_assert_eq(ms_arenas_allocated(scene.arenas, scene.block.addr, 512, 5, 512), MS_OK);
    rig_free(scene.rig, scene.block, S1);
    const struct ms_event *freed = &scene.rig->event[scene.rig->events - 1];
    while (freed->kind != MS_EVENT_BLOCK_FREE) {
        freed--;
    }
    cr_assert_eq(freed->aux, 1);
    ms_arenas_block_gone(scene.arenas, scene.block.addr, scene.block.bytes);
    struct ms_block_info again = rig_alloc(scene.rig, 20 * MIB, MS_STREAM_DEVICE);
    cr_assert_not(again.arena, "the next block there is none");
    end(&scene);
}

Test(arena, random_tensors_against_a_plain_model)
{
    struct scene scene = build();
    static uint64_t size[4096]; /* by slot of 4 KiB: bytes of the tensor that begins there */
    uint64_t sum = 0;
    uint64_t state = 5;
    for (int round = 0; round < 100000; round++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        unsigned slot = (unsigned)(state >> 33) % 4096;
        ms_addr_t addr = scene.block.addr + slot * (uint64_t)4096;
        if (size[slot] != 0) {
            sum -= size[slot];
            cr_assert_eq(ms_arenas_freed(scene.arenas, addr, size[slot], sum), MS_OK);
            size[slot] = 0;
        } else {
            size[slot] = (state >> 11) % 4096 + 1;
            sum += size[slot];
            cr_assert_eq(ms_arenas_allocated(scene.arenas, addr, size[slot], 1, sum), MS_OK);
        }
    }
    cr_assert_eq(stats_of(&scene).live_bytes, sum);
    end(&scene);
}
