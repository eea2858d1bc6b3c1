/* SPDX-License-Identifier: Apache-2.0 */
/* A framework's caching allocator, as an actor of the random test. See framework.h. */
#include "framework.h"

#include <string.h>

#define SMALL_TENSOR_BYTES (1 * MIB)
#define SMALL_PAGE_BYTES   (2 * MIB)
#define LARGE_PAGE_BYTES   (20 * MIB)
#define OWN_SEGMENT_BYTES  (10 * MIB) /* from here on a tensor gets a segment of its own size */
#define LEAST_LARGE_REST   (1 * MIB)  /* smaller rests of a large piece stay with its tensor */

void framework_begin(struct framework *framework, struct stage *stage, uint64_t seed,
                     bool expandable)
{
    memset(framework, 0, sizeof(*framework));
    framework->stage = stage;
    framework->dice.state = seed;
    framework->expandable = expandable;
    framework->places = 1u | 1u << (1 + draw(&framework->dice, STREAMS - 1));
    framework->most_tensors = 16 + draw(&framework->dice, 200);
    framework->largest_bytes = (4 + draw(&framework->dice, 48)) * MIB;
    framework->next_owner = seed << 32 | (uint64_t)1 << 63;
}

static uint64_t roll(struct framework *framework, uint64_t below)
{
    return draw(&framework->dice, below);
}

/* ---- pieces */

static struct piece *new_piece(struct framework *framework, struct segment *segment, ms_addr_t addr,
                               uint64_t bytes, enum piece_state state)
{
    for (size_t k = 0; k < FRAMEWORK_PIECES; k++) {
        if (framework->piece[k].segment == NULL) {
            framework->piece[k] =
                (struct piece){.addr = addr, .bytes = bytes, .state = state, .segment = segment};
            return &framework->piece[k];
        }
    }
    return NULL;
}

/* The piece keeps its first `bytes`; the rest is a new one like it. Null: no room for one. */
static struct piece *split(struct framework *framework, struct piece *piece, uint64_t bytes)
{
    struct piece *rest = new_piece(framework, piece->segment, piece->addr + bytes,
                                   piece->bytes - bytes, piece->state);
    if (rest != NULL) {
        rest->used = piece->used;
        rest->prev = piece;
        rest->next = piece->next;
        if (rest->next != NULL) {
            rest->next->prev = rest;
        }
        piece->next = rest;
        piece->bytes = bytes;
    }
    return rest;
}

/* Joins the piece with neighbours in its state; returns the one that holds it. */
static struct piece *merge(struct piece *piece)
{
    if (piece->prev != NULL && piece->prev->state == piece->state) {
        piece = piece->prev;
    }
    while (piece->next != NULL && piece->next->state == piece->state) {
        struct piece *next = piece->next;
        piece->bytes += next->bytes;
        piece->used |= next->used;
        piece->next = next->next;
        if (piece->next != NULL) {
            piece->next->prev = piece;
        }
        next->segment = NULL;
    }
    return piece;
}

static struct segment *vacant_segment(struct framework *framework)
{
    for (size_t k = 0; k < FRAMEWORK_SEGMENTS; k++) {
        if (framework->segment[k].bytes == 0) {
            memset(&framework->segment[k], 0, sizeof(framework->segment[k]));
            return &framework->segment[k];
        }
    }
    return NULL;
}

/* ---- segments that are blocks of the pool */

struct wish {
    unsigned place;
    bool small, captured;
    uint64_t bytes;
};

static void out_of_memory(struct framework *framework, uint64_t bytes, ms_status_t status)
{
    struct stage *stage = framework->stage;
    atomic_fetch_add(&stage->refused, 1);
    if (status != MS_ERR_NO_MEMORY && !stage_excuses(stage, status)) {
        model_wrong(&stage->model, "memory of %lu bytes is refused with %d", (unsigned long)bytes,
                    status);
    }
}

static bool add_block_segment(struct framework *framework, const struct wish *wish)
{
    struct stage *stage = framework->stage;
    struct segment *segment = vacant_segment(framework);
    uint64_t bytes = wish->small ? SMALL_PAGE_BYTES
                     : wish->bytes < OWN_SEGMENT_BYTES
                         ? LARGE_PAGE_BYTES
                         : (wish->bytes + GRANULE - 1) / GRANULE * GRANULE;
    struct ms_request request = {.bytes = bytes, .may_wait = !stage->capturing};
    struct ms_block_info info;
    if (segment == NULL) {
        return false;
    }
    ms_status_t status = ms_pool_alloc(stage->pool, &request, &info);
    if (status != MS_OK) {
        if (request.may_wait && stage_promises(stage, bytes)) {
            model_wrong(&stage->model, "a segment of %lu bytes is refused", (unsigned long)bytes);
        }
        out_of_memory(framework, bytes, status);
        return false;
    }
    stage_add_block(stage, &request, &info);
    *segment = (struct segment){.base = info.addr,
                                .bytes = bytes,
                                .place = wish->place,
                                .small = wish->small,
                                .captured = wish->captured};
    segment->first = new_piece(framework, segment, info.addr, bytes, PIECE_FREE);
    if (segment->first == NULL) {
        segment->bytes = 0;
        model_touch(&stage->model, MODEL_LIVE, info.addr, info.bytes, -1);
        model_remove_block(&stage->model, info.addr);
        (void)ms_pool_free(stage->pool, info.addr, MS_STREAM_DEVICE);
    }
    return segment->first != NULL;
}

static void give_block_back(struct framework *framework, struct segment *segment)
{
    struct stage *stage = framework->stage;
    struct model *model = &stage->model;
    ms_addr_t base = segment->base;
    model_touch(model, segment->arena ? MODEL_ARENA : MODEL_LIVE, base, segment->bytes, -1);
    if (segment->frozen) {
        model_touch(model, MODEL_KEPT, base, segment->bytes, -1);
    }
    model_remove_block(model, base);
    segment->first->segment = NULL;
    uint64_t bytes = segment->bytes;
    segment->bytes = 0;
    ms_status_t status = ms_pool_free(stage->pool, base, MS_STREAM_DEVICE);
    if (status != MS_OK) {
        model_wrong(model, "the free of a segment is answered with %d", status);
    }
    if (!stage->config.crowded) {
        ms_arenas_block_gone(stage->arenas, base, bytes);
    }
}

/* ---- segments of pages */

/* What lies on a page from when it is mapped until it is unmapped. */
static void touch_pages(struct framework *framework, const struct segment *segment, uint64_t from,
                        uint64_t to, int by)
{
    struct stage *stage = framework->stage;
    for (uint64_t page = from; page < to; page++) {
        ms_addr_t addr = segment->base + page * segment->page_bytes;
        model_touch(&stage->model, MODEL_ARENA, addr, segment->page_bytes, by);
        if (segment->frozen || segment->pinned[page]) {
            model_touch(&stage->model, MODEL_KEPT, addr, segment->page_bytes, by);
        }
        if (segment->pinned[page]) {
            model_touch(&stage->model, MODEL_PINNED, addr, segment->page_bytes, by);
        }
    }
    atomic_fetch_add(&stage->page_bytes, (uint64_t)by * (to - from) * segment->page_bytes);
}

static void release_page(struct framework *framework, struct segment *segment, uint64_t page)
{
    atomic_fetch_add(&framework->stage->loose_bytes, -segment->page_bytes);
    ms_proxy_release(framework->stage->pool, segment->page[page]);
    segment->page[page] = NULL;
    segment->pinned[page] = false;
}

/* Unmaps pages that hold nothing, all of whose work is seen done. False: they stay. */
static bool unmap_pages(struct framework *framework, struct segment *segment, uint64_t from,
                        uint64_t to)
{
    struct stage *stage = framework->stage;
    ms_addr_t addr = segment->base + from * segment->page_bytes;
    uint64_t bytes = (to - from) * segment->page_bytes;
    touch_pages(framework, segment, from, to, -1);
    ms_status_t status = ms_proxy_unmap(stage->pool, addr, bytes);
    if (status != MS_OK) {
        if (!stage_excuses(stage, status)) {
            model_wrong(&stage->model, "unmapping pages is answered with %d", status);
        }
        touch_pages(framework, segment, from, to, 1);
        return false;
    }
    atomic_fetch_add(&stage->loose_bytes, bytes);
    for (uint64_t page = from; page < to; page++) {
        release_page(framework, segment, page);
    }
    return true;
}

/* Creates, maps and gives access to pages; *created and *mapped say how far that went. The tensor
 * that they are for will use them all. */
static ms_status_t make_pages(struct framework *framework, struct segment *segment, uint64_t from,
                              uint64_t to, uint64_t *created, uint64_t *mapped)
{
    struct stage *stage = framework->stage;
    uint64_t page_bytes = segment->page_bytes;
    struct stage_room room = stage_room(stage);
    ms_status_t status = MS_OK;
    for (; *created < to; ++*created) {
        status = ms_proxy_create(stage->pool, page_bytes, NULL, !stage->capturing,
                                 &segment->page[*created]);
        if (status != MS_OK) {
            uint64_t bytes = (*created - from + 1) * page_bytes;
            if (!stage->capturing && stage_promises_all(stage, bytes, room)) {
                model_wrong(&stage->model, "a page is refused, the last one of %lu bytes",
                            (unsigned long)bytes);
            }
            segment->page[*created] = NULL;
            return status;
        }
        atomic_fetch_add(&stage->loose_bytes, page_bytes);
    }
    for (; *mapped < to; ++*mapped) {
        status = ms_proxy_map(stage->pool, segment->page[*mapped],
                              segment->base + *mapped * page_bytes, segment->base, segment->bytes);
        if (status != MS_OK) {
            return status;
        }
        atomic_fetch_add(&stage->loose_bytes, -page_bytes);
        touch_pages(framework, segment, *mapped, *mapped + 1, 1);
    }
    return ms_proxy_access(stage->pool, segment->base + from * page_bytes,
                           (to - from) * page_bytes);
}

/* More than the calls on end that are made to fail. */
enum { UNMAP_TRIES = 64 };

static bool map_pages(struct framework *framework, struct segment *segment, uint64_t from,
                      uint64_t to)
{
    uint64_t created = from;
    uint64_t mapped = from;
    ms_status_t status = make_pages(framework, segment, from, to, &created, &mapped);
    if (status == MS_OK) {
        return true;
    }
    out_of_memory(framework, (to - from) * segment->page_bytes, status);
    for (uint64_t back = from; back < created; back++) {
        bool gone = back >= mapped;
        for (int tries = 0; !gone && tries < UNMAP_TRIES; tries++) {
            gone = unmap_pages(framework, segment, back, back + 1);
        }
        if (back >= mapped) {
            release_page(framework, segment, back);
        } else if (!gone) {
            model_wrong(&framework->stage->model, "a page can be neither used nor given back");
        }
    }
    return false;
}

static struct segment *reserve_segment(struct framework *framework, const struct wish *wish)
{
    struct stage *stage = framework->stage;
    const struct ms_device_ops *ops = &stage->ops;
    struct segment *segment = vacant_segment(framework);
    if (segment == NULL) {
        return NULL;
    }
    uint64_t page_bytes = wish->small ? SMALL_PAGE_BYTES : LARGE_PAGE_BYTES;
    uint64_t bytes = FRAMEWORK_PAGES * page_bytes;
    ms_addr_t base = 0;
    ms_status_t status = ops->address_reserve(ops->ctx, bytes, 0, &base);
    if (status != MS_OK) {
        return NULL;
    }
    *segment = (struct segment){.base = base,
                                .bytes = bytes,
                                .page_bytes = page_bytes,
                                .place = wish->place,
                                .small = wish->small,
                                .captured = wish->captured};
    segment->first = new_piece(framework, segment, base, bytes, PIECE_VOID);
    if (segment->first == NULL) {
        (void)ops->address_free(ops->ctx, base, bytes);
        segment->bytes = 0;
    }
    return segment->first == NULL ? NULL : segment;
}

static bool matches(const struct segment *segment, const struct wish *wish)
{
    return segment->bytes != 0 && segment->place == wish->place && segment->small == wish->small &&
           segment->captured == wish->captured;
}

/* Maps as many pages as the wish lacks, from the lowest place where there is room. */
static bool grow_pages(struct framework *framework, const struct wish *wish)
{
    struct segment *segment = framework->segment;
    struct segment *end = segment + FRAMEWORK_SEGMENTS;
    while (segment < end && (segment->page_bytes == 0 || !matches(segment, wish))) {
        segment++;
    }
    segment = segment == end ? reserve_segment(framework, wish) : segment;
    if (segment == NULL) {
        return false;
    }
    for (struct piece *piece = segment->first; piece != NULL; piece = piece->next) {
        bool joins = piece->prev != NULL && piece->prev->state == PIECE_FREE;
        uint64_t had_bytes = joins ? piece->prev->bytes : 0;
        if (piece->state != PIECE_VOID || had_bytes + piece->bytes < wish->bytes) {
            continue;
        }
        uint64_t lacks_bytes = wish->bytes - had_bytes;
        uint64_t from = (piece->addr - segment->base) / segment->page_bytes;
        uint64_t to = from + (lacks_bytes + segment->page_bytes - 1) / segment->page_bytes;
        uint64_t bytes = (to - from) * segment->page_bytes;
        if ((piece->bytes > bytes && split(framework, piece, bytes) == NULL) ||
            !map_pages(framework, segment, from, to)) {
            (void)merge(piece);
            return false;
        }
        piece->state = PIECE_FREE;
        piece->used = 0;
        (void)merge(piece);
        return true;
    }
    return false;
}

/* Gives back the whole pages of a free piece; returns the piece to go on behind. */
static struct piece *shrink_piece(struct framework *framework, struct piece *piece)
{
    struct segment *segment = piece->segment;
    uint64_t page_bytes = segment->page_bytes;
    uint64_t from = (piece->addr - segment->base + page_bytes - 1) / page_bytes;
    uint64_t to = (piece->addr + piece->bytes - segment->base) / page_bytes;
    ms_addr_t begin = segment->base + from * page_bytes;
    ms_addr_t end = segment->base + to * page_bytes;
    if (from >= to) {
        return piece;
    }
    if (begin > piece->addr) {
        struct piece *rest = split(framework, piece, begin - piece->addr);
        if (rest == NULL) {
            return piece;
        }
        piece = rest;
    }
    bool whole = piece->addr + piece->bytes == end;
    if ((whole || split(framework, piece, end - piece->addr) != NULL) &&
        unmap_pages(framework, segment, from, to)) {
        piece->state = PIECE_VOID;
        segment->replay_bytes = 0;
    }
    return merge(piece);
}

static void give_segment_back(struct framework *framework, struct segment *segment)
{
    struct piece *piece = segment->first;
    if (segment->page_bytes == 0) {
        if (piece->next == NULL && piece->state == PIECE_FREE) {
            give_block_back(framework, segment);
        }
        return;
    }
    for (; piece != NULL; piece = piece->next) {
        piece = piece->state == PIECE_FREE ? shrink_piece(framework, piece) : piece;
    }
}

static void empty_cache(struct framework *framework)
{
    struct stage *stage = framework->stage;
    if (stage->capturing || !stage_settle(stage)) {
        return;
    }
    for (size_t k = 0; k < FRAMEWORK_SEGMENTS; k++) {
        if (framework->segment[k].bytes != 0) {
            give_segment_back(framework, &framework->segment[k]);
        }
    }
}

/* ---- tensors */

static struct piece *best_fit(struct framework *framework, const struct wish *wish)
{
    struct piece *best = NULL;
    for (size_t k = 0; k < FRAMEWORK_PIECES; k++) {
        struct piece *piece = &framework->piece[k];
        if (piece->segment != NULL && piece->state == PIECE_FREE && piece->bytes >= wish->bytes &&
            (best == NULL || piece->bytes < best->bytes ||
             (piece->bytes == best->bytes && piece->addr < best->addr)) &&
            matches(piece->segment, wish)) {
            best = piece;
        }
    }
    return best;
}

static struct piece *find_room(struct framework *framework, const struct wish *wish)
{
    struct piece *piece = best_fit(framework, wish);
    for (int attempt = 0; piece == NULL && attempt < 2; attempt++) {
        if (attempt > 0) {
            empty_cache(framework);
        }
        bool grown = framework->expandable ? grow_pages(framework, wish)
                                           : add_block_segment(framework, wish);
        piece = grown ? best_fit(framework, wish) : NULL;
    }
    return piece;
}

/* Nothing may be taken from the segment any more. */
static void freeze(struct framework *framework, struct segment *segment)
{
    struct model *model = &framework->stage->model;
    segment->frozen = true;
    if (segment->page_bytes == 0) {
        model_touch(model, MODEL_KEPT, segment->base, segment->bytes, 1);
    }
    for (uint64_t page = 0; segment->page_bytes != 0 && page < FRAMEWORK_PAGES; page++) {
        if (segment->page[page] != NULL && !segment->pinned[page]) {
            model_touch(model, MODEL_KEPT, segment->base + page * segment->page_bytes,
                        segment->page_bytes, 1);
        }
    }
}

/* What the report of a tensor's allocation or death must be answered with; its total may be a lie.
 */
static void check_report(struct framework *framework, ms_status_t status, bool lied,
                         const char *what)
{
    struct stage *stage = framework->stage;
    ms_status_t expected = lied && !stage->mismatched ? MS_ERR_NOT_READY : MS_OK;
    if (status != expected && !stage_excuses(stage, status)) {
        model_wrong(&stage->model, "the report of a %s is answered with %d", what, status);
    }
    if (lied) {
        stage->mismatched = true;
        stage->model.nothing_taken = true;
    }
}

static bool lies(struct framework *framework)
{
    return framework->stage->tells_lies && roll(framework, 100) == 0;
}

static void work(struct framework *framework, struct piece *piece, unsigned place)
{
    struct stage *stage = framework->stage;
    uint64_t offset = roll(framework, piece->bytes);
    uint64_t duration_ns = roll(framework, 4) == 0 ? MS_DRY_UNTIL_TOLD : roll(framework, 100000);
    stage_work(stage, stage->stream[place], piece->owner, piece->addr + offset,
               roll(framework, piece->bytes - offset) + 1, duration_ns);
    piece->used |= 1u << place;
}

static void report_birth(struct framework *framework, struct piece *piece)
{
    struct stage *stage = framework->stage;
    struct segment *segment = piece->segment;
    bool lied = lies(framework);
    if (segment->page_bytes == 0 && !segment->arena) {
        segment->arena = true;
        model_touch(&stage->model, MODEL_ARENA, segment->base, segment->bytes, 1);
        model_touch(&stage->model, MODEL_LIVE, segment->base, segment->bytes, -1);
    }
    uint64_t total_bytes = stage_total(stage, (int64_t)piece->bytes) + (lied ? 512 : 0);
    ms_status_t status =
        ms_arenas_allocated(stage->arenas, piece->addr, piece->bytes, 7, total_bytes);
    check_report(framework, status, lied, "birth");
    piece->stranded = !stage_accessible(stage, piece->addr, piece->bytes);
    if (piece->stranded && (status == MS_OK || status == MS_ERR_NOT_READY)) {
        model_wrong(&stage->model, "a tensor is born at %#lx, which is not accessible",
                    (unsigned long)piece->addr);
    }
    model_touch(&stage->model, piece->stranded ? MODEL_STRANDED : MODEL_LIVE, piece->addr,
                piece->bytes, 1);
    if (stage->capturing && !segment->frozen) {
        freeze(framework, segment);
    }
    if (stage->capturing && !piece->stranded) {
        segment->replay_addr = piece->addr;
        segment->replay_bytes = piece->bytes;
    }
    atomic_fetch_add(&stage->allocations, 1);
}

static uint64_t some_size(struct framework *framework)
{
    uint64_t most = roll(framework, 3) != 0   ? 64 * KIB
                    : roll(framework, 3) != 0 ? 3 * MIB
                                              : framework->largest_bytes;
    return (roll(framework, most) / 512 + 1) * 512;
}

static unsigned some_place(struct framework *framework)
{
    unsigned place = (unsigned)roll(framework, STREAMS);
    while ((framework->places >> place & 1) == 0) {
        place = (place + 1) % STREAMS;
    }
    return place;
}

static void bear(struct framework *framework)
{
    struct stage *stage = framework->stage;
    uint64_t bytes = some_size(framework);
    struct wish wish = {.place = some_place(framework),
                        .small = bytes <= SMALL_TENSOR_BYTES,
                        .captured = stage->capturing && roll(framework, 64) != 0,
                        .bytes = bytes};
    struct piece *piece = find_room(framework, &wish);
    if (piece == NULL) {
        framework->shrinks = 1 + roll(framework, 16);
        return;
    }
    uint64_t rest_bytes = piece->bytes - bytes;
    if (wish.small ? rest_bytes > 0 : rest_bytes > LEAST_LARGE_REST) {
        (void)split(framework, piece, bytes); /* without room for the rest, all of it is used */
    }
    piece->state = PIECE_LIVE;
    piece->owner = framework->next_owner++;
    framework->tensors++;
    report_birth(framework, piece);
    stage_follow(stage, stage->stream[wish.place], piece->used);
    piece->used = 1u << wish.place;
    if (!piece->stranded) {
        work(framework, piece, wish.place);
        stage_write(stage, piece->addr, piece->bytes, piece->owner);
    }
}

static void bury(struct framework *framework, struct piece *piece)
{
    struct stage *stage = framework->stage;
    bool lied = lies(framework);
    if (!piece->stranded) {
        stage_expect(stage, piece->addr, piece->bytes, piece->owner);
    }
    model_touch(&stage->model, piece->stranded ? MODEL_STRANDED : MODEL_LIVE, piece->addr,
                piece->bytes, -1);
    uint64_t total_bytes = stage_total(stage, -(int64_t)piece->bytes) + (lied ? 512 : 0);
    ms_status_t status = ms_arenas_freed(stage->arenas, piece->addr, piece->bytes, total_bytes);
    check_report(framework, status, lied, "death");
    piece->state = PIECE_FREE;
    piece->stranded = false;
    framework->tensors--;
    (void)merge(piece);
}

/* ---- what else a framework does */

static struct segment *some_segment(struct framework *framework, bool of_pages)
{
    size_t first = roll(framework, FRAMEWORK_SEGMENTS);
    for (size_t k = 0; k < FRAMEWORK_SEGMENTS; k++) {
        struct segment *segment = &framework->segment[(first + k) % FRAMEWORK_SEGMENTS];
        if (segment->bytes != 0 && (!of_pages || segment->page_bytes != 0)) {
            return segment;
        }
    }
    return NULL;
}

/* A graph that was captured runs again, on memory that the framework may count as free. */
static void replay(struct framework *framework)
{
    struct stage *stage = framework->stage;
    struct segment *segment = some_segment(framework, false);
    if (stage->capturing || segment == NULL || segment->replay_bytes == 0) {
        return;
    }
    unsigned place = some_place(framework);
    stage_follow(stage, stage->stream[place], UINT32_MAX >> (32 - STREAMS));
    stage_work(stage, stage->stream[place], framework->next_owner++, segment->replay_addr,
               segment->replay_bytes, roll(framework, 100000));
    for (struct piece *piece = segment->first; piece != NULL; piece = piece->next) {
        bool apart = piece->addr >= segment->replay_addr + segment->replay_bytes ||
                     segment->replay_addr >= piece->addr + piece->bytes;
        piece->used |= apart ? 0 : 1u << place;
    }
}

static void check_page(struct framework *framework, const struct segment *segment, uint64_t page)
{
    struct stage *stage = framework->stage;
    ms_addr_t addr = segment->base + page * segment->page_bytes;
    struct ms_proxy_info info = {0};
    ms_status_t status =
        ms_proxy_at(stage->pool, addr + roll(framework, segment->page_bytes), &info);
    if (status != MS_OK || info.proxy != segment->page[page] || info.addr != addr ||
        info.bytes != segment->page_bytes || info.pinned != segment->pinned[page]) {
        model_wrong(&stage->model, "a page at %#lx is not found", (unsigned long)addr);
    }
    if (info.chunk != 0 && !model_is_chunk(&stage->model, addr, segment->page_bytes, info.chunk)) {
        model_wrong(&stage->model, "chunk %lu is not what stands behind the page at %#lx",
                    (unsigned long)info.chunk, (unsigned long)addr);
    }
}

static void look_at_page(struct framework *framework, bool pin)
{
    struct stage *stage = framework->stage;
    struct segment *segment = some_segment(framework, true);
    uint64_t page = roll(framework, FRAMEWORK_PAGES);
    for (uint64_t k = 0; segment != NULL && k < FRAMEWORK_PAGES; k++) {
        page = (page + 1) % FRAMEWORK_PAGES;
        if (segment->page[page] != NULL) {
            break;
        }
    }
    if (segment == NULL || segment->page[page] == NULL) {
        return;
    }
    if (pin && segment->pinned[page]) {
        struct ms_proxy_info info;
        (void)ms_proxy_pin(stage->pool, segment->page[page], &info); /* stays where it is */
    } else if (pin) {
        struct ms_proxy_info info;
        ms_status_t status = ms_proxy_pin(stage->pool, segment->page[page], &info);
        /* There may be no room to bring back what is on the host. */
        bool spills = stage->config.spill_limit_bytes > 0;
        bool spilled = status == (spills ? MS_ERR_NO_MEMORY : MS_ERR_NOT_SUPPORTED);
        if (status != MS_OK && !spilled && !stage_excuses(stage, status)) {
            model_wrong(&stage->model, "a pin is answered with %d", status);
        }
        if (status != MS_OK) {
            return;
        }
        segment->pinned[page] = true;
        model_touch(&stage->model, MODEL_PINNED, segment->base + page * segment->page_bytes,
                    segment->page_bytes, 1);
        if (!segment->frozen) {
            model_touch(&stage->model, MODEL_KEPT, segment->base + page * segment->page_bytes,
                        segment->page_bytes, 1);
        }
    }
    check_page(framework, segment, page);
}

void framework_refresh_access(struct framework *framework)
{
    struct stage *stage = framework->stage;
    for (size_t k = 0; k < FRAMEWORK_SEGMENTS; k++) {
        const struct segment *segment = &framework->segment[k];
        for (uint64_t page = 0; segment->page_bytes != 0 && page < FRAMEWORK_PAGES; page++) {
            ms_addr_t addr = segment->base + page * segment->page_bytes;
            if (segment->page[page] == NULL) {
                continue;
            }
            ms_status_t status = ms_proxy_access(stage->pool, addr, segment->page_bytes);
            if (status != MS_OK && !stage_excuses(stage, status)) {
                model_wrong(&stage->model, "access to a page is answered with %d", status);
            }
        }
    }
}

static struct piece *some_tensor(struct framework *framework)
{
    size_t first = roll(framework, FRAMEWORK_PIECES);
    for (size_t k = 0; k < FRAMEWORK_PIECES; k++) {
        struct piece *piece = &framework->piece[(first + k) % FRAMEWORK_PIECES];
        if (piece->segment != NULL && piece->state == PIECE_LIVE) {
            return piece;
        }
    }
    return NULL;
}

/* A tensor is used on another stream; the framework sees to the order. */
static void use(struct framework *framework, struct piece *piece)
{
    struct stage *stage = framework->stage;
    unsigned place = (unsigned)roll(framework, STREAMS);
    if (!piece->stranded) {
        stage_follow(stage, stage->stream[place], piece->used);
        work(framework, piece, place);
        (void)ms_pool_touch(stage->pool, piece->addr, piece->bytes);
    }
}

void framework_step(struct framework *framework)
{
    uint64_t kind = roll(framework, 1000);
    struct piece *piece = some_tensor(framework);
    if (piece != NULL && framework->shrinks > 0) {
        framework->shrinks--;
        bury(framework, piece);
    } else if (piece == NULL || (kind < 450 && framework->tensors < framework->most_tensors)) {
        bear(framework);
    } else if (kind < 850) {
        bury(framework, piece);
    } else if (kind < 960) {
        use(framework, piece);
    } else if (kind < 975) {
        replay(framework);
    } else if (kind < 990) {
        look_at_page(framework, false);
    } else if (kind < 991) {
        look_at_page(framework, true);
    } else if (kind < 993) {
        empty_cache(framework);
    } else {
        /* The end of a step of training: most of it goes at once. */
        for (uint64_t left = roll(framework, framework->tensors); left > 0; left--) {
            bury(framework, some_tensor(framework));
        }
    }
}

void framework_leave(struct framework *framework)
{
    struct stage *stage = framework->stage;
    const struct ms_device_ops *ops = &stage->ops;
    for (struct piece *piece = some_tensor(framework); piece != NULL;
         piece = some_tensor(framework)) {
        bury(framework, piece);
    }
    empty_cache(framework);
    for (size_t k = 0; k < FRAMEWORK_SEGMENTS; k++) {
        struct segment *segment = &framework->segment[k];
        if (segment->bytes != 0 && segment->page_bytes != 0) {
            ms_proxy_reservation_gone(stage->pool, segment->base);
            (void)ops->address_free(ops->ctx, segment->base, segment->bytes);
        }
        segment->bytes = 0;
    }
}
