/* SPDX-License-Identifier: Apache-2.0 */
/* A naive model of what must be true of a pool, its arenas and its proxies. See model.h. */
#include "model.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/base/containers/pages.h"

bool model_begin(struct model *model, bool plain, struct ms_budget *budget)
{
    memset(model, 0, sizeof(*model));
    pthread_mutexattr_t recursive;
    pthread_mutexattr_init(&recursive);
    pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&model->lock, &recursive);
    pthread_mutexattr_destroy(&recursive);
    model->plain = plain;
    model->budget = budget;
    /* Pages of the system's: the heap would have to clear them all each time. */
    model->cell = ms_pages_map(MODEL_CELLS * sizeof(*model->cell));
    return model->cell != NULL;
}

void model_end(struct model *model)
{
    ms_pages_unmap(model->cell, MODEL_CELLS * sizeof(*model->cell));
    free(model->chunk);
    pthread_mutex_destroy(&model->lock);
}

static void lock(struct model *model)
{
    pthread_mutex_lock(&model->lock);
}

static void unlock(struct model *model)
{
    pthread_mutex_unlock(&model->lock);
}

void model_wrong(struct model *model, const char *format, ...)
{
    lock(model);
    if (model->wrong[0] == '\0') {
        va_list arguments;
        va_start(arguments, format);
        (void)vsnprintf(model->wrong, sizeof(model->wrong), format, arguments);
        va_end(arguments);
    }
    unlock(model);
}

/* ---- cells */

/* Cells of a range that lies on reserved addresses; *count of them. */
static struct model_cell *cells_of(struct model *model, ms_addr_t addr, uint64_t bytes,
                                   size_t *count)
{
    *count = 0;
    if (model->plain) {
        return model->cell;
    }
    uint64_t first = (addr - model->first_addr) / GRANULE;
    uint64_t end = (addr + bytes - 1 - model->first_addr) / GRANULE + 1;
    if (addr < model->first_addr || end > MODEL_CELLS) {
        model_wrong(model, "address %#lx lies beyond the model's cells", (unsigned long)addr);
        return model->cell;
    }
    model->cells = end > model->cells ? end : model->cells;
    *count = end - first;
    return &model->cell[first];
}

void model_mapped(struct model *model, ms_addr_t addr, uint64_t bytes, ms_handle_t chunk)
{
    size_t count = 0;
    lock(model);
    struct model_cell *cell = cells_of(model, addr, bytes, &count);
    for (size_t k = 0; k < count; k++) {
        cell[k].chunk = chunk;
        cell[k].access = false; /* until it is given */
    }
    unlock(model);
}

void model_accessed(struct model *model, ms_addr_t addr, uint64_t bytes)
{
    size_t count = 0;
    lock(model);
    struct model_cell *cell = cells_of(model, addr, bytes, &count);
    for (size_t k = 0; k < count; k++) {
        cell[k].access = true;
    }
    unlock(model);
}

void model_unmapping(struct model *model, ms_addr_t addr, uint64_t bytes)
{
    size_t count = 0;
    lock(model);
    const struct model_cell *cell = cells_of(model, addr, bytes, &count);
    for (size_t k = 0; k < count && !model->over; k++) {
        unsigned long at = (unsigned long)(addr + k * GRANULE);
        if (!cell[k].access) {
            continue; /* a mapping that is undone before anybody could use it */
        }
        if (cell[k].touch[MODEL_LIVE] != 0 && !model->halted) {
            model_wrong(model, "the backing at %#lx is taken from under something live", at);
        }
        /* Of what stays, contents that are on the host may move once more: back, to be pinned. */
        bool comes_back = model->halted && cell[k].touch[MODEL_PINNED] == 0 &&
                          model->chunk[cell[k].chunk].location == MS_LOCATION_HOST;
        if (cell[k].touch[MODEL_KEPT] != 0 && !comes_back) {
            model_wrong(model, "backing is taken at %#lx, which is pinned or frozen", at);
        }
        if (cell[k].touch[MODEL_INSIDE] != 0 && model->nothing_taken && !model->halted) {
            model_wrong(model, "backing is taken at %#lx after a report was wrong", at);
        }
    }
    unlock(model);
}

void model_unmapped(struct model *model, ms_addr_t addr, uint64_t bytes)
{
    model_mapped(model, addr, bytes, 0);
}

static void touch(struct model *model, enum model_touch what, ms_addr_t addr, uint64_t bytes,
                  int by)
{
    size_t count = 0;
    struct model_cell *cell = cells_of(model, addr, bytes, &count);
    for (size_t k = 0; k < count; k++) {
        if (by < 0 && cell[k].touch[what] == 0) {
            model_wrong(model, "the test lost count at %#lx", (unsigned long)addr);
            break;
        }
        cell[k].touch[what] += (uint32_t)by;
    }
}

/* The end of what is set aside for a block: what is beyond the bytes asked for is nobody's. */
static ms_addr_t end_of_block(const struct model *model, ms_addr_t addr, uint64_t bytes)
{
    uint64_t unit =
        bytes >= MIB && model->page_bytes != 0 ? model->page_bytes : MS_BLOCK_ALIGNMENT_BYTES;
    return addr + (bytes + unit - 1) / unit * unit;
}

void model_touch(struct model *model, enum model_touch what, ms_addr_t addr, uint64_t bytes, int by)
{
    lock(model);
    touch(model, what, addr, bytes, by);
    ms_addr_t from = (addr + GRANULE - 1) / GRANULE * GRANULE;
    ms_addr_t to = end_of_block(model, addr, bytes) / GRANULE * GRANULE;
    if (what == MODEL_ARENA && from < to) {
        touch(model, MODEL_INSIDE, from, to - from, by);
    }
    unlock(model);
}

uint64_t model_takeable_bytes(struct model *model)
{
    uint64_t bytes = 0;
    lock(model);
    for (size_t k = 0; k < model->cells && !model->nothing_taken; k++) {
        const struct model_cell *cell = &model->cell[k];
        const uint32_t *touch = cell->touch;
        if (cell->told == 0 || touch[MODEL_INSIDE] == 0 ||
            touch[MODEL_LIVE] + touch[MODEL_STRANDED] + touch[MODEL_KEPT] != 0) {
            continue;
        }
        const struct model_chunk *chunk = &model->chunk[cell->told];
        bool ours = chunk->bytes == GRANULE && chunk->location == MS_LOCATION_DEVICE;
        bytes += ours ? GRANULE : 0;
    }
    unlock(model);
    return bytes;
}

struct model_arenas model_arena_sums(struct model *model)
{
    struct model_arenas sums = {0};
    lock(model);
    for (size_t k = 0; k < model->cells; k++) {
        const struct model_cell *cell = &model->cell[k];
        if (cell->touch[MODEL_INSIDE] != 0 && cell->chunk == 0) {
            sums.unbacked_bytes += GRANULE;
        } else if (cell->touch[MODEL_INSIDE] != 0 &&
                   cell->touch[MODEL_LIVE] + cell->touch[MODEL_STRANDED] == 0) {
            sums.hole_bytes += GRANULE;
        }
    }
    unlock(model);
    return sums;
}

bool model_is_chunk(struct model *model, ms_addr_t addr, uint64_t bytes, ms_handle_t chunk)
{
    size_t count = 0;
    bool same = true;
    lock(model);
    const struct model_cell *cell = cells_of(model, addr, bytes, &count);
    for (size_t k = 0; k < count; k++) {
        same = same && cell[k].chunk == chunk;
    }
    unlock(model);
    return same;
}

/* Whatever lives is mapped and accessible. */
static void check_live(struct model *model, size_t k)
{
    const struct model_cell *cell = &model->cell[k];
    if (cell->touch[MODEL_LIVE] != 0 && (cell->chunk == 0 || !cell->access)) {
        model_wrong(model, "something live at %#lx has no %s",
                    (unsigned long)(model->first_addr + k * GRANULE),
                    cell->chunk == 0 ? "backing" : "access");
    }
}

void model_halted(struct model *model, bool halted)
{
    lock(model);
    for (size_t k = 0; k < model->cells && !halted; k++) {
        check_live(model, k);
    }
    model->halted = halted;
    unlock(model);
}

void model_compare_cells(struct model *model)
{
    lock(model);
    for (size_t k = 0; k < model->cells; k++) {
        const struct model_cell *cell = &model->cell[k];
        unsigned long at = (unsigned long)(model->first_addr + k * GRANULE);
        if (cell->chunk != cell->told) {
            model_wrong(model, "at %#lx lies chunk %lu, and the events say %lu", at,
                        (unsigned long)cell->chunk, (unsigned long)cell->told);
        }
        check_live(model, k);
    }
    unlock(model);
}

/* ---- chunks, by the events */

static bool grow_chunks(struct model *model, ms_handle_t handle)
{
    while (handle >= model->chunk_room) {
        size_t room = model->chunk_room == 0 ? 1024 : model->chunk_room * 2;
        struct model_chunk *grown = realloc(model->chunk, room * sizeof(*grown));
        if (grown == NULL) {
            return false;
        }
        memset(&grown[model->chunk_room], 0, (room - model->chunk_room) * sizeof(*grown));
        model->chunk = grown;
        model->chunk_room = room;
    }
    model->chunks = handle >= model->chunks ? handle + 1 : model->chunks;
    return true;
}

/* Where a chunk of this handle is kept; null where there is no room. Handles count up from 1 on the
 * dry device, and are addresses where it has no virtual memory management. */
static struct model_chunk *place_of_chunk(struct model *model, ms_handle_t handle)
{
    if (!model->plain) {
        return handle >> 32 == 0 && grow_chunks(model, handle) ? &model->chunk[handle] : NULL;
    }
    struct model_chunk *vacant = NULL;
    for (size_t k = 0; k < MODEL_PLAIN_CHUNKS; k++) {
        struct model_chunk *chunk = &model->plain_chunk[k];
        if (chunk->bytes != 0 && chunk->handle == handle) {
            return chunk;
        }
        vacant = chunk->bytes == 0 && vacant == NULL ? chunk : vacant;
    }
    return vacant;
}

static void chunk_created(struct model *model, struct model_chunk *chunk,
                          const struct ms_event *event)
{
    if (chunk->bytes != 0) {
        model_wrong(model, "chunk %lu is created twice", (unsigned long)event->id);
    }
    *chunk = (struct model_chunk){
        .bytes = event->bytes, .handle = event->id, .location = (enum ms_location)event->aux};
    bool on_host = chunk->location == MS_LOCATION_HOST;
    *(on_host ? &model->told.host_bytes : &model->told.device_bytes) += event->bytes;
    model->told.chunks++;
    if (model->budget != NULL &&
        model->told.device_bytes > atomic_load(&model->budget->cap_bytes)) {
        model_wrong(model, "%lu bytes of chunks are told, more than the cap",
                    (unsigned long)model->told.device_bytes);
    }
}

static void chunk_released(struct model *model, struct model_chunk *chunk,
                           const struct ms_event *event)
{
    bool on_host = chunk->location == MS_LOCATION_HOST;
    if (chunk->addr != 0 || chunk->also != 0) {
        model_wrong(model, "chunk %lu is released while mapped", (unsigned long)event->id);
    }
    if (event->aux != (uint64_t)chunk->location) {
        model_wrong(model, "chunk %lu is released elsewhere", (unsigned long)event->id);
    }
    *(on_host ? &model->told.host_bytes : &model->told.device_bytes) -= chunk->bytes;
    model->told.chunks--;
    chunk->bytes = 0;
}

/* False: it is there already, or twice, or is not there. */
static bool place_chunk(const struct model *model, struct model_chunk *chunk, ms_addr_t addr,
                        bool maps)
{
    ms_addr_t *place = &chunk->addr;
    if (maps && chunk->addr != 0) {
        bool viewed =
            model->views && chunk->bytes == GRANULE && chunk->location == MS_LOCATION_DEVICE;
        place = &chunk->also;
        if (!(viewed || model->halted) || chunk->also != 0) {
            return false;
        }
    } else if (!maps && chunk->addr != addr) {
        place = &chunk->also;
    }
    if (!maps && *place != addr) {
        return false;
    }
    *place = maps ? addr : 0;
    if (chunk->addr == 0) {
        chunk->addr = chunk->also;
        chunk->also = 0;
    }
    return true;
}

static void chunk_moved(struct model *model, struct model_chunk *chunk,
                        const struct ms_event *event)
{
    bool maps = event->kind == MS_EVENT_MAP;
    bool was_mapped = chunk->addr != 0;
    size_t count = 0;
    struct model_cell *cell = cells_of(model, event->addr, event->bytes, &count);
    if (!place_chunk(model, chunk, event->addr, maps)) {
        model_wrong(model, "chunk %lu is %s at %#lx, and lies at %#lx", (unsigned long)event->id,
                    maps ? "mapped" : "unmapped", (unsigned long)event->addr,
                    (unsigned long)chunk->addr);
    }
    for (size_t k = 0; k < count; k++) {
        if (cell[k].told != (maps ? 0 : event->id)) {
            model_wrong(model, "the events map two chunks at %#lx", (unsigned long)event->addr);
        }
        cell[k].told = maps ? event->id : 0;
    }
    model->told.mappings += maps ? 1 : -1;
    if (chunk->location == MS_LOCATION_HOST && was_mapped != (chunk->addr != 0)) {
        model->told.host_mapped_bytes += maps ? chunk->bytes : -chunk->bytes;
    }
}

static void chunk_event(struct model *model, const struct ms_event *event)
{
    struct model_chunk *chunk = place_of_chunk(model, event->id);
    if (chunk == NULL) {
        model_wrong(model, "more chunks than the model has room for");
        return;
    }
    if (event->kind == MS_EVENT_CHUNK_CREATE) {
        chunk_created(model, chunk, event);
        return;
    }
    if (chunk->bytes != event->bytes) {
        model_wrong(model, "chunk %lu has %lu bytes, and an event says %lu",
                    (unsigned long)event->id, (unsigned long)chunk->bytes,
                    (unsigned long)event->bytes);
    } else if (event->kind == MS_EVENT_CHUNK_RELEASE) {
        chunk_released(model, chunk, event);
    } else {
        chunk_moved(model, chunk, event);
    }
}

/* Whether chunks that the events told of stand behind the whole range. */
static bool covered(struct model *model, ms_addr_t addr, uint64_t bytes)
{
    uint64_t plain_bytes = 0;
    for (size_t k = 0; model->plain && k < MODEL_PLAIN_CHUNKS; k++) {
        const struct model_chunk *chunk = &model->plain_chunk[k];
        bool inside = chunk->addr <= addr && addr + bytes <= chunk->addr + chunk->bytes;
        plain_bytes += chunk->bytes != 0 && inside ? bytes : 0;
    }
    size_t count = 0;
    const struct model_cell *cell = cells_of(model, addr, bytes, &count);
    for (size_t k = 0; k < count; k++) {
        if (cell[k].told == 0) {
            return false;
        }
    }
    return !model->plain || plain_bytes == bytes;
}

/* ---- blocks, tensors and pages, by the events */

static void block_recorded(struct model *model, const struct ms_event *event)
{
    if (!covered(model, event->addr, event->bytes)) {
        model_wrong(model, "block at %#lx, %lu bytes, is told before its backing",
                    (unsigned long)event->addr, (unsigned long)event->bytes);
    }
    if (event->aux < event->bytes || event->aux % MS_BLOCK_ALIGNMENT_BYTES != 0) {
        model_wrong(model, "block at %#lx: %lu bytes asked for, %lu set aside",
                    (unsigned long)event->addr, (unsigned long)event->bytes,
                    (unsigned long)event->aux);
    }
    if (event->id <= model->told.last_id) {
        model_wrong(model, "block %lu comes after block %lu", (unsigned long)event->id,
                    (unsigned long)model->told.last_id);
    }
    model->told.last_id = event->id;
    model->told.blocks++;
    model->told.block_bytes += event->bytes;
}

/* Told after the chunks: all of it lies where it has gone to. */
static void moved(struct model *model, const struct ms_event *event)
{
    bool down = event->kind == MS_EVENT_SPILL;
    size_t count = 0;
    const struct model_cell *cell = cells_of(model, event->addr, event->bytes, &count);
    for (size_t k = 0; k < count; k++) {
        bool there = cell[k].told != 0 && model->chunk[cell[k].told].location ==
                                              (down ? MS_LOCATION_HOST : MS_LOCATION_DEVICE);
        if (!there || !model->halted) {
            model_wrong(model, "%#lx is said to have moved, and %s", (unsigned long)event->addr,
                        there ? "nobody holds the device" : "it has not");
        }
    }
    *(down ? &model->told.down_bytes : &model->told.up_bytes) += event->bytes;
    *(down ? &model->told.spills : &model->told.promotions) += 1;
}

static void other_event(struct model *model, const struct ms_event *event)
{
    struct model_recorded *told = &model->told;
    switch (event->kind) {
    case MS_EVENT_BLOCK_ALLOC:
        block_recorded(model, event);
        break;
    case MS_EVENT_BLOCK_FREE:
        told->blocks--;
        told->block_bytes -= event->bytes;
        told->arenas -= event->aux;
        break;
    case MS_EVENT_BLOCK_ARENA:
        told->arenas++;
        break;
    case MS_EVENT_TENSOR_ALLOC:
        told->tensors++;
        told->tensor_bytes += event->bytes;
        break;
    case MS_EVENT_TENSOR_FREE:
        told->tensors--;
        told->tensor_bytes -= event->bytes;
        break;
    case MS_EVENT_PROXY_MAP:
        told->pages++;
        told->page_bytes += event->bytes;
        break;
    case MS_EVENT_PROXY_UNMAP:
        told->pages--;
        told->page_bytes -= event->bytes;
        break;
    case MS_EVENT_ARENA_FROZEN:
        told->frozen++;
        break;
    case MS_EVENT_SPILL:
    case MS_EVENT_PROMOTE:
        moved(model, event);
        break;
    case MS_EVENT_NONE:
        model_wrong(model, "an event without a kind");
        break;
    default:
        break;
    }
}

void model_event(void *ctx, const struct ms_event *event)
{
    struct model *model = ctx;
    lock(model);
    switch (event->kind) {
    case MS_EVENT_CHUNK_CREATE:
    case MS_EVENT_CHUNK_RELEASE:
    case MS_EVENT_MAP:
    case MS_EVENT_UNMAP:
        chunk_event(model, event);
        break;
    default:
        other_event(model, event);
        break;
    }
    unlock(model);
}

/* ---- blocks, as they were handed out */

/* The first block at or after addr. */
static size_t place_of(const struct model *model, ms_addr_t addr)
{
    size_t low = 0;
    size_t high = model->blocks;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (model->block[middle].addr < addr) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* The part of a block on one granule, whose chunk lies elsewhere too: no block may have it there.
 */
static void check_view(struct model *model, ms_addr_t addr, uint64_t bytes)
{
    size_t count = 0;
    const struct model_cell *cell = cells_of(model, addr, bytes, &count);
    const struct model_chunk *chunk = count == 1 ? &model->chunk[cell->told] : NULL;
    if (chunk == NULL || chunk->also == 0) {
        return;
    }
    ms_addr_t granule = addr / GRANULE * GRANULE;
    ms_addr_t from = (chunk->addr == granule ? chunk->also : chunk->addr) + (addr - granule);
    for (size_t at = place_of(model, from + bytes); at-- > 0;) {
        if (model->block[at].addr + model->block[at].bytes > from) {
            model_wrong(model, "the bytes at %#lx are those at %#lx, of another block",
                        (unsigned long)addr, (unsigned long)model->block[at].addr);
        }
        break;
    }
}

static void check_views(struct model *model, ms_addr_t addr, uint64_t bytes)
{
    ms_addr_t end = addr + bytes;
    while (model->views && addr < end) {
        ms_addr_t next = (addr / GRANULE + 1) * GRANULE;
        next = next < end ? next : end;
        check_view(model, addr, next - addr);
        addr = next;
    }
}

static void check_block(struct model *model, size_t at, const struct ms_request *request,
                        const struct ms_block_info *info)
{
    unsigned long addr = (unsigned long)info->addr;
    if (info->addr == 0 || info->addr % MS_BLOCK_ALIGNMENT_BYTES != 0) {
        model_wrong(model, "block at %#lx is misaligned", addr);
    }
    if (info->bytes != request->bytes || info->stream != request->stream ||
        info->site != request->site || info->arena || info->pinned) {
        model_wrong(model, "block at %#lx is not what was asked for", addr);
    }
    if (at < model->blocks && info->addr + info->bytes > model->block[at].addr) {
        model_wrong(model, "block at %#lx runs into the next one", addr);
    }
    if (at > 0 && model->block[at - 1].addr + model->block[at - 1].bytes > info->addr) {
        model_wrong(model, "block at %#lx begins inside another", addr);
    }
    if (!covered(model, info->addr, info->bytes)) {
        model_wrong(model, "block at %#lx has no backing", addr);
    }
    check_views(model, info->addr, info->bytes);
}

void model_add_block(struct model *model, const struct ms_request *request,
                     const struct ms_block_info *info)
{
    lock(model);
    size_t at = place_of(model, info->addr);
    check_block(model, at, request, info);
    if (model->blocks == MODEL_BLOCKS) {
        model_wrong(model, "more blocks than the model has room for");
    } else {
        memmove(&model->block[at + 1], &model->block[at],
                (model->blocks - at) * sizeof(model->block[0]));
        model->block[at] = (struct model_block){.addr = info->addr, .bytes = info->bytes};
        model->blocks++;
    }
    unlock(model);
}

void model_remove_block(struct model *model, ms_addr_t addr)
{
    lock(model);
    size_t at = place_of(model, addr);
    if (at == model->blocks || model->block[at].addr != addr) {
        model_wrong(model, "the test lost its block at %#lx", (unsigned long)addr);
    } else {
        model->blocks--;
        memmove(&model->block[at], &model->block[at + 1],
                (model->blocks - at) * sizeof(model->block[0]));
    }
    unlock(model);
}

bool model_is_block(struct model *model, ms_addr_t addr)
{
    lock(model);
    size_t at = place_of(model, addr);
    bool found = at < model->blocks && model->block[at].addr == addr;
    unlock(model);
    return found;
}

/* Whether some of the cell is set aside for a block, if only behind the bytes asked for. */
static bool is_set_aside(const struct model *model, const struct model_cell *cell)
{
    const ms_addr_t from = model->first_addr + (ms_addr_t)(cell - model->cell) * GRANULE;
    const size_t behind = place_of(model, from + GRANULE);
    if (behind == 0) {
        return false;
    }
    const struct model_block *last = &model->block[behind - 1];
    return end_of_block(model, last->addr, last->bytes) > from;
}

/* Whether something lives in the cell, or in the other place of its chunk. */
static bool in_use(const struct model *model, const struct model_cell *cell)
{
    const struct model_chunk *chunk = &model->chunk[cell->chunk];
    const struct model_cell *other =
        chunk->also == 0 ? cell : &model->cell[(chunk->also - model->first_addr) / GRANULE];
    return cell->touch[MODEL_LIVE] + cell->touch[MODEL_ARENA] + other->touch[MODEL_LIVE] +
                   other->touch[MODEL_ARENA] !=
               0 ||
           is_set_aside(model, cell) || is_set_aside(model, other);
}

uint64_t model_host_bytes(struct model *model)
{
    lock(model);
    uint64_t bytes = model->told.host_bytes;
    unlock(model);
    return bytes;
}

uint64_t model_reclaimable_bytes(struct model *model)
{
    uint64_t bytes = 0;
    lock(model);
    for (size_t k = 0; k < model->cells;) {
        ms_handle_t handle = model->cell[k].chunk;
        if (handle == 0 || handle >= model->chunks) {
            k++;
            continue;
        }
        const struct model_chunk *chunk = &model->chunk[handle];
        bool counts =
            chunk->location == MS_LOCATION_DEVICE && model->first_addr + k * GRANULE != chunk->also;
        uint64_t run_bytes = 0;
        do {
            counts = counts && !in_use(model, &model->cell[k]);
            run_bytes += GRANULE;
            k++;
        } while (k < model->cells && run_bytes < chunk->bytes);
        bytes += counts ? run_bytes : 0;
    }
    unlock(model);
    return bytes;
}
