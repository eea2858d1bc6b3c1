/* SPDX-License-Identifier: Apache-2.0 */
/* The survey's maps: follows mapped and live memory, and draws each column. */
#include "report/model/survey/map.h"

#include <stdlib.h>
#include <string.h>

#include "allocator/base/arithmetic.h"

#define CELL_SITES    8u /* of a cell, followed at once */
#define COLUMN_LENGTH (MS_SURVEY_BUCKETS / MS_MAP_COLUMNS)

void ms_map_free(struct ms_map *map)
{
    ms_live_free(&map->mapped);
    ms_live_free(&map->arenas);
    ms_live_free(&map->host_chunks);
}

/* ---- choosing ---- */

static void add_segment(struct ms_survey_device *device, const struct ms_address_range *range,
                        uint64_t end_ns)
{
    if (!device->segments) {
        device->segments = calloc(MS_MAP_SEGMENTS, sizeof(*device->segments));
    }
    if (device->segments && device->segment_count < MS_MAP_SEGMENTS) {
        struct ms_map_segment *segment = &device->segments[device->segment_count++];

        segment->addr = range->low;
        segment->bytes = (range->high - range->low + MS_MAP_ROWS - 1) / MS_MAP_ROWS * MS_MAP_ROWS;
        segment->begin_ns = range->begin_ns;
        segment->end_ns = range->open ? end_ns : range->end_ns;
        segment->framework = range->framework;
    }
}

void ms_map_choose(const struct ms_model *model, struct ms_survey *survey)
{
    struct ms_buffer sorted = {0};

    ms_address_ranges_sort(&model->address_ranges, model->duration_ns, &sorted);
    for (size_t i = 0; i < sorted.bytes / sizeof(struct ms_address_range); i++) {
        const struct ms_address_range *range = (const struct ms_address_range *)sorted.at + i;

        if (range->high > range->low && survey->devices[range->device].used) {
            add_segment(&survey->devices[range->device], range, model->duration_ns);
        }
    }
    ms_buffer_free(&sorted);
}

/* ---- following ---- */

static void add(struct ms_live_set *set, uint64_t key, const struct ms_event *event)
{
    struct ms_live *live = key ? ms_live_add(set, key) : NULL;

    if (live) {
        live->addr = event->addr;
        live->bytes = event->bytes;
        live->device = event->device;
    }
}

void ms_map_take(struct ms_map *map, const struct ms_event *event, bool arena)
{
    struct ms_live gone;

    switch (event->kind) {
    case MS_EVENT_BLOCK_ALLOC:
        if (arena) {
            add(&map->arenas, event->id, event);
        }
        break;
    case MS_EVENT_BLOCK_FREE:
        if (event->aux == 1) {
            (void)ms_live_take(&map->arenas, event->id, &gone);
        }
        break;
    case MS_EVENT_PROXY_MAP:
        add(&map->arenas, MS_MAP_PAGE_KEY | event->addr, event);
        break;
    case MS_EVENT_PROXY_UNMAP:
        (void)ms_live_take(&map->arenas, MS_MAP_PAGE_KEY | event->addr, &gone);
        break;
    case MS_EVENT_CHUNK_CREATE:
        if (event->aux == MS_LOCATION_HOST) {
            add(&map->host_chunks, event->id, event);
        }
        break;
    case MS_EVENT_CHUNK_RELEASE:
        (void)ms_live_take(&map->host_chunks, event->id, &gone);
        break;
    case MS_EVENT_MAP:
        add(&map->mapped, event->addr, event);
        if (ms_live_find(&map->host_chunks, event->id)) {
            struct ms_live *live = ms_live_find(&map->mapped, event->addr);

            if (live) {
                live->captured = true; /* it is on the host */
            }
        }
        break;
    case MS_EVENT_UNMAP:
        (void)ms_live_take(&map->mapped, event->addr, &gone);
        break;
    default:
        break;
    }
}

/* ---- pictures ---- */

/* One row of a segment's column, and the sites with most bytes in it, found in one pass. If there
 * are more sites than the row can count, a new one replaces the one with fewest bytes, unless it
 * has fewer itself. */
struct map_row {
    uint64_t live_bytes, mapped_bytes, host_bytes, arena_bytes;
    struct {
        uint32_t site;
        uint64_t bytes;
    } sites[CELL_SITES];
};

static void add_site(struct map_row *row, uint32_t site, uint64_t bytes)
{
    size_t least = 0;

    for (size_t i = 0; i < CELL_SITES; i++) {
        if (row->sites[i].bytes > 0 && row->sites[i].site == site) {
            row->sites[i].bytes += bytes;
            return;
        }
        least = row->sites[i].bytes < row->sites[least].bytes ? i : least;
    }
    if (bytes >= row->sites[least].bytes) {
        row->sites[least].bytes = bytes;
        row->sites[least].site = site;
    }
}

enum what { WHAT_LIVE, WHAT_MAPPED, WHAT_ARENA };

static void add_part(struct map_row *row, enum what what, const struct ms_live *live,
                     uint64_t bytes)
{
    switch (what) {
    case WHAT_LIVE:
        row->live_bytes += bytes;
        add_site(row, live->site, bytes);
        break;
    case WHAT_MAPPED:
        row->mapped_bytes += bytes;
        row->host_bytes += live->captured ? bytes : 0;
        break;
    default:
        row->arena_bytes += bytes;
        break;
    }
}

static void add_to_rows(const struct ms_map_segment *segment, struct map_row rows[MS_MAP_ROWS],
                        enum what what, const struct ms_live *live)
{
    const uint64_t row_bytes = segment->bytes / MS_MAP_ROWS;
    uint64_t at = live->addr, left = live->bytes;

    if (at < segment->addr) {
        const uint64_t before = segment->addr - at;

        left = left > before ? left - before : 0;
        at = segment->addr;
    }
    while (left > 0 && at - segment->addr < segment->bytes) {
        const uint64_t row = (at - segment->addr) / row_bytes;
        const uint64_t end = segment->addr + (row + 1) * row_bytes;
        const uint64_t part = left < end - at ? left : end - at;

        add_part(&rows[row], what, live, part);
        at += part;
        left -= part;
    }
}

static void add_set(const struct ms_survey_device *device, uint8_t index, struct map_row *rows,
                    const struct ms_live_set *set, enum what what)
{
    for (size_t i = 0; i < ms_live_room(set); i++) {
        const struct ms_live *live = ms_live_at(set, i);

        if (live->key == 0 || live->device != index || live->addr == 0) {
            continue;
        }
        for (size_t k = 0; k < device->segment_count; k++) {
            const struct ms_map_segment *segment = &device->segments[k];

            if (live->addr < segment->addr + segment->bytes &&
                segment->addr < live->addr + live->bytes) {
                add_to_rows(segment, rows + k * MS_MAP_ROWS, what, live);
            }
        }
    }
}

/* The state of most of it. */
static struct ms_map_cell cell_of(const struct map_row *row, uint64_t row_bytes)
{
    const uint64_t device_bytes = ms_less(row->mapped_bytes, row->host_bytes);
    const uint64_t live = row->live_bytes < device_bytes ? row->live_bytes : device_bytes;
    const uint64_t known =
        row->mapped_bytes > row->arena_bytes ? row->mapped_bytes : row->arena_bytes;
    const uint64_t parts[] = {
        [MS_MAP_NOTHING] = ms_less(row_bytes, known),
        [MS_MAP_LIVE] = live,
        [MS_MAP_HOLE] = ms_less(device_bytes, live),
        [MS_MAP_TAKEN] = ms_less(row->arena_bytes, row->mapped_bytes),
        [MS_MAP_SPILLED] = row->host_bytes,
    };
    struct ms_map_cell cell = {.state = MS_MAP_LIVE};
    uint64_t most = 0;

    for (unsigned state = 0; state < sizeof(parts) / sizeof(parts[0]); state++) {
        cell.state = parts[state] > parts[cell.state] ? (uint8_t)state : cell.state;
    }
    for (size_t i = 0; i < CELL_SITES; i++) {
        if (row->sites[i].bytes > most) {
            most = row->sites[i].bytes;
            cell.site = row->sites[i].site;
        }
    }
    cell.live_share = row->live_bytes < row_bytes
                          ? (uint8_t)((double)row->live_bytes / (double)row_bytes * UINT8_MAX)
                          : UINT8_MAX;
    return cell;
}

static void draw_column(struct ms_map *map, struct ms_survey_device *device, uint8_t index,
                        const struct ms_live_set *live)
{
    struct ms_buffer buffer = {0};
    struct map_row *rows =
        ms_buffer_extend(&buffer, device->segment_count * MS_MAP_ROWS * sizeof(*rows));

    if (rows) {
        add_set(device, index, rows, &map->mapped, WHAT_MAPPED);
        add_set(device, index, rows, &map->arenas, WHAT_ARENA);
        add_set(device, index, rows, live, WHAT_LIVE);
        for (size_t k = 0; k < device->segment_count; k++) {
            struct ms_map_segment *segment = &device->segments[k];

            for (size_t row = 0; row < MS_MAP_ROWS; row++) {
                segment->cells[row][map->column] =
                    cell_of(&rows[k * MS_MAP_ROWS + row], segment->bytes / MS_MAP_ROWS);
            }
        }
    }
    ms_buffer_free(&buffer);
}

void ms_map_pass(struct ms_map *map, struct ms_survey *survey, const struct ms_live_set *live,
                 uint64_t time_ns)
{
    while (map->column < MS_MAP_COLUMNS &&
           survey->bucket_ns * COLUMN_LENGTH * (map->column + 1) <= time_ns) {
        for (unsigned i = 0; i < MS_DEVICE_COUNT; i++) {
            if (survey->devices[i].segment_count > 0) {
                draw_column(map, &survey->devices[i], (uint8_t)i, live);
            }
        }
        map->column++;
    }
}
