/* SPDX-License-Identifier: Apache-2.0 */
/* What several means make free together serves a request that none of them serves alone: for each
 * two and three of them, and for a block, a page of a framework's, a tensor in a hole whose chunks
 * were taken, and a charge of somebody else's. */
#include "allocator/arenas/arena.h"
#include "allocator/arenas/proxy.h"
#include "rig.h"

#define PART_BYTES (16 * MIB) /* that one source makes free */
#define EDGE_BYTES GRANULE    /* of an arena or a page: its first granule holds a tensor */
#define CAP_BYTES  (128 * MIB)
#define WORK_NS    100000 /* shorter than anything waits */

enum { PARTS_MOST = 3 };

/* Where memory can come from; each has PART_BYTES of it. */
enum source {
    BUDGET,       /* the cap has it free */
    IDLE,         /* freed */
    QUEUED,       /* freed, and its work is not done */
    HOLES,        /* of an arena */
    HOLES_QUEUED, /* and the work of the tensor that lay there is not done */
    PAGES,        /* a framework's, idle */
    EARMARKED,    /* the cap has it free, and keeps it for a page that has no chunks */
    LIVE,         /* and may move */
    SOURCES
};

static const char *const source_name[SOURCES] = {"budget",       "idle",  "queued",    "holes",
                                                 "holes queued", "pages", "earmarked", "live"};

enum want { BLOCK, PAGE, TENSOR, CHARGE };

static const char *const want_name[] = {"block", "page", "tensor", "charge"};

/* A page of a framework's, in a reservation of its own. */
struct page {
    ms_addr_t addr;
    uint64_t bytes;
};

struct world {
    struct rig *rig;
    ms_arenas_t *arenas;
    struct page page[PARTS_MOST + 1];
    int pages;
    ms_addr_t tensor[PARTS_MOST + 1]; /* at the edges */
    int tensors;
    struct ms_block_info block[PARTS_MOST]; /* of each source */
    ms_addr_t hole;                         /* where a tensor is to lie */
};

static struct world begin(void)
{
    struct world world = {.rig = rig_make_as((struct rig_wishes){.granule_bytes = GRANULE,
                                                                 .total_bytes = 4 * CAP_BYTES,
                                                                 .cap_bytes = CAP_BYTES,
                                                                 .host_limit_bytes = 4 * CAP_BYTES,
                                                                 .spill_limit_bytes = CAP_BYTES})};
    struct ms_event_sink none = {0};
    cr_assert_eq(ms_arenas_create(3, world.rig->pool, none, &world.arenas), MS_OK);
    return world;
}

static void allocated(struct world *world, ms_addr_t addr, uint64_t bytes)
{
    cr_assert_eq(ms_arenas_allocated(world->arenas, addr, bytes, 5, UINT64_MAX), MS_OK);
}

static void freed(struct world *world, ms_addr_t addr, uint64_t bytes)
{
    cr_assert_eq(ms_arenas_freed(world->arenas, addr, bytes, UINT64_MAX), MS_OK);
}

static ms_status_t make_page(struct world *world, uint64_t bytes)
{
    const struct ms_device_ops *ops = ms_dry_ops(world->rig->dry);
    ms_proxy_t *proxy = NULL;
    ms_status_t status = ms_proxy_create(world->rig->pool, bytes, NULL, true, &proxy);
    if (status != MS_OK) {
        return status;
    }
    struct page *page = &world->page[world->pages++];
    page->bytes = bytes;
    cr_assert_eq(ops->address_reserve(ops->ctx, bytes, 0, &page->addr), MS_OK);
    cr_assert_eq(ms_proxy_map(world->rig->pool, proxy, page->addr, page->addr, bytes), MS_OK);
    cr_assert_eq(ms_proxy_access(world->rig->pool, page->addr, bytes), MS_OK);
    ms_proxy_release(world->rig->pool, proxy);
    return MS_OK;
}

/* A tensor stays at its beginning. */
static void keep_edge(struct world *world, ms_addr_t addr)
{
    world->tensor[world->tensors++] = addr;
    allocated(world, addr, EDGE_BYTES);
}

/* What lies behind the edge lives, and dies in leave(). */
static void make_arena(struct world *world, ms_addr_t addr)
{
    keep_edge(world, addr);
    allocated(world, addr + EDGE_BYTES, PART_BYTES);
}

/* All that it holds is in use: by the filler, without it. */
static void make(struct world *world, int at, enum source source)
{
    struct ms_block_info *block = &world->block[at];
    ms_stream_t stream =
        source == QUEUED || source == HOLES_QUEUED ? (ms_stream_t)(101 + at) : MS_STREAM_DEVICE;
    if (stream != MS_STREAM_DEVICE) {
        cr_assert_eq(ms_dry_stream_create(world->rig->dry, stream), MS_OK);
    }
    switch (source) {
    case BUDGET:
    case IDLE:
    case QUEUED:
    case LIVE:
        *block = rig_alloc(world->rig, PART_BYTES, stream);
        break;
    case HOLES:
    case HOLES_QUEUED:
        *block = rig_alloc(world->rig, EDGE_BYTES + PART_BYTES, MS_STREAM_DEVICE);
        make_arena(world, block->addr);
        break;
    case PAGES:
        cr_assert_eq(make_page(world, EDGE_BYTES + PART_BYTES), MS_OK);
        block->addr = world->page[world->pages - 1].addr;
        make_arena(world, block->addr);
        break;
    case EARMARKED:
        *block = rig_alloc(world->rig, EDGE_BYTES + PART_BYTES, MS_STREAM_DEVICE);
        break;
    default:
        break;
    }
}

/* Becomes free. */
static void leave(struct world *world, int at, enum source source)
{
    struct ms_block_info *block = &world->block[at];
    ms_addr_t behind = block->addr + EDGE_BYTES;
    ms_stream_t stream = (ms_stream_t)101 + (ms_stream_t)at;
    switch (source) {
    case BUDGET:
        rig_free(world->rig, *block, MS_STREAM_DEVICE);
        (void)ms_pool_trim(world->rig->pool, 0);
        break;
    case IDLE:
        rig_free(world->rig, *block, MS_STREAM_DEVICE);
        break;
    case QUEUED:
        cr_assert_eq(ms_dry_work(world->rig->dry, stream, 1, block->addr, PART_BYTES, WORK_NS),
                     MS_OK);
        rig_free(world->rig, *block, stream);
        break;
    case HOLES_QUEUED:
        cr_assert_eq(ms_dry_work(world->rig->dry, stream, 1, behind, PART_BYTES, WORK_NS), MS_OK);
        freed(world, behind, PART_BYTES);
        break;
    case HOLES:
    case PAGES:
        freed(world, behind, PART_BYTES);
        break;
    case EARMARKED:
        rig_free(world->rig, *block, MS_STREAM_DEVICE);
        cr_assert_eq(make_page(world, EDGE_BYTES + PART_BYTES), MS_OK);
        keep_edge(world, world->page[world->pages - 1].addr);
        break;
    case LIVE:
        ms_dry_write(world->rig->dry, block->addr, PART_BYTES, block->id);
        break;
    default:
        break;
    }
}

/* Whether a tensor there lies on the device. */
static bool lies_well(struct world *world, ms_addr_t addr, uint64_t bytes)
{
    allocated(world, addr, bytes);
    bool well = ms_pool_on_host_bytes(world->rig->pool, addr, bytes) == 0;
    freed(world, addr, bytes);
    return well;
}

static bool has(struct world *world, enum want want, uint64_t bytes)
{
    struct ms_block_info block;
    switch (want) {
    case BLOCK:
        return rig_try(world->rig, bytes, MS_STREAM_DEVICE, &block) == MS_OK;
    case PAGE:
        return make_page(world, bytes) == MS_OK &&
               lies_well(world, world->page[world->pages - 1].addr, bytes);
    case TENSOR:
        return lies_well(world, world->hole, bytes);
    default:
        return ms_pool_make_room(world->rig->pool, bytes, true) &&
               ms_budget_free_bytes(&world->rig->budget) >= bytes;
    }
}

static void end(struct world *world)
{
    const struct ms_device_ops *ops = ms_dry_ops(world->rig->dry);
    for (int k = 0; k < world->tensors; k++) {
        freed(world, world->tensor[k], EDGE_BYTES);
    }
    for (int k = 0; k < world->pages; k++) {
        struct page *page = &world->page[k];
        cr_assert_eq(ms_proxy_unmap(world->rig->pool, page->addr, page->bytes), MS_OK);
        ms_proxy_reservation_gone(world->rig->pool, page->addr);
        cr_assert_eq(ops->address_free(ops->ctx, page->addr, page->bytes), MS_OK);
    }
    char why[200] = "";
    cr_assert(ms_arenas_is_valid(world->arenas, why, sizeof(why)), "%s", why);
    ms_arenas_destroy(world->arenas);
    rig_end(world->rig);
}

/* All of the cap that is not in use is, by what never moves; so are the chunks of the hole. */
static void fill(struct world *world, uint64_t hole_bytes)
{
    uint64_t bytes = ms_budget_free_bytes(&world->rig->budget) + hole_bytes;
    struct ms_block_info filler = rig_alloc(world->rig, bytes, MS_STREAM_DEVICE);
    cr_assert_eq(ms_pool_pin(world->rig->pool, filler.addr), MS_OK);
}

/* Whether so much is had where these sources have what they have, and nothing else is free. */
static bool served(enum want want, const enum source *source, int sources, uint64_t bytes)
{
    struct world world = begin();
    if (want == TENSOR) {
        struct ms_block_info arena = rig_alloc(world.rig, EDGE_BYTES + bytes, MS_STREAM_DEVICE);
        keep_edge(&world, arena.addr);
        world.hole = arena.addr + EDGE_BYTES;
    }
    for (int at = 0; at < sources; at++) {
        make(&world, at, source[at]);
    }
    fill(&world, want == TENSOR ? bytes : 0);
    for (int at = 0; at < sources; at++) {
        leave(&world, at, source[at]);
    }
    bool had = has(&world, want, bytes);
    cr_assert_leq(atomic_load(&world.rig->budget.charged_bytes), CAP_BYTES);
    for (int at = 0; at < sources; at++) {
        if (source[at] == LIVE) {
            rig_check_contents(world.rig, &world.block[at]);
        }
    }
    end(&world);
    return had;
}

/* What they have is served, and no more. */
static int wrong_answers(enum want want, const enum source *source, int sources)
{
    int wrong = 0;
    for (int more = 0; more < 2; more++) {
        bool had = served(want, source, sources, (uint64_t)(sources + more) * PART_BYTES);
        if (had == (more > 0)) {
            wrong++;
            cr_log_error("a %s of %d parts is %s: %s, %s, %s", want_name[want], sources + more,
                         had ? "served" : "refused", source_name[source[0]],
                         sources > 1 ? source_name[source[1]] : "",
                         sources > 2 ? source_name[source[2]] : "");
        }
    }
    return wrong;
}

/* One, two and three of all sources. */
static void check_sums(enum want want)
{
    int wrong = 0;
    enum source source[PARTS_MOST];
    for (source[0] = 0; source[0] < SOURCES; source[0]++) {
        wrong += wrong_answers(want, source, 1);
        for (source[1] = source[0]; source[1] < SOURCES; source[1]++) {
            wrong += wrong_answers(want, source, 2);
            for (source[2] = source[1]; source[2] < SOURCES; source[2]++) {
                wrong += wrong_answers(want, source, 3);
            }
        }
    }
    cr_assert_eq(wrong, 0, "%d wrong answers", wrong);
}

Test(sums, a_block, .timeout = 600)
{
    check_sums(BLOCK);
}

Test(sums, a_page, .timeout = 600)
{
    check_sums(PAGE);
}

Test(sums, a_tensor, .timeout = 600)
{
    check_sums(TENSOR);
}

Test(sums, a_charge, .timeout = 600)
{
    check_sums(CHARGE);
}
