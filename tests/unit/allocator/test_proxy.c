/* SPDX-License-Identifier: Apache-2.0 */
/* Pages of a framework that maps memory by itself, as PyTorch's expandable segments do. */
#include "rig.h"

#include <pthread.h>

#include "allocator/arenas/arena.h"
#include "allocator/arenas/proxy.h"

#define S1       ((ms_stream_t)101)
#define PAGE     (20 * MIB)
#define RESERVED (400 * MIB)

/* With this cap and nothing charged yet, a page is made whole. */
#define AMPLE (32 * PAGE)

enum { DEVICE_ERROR = 999 };

struct scene {
    struct rig *rig;
    ms_arenas_t *arenas;
    ms_addr_t base; /* of the framework's reservation */
    uint64_t total;
};

static struct scene build(uint64_t cap_bytes, uint64_t host_limit_bytes)
{
    struct scene scene = {
        .rig = rig_make_as((struct rig_wishes){.granule_bytes = GRANULE,
                                               .total_bytes = 1024 * MIB,
                                               .cap_bytes = cap_bytes,
                                               .host_limit_bytes = host_limit_bytes})};
    struct ms_event_sink sink = {.emit = rig_note, .ctx = scene.rig};
    const struct ms_device_ops *ops = ms_dry_ops(scene.rig->dry);
    cr_assert_eq(ms_dry_stream_create(scene.rig->dry, S1), MS_OK);
    cr_assert_eq(ms_arenas_create(3, scene.rig->pool, sink, &scene.arenas), MS_OK);
    cr_assert_eq(ops->address_reserve(ops->ctx, RESERVED, GRANULE, &scene.base), MS_OK);
    return scene;
}

static void check(struct scene *scene)
{
    char why[256] = "";
    rig_check(scene->rig);
    cr_assert(ms_arenas_is_valid(scene->arenas, why, sizeof(why)), "%s", why);
}

/* The host sees all work done, as a framework does before it unmaps. */
static void synchronize(struct scene *scene)
{
    const struct ms_device_ops *ops = ms_dry_ops(scene->rig->dry);
    ms_fence_t all = 0;
    cr_assert_eq(ops->fence_take(ops->ctx, MS_STREAM_DEVICE, &all), MS_OK);
    cr_assert_eq(ops->fence_wait(ops->ctx, all, UINT64_MAX), MS_OK);
    ops->fence_release(ops->ctx, all);
}

/* Unmaps whatever is mapped. */
static void unmap_all(struct scene *scene)
{
    synchronize(scene);
    for (ms_addr_t addr = scene->base; addr < scene->base + RESERVED; addr += GRANULE) {
        struct ms_proxy_info info;
        if (ms_proxy_at(scene->rig->pool, addr, &info) == MS_OK) {
            ms_arenas_block_gone(scene->arenas, addr, info.bytes);
            cr_assert_eq(ms_proxy_unmap(scene->rig->pool, addr, info.bytes), MS_OK);
        }
    }
}

static void end(struct scene *scene)
{
    const struct ms_device_ops *ops = ms_dry_ops(scene->rig->dry);
    check(scene);
    unmap_all(scene);
    check(scene);
    ms_proxy_reservation_gone(scene->rig->pool, scene->base);
    struct ms_proxy_info info;
    cr_assert_eq(ms_proxy_at(scene->rig->pool, scene->base, &info), MS_ERR_NOT_OURS);
    cr_assert_eq(ops->address_free(ops->ctx, scene->base, RESERVED), MS_OK);
    ms_arenas_destroy(scene->arenas);
    rig_end(scene->rig);
}

static ms_status_t try_create(struct scene *scene, uint64_t bytes, ms_proxy_t **out)
{
    return ms_proxy_create(scene->rig->pool, bytes, NULL, true, out);
}

static ms_status_t try_map(struct scene *scene, ms_proxy_t *proxy, uint64_t mib)
{
    return ms_proxy_map(scene->rig->pool, proxy, scene->base + mib * MIB, scene->base, RESERVED);
}

/* Create, map, give access, and let go of the handle, as a framework does. */
static void add_page(struct scene *scene, uint64_t mib)
{
    ms_proxy_t *proxy = NULL;
    cr_assert_eq(try_create(scene, PAGE, &proxy), MS_OK);
    cr_assert_eq(try_map(scene, proxy, mib), MS_OK);
    cr_assert_eq(ms_proxy_access(scene->rig->pool, scene->base + mib * MIB, PAGE), MS_OK);
    ms_proxy_release(scene->rig->pool, proxy);
    check(scene);
}

/* As build, with a page at the beginning that was made whole when memory was ample still. */
static struct scene build_whole(uint64_t cap_bytes, uint64_t host_limit_bytes)
{
    struct scene scene = build(AMPLE, host_limit_bytes);
    add_page(&scene, 0);
    struct ms_proxy_info info;
    cr_assert_eq(ms_proxy_at(scene.rig->pool, scene.base, &info), MS_OK);
    cr_assert_neq(info.chunk, 0);
    ms_budget_impose(&scene.rig->budget, MS_OWNER_FORWARDED, AMPLE - cap_bytes);
    return scene;
}

static ms_status_t unmap(struct scene *scene, uint64_t mib, uint64_t bytes)
{
    ms_status_t status = ms_proxy_unmap(scene->rig->pool, scene->base + mib * MIB, bytes);
    check(scene);
    return status;
}

static void born(struct scene *scene, uint64_t mib, uint64_t bytes)
{
    scene->total += bytes;
    ms_addr_t addr = scene->base + mib * MIB;
    cr_assert_eq(ms_arenas_allocated(scene->arenas, addr, bytes, 5, scene->total), MS_OK);
    cr_assert_eq(ms_dry_work(scene->rig->dry, S1, 1 + mib, addr, bytes, 1), MS_OK);
    check(scene);
}

static void died(struct scene *scene, uint64_t mib, uint64_t bytes)
{
    scene->total -= bytes;
    ms_addr_t addr = scene->base + mib * MIB;
    cr_assert_eq(ms_arenas_freed(scene->arenas, addr, bytes, scene->total), MS_OK);
    check(scene);
}

/* A live tensor: what is mapped behind it uses nothing of what is free before it. */
static void add_wall(struct scene *scene, uint64_t mib)
{
    ms_proxy_t *proxy = NULL;
    cr_assert_eq(try_create(scene, GRANULE, &proxy), MS_OK);
    cr_assert_eq(try_map(scene, proxy, mib), MS_OK);
    cr_assert_eq(ms_proxy_access(scene->rig->pool, scene->base + mib * MIB, GRANULE), MS_OK);
    ms_proxy_release(scene->rig->pool, proxy);
    born(scene, mib, GRANULE);
}

Test(proxy, a_page_is_one_chunk_while_memory_is_ample)
{
    struct scene scene = build(AMPLE, 0);
    ms_proxy_t *proxy = NULL;
    struct ms_proxy_info info;
    cr_assert_eq(try_create(&scene, PAGE, &proxy), MS_OK);
    check(&scene);
    cr_assert_eq(ms_dry_calls(scene.rig->dry, MS_DRY_CHUNK_CREATE), 1);
    ms_proxy_info(scene.rig->pool, proxy, &info);
    cr_assert(info.chunk != 0 && info.addr == 0 && info.bytes == PAGE);
    cr_assert_eq(try_map(&scene, proxy, 40), MS_OK);
    cr_assert_eq(ms_proxy_access(scene.rig->pool, scene.base + 40 * MIB, PAGE), MS_OK);
    cr_assert(ms_dry_accessible(scene.rig->dry, scene.base + 40 * MIB, PAGE));
    ms_handle_t chunk = info.chunk;
    cr_assert_eq(ms_proxy_at(scene.rig->pool, scene.base + 50 * MIB, &info), MS_OK);
    cr_assert(info.proxy == proxy && info.chunk == chunk && info.addr == scene.base + 40 * MIB);
    cr_assert_eq(ms_proxy_at(scene.rig->pool, scene.base + 60 * MIB, &info), MS_ERR_NOT_OURS);
    cr_assert_eq(rig_count(scene.rig, MS_EVENT_PROXY_MAP), 1);
    ms_proxy_release(scene.rig->pool, proxy);
    check(&scene);
    cr_assert_eq(unmap(&scene, 40, PAGE), MS_OK);
    cr_assert_eq(rig_count(scene.rig, MS_EVENT_PROXY_UNMAP), 1);
    cr_assert_eq(atomic_load(&scene.rig->budget.charged_bytes), 0, "the last reference is gone");
    end(&scene);
}

Test(proxy, pages_are_of_granules_when_memory_is_not_ample)
{
    struct scene scene = build(AMPLE, 0);
    add_page(&scene, 0);
    cr_assert_eq(ms_dry_calls(scene.rig->dry, MS_DRY_CHUNK_CREATE), 1);
    add_page(&scene, 20);
    cr_assert_eq(ms_dry_calls(scene.rig->dry, MS_DRY_CHUNK_CREATE), 11);
    cr_assert_eq(unmap(&scene, 0, 2 * PAGE), MS_OK);
    cr_assert_eq(ms_dry_calls(scene.rig->dry, MS_DRY_UNMAP), 1, "neighbours go together");
    end(&scene);
}

/* Another thread's request, made while the first one waits. */
static struct scene *waited_in;
static ms_proxy_t *made_meanwhile;
static ms_status_t (*dry_fence_wait)(void *ctx, ms_fence_t fence, uint64_t timeout_ns);

static ms_status_t wait_and_ask(void *ctx, ms_fence_t fence, uint64_t timeout_ns)
{
    struct scene *scene = waited_in;
    waited_in = NULL;
    if (scene != NULL) {
        cr_assert_eq(try_create(scene, PAGE, &made_meanwhile), MS_OK);
    }
    return dry_fence_wait(ctx, fence, timeout_ns);
}

Test(proxy, who_asks_while_another_waits_waits_too)
{
    struct scene scene = build(46 * MIB, 256 * MIB);
    struct ms_device_ops *ops = (struct ms_device_ops *)(uintptr_t)ms_dry_ops(scene.rig->dry);
    add_wall(&scene, 40);
    add_page(&scene, 0);
    add_page(&scene, 20);
    born(&scene, 0, 2 * PAGE);
    died(&scene, 0, 2 * PAGE);
    ms_proxy_t *proxy = NULL;
    cr_assert_eq(ms_proxy_create(scene.rig->pool, PAGE, NULL, false, &proxy), MS_ERR_NO_MEMORY);
    dry_fence_wait = ops->fence_wait;
    ops->fence_wait = wait_and_ask;
    waited_in = &scene;
    cr_assert_eq(try_create(&scene, PAGE, &proxy), MS_OK);
    cr_assert_null(waited_in, "nothing was waited for");
    ms_proxy_release(scene.rig->pool, proxy);
    ms_proxy_release(scene.rig->pool, made_meanwhile);
    end(&scene);
}

Test(proxy, what_is_idle_in_a_page_serves_a_block)
{
    struct scene scene = build_whole(44 * MIB, 256 * MIB);
    add_page(&scene, 20);
    born(&scene, 0, 4 * MIB);
    born(&scene, 20, 4 * MIB);
    (void)rig_alloc(scene.rig, 16 * MIB, MS_STREAM_DEVICE);
    check(&scene);
    struct ms_pool_stats stats = rig_stats(scene.rig);
    cr_assert_eq(stats.unbacked_bytes, 12 * MIB);
    cr_assert_eq(stats.host_reserve_bytes, 12 * MIB);
    struct ms_proxy_info info;
    cr_assert_eq(ms_proxy_at(scene.rig->pool, scene.base, &info), MS_OK);
    cr_assert_neq(info.chunk, 0, "the first page is still whole");
    cr_assert_eq(ms_proxy_at(scene.rig->pool, scene.base + 20 * MIB, &info), MS_OK);
    cr_assert_eq(info.chunk, 0);
    born(&scene, 24, 16 * MIB); /* takes the first page apart, if that must be */
    ms_arenas_block_gone(scene.arenas, scene.base, 2 * PAGE);
    synchronize(&scene);
    cr_assert_eq(unmap(&scene, 0, 2 * PAGE), MS_OK);
    cr_assert_eq(rig_stats(scene.rig).unbacked_bytes, 0);
    end(&scene);
}

Test(proxy, with_nothing_free_a_page_is_lazy_and_births_back_it)
{
    struct scene scene = build(42 * MIB, 256 * MIB);
    add_wall(&scene, 40);
    add_page(&scene, 0);
    add_page(&scene, 20);
    born(&scene, 0, 2 * MIB);
    add_page(&scene, 60);
    struct ms_pool_stats stats = rig_stats(scene.rig);
    cr_assert_eq(stats.unbacked_bytes, PAGE);
    cr_assert_eq(stats.unmaps, 0);
    born(&scene, 60, 6 * MIB);
    stats = rig_stats(scene.rig);
    cr_assert_eq(stats.holes_taken, 3, "from the second page, in granules");
    cr_assert_eq(stats.unbacked_bytes, PAGE);
    cr_assert_eq(stats.host_backed_bytes, 0);
    died(&scene, 60, 6 * MIB);
    synchronize(&scene);
    cr_assert_eq(unmap(&scene, 60, PAGE), MS_OK);
    cr_assert_eq(rig_stats(scene.rig).unbacked_bytes, 6 * MIB);
    end(&scene);
}

Test(proxy, a_page_is_refused_when_it_could_not_all_be_used)
{
    struct scene scene = build_whole(40 * MIB, 256 * MIB);
    ms_proxy_t *proxy = NULL;
    add_page(&scene, 20);
    born(&scene, 0, 12 * MIB);
    born(&scene, 20, 10 * MIB);
    cr_assert_eq(rig_stats(scene.rig).hole_bytes, 18 * MIB);
    cr_assert_eq(ms_pool_takeable_bytes(scene.rig->pool), 10 * MIB);
    cr_assert_eq(try_create(&scene, PAGE, &proxy), MS_ERR_NO_MEMORY);
    cr_assert_eq(try_create(&scene, 10 * MIB, &proxy), MS_OK,
                 "the first page's rest cannot be had, its chunk being whole");
    ms_proxy_release(scene.rig->pool, proxy);
    end(&scene);
    scene = build(40 * MIB, 0);
    add_page(&scene, 0);
    add_page(&scene, 20);
    born(&scene, 0, 2 * MIB);
    cr_assert_eq(try_create(&scene, PAGE, &proxy), MS_ERR_NO_MEMORY, "no cover without host");
    end(&scene);
}

/* A request makes its pages one after the other and uses them all in the end. */
Test(proxy, pages_of_a_request_under_way_are_no_holes)
{
    struct scene scene = build(40 * MIB, 256 * MIB);
    ms_proxy_t *proxy = NULL;
    add_page(&scene, 0);
    add_page(&scene, 20);
    cr_assert_eq(rig_stats(scene.rig).hole_bytes, 0);
    cr_assert_eq(try_create(&scene, PAGE, &proxy), MS_ERR_NO_MEMORY);
    check(&scene);
    born(&scene, 0, 2 * PAGE);
    cr_assert_eq(rig_stats(scene.rig).host_backed_bytes, 0);
    end(&scene);
}

Test(proxy, what_is_earmarked_for_a_request_is_not_earmarked_again)
{
    struct scene scene = build(62 * MIB, 256 * MIB);
    ms_proxy_t *first = NULL;
    ms_proxy_t *second = NULL;
    add_wall(&scene, 60);
    add_page(&scene, 0);
    add_page(&scene, 20);
    add_page(&scene, 40);
    born(&scene, 0, 3 * PAGE);
    died(&scene, 0, 3 * PAGE);
    born(&scene, 0, 32 * MIB);
    synchronize(&scene);
    cr_assert_eq(try_create(&scene, PAGE, &first), MS_OK, "there are holes of 28 MiB");
    cr_assert_eq(rig_stats(scene.rig).unbacked_bytes, PAGE, "and none was taken yet");
    check(&scene);
    cr_assert_eq(try_create(&scene, PAGE, &second), MS_ERR_NO_MEMORY, "not of 40");
    cr_assert_eq(try_create(&scene, 8 * MIB, &second), MS_OK);
    check(&scene);
    cr_assert_eq(try_map(&scene, first, 80), MS_OK);
    cr_assert_eq(try_map(&scene, second, 100), MS_OK);
    check(&scene);
    cr_assert_eq(ms_proxy_access(scene.rig->pool, scene.base + 80 * MIB, 28 * MIB), MS_OK);
    born(&scene, 80, 28 * MIB);
    cr_assert_eq(rig_stats(scene.rig).host_backed_bytes, 0);
    ms_proxy_release(scene.rig->pool, first);
    ms_proxy_release(scene.rig->pool, second);
    end(&scene);
}

Test(proxy, a_request_that_was_refused_leaves_holes)
{
    struct scene scene = build(42 * MIB, 256 * MIB);
    ms_proxy_t *proxy = NULL;
    add_wall(&scene, 40);
    add_page(&scene, 0);
    add_page(&scene, 20);
    cr_assert_eq(try_create(&scene, PAGE, &proxy), MS_ERR_NO_MEMORY);
    ms_proxy_request_over(scene.rig->pool);
    check(&scene);
    cr_assert_eq(rig_stats(scene.rig).hole_bytes, 2 * PAGE);
    cr_assert_eq(try_create(&scene, PAGE, &proxy), MS_OK);
    ms_proxy_release(scene.rig->pool, proxy);
    cr_assert_eq(unmap(&scene, 0, 2 * PAGE), MS_OK);
    end(&scene);
}

/* A tensor that needs a page begins in the free ones in front of it: they are no holes to take for
 * it, and what was taken of them is wanted again. */
Test(proxy, free_pages_in_front_of_a_new_one_are_no_room_for_it)
{
    struct scene scene = build(64 * MIB, 256 * MIB);
    ms_proxy_t *page[2] = {NULL};
    add_page(&scene, 0);
    add_page(&scene, 20);
    add_page(&scene, 40);
    born(&scene, 0, 3 * PAGE);
    died(&scene, 0, 3 * PAGE);
    born(&scene, 0, PAGE);
    synchronize(&scene);
    cr_assert_eq(rig_stats(scene.rig).hole_bytes, 2 * PAGE);
    cr_assert_eq(try_create(&scene, PAGE, &page[0]), MS_OK, "it may use a little of it");
    cr_assert_eq(try_create(&scene, PAGE, &page[1]), MS_ERR_NO_MEMORY, "and then all of it");
    ms_proxy_release(scene.rig->pool, page[0]);
    ms_proxy_request_over(scene.rig->pool);
    struct ms_block_info block = rig_alloc(scene.rig, PAGE, MS_STREAM_DEVICE);
    check(&scene);
    cr_assert_eq(rig_stats(scene.rig).unbacked_bytes, 16 * MIB);
    cr_assert_eq(try_create(&scene, PAGE, &page[0]), MS_ERR_NO_MEMORY);
    cr_assert_eq(try_create(&scene, 2 * MIB, &page[0]), MS_OK, "of another size: of another place");
    ms_proxy_release(scene.rig->pool, page[0]);
    ms_proxy_request_over(scene.rig->pool);
    rig_free(scene.rig, block, MS_STREAM_DEVICE);
    synchronize(&scene);
    born(&scene, 20, 2 * PAGE);
    cr_assert_eq(rig_stats(scene.rig).host_backed_bytes, 0);
    end(&scene);
}

/* Where it will map the page is not known: it may be where nothing is free in front. */
Test(proxy, of_several_places_the_one_with_least_in_front_counts)
{
    struct scene scene = build(64 * MIB, 256 * MIB);
    ms_proxy_t *page[2] = {NULL};
    add_page(&scene, 0);
    add_page(&scene, 20);
    add_page(&scene, 60);
    born(&scene, 0, PAGE);
    born(&scene, 60, PAGE);
    died(&scene, 60, PAGE);
    synchronize(&scene);
    cr_assert_eq(try_create(&scene, PAGE, &page[0]), MS_OK, "behind the second");
    cr_assert_eq(try_create(&scene, PAGE, &page[1]), MS_ERR_NO_MEMORY, "there is no room for two");
    ms_proxy_release(scene.rig->pool, page[0]);
    end(&scene);
}

/* What was taken in front, and only the host covers, is wanted of what the device has free. */
Test(proxy, what_was_taken_in_front_is_wanted_again)
{
    struct scene scene = build(64 * MIB, 256 * MIB);
    ms_proxy_t *page[3] = {NULL};
    add_page(&scene, 0);
    add_page(&scene, 20);
    born(&scene, 0, 2 * PAGE);
    died(&scene, 0, 2 * PAGE);
    born(&scene, 0, PAGE - 16 * MIB);
    synchronize(&scene);
    struct ms_block_info taker = rig_alloc(scene.rig, 60 * MIB, MS_STREAM_DEVICE);
    cr_assert_eq(rig_stats(scene.rig).unbacked_bytes, 36 * MIB);
    rig_free(scene.rig, taker, MS_STREAM_DEVICE);
    (void)ms_pool_trim(scene.rig->pool, 0);
    cr_assert_eq(ms_budget_free_bytes(&scene.rig->budget), 60 * MIB);
    cr_assert_eq(try_create(&scene, PAGE, &page[0]), MS_OK);
    cr_assert_eq(try_create(&scene, PAGE, &page[1]), MS_OK, "36, 20 and a little");
    cr_assert_eq(try_create(&scene, PAGE, &page[2]), MS_ERR_NO_MEMORY, "20 are free, and wanted");
    ms_proxy_request_over(scene.rig->pool);
    ms_proxy_release(scene.rig->pool, page[0]);
    ms_proxy_release(scene.rig->pool, page[1]);
    end(&scene);
}

/* Free pages between live tensors are no part of what a new one serves. */
Test(proxy, free_pages_elsewhere_are_room_for_a_new_one)
{
    struct scene scene = build(62 * MIB, 256 * MIB);
    add_page(&scene, 0);
    add_page(&scene, 20);
    add_page(&scene, 40);
    born(&scene, 0, 3 * PAGE);
    died(&scene, 0, 3 * PAGE);
    born(&scene, 40, PAGE);
    synchronize(&scene);
    add_page(&scene, 60);
    born(&scene, 60, PAGE);
    cr_assert_eq(rig_stats(scene.rig).host_backed_bytes, 0);
    end(&scene);
}

/* A hole that is the framework's cannot be refused to it. What then lies on the host is wanted on
 * the device before a new page is. */
Test(proxy, what_was_born_on_the_host_counts_against_a_new_page)
{
    struct scene scene = build(62 * MIB, 256 * MIB);
    ms_proxy_t *proxy = NULL;
    add_wall(&scene, 60);
    add_page(&scene, 0);
    add_page(&scene, 20);
    add_page(&scene, 40);
    born(&scene, 0, 10 * MIB);
    add_page(&scene, 80);
    born(&scene, 10, 50 * MIB);
    born(&scene, 80, 4 * MIB);
    cr_assert_eq(rig_stats(scene.rig).host_backed_bytes, 4 * MIB);
    died(&scene, 0, 10 * MIB);
    synchronize(&scene);
    cr_assert_eq(try_create(&scene, 8 * MIB, &proxy), MS_ERR_NO_MEMORY);
    cr_assert_eq(try_create(&scene, 6 * MIB, &proxy), MS_OK);
    ms_proxy_release(scene.rig->pool, proxy);
    end(&scene);
}

static void *bear_at_20(void *ctx)
{
    born(ctx, 20, MIB);
    return NULL;
}

static void *end_request(void *ctx)
{
    ms_proxy_request_over(((struct scene *)ctx)->rig->pool);
    return NULL;
}

static void in_another_thread(struct scene *scene, void *(*call)(void *ctx))
{
    pthread_t thread;
    cr_assert_eq(pthread_create(&thread, NULL, call, scene), 0);
    cr_assert_eq(pthread_join(thread, NULL), 0);
}

Test(proxy, only_who_made_a_page_ends_its_request)
{
    struct scene scene = build(60 * MIB, 256 * MIB);
    add_page(&scene, 0);
    add_page(&scene, 20);
    add_page(&scene, 40);
    in_another_thread(&scene, end_request);
    cr_assert_eq(rig_stats(scene.rig).hole_bytes, 0);
    in_another_thread(&scene, bear_at_20);
    cr_assert_eq(rig_stats(scene.rig).hole_bytes, 18 * MIB, "of the page that it touches");
    born(&scene, 40, PAGE);
    cr_assert_eq(rig_stats(scene.rig).hole_bytes, 38 * MIB);
    end(&scene);
}

Test(proxy, work_of_the_dead_is_waited_for_where_that_is_allowed)
{
    struct scene scene = build(42 * MIB, 256 * MIB);
    ms_proxy_t *proxy = NULL;
    add_wall(&scene, 40);
    add_page(&scene, 0);
    add_page(&scene, 20);
    born(&scene, 20, PAGE);
    cr_assert_eq(
        ms_dry_work(scene.rig->dry, S1, 21, scene.base + 20 * MIB, PAGE, MS_DRY_UNTIL_TOLD), MS_OK);
    born(&scene, 0, 512);
    died(&scene, 20, PAGE);
    cr_assert_eq(ms_proxy_create(scene.rig->pool, PAGE, NULL, false, &proxy), MS_ERR_NO_MEMORY);
    cr_assert_eq(ms_dry_calls(scene.rig->dry, MS_DRY_FENCE_WAIT), 0);
    cr_assert_eq(ms_proxy_create(scene.rig->pool, PAGE, NULL, true, &proxy), MS_OK);
    ms_proxy_release(scene.rig->pool, proxy);
    end(&scene);
}

Test(proxy, a_pinned_page_is_left_alone)
{
    struct scene scene = build(44 * MIB, 256 * MIB);
    add_page(&scene, 0);
    add_page(&scene, 20);
    struct ms_proxy_info info;
    cr_assert_eq(ms_proxy_at(scene.rig->pool, scene.base + 20 * MIB, &info), MS_OK);
    cr_assert_eq(ms_proxy_pin(scene.rig->pool, info.proxy, &info), MS_OK);
    cr_assert(info.pinned);
    ms_proxy_request_over(scene.rig->pool);
    cr_assert_eq(rig_stats(scene.rig).hole_bytes, 2 * PAGE);
    cr_assert_eq(ms_pool_takeable_bytes(scene.rig->pool), PAGE);
    (void)rig_alloc(scene.rig, 24 * MIB, MS_STREAM_DEVICE);
    check(&scene);
    cr_assert(ms_dry_accessible(scene.rig->dry, scene.base + 20 * MIB, PAGE));
    struct ms_block_info none;
    cr_assert_eq(rig_try(scene.rig, 6 * MIB, MS_STREAM_DEVICE, &none), MS_ERR_NO_MEMORY);
    end(&scene);
}

/* The second page is of ten chunks; its contents are known. */
static struct scene build_parts(ms_proxy_t **page)
{
    struct scene scene = build(AMPLE, 0);
    struct ms_proxy_info info;
    add_page(&scene, 0);
    add_page(&scene, 20);
    cr_assert_eq(ms_proxy_at(scene.rig->pool, scene.base + PAGE, &info), MS_OK);
    cr_assert_eq(info.chunk, 0);
    ms_dry_write(scene.rig->dry, scene.base + PAGE, PAGE, 77);
    *page = info.proxy;
    return scene;
}

Test(proxy, a_page_in_parts_that_is_shown_becomes_whole)
{
    struct ms_proxy_info info;
    ms_proxy_t *page = NULL;
    struct scene scene = build_parts(&page);
    cr_assert_eq(ms_proxy_show(scene.rig->pool, page, &info), MS_OK);
    cr_assert_neq(info.chunk, 0);
    cr_assert(info.pinned);
    cr_assert_eq(info.addr, scene.base + PAGE);
    cr_assert(ms_dry_holds(scene.rig->dry, scene.base + PAGE, PAGE, 77));
    check(&scene);
    cr_assert_eq(atomic_load(&scene.rig->budget.charged_bytes), 2 * PAGE, "the parts are gone");
    const ms_handle_t chunk = info.chunk;
    cr_assert_eq(ms_proxy_show(scene.rig->pool, page, &info), MS_OK);
    cr_assert_eq(info.chunk, chunk);
    end(&scene);
}

/* What was freed last has no fence yet: it counts as room, once its work is done. */
Test(proxy, a_page_becomes_whole_by_the_room_of_holes)
{
    struct ms_proxy_info info;
    struct scene scene = build(3 * PAGE, 0);
    for (uint64_t mib = 0; mib < 60; mib += 20) {
        add_page(&scene, mib);
        born(&scene, mib, PAGE);
    }
    ms_dry_write(scene.rig->dry, scene.base + PAGE, PAGE, 77);
    died(&scene, 0, PAGE);
    died(&scene, 40, PAGE);
    synchronize(&scene);
    cr_assert_eq(ms_proxy_at(scene.rig->pool, scene.base + PAGE, &info), MS_OK);
    cr_assert_eq(ms_proxy_show(scene.rig->pool, info.proxy, &info), MS_OK);
    cr_assert_neq(info.chunk, 0);
    cr_assert(ms_dry_holds(scene.rig->dry, scene.base + PAGE, PAGE, 77));
    end(&scene);
}

Test(proxy, without_room_for_both_a_page_stays_in_parts)
{
    struct ms_proxy_info info;
    ms_proxy_t *page = NULL;
    struct scene scene = build_parts(&page);
    (void)rig_alloc(scene.rig, AMPLE - 3 * PAGE + GRANULE, MS_STREAM_DEVICE);
    cr_assert_eq(ms_proxy_show(scene.rig->pool, page, &info), MS_ERR_NO_MEMORY);
    cr_assert_eq(info.chunk, 0);
    cr_assert(!info.pinned);
    cr_assert(ms_dry_holds(scene.rig->dry, scene.base + PAGE, PAGE, 77));
    end(&scene);
}

struct visited {
    uint64_t chunks, bytes;
    ms_handle_t last;
};

static bool visit(void *ctx, ms_handle_t chunk, uint64_t bytes)
{
    struct visited *visited = ctx;
    visited->chunks++;
    visited->bytes += bytes;
    visited->last = chunk;
    return true;
}

/* Who was given its parts still has them: nobody may put one chunk in their place. */
Test(proxy, a_page_whose_parts_others_know_stays_in_parts)
{
    struct ms_proxy_info info;
    struct visited visited = {0};
    const struct ms_chunk_visitor visitor = {.visit = visit, .ctx = &visited};
    ms_proxy_t *page = NULL;
    struct scene scene = build_parts(&page);
    cr_assert_eq(ms_proxy_pin_chunks(scene.rig->pool, page, &visitor), MS_OK);
    cr_assert_eq(visited.chunks, PAGE / GRANULE);
    cr_assert_eq(visited.bytes, PAGE);
    cr_assert_eq(ms_proxy_show(scene.rig->pool, page, &info), MS_ERR_NOT_SUPPORTED);
    cr_assert(info.pinned);
    cr_assert(ms_dry_holds(scene.rig->dry, scene.base + PAGE, PAGE, 77));
    end(&scene);
}

/* A page that is one chunk is shown as that by either road. */
Test(proxy, the_chunk_of_a_whole_page_is_visited)
{
    struct ms_proxy_info info;
    struct visited visited = {0};
    const struct ms_chunk_visitor visitor = {.visit = visit, .ctx = &visited};
    struct scene scene = build(AMPLE, 0);
    add_page(&scene, 0);
    cr_assert_eq(ms_proxy_at(scene.rig->pool, scene.base, &info), MS_OK);
    cr_assert_eq(ms_proxy_pin_chunks(scene.rig->pool, info.proxy, &visitor), MS_OK);
    cr_assert_eq(visited.chunks, 1);
    cr_assert_eq(ms_proxy_show(scene.rig->pool, info.proxy, &info), MS_OK);
    cr_assert_eq(info.chunk, visited.last);
    end(&scene);
}

/* Two pages, under a cap that has room for a larger block only in what is taken of them. */
static struct scene build_tight(void)
{
    struct scene scene = build(44 * MIB, 256 * MIB);
    add_page(&scene, 0);
    add_page(&scene, 20);
    ms_proxy_request_over(scene.rig->pool);
    return scene;
}

Test(proxy, what_was_taken_of_a_page_is_backed_before_its_chunks_are_visited)
{
    struct visited visited = {0};
    const struct ms_chunk_visitor visitor = {.visit = visit, .ctx = &visited};
    struct ms_proxy_info info;
    struct scene scene = build_tight();
    struct ms_block_info block = rig_alloc(scene.rig, 30 * MIB, MS_STREAM_DEVICE);
    rig_free(scene.rig, block, MS_STREAM_DEVICE);
    synchronize(&scene);
    for (ms_addr_t at = scene.base; at < scene.base + 2 * PAGE; at += PAGE) {
        cr_assert_eq(ms_proxy_at(scene.rig->pool, at, &info), MS_OK);
        cr_assert_eq(ms_proxy_pin_chunks(scene.rig->pool, info.proxy, &visitor), MS_OK);
        cr_assert(ms_dry_accessible(scene.rig->dry, at, PAGE));
    }
    cr_assert_eq(visited.bytes, 2 * PAGE);
    end(&scene);
}

/* Without spilling, what stands on the host for a hole has no way back. */
Test(proxy, a_page_that_cannot_be_backed_on_the_device_is_not_pinned)
{
    struct visited visited = {0};
    const struct ms_chunk_visitor visitor = {.visit = visit, .ctx = &visited};
    struct ms_proxy_info info;
    struct scene scene = build_tight();
    (void)rig_alloc(scene.rig, 30 * MIB, MS_STREAM_DEVICE);
    cr_assert_eq(ms_proxy_at(scene.rig->pool, scene.base + PAGE, &info), MS_OK);
    cr_assert_eq(ms_proxy_pin_chunks(scene.rig->pool, info.proxy, &visitor), MS_ERR_NOT_SUPPORTED);
    ms_proxy_info(scene.rig->pool, info.proxy, &info);
    cr_assert(!info.pinned);
    cr_assert_eq(visited.chunks, 0);
    end(&scene);
}

/* Whichever call fails, once or some times on end: the contents stay, and all that is charged is
 * there for a reason. */
Test(proxy, a_device_that_fails_leaves_a_page_whole_or_in_parts)
{
    for (uint64_t count = 1; count <= 8; count += 7) {
        for (uint64_t nth = 1; nth <= 70; nth++) {
            struct ms_proxy_info info;
            ms_proxy_t *page = NULL;
            struct scene scene = build_parts(&page);
            ms_dry_fail_run(scene.rig->dry, nth, count, DEVICE_ERROR);
            ms_status_t status = ms_proxy_show(scene.rig->pool, page, &info);
            ms_dry_fail_run(scene.rig->dry, 0, 0, MS_OK);
            cr_assert_eq(status == MS_OK, info.chunk != 0);
            cr_assert_eq(status == MS_OK, info.pinned);
            cr_assert(ms_dry_holds(scene.rig->dry, scene.base + PAGE, PAGE, 77), "%d %d",
                      (int)count, (int)nth);
            end(&scene);
        }
    }
}

Test(proxy, wrong_calls_are_refused)
{
    struct scene scene = build(AMPLE, 0);
    const struct ms_chunk_visitor nobody = {0};
    ms_proxy_t *proxy = NULL;
    ms_pool_t *pool = scene.rig->pool;
    cr_assert_eq(try_create(&scene, GRANULE + 1, &proxy), MS_ERR_INVALID);
    cr_assert_eq(try_create(&scene, 0, &proxy), MS_ERR_INVALID);
    cr_assert_eq(try_create(&scene, 2 * AMPLE, &proxy), MS_ERR_NO_MEMORY);
    cr_assert_eq(try_create(&scene, PAGE, &proxy), MS_OK);
    cr_assert_eq(ms_proxy_pin_chunks(pool, proxy, &nobody), MS_ERR_NOT_OURS, "mapped nowhere");
    cr_assert_eq(try_map(&scene, proxy, 1), MS_ERR_INVALID);
    cr_assert_eq(try_map(&scene, proxy, 390), MS_ERR_INVALID, "beyond the reservation");
    cr_assert_eq(try_map(&scene, proxy, 0), MS_OK);
    cr_assert_eq(try_map(&scene, proxy, 100), MS_ERR_INVALID, "mapped already");
    cr_assert_eq(ms_proxy_access(pool, scene.base, 2 * PAGE), MS_ERR_INVALID);
    cr_assert_eq(unmap(&scene, 2, 18 * MIB), MS_ERR_NOT_OURS);
    cr_assert_eq(unmap(&scene, 0, 18 * MIB), MS_ERR_INVALID);
    cr_assert_eq(unmap(&scene, 0, 22 * MIB), MS_ERR_INVALID);
    cr_assert_eq(ms_pool_free(pool, scene.base, S1), MS_ERR_NOT_OURS);
    struct ms_block_info block;
    cr_assert_eq(ms_pool_find(pool, scene.base, &block), MS_ERR_NOT_OURS);
    ms_proxy_reservation_gone(pool, scene.base); /* not while something is mapped */
    cr_assert_eq(unmap(&scene, 0, PAGE), MS_OK);
    cr_assert_eq(try_map(&scene, proxy, 100), MS_OK, "somewhere else, with its chunk");
    cr_assert_eq(ms_dry_calls(scene.rig->dry, MS_DRY_CHUNK_CREATE), 1);
    cr_assert_eq(unmap(&scene, 100, PAGE), MS_OK);
    ms_proxy_release(pool, proxy);
    end(&scene);
}

Test(proxy, a_wrong_total_backs_lazy_pages_too)
{
    struct scene scene = build(42 * MIB, 256 * MIB);
    ms_proxy_t *proxy = NULL;
    add_wall(&scene, 40);
    add_page(&scene, 0);
    add_page(&scene, 20);
    born(&scene, 0, 2 * MIB);
    add_page(&scene, 60);
    cr_assert_eq(try_create(&scene, 10 * MIB, &proxy), MS_OK); /* lazy as well, mapped later */
    cr_assert_eq(ms_arenas_freed(scene.arenas, scene.base, 2 * MIB, 5), MS_ERR_NOT_READY);
    check(&scene);
    cr_assert(ms_dry_accessible(scene.rig->dry, scene.base + 60 * MIB, PAGE));
    cr_assert_eq(try_map(&scene, proxy, 80), MS_OK);
    cr_assert(ms_dry_accessible(scene.rig->dry, scene.base + 60 * MIB, PAGE + 10 * MIB));
    ms_proxy_release(scene.rig->pool, proxy);
    end(&scene);
}
