/* SPDX-License-Identifier: Apache-2.0 */
/* The host runs out of memory: every allocation that the pool makes for itself fails once, at every
 * place, alone and with all that follow it for a while. Whatever is asked then is served or
 * refused; the books hold, what lives keeps its backing, and at the end the device has everything
 * back.
 *
 * The functions of slab.h are wrapped (see CMakeLists.txt). */
#include "allocator/arenas/arena.h"
#include "allocator/base/containers/slab.h"
#include "allocator/pool.h"
#include "bare.h"

#define MIB ((uint64_t)1 << 20)

/* ---- the host */

static struct {
    uint64_t calls, fails_from, fails_to;
    const struct ms_slab *reserved; /* takes from it were promised */
    size_t promised;
} host;

static bool refuses(void)
{
    host.calls++;
    return host.calls >= host.fails_from && host.calls < host.fails_to;
}

void *__real_ms_slab_take(struct ms_slab *slab);
void *__wrap_ms_slab_take(struct ms_slab *slab);
bool __real_ms_slab_reserve(struct ms_slab *slab, size_t count);
bool __wrap_ms_slab_reserve(struct ms_slab *slab, size_t count);
void *__real_ms_pages_map(size_t bytes);
void *__wrap_ms_pages_map(size_t bytes);
void *__real_ms_pages_map_dense(size_t bytes);
void *__wrap_ms_pages_map_dense(size_t bytes);

void *__wrap_ms_slab_take(struct ms_slab *slab)
{
    bool promised = host.reserved == slab && host.promised > 0;
    host.promised -= promised ? 1 : 0;
    return !promised && refuses() ? NULL : __real_ms_slab_take(slab);
}

bool __wrap_ms_slab_reserve(struct ms_slab *slab, size_t count)
{
    if (refuses()) {
        return false;
    }
    host.reserved = slab;
    host.promised = count;
    return __real_ms_slab_reserve(slab, count);
}

void *__wrap_ms_pages_map(size_t bytes)
{
    return refuses() ? NULL : __real_ms_pages_map(bytes);
}

void *__wrap_ms_pages_map_dense(size_t bytes)
{
    return refuses() ? NULL : __real_ms_pages_map_dense(bytes);
}

/* ---- the scene */

enum { BLOCKS = 40, TENSORS = 32, ARENA_MIB = 20 };

struct scene {
    struct bare *bare;
    struct ms_budget budget;
    ms_pool_t *pool;
    ms_arenas_t *arenas;
    struct ms_block_info block[BLOCKS];
    struct {
        ms_addr_t addr;
        uint64_t bytes;
        bool stranded;
    } tensor[TENSORS];
    uint64_t total_bytes; /* of the tensors that the framework has */
};

/* False: the host would not even let it begin. */
static bool begin(struct scene *scene)
{
    *scene = (struct scene){.bare = bare_make(2 * MIB, 256 * MIB)};
    ms_budget_init(&scene->budget, 128 * MIB);
    struct ms_pool_config config = {.ops = &scene->bare->ops,
                                    .budget = &scene->budget,
                                    .wait_limit_ns = 1000000,
                                    .host_limit_bytes = 128 * MIB,
                                    .views = true};
    if (ms_pool_create(&config, &scene->pool) != MS_OK) {
        cr_assert_null(scene->pool);
        return false;
    }
    if (ms_arenas_create(0, scene->pool, (struct ms_event_sink){0}, &scene->arenas) != MS_OK) {
        ms_pool_destroy(scene->pool, false);
        return false;
    }
    return true;
}

static void look(struct scene *scene)
{
    uint64_t from = host.fails_from;
    char why[200] = "";
    if (host.calls < from) {
        return; /* as in the scene that was looked at without a failure */
    }
    host.fails_from = UINT64_MAX;
    cr_assert(ms_pool_is_valid(scene->pool, why, sizeof(why)), "%s", why);
    cr_assert(ms_arenas_is_valid(scene->arenas, why, sizeof(why)), "%s", why);
    host.fails_from = from;
    cr_assert_null(scene->bare->violation, "%s", scene->bare->violation);
    cr_assert_eq(scene->bare->used_bytes, atomic_load(&scene->budget.charged_bytes));
    for (unsigned k = 0; k < TENSORS; k++) {
        cr_assert(scene->tensor[k].addr == 0 || scene->tensor[k].stranded ||
                      bare_backed(scene->bare, scene->tensor[k].addr, scene->tensor[k].bytes),
                  "tensor %u lies on nothing, call %lu fails", k, (unsigned long)from);
    }
    for (unsigned k = 0; k < BLOCKS; k++) {
        const struct ms_block_info *block = &scene->block[k];
        struct ms_block_info found = {0};
        if (block->addr != 0) {
            cr_assert_eq(ms_pool_find(scene->pool, block->addr, &found), MS_OK);
            cr_assert(found.arena || bare_backed(scene->bare, block->addr, block->bytes));
        }
    }
}

static void take(struct scene *scene, unsigned k, uint64_t bytes, ms_stream_t stream)
{
    struct ms_request request = {.bytes = bytes, .stream = stream, .may_wait = true};
    ms_status_t status = ms_pool_alloc(scene->pool, &request, &scene->block[k]);
    cr_assert(status == MS_OK || status == MS_ERR_NO_MEMORY, "%d", status);
    if (status != MS_OK) {
        scene->block[k] = (struct ms_block_info){0};
    }
    look(scene);
}

static void give(struct scene *scene, unsigned k, ms_stream_t stream)
{
    if (scene->block[k].addr != 0) {
        /* Tensors go with their arenas. */
        for (unsigned t = 0; t < TENSORS; t++) {
            bool inside = scene->tensor[t].addr - scene->block[k].addr < scene->block[k].bytes;
            scene->total_bytes -= inside ? scene->tensor[t].bytes : 0;
            scene->tensor[t].addr = inside ? 0 : scene->tensor[t].addr;
        }
        cr_assert_eq(ms_pool_free(scene->pool, scene->block[k].addr, stream), MS_OK);
        scene->block[k] = (struct ms_block_info){0};
        look(scene);
    }
}

/* Whatever is answered, the framework uses the tensor. */
static void born(struct scene *scene, unsigned k, unsigned block, uint64_t offset, uint64_t bytes)
{
    if (scene->block[block].addr != 0) {
        scene->tensor[k].addr = scene->block[block].addr + offset;
        scene->tensor[k].bytes = bytes;
        scene->total_bytes += bytes;
        ms_status_t status =
            ms_arenas_allocated(scene->arenas, scene->tensor[k].addr, bytes, 1, scene->total_bytes);
        /* Nothing can be backed any more, and that is said. */
        scene->tensor[k].stranded = status == MS_ERR_NO_MEMORY && host.fails_to == UINT64_MAX;
        look(scene);
    }
}

static void died(struct scene *scene, unsigned k)
{
    if (scene->tensor[k].addr != 0) {
        ms_addr_t addr = scene->tensor[k].addr;
        scene->tensor[k].addr = 0;
        scene->total_bytes -= scene->tensor[k].bytes;
        (void)ms_arenas_freed(scene->arenas, addr, scene->tensor[k].bytes, scene->total_bytes);
        look(scene);
    }
}

/* Two arenas of which little is used, and others that take the rest from below them. */
static void play(struct scene *scene)
{
    take(scene, 0, ARENA_MIB * MIB, MS_STREAM_DEVICE);
    take(scene, 1, ARENA_MIB * MIB, MS_STREAM_DEVICE);
    for (unsigned k = 0; k < 8; k++) {
        born(scene, k, k % 2, MIB * 4 * (k / 2), MIB);
    }
    for (unsigned k = 2; k < 20; k++) {
        take(scene, k, 3 * MIB + (uint64_t)512 * k, k % 3);
    }
    for (unsigned k = 2; k < 20; k += 2) {
        give(scene, k, k % 3);
    }
    for (unsigned k = 0; k < 8; k += 3) {
        died(scene, k);
    }
    take(scene, 20, 60 * MIB, 1);
    for (unsigned k = 21; k < 30; k++) {
        take(scene, k, 5 * MIB + 512, 2);
    }
    for (unsigned k = 8; k < 16; k++) {
        born(scene, k, k % 2, MIB * 4 * ((k - 8) / 2) + 2 * MIB, MIB + 4096);
    }
    born(scene, 16, 0, 19 * MIB + 77, 4096); /* at an odd address */
    (void)ms_pool_trim(scene->pool, 0);
    look(scene);
    ms_pool_stream_gone(scene->pool, 2);
    look(scene);
    give(scene, 20, 1);
    for (unsigned k = 30; k < BLOCKS; k++) {
        take(scene, k, (uint64_t)300 * 1024 * (k - 29), MS_STREAM_DEVICE);
    }
    (void)ms_pool_make_room(scene->pool, 30 * MIB, true);
    look(scene);
    give(scene, 0, MS_STREAM_DEVICE); /* in pieces */
}

static void end(struct scene *scene)
{
    host.fails_from = 0;
    host.fails_to = 0;
    for (unsigned k = 0; k < BLOCKS; k++) {
        give(scene, k, MS_STREAM_DEVICE);
    }
    (void)ms_pool_trim(scene->pool, 0);
    (void)ms_pool_trim(scene->pool, 0);
    cr_assert_eq(scene->bare->used_bytes, 0, "%lu bytes stay", scene->bare->used_bytes);
    ms_arenas_destroy(scene->arenas);
    ms_pool_destroy(scene->pool, false);
    cr_assert_eq(atomic_load(&scene->budget.committed_bytes), 0);
    bare_end(scene->bare);
}

/* Plays the scene with `count` calls refused from the nth on; returns how many calls there were. */
static uint64_t play_with(uint64_t nth, uint64_t count)
{
    struct scene scene;
    memset(&host, 0, sizeof(host));
    host.fails_from = nth;
    host.fails_to = count < UINT64_MAX - nth ? nth + count : UINT64_MAX;
    if (begin(&scene)) {
        play(&scene);
        uint64_t calls = host.calls;
        end(&scene);
        return calls;
    }
    bare_end(scene.bare);
    return UINT64_MAX;
}

static void play_all(uint64_t count, uint64_t step)
{
    uint64_t calls = play_with(UINT64_MAX, 0);
    cr_assert(calls > 50 && calls < 100000, "%lu calls", (unsigned long)calls);
    for (uint64_t nth = 1; nth <= calls; nth += step) {
        (void)play_with(nth, count);
    }
}

Test(host_memory, one_refusal_loses_nothing)
{
    play_all(1, 1);
}

Test(host_memory, nor_do_several)
{
    play_all(4, 3);
}

Test(host_memory, nor_does_a_host_that_has_none_left)
{
    play_all(UINT64_MAX, 3);
}
