/* SPDX-License-Identifier: Apache-2.0 */
/* Builds a recording, an operation at a time, and checks that each can be. */
#include "report/replay/recording.h"

#include <stdlib.h>
#include <string.h>

#include "allocator/base/containers/numbers.h"

#define GRANULE_BYTES (UINT64_C(2) << 20)

static const struct ms_complaint fine = {NULL, NULL};
static const struct ms_complaint no_memory = {"line", "memory ran out here"};

/* What has an address in the run: a block, or a page in a reservation. */
struct place {
    struct ms_treap_node node;
    uint64_t addr, bytes;
    uint32_t operation; /* a block's allocation; MS_RECORDED_NONE: a page */
    uint32_t arena;     /* a page's */
};

static struct ms_complaint wrong(const char *field, const char *problem)
{
    return (struct ms_complaint){field, problem};
}

static inline struct ms_treap_key key_of(const struct ms_treap_node *node)
{
    return (struct ms_treap_key){.major = MS_CONTAINER_OF(node, const struct place, node)->addr};
}

bool ms_recording_begin(struct ms_recording *recording)
{
    memset(recording, 0, sizeof(*recording));
    ms_slab_init(&recording->place_slab, sizeof(struct place));
    recording->live = ms_numbers_new();
    recording->reservations = ms_numbers_new();
    recording->stream_numbers = ms_numbers_new();
    recording->sites = ms_numbers_new();
    return recording->live && recording->reservations && recording->stream_numbers &&
           recording->sites;
}

void ms_recording_free(struct ms_recording *recording)
{
    ms_buffer_free(&recording->operations);
    ms_buffer_free(&recording->arenas);
    ms_buffer_free(&recording->site_names);
    ms_buffer_free(&recording->site_starts);
    ms_slab_destroy(&recording->place_slab);
    ms_numbers_delete(recording->sites);
    ms_numbers_delete(recording->live);
    ms_numbers_delete(recording->reservations);
    ms_numbers_delete(recording->stream_numbers);
}

struct ms_recording *ms_recording_new(unsigned device)
{
    struct ms_recording *recording = malloc(sizeof(*recording));

    if (recording && !ms_recording_begin(recording)) {
        ms_recording_delete(recording);
        return NULL;
    }
    if (recording) {
        recording->device = device;
    }
    return recording;
}

void ms_recording_delete(struct ms_recording *recording)
{
    if (recording) {
        ms_recording_free(recording);
        free(recording);
    }
}

/* ---- places ---- */

static struct place *place_at(const struct ms_recording *recording, uint64_t addr)
{
    struct ms_treap_node *node =
        ms_treap_below(recording->places, (struct ms_treap_key){.major = addr + 1}, key_of);
    struct place *place = node ? MS_CONTAINER_OF(node, struct place, node) : NULL;

    return place && addr - place->addr < place->bytes ? place : NULL;
}

static bool is_taken(const struct ms_recording *recording, uint64_t addr, uint64_t bytes)
{
    const struct ms_treap_node *node =
        ms_treap_below(recording->places, (struct ms_treap_key){.major = addr + bytes}, key_of);
    const struct place *last = node ? MS_CONTAINER_OF(node, const struct place, node) : NULL;

    return last && last->addr + last->bytes > addr;
}

static bool add_place(struct ms_recording *recording, const struct place *what)
{
    struct place *place = ms_slab_take(&recording->place_slab);

    if (place) {
        *place = *what;
        ms_treap_insert(&recording->places, &place->node, key_of);
    }
    return place != NULL;
}

static void remove_place(struct ms_recording *recording, struct place *place)
{
    ms_treap_remove(&recording->places, &place->node, key_of);
    ms_slab_give(&recording->place_slab, place);
}

/* ---- operations ---- */

static struct ms_operation *operation_at(const struct ms_recording *recording, uint32_t index)
{
    return (struct ms_operation *)recording->operations.at + index;
}

static struct ms_recorded_arena *arena_at(const struct ms_recording *recording, uint32_t index)
{
    return (struct ms_recorded_arena *)recording->arenas.at + index;
}

static struct ms_complaint add(struct ms_recording *recording, const struct ms_operation *operation)
{
    struct ms_operation *added = NULL;

    if (ms_recording_count(recording) < MS_RECORDED_NONE) {
        added = ms_buffer_extend(&recording->operations, sizeof(*added));
    }
    if (!added) {
        return no_memory;
    }
    *added = *operation;
    return fine;
}

/* MS_RECORDED_NONE where memory runs out. */
static uint32_t add_arena(struct ms_recording *recording, uint64_t addr, uint64_t bytes,
                          bool reservation)
{
    const size_t index = ms_recording_arenas(recording);
    struct ms_recorded_arena *arena = ms_buffer_extend(&recording->arenas, sizeof(*arena));

    if (!arena) {
        return MS_RECORDED_NONE;
    }
    *arena = (struct ms_recorded_arena){.addr = addr, .bytes = bytes, .reservation = reservation};
    return (uint32_t)index;
}

static uint8_t stream_number(struct ms_recording *recording, uint64_t stream)
{
    if (stream == 0) {
        return 0;
    }

    uint32_t number = ms_numbers_get(recording->stream_numbers, stream);

    if (number == MS_NUMBER_NONE) {
        recording->streams += recording->streams < MS_RECORDED_STREAMS;
        number = recording->streams;
        (void)ms_numbers_put(recording->stream_numbers, stream, number);
    }
    return (uint8_t)number;
}

static struct ms_complaint check_bytes(uint64_t bytes)
{
    if (bytes == 0) {
        return wrong("bytes", "is 0");
    }
    return bytes > MS_RECORDED_MOST_BYTES ? wrong("bytes", "is more than any device has") : fine;
}

static struct ms_complaint check_place(const struct ms_recording *recording, uint64_t addr,
                                       uint64_t bytes)
{
    if (addr > UINT64_MAX - bytes) {
        return wrong("addr", "is too high");
    }
    return is_taken(recording, addr, bytes) ? wrong("addr", "lies in something that is live")
                                            : fine;
}

/* An allocation: of a block or a tensor. */
static struct ms_complaint add_allocation(struct ms_recording *recording,
                                          const struct ms_operation *operation, uint64_t id)
{
    const size_t index = ms_recording_count(recording);
    const struct ms_complaint complaint = add(recording, operation);

    if (complaint.field) {
        return complaint;
    }
    operation_at(recording, (uint32_t)index)->object = recording->objects++;
    return ms_numbers_put(recording->live, id, (uint32_t)index) ? fine : no_memory;
}

struct ms_complaint ms_recording_alloc(struct ms_recording *recording, uint64_t time_us,
                                       uint64_t id, uint64_t addr, uint64_t bytes, uint64_t stream,
                                       uint32_t site, bool segment)
{
    struct ms_operation operation = {.kind = MS_OPERATION_ALLOC,
                                     .arena = MS_RECORDED_NONE,
                                     .offset = addr,
                                     .bytes = bytes,
                                     .site = site,
                                     .time_us = time_us};
    struct ms_complaint complaint = check_bytes(bytes);

    if (!complaint.field && addr != 0) {
        complaint = check_place(recording, addr, bytes);
    }
    if (!complaint.field && ms_numbers_get(recording->live, id) != MS_NUMBER_NONE) {
        complaint = wrong("id", "is live already");
    }
    if (complaint.field) {
        return complaint;
    }
    if (segment) {
        operation.arena = add_arena(recording, addr, bytes, false);
    }
    if (addr != 0) {
        const struct place place = {
            .addr = addr, .bytes = bytes, .operation = (uint32_t)ms_recording_count(recording)};

        if (!add_place(recording, &place)) {
            return no_memory;
        }
    }
    operation.stream = stream_number(recording, stream);
    recording->allocations++;
    return add_allocation(recording, &operation, id);
}

/* The allocation that ends here; null, and a complaint, where there is none of that kind. */
static struct ms_operation *allocation_of(struct ms_recording *recording, uint64_t id,
                                          enum ms_operation_kind kind,
                                          struct ms_complaint *complaint)
{
    const uint32_t index = ms_numbers_get(recording->live, id);

    *complaint = fine;
    if (index == MS_NUMBER_NONE) {
        *complaint = wrong("id", "is not live");
        return NULL;
    }
    if (operation_at(recording, index)->kind != kind) {
        *complaint =
            wrong("id", kind == MS_OPERATION_ALLOC ? "is that of a tensor, not of a block"
                                                   : "is that of a block, not of a tensor");
        return NULL;
    }
    return operation_at(recording, index);
}

struct ms_complaint ms_recording_release(struct ms_recording *recording, uint64_t time_us,
                                         uint64_t id, uint64_t stream)
{
    struct ms_complaint complaint;
    const struct ms_operation *allocation =
        allocation_of(recording, id, MS_OPERATION_ALLOC, &complaint);

    if (!allocation) {
        return complaint;
    }
    if (allocation->offset != 0) {
        remove_place(recording, place_at(recording, allocation->offset));
    }
    ms_numbers_remove(recording->live, id);

    struct ms_operation operation = *allocation;

    operation.kind = MS_OPERATION_FREE;
    operation.time_us = time_us;
    operation.stream = stream_number(recording, stream);
    return add(recording, &operation);
}

/* The arena around an allocation at `place`; a block becomes one here. */
static uint32_t arena_of(struct ms_recording *recording, const struct place *place)
{
    if (place->operation == MS_RECORDED_NONE) {
        return place->arena;
    }

    struct ms_operation *block = operation_at(recording, place->operation);

    if (block->arena == MS_RECORDED_NONE) {
        block->arena = add_arena(recording, place->addr, place->bytes, false);
    }
    return block->arena;
}

/* Whether a range lies in one segment, or in mapped pages of one reservation. place: at addr. */
static struct ms_complaint check_inside(const struct ms_recording *recording,
                                        const struct place *place, uint64_t addr, uint64_t bytes)
{
    const struct ms_complaint complaint = check_bytes(bytes);

    if (complaint.field) {
        return complaint;
    }
    if (!place) {
        return wrong("addr", "lies in no segment and no mapped page");
    }

    const struct place *last = place_at(recording, addr + bytes - 1);
    const bool inside = last && (last == place || (last->operation == MS_RECORDED_NONE &&
                                                   place->operation == MS_RECORDED_NONE &&
                                                   last->arena == place->arena));

    return inside ? fine : wrong("bytes", "reaches beyond the segment or the mapped pages");
}

struct ms_complaint ms_recording_allocated(struct ms_recording *recording, uint64_t time_us,
                                           uint64_t id, uint64_t addr, uint64_t bytes,
                                           uint32_t site, uint64_t block)
{
    const struct place *place = place_at(recording, addr);
    const struct ms_complaint complaint = check_inside(recording, place, addr, bytes);

    if (complaint.field) {
        return complaint;
    }
    if (block != 0 && ms_numbers_get(recording->live, block) != place->operation) {
        return wrong("addr", "lies in no segment and no mapped page");
    }
    if (ms_numbers_get(recording->live, id) != MS_NUMBER_NONE) {
        return wrong("id", "is live already");
    }

    const struct ms_operation operation = {.kind = MS_OPERATION_TENSOR_ALLOC,
                                           .arena = arena_of(recording, place),
                                           .offset = addr,
                                           .bytes = bytes,
                                           .site = site,
                                           .time_us = time_us};

    recording->tensor_allocations++;
    return operation.arena == MS_RECORDED_NONE ? no_memory
                                               : add_allocation(recording, &operation, id);
}

struct ms_complaint ms_recording_freed(struct ms_recording *recording, uint64_t time_us,
                                       uint64_t id)
{
    struct ms_complaint complaint;
    const struct ms_operation *allocation =
        allocation_of(recording, id, MS_OPERATION_TENSOR_ALLOC, &complaint);

    if (!allocation) {
        return complaint;
    }

    struct ms_operation operation = *allocation;

    operation.kind = MS_OPERATION_TENSOR_FREE;
    operation.time_us = time_us;
    ms_numbers_remove(recording->live, id);
    return add(recording, &operation);
}

struct ms_complaint ms_recording_cached(struct ms_recording *recording, uint64_t time_us,
                                        uint64_t addr, uint64_t bytes)
{
    const struct place *place = place_at(recording, addr);
    const struct ms_complaint complaint = check_inside(recording, place, addr, bytes);

    if (complaint.field) {
        return complaint;
    }

    const struct ms_operation operation = {.kind = MS_OPERATION_CACHED,
                                           .arena = arena_of(recording, place),
                                           .offset = addr,
                                           .bytes = bytes,
                                           .time_us = time_us};

    return operation.arena == MS_RECORDED_NONE ? no_memory : add(recording, &operation);
}

/* ---- pages ---- */

struct ms_complaint ms_recording_reserve(struct ms_recording *recording, uint64_t time_us,
                                         uint64_t reservation, uint64_t addr, uint64_t bytes)
{
    struct ms_operation operation = {.kind = MS_OPERATION_RESERVE, .time_us = time_us};
    const struct ms_complaint complaint = check_bytes(bytes);

    if (complaint.field) {
        return complaint;
    }
    if (addr % GRANULE_BYTES != 0 || bytes % GRANULE_BYTES != 0) {
        return wrong("addr", "and bytes of a reservation are multiples of 2 MiB");
    }
    if (ms_numbers_get(recording->reservations, reservation) != MS_NUMBER_NONE) {
        return wrong("id", "is a reservation already");
    }
    operation.arena = add_arena(recording, addr, bytes, true);
    if (operation.arena == MS_RECORDED_NONE ||
        !ms_numbers_put(recording->reservations, reservation, operation.arena)) {
        return no_memory;
    }
    return add(recording, &operation);
}

struct ms_complaint ms_recording_unreserve(struct ms_recording *recording, uint64_t time_us,
                                           uint64_t reservation)
{
    const struct ms_operation operation = {.kind = MS_OPERATION_UNRESERVE,
                                           .arena =
                                               ms_numbers_get(recording->reservations, reservation),
                                           .time_us = time_us};

    if (operation.arena == MS_NUMBER_NONE) {
        return wrong("id", "is no reservation");
    }
    ms_numbers_remove(recording->reservations, reservation);
    return add(recording, &operation);
}

struct ms_complaint ms_recording_map(struct ms_recording *recording, uint64_t time_us,
                                     uint64_t reservation, uint64_t addr, uint64_t bytes)
{
    struct ms_operation operation = {
        .kind = MS_OPERATION_MAP, .offset = addr, .bytes = bytes, .time_us = time_us};
    struct ms_complaint complaint = check_bytes(bytes);

    if (complaint.field) {
        return complaint;
    }
    if (addr % GRANULE_BYTES != 0 || bytes % GRANULE_BYTES != 0) {
        return wrong("addr", "and bytes of a page are multiples of 2 MiB");
    }
    complaint = check_place(recording, addr, bytes);
    if (complaint.field) {
        return complaint;
    }
    if (ms_numbers_get(recording->reservations, reservation) == MS_NUMBER_NONE) {
        complaint = ms_recording_reserve(recording, time_us, reservation, addr, bytes);
    }
    operation.arena = ms_numbers_get(recording->reservations, reservation);
    if (complaint.field || operation.arena == MS_NUMBER_NONE) {
        return no_memory;
    }

    struct ms_recorded_arena *arena = arena_at(recording, operation.arena);
    const uint64_t end =
        arena->addr + arena->bytes > addr + bytes ? arena->addr + arena->bytes : addr + bytes;

    arena->addr = arena->addr < addr ? arena->addr : addr;
    arena->bytes = end - arena->addr;

    const struct place place = {
        .addr = addr, .bytes = bytes, .operation = MS_RECORDED_NONE, .arena = operation.arena};

    recording->maps++;
    return add_place(recording, &place) ? add(recording, &operation) : no_memory;
}

struct ms_complaint ms_recording_unmap(struct ms_recording *recording, uint64_t time_us,
                                       uint64_t addr, uint64_t bytes)
{
    struct ms_operation operation = {
        .kind = MS_OPERATION_UNMAP, .offset = addr, .bytes = bytes, .time_us = time_us};
    struct ms_complaint complaint = check_bytes(bytes);
    const struct place *first = place_at(recording, addr);
    uint64_t at = addr;

    if (complaint.field) {
        return complaint;
    }
    if (!first || first->operation != MS_RECORDED_NONE) {
        return wrong("addr", "is not where a page is mapped");
    }
    operation.arena = first->arena;
    while (at - addr < bytes) {
        const struct place *page = place_at(recording, at);

        if (!page || page->addr != at || page->arena != operation.arena ||
            page->bytes > bytes - (at - addr)) {
            return wrong("bytes", "does not end where a page does");
        }
        at += page->bytes;
    }
    for (at = addr; at - addr < bytes;) {
        struct place *page = place_at(recording, at);

        at += page->bytes;
        remove_place(recording, page);
    }
    return add(recording, &operation);
}

/* ---- the rest ---- */

/* A reservation begins here whose first page is not mapped; MS_RECORDED_NONE where none does. */
static uint32_t reservation_at(const struct ms_recording *recording, uint64_t addr)
{
    for (size_t i = ms_recording_arenas(recording); i > 0; i--) {
        const struct ms_recorded_arena *arena = arena_at(recording, (uint32_t)i - 1);

        if (arena->reservation && arena->addr == addr) {
            return (uint32_t)i - 1;
        }
    }
    return MS_RECORDED_NONE;
}

struct ms_complaint ms_recording_freeze(struct ms_recording *recording, uint64_t time_us,
                                        uint64_t addr)
{
    const struct place *place = place_at(recording, addr);
    const struct ms_operation operation = {.kind = MS_OPERATION_FREEZE,
                                           .arena = place ? arena_of(recording, place)
                                                          : reservation_at(recording, addr),
                                           .time_us = time_us};

    if (operation.arena == MS_RECORDED_NONE) {
        return wrong("addr", "lies in no segment and no mapped page");
    }
    return add(recording, &operation);
}

struct ms_complaint ms_recording_charge(struct ms_recording *recording, uint64_t time_us,
                                        enum ms_operation_kind kind, uint64_t bytes)
{
    const struct ms_operation operation = {
        .kind = (uint8_t)kind, .arena = MS_RECORDED_NONE, .bytes = bytes, .time_us = time_us};
    const struct ms_complaint complaint = check_bytes(bytes);

    return complaint.field ? complaint : add(recording, &operation);
}

struct ms_complaint ms_recording_step(struct ms_recording *recording, uint64_t time_us)
{
    const struct ms_operation operation = {
        .kind = MS_OPERATION_STEP, .arena = MS_RECORDED_NONE, .time_us = time_us};

    recording->steps++;
    return add(recording, &operation);
}

struct ms_complaint ms_recording_refused(struct ms_recording *recording, uint64_t time_us,
                                         enum ms_operation_kind kind, uint64_t bytes,
                                         uint64_t stream, uint32_t site)
{
    const struct ms_complaint complaint = check_bytes(bytes);
    struct ms_operation operation = {.kind = (uint8_t)kind,
                                     .arena = MS_RECORDED_NONE,
                                     .bytes = bytes,
                                     .site = site,
                                     .time_us = time_us};

    if (complaint.field) {
        return complaint;
    }
    operation.stream = stream_number(recording, stream);
    return add(recording, &operation);
}

/* Names are told apart by a hash of 64 bits: with a million of them, two that share one have odds
 * of 1 in 37 million, and then share a name in a message. */
uint32_t ms_recording_site(struct ms_recording *recording, const char *name, size_t bytes)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);

    if (bytes == 0) {
        return 0;
    }
    for (size_t i = 0; i < bytes; i++) {
        hash = (hash ^ (unsigned char)name[i]) * UINT64_C(0x100000001b3);
    }

    const uint32_t known = ms_numbers_get(recording->sites, hash);

    if (known != MS_NUMBER_NONE) {
        return known;
    }

    size_t *start = ms_buffer_extend(&recording->site_starts, sizeof(*start));

    if (!start) {
        return 0;
    }
    *start = recording->site_names.bytes;
    ms_buffer_append(&recording->site_names, name, bytes);
    (void)ms_buffer_extend(&recording->site_names, 1);

    const uint32_t site = (uint32_t)(recording->site_starts.bytes / sizeof(*start));

    return ms_numbers_put(recording->sites, hash, site) ? site : 0;
}

const char *ms_recording_site_name(const struct ms_recording *recording, uint32_t site)
{
    const size_t *starts = (const size_t *)recording->site_starts.at;

    if (site == 0 || site > recording->site_starts.bytes / sizeof(*starts) ||
        recording->site_names.failed) {
        return NULL;
    }
    return recording->site_names.at + starts[site - 1];
}

/* A request that was not met is live for no moment. */
static void count_refused(struct ms_recording *recording, const struct ms_operation *operation,
                          uint64_t live_bytes)
{
    recording->refused += operation->kind == MS_OPERATION_REFUSED;
    if (operation->kind == MS_OPERATION_FATAL) {
        recording->fatal++;
        live_bytes += operation->bytes;
    }
    if (live_bytes > recording->peak_wanted_bytes) {
        recording->peak_wanted_bytes = live_bytes;
    }
}

bool ms_recording_end(struct ms_recording *recording)
{
    uint64_t live_bytes = 0;

    for (size_t i = 0; i < ms_recording_count(recording); i++) {
        struct ms_operation *operation = operation_at(recording, (uint32_t)i);
        const bool block =
            operation->kind == MS_OPERATION_ALLOC || operation->kind == MS_OPERATION_FREE;
        const bool tensor = operation->kind == MS_OPERATION_TENSOR_ALLOC ||
                            operation->kind == MS_OPERATION_TENSOR_FREE;

        if (tensor || operation->kind == MS_OPERATION_CACHED ||
            operation->kind == MS_OPERATION_MAP || operation->kind == MS_OPERATION_UNMAP) {
            operation->offset -= arena_at(recording, operation->arena)->addr;
        }
        if (operation->kind == MS_OPERATION_RESERVE) {
            operation->bytes = arena_at(recording, operation->arena)->bytes;
        }
        if (tensor || (block && operation->arena == MS_RECORDED_NONE)) {
            const bool ends =
                operation->kind == MS_OPERATION_FREE || operation->kind == MS_OPERATION_TENSOR_FREE;

            live_bytes = ends ? live_bytes - operation->bytes : live_bytes + operation->bytes;
        }
        if (live_bytes > recording->peak_live_bytes) {
            recording->peak_live_bytes = live_bytes;
        }
        count_refused(recording, operation, live_bytes);
    }
    recording->end_live_bytes = live_bytes;
    return !recording->operations.failed && !recording->arenas.failed;
}
