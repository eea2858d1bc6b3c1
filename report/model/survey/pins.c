/* SPDX-License-Identifier: Apache-2.0 */
/* Finds who keeps free memory from use: live tensors beside holes of the same arena. */
#include <stdlib.h>
#include <string.h>

#include "report/model/survey/map.h"

struct pin_place {
    uint64_t addr, bytes;
    uint32_t site;
    bool page; /* of a framework's own reservation */
};

struct part {
    uint32_t site;
    uint64_t tensors, live_bytes, pinned_bytes;
};

struct pinning {
    struct ms_buffer tensors, mapped, arenas; /* struct pin_place, by address */
    struct ms_buffer found;                   /* struct ms_pinned_arena */
    struct ms_buffer parts;                   /* struct part */
};

/* ---- gathering ---- */

static int by_addr(const void *a, const void *b)
{
    const struct pin_place *left = a, *right = b;

    return left->addr < right->addr ? -1 : left->addr > right->addr;
}

static size_t place_count(const struct ms_buffer *places)
{
    return places->bytes / sizeof(struct pin_place);
}

static struct pin_place *place_at(const struct ms_buffer *places, size_t index)
{
    return (struct pin_place *)places->at + index;
}

static void gather(struct ms_buffer *places, const struct ms_live_set *set, uint8_t device)
{
    for (size_t i = 0; i < ms_live_room(set); i++) {
        const struct ms_live *live = ms_live_at(set, i);
        const struct pin_place place = {live->addr, live->bytes, live->site, ms_map_is_page(live)};

        if (live->key && live->device == device && live->addr && !live->captured &&
            live->bytes > 0 && live->bytes < UINT64_MAX - live->addr) {
            ms_buffer_append(places, (const char *)&place, sizeof(place));
        }
    }
    if (places->bytes > 0) {
        qsort(places->at, place_count(places), sizeof(struct pin_place), by_addr);
    }
}

/* Adjacent pages of a framework are one arena. */
static void join(struct ms_buffer *places)
{
    size_t kept = 0;

    for (size_t i = 1; i < place_count(places); i++) {
        struct pin_place *last = place_at(places, kept), *next = place_at(places, i);

        if (last->page && next->page && last->addr + last->bytes == next->addr) {
            last->bytes += next->bytes;
        } else {
            kept++;
            *place_at(places, kept) = *next;
        }
    }
    if (places->bytes > 0) {
        places->bytes = (kept + 1) * sizeof(struct pin_place);
    }
}

/* ---- one arena ---- */

/* The first place that ends after the address. */
static size_t first_behind(const struct ms_buffer *places, uint64_t addr)
{
    size_t low = 0, high = place_count(places);

    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const struct pin_place *place = place_at(places, middle);

        if (place->addr + place->bytes <= addr) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static uint64_t backed_in(const struct ms_buffer *mapped, uint64_t from, uint64_t to)
{
    uint64_t bytes = 0;

    for (size_t i = first_behind(mapped, from); i < place_count(mapped); i++) {
        const struct pin_place *place = place_at(mapped, i);
        const uint64_t low = place->addr > from ? place->addr : from;
        const uint64_t end = place->addr + place->bytes;
        const uint64_t high = end < to ? end : to;

        if (place->addr >= to) {
            break;
        }
        bytes += high > low ? high - low : 0;
    }
    return bytes;
}

static void add_hole(struct ms_pinned_arena *arena, const struct ms_buffer *mapped, uint64_t from,
                     uint64_t to)
{
    if (to > from) {
        const uint64_t backed = backed_in(mapped, from, to);

        arena->backed_hole_bytes += backed;
        arena->taken_hole_bytes += to - from - backed;
        arena->largest_hole_bytes =
            to - from > arena->largest_hole_bytes ? to - from : arena->largest_hole_bytes;
    }
}

static int by_site(const void *a, const void *b)
{
    const struct part *left = a, *right = b;

    return left->site < right->site ? -1 : left->site > right->site;
}

static int by_live(const void *a, const void *b)
{
    const struct part *left = a, *right = b;

    if (left->live_bytes != right->live_bytes) {
        return left->live_bytes > right->live_bytes ? -1 : 1;
    }
    return by_site(a, b);
}

static int by_pinned(const void *a, const void *b)
{
    const struct part *left = a, *right = b;

    if (left->pinned_bytes != right->pinned_bytes) {
        return left->pinned_bytes > right->pinned_bytes ? -1 : 1;
    }
    return by_site(a, b);
}

/* Leaves one row for each site; returns their number. */
static size_t merge(struct part *parts, size_t count)
{
    size_t kept = 0;

    if (count == 0) {
        return 0;
    }
    qsort(parts, count, sizeof(*parts), by_site);
    for (size_t i = 1; i < count; i++) {
        if (parts[i].site == parts[kept].site) {
            parts[kept].tensors += parts[i].tensors;
            parts[kept].live_bytes += parts[i].live_bytes;
            parts[kept].pinned_bytes += parts[i].pinned_bytes;
        } else {
            parts[++kept] = parts[i];
        }
    }
    return kept + 1;
}

/* Each site's tensors, from `first` of the parts on, pin their share of the holes. */
static void settle(struct pinning *pinning, struct ms_pinned_arena *arena, size_t first)
{
    struct part *parts = (struct part *)pinning->parts.at + first;
    size_t count = pinning->parts.bytes / sizeof(*parts) - first;

    count = merge(parts, count);
    pinning->parts.bytes = (first + count) * sizeof(*parts);
    for (size_t i = 0; i < count; i++) {
        parts[i].pinned_bytes = (uint64_t)((double)arena->backed_hole_bytes *
                                           (double)parts[i].tensors / (double)arena->tensors);
    }
    if (count > 0) {
        qsort(parts, count, sizeof(*parts), by_live);
    }
    for (; arena->site_count < count && arena->site_count < 3; arena->site_count++) {
        arena->sites[arena->site_count] = parts[arena->site_count].site;
    }
}

static void pin_within(struct pinning *pinning, const struct pin_place *place)
{
    const uint64_t end = place->addr + place->bytes;
    const size_t first = pinning->parts.bytes / sizeof(struct part);
    struct ms_pinned_arena arena = {.addr = place->addr, .bytes = place->bytes};
    uint64_t at = place->addr;

    for (size_t i = first_behind(&pinning->tensors, at); i < place_count(&pinning->tensors); i++) {
        const struct pin_place *tensor = place_at(&pinning->tensors, i);
        const struct part part = {tensor->site, 1, tensor->bytes, 0};

        if (tensor->addr >= end) {
            break;
        }
        add_hole(&arena, &pinning->mapped, at, tensor->addr);
        at = tensor->addr + tensor->bytes > at ? tensor->addr + tensor->bytes : at;
        arena.tensors++;
        arena.live_bytes += tensor->bytes;
        ms_buffer_append(&pinning->parts, (const char *)&part, sizeof(part));
    }
    add_hole(&arena, &pinning->mapped, at, end);
    settle(pinning, &arena, first);
    ms_buffer_append(&pinning->found, (const char *)&arena, sizeof(arena));
}

/* ---- the whole ---- */

static int by_holes(const void *a, const void *b)
{
    const struct ms_pinned_arena *left = a, *right = b;

    if (left->backed_hole_bytes != right->backed_hole_bytes) {
        return left->backed_hole_bytes > right->backed_hole_bytes ? -1 : 1;
    }
    return left->addr < right->addr ? -1 : left->addr > right->addr;
}

static void write_pins(const struct pinning *pinning, struct ms_survey_pins *pins)
{
    struct ms_pinned_arena *arenas = (struct ms_pinned_arena *)pinning->found.at;
    struct part *parts = (struct part *)pinning->parts.at;
    const size_t arena_count = pinning->found.bytes / sizeof(*arenas);
    const size_t part_count = merge(parts, pinning->parts.bytes / sizeof(*parts));

    qsort(arenas, arena_count, sizeof(*arenas), by_holes);
    for (size_t i = 0; i < arena_count; i++) {
        pins->backed_hole_bytes += arenas[i].backed_hole_bytes;
        if (i < MS_PINNED_ARENAS && arenas[i].backed_hole_bytes > 0) {
            pins->arenas[pins->arena_count++] = arenas[i];
        }
    }
    if (part_count > 0) {
        qsort(parts, part_count, sizeof(*parts), by_pinned);
    }
    for (size_t i = 0; i < part_count && i < MS_PINNING_SITES && parts[i].pinned_bytes > 0; i++) {
        pins->sites[pins->site_count++] =
            (struct ms_pinning_site){.site = parts[i].site,
                                     .tensors = parts[i].tensors,
                                     .live_bytes = parts[i].live_bytes,
                                     .pinned_bytes = parts[i].pinned_bytes};
    }
}

struct ms_survey_pins *ms_map_pins(const struct ms_map *map, const struct ms_live_set *live,
                                   uint8_t device, uint64_t time_ns)
{
    struct pinning pinning = {0};
    struct ms_survey_pins *pins = NULL;

    gather(&pinning.arenas, &map->arenas, device);
    if (pinning.arenas.bytes > 0) {
        pins = calloc(1, sizeof(*pins));
    }
    if (pins) {
        pins->time_ns = time_ns;
        gather(&pinning.tensors, live, device);
        gather(&pinning.mapped, &map->mapped, device);
        join(&pinning.arenas);
        for (size_t i = 0; i < place_count(&pinning.arenas); i++) {
            pin_within(&pinning, place_at(&pinning.arenas, i));
        }
        write_pins(&pinning, pins);
    }
    ms_buffer_free(&pinning.tensors);
    ms_buffer_free(&pinning.mapped);
    ms_buffer_free(&pinning.arenas);
    ms_buffer_free(&pinning.found);
    ms_buffer_free(&pinning.parts);
    return pins;
}
