#include "model.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void model_wrong(struct model *model, const char *format, ...)
{
    if (model->wrong[0] != '\0') {
        return;
    }
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(model->wrong, sizeof(model->wrong), format, arguments);
    va_end(arguments);
}

static struct model_chunk *chunk_of(struct model *model, ms_handle_t handle)
{
    for (size_t k = 0; k < model->chunks; k++) {
        if (model->chunk[k].handle == handle) {
            return &model->chunk[k];
        }
    }
    model_wrong(model, "an event names chunk %lu, which is not there", (unsigned long)handle);
    return NULL;
}

static void chunk_event(struct model *model, const struct ms_event *event)
{
    if (event->kind == MS_EVENT_CHUNK_CREATE) {
        if (model->chunks == MODEL_CHUNKS) {
            model_wrong(model, "more chunks than the model has room for");
            return;
        }
        model->chunk[model->chunks++] =
            (struct model_chunk){.handle = event->id, .bytes = event->bytes};
        model->chunk_bytes += event->bytes;
        return;
    }
    struct model_chunk *chunk = chunk_of(model, event->id);
    if (chunk == NULL) {
        return;
    }
    if (chunk->bytes != event->bytes) {
        model_wrong(model, "an event gives chunk %lu another size", (unsigned long)event->id);
    }
    bool mapped = chunk->addr != 0;
    switch (event->kind) {
    case MS_EVENT_MAP:
        if (mapped) {
            model_wrong(model, "chunk %lu is mapped twice", (unsigned long)event->id);
        }
        chunk->addr = event->addr;
        break;
    case MS_EVENT_UNMAP:
        if (!mapped || chunk->addr != event->addr) {
            model_wrong(model, "chunk %lu is unmapped where it is not", (unsigned long)event->id);
        }
        chunk->addr = 0;
        break;
    default:
        if (mapped) {
            model_wrong(model, "chunk %lu is released while mapped", (unsigned long)event->id);
        }
        model->chunk_bytes -= chunk->bytes;
        *chunk = model->chunk[--model->chunks];
        break;
    }
}

/* Whether mapped chunks cover the whole range. */
static bool covered(const struct model *model, ms_addr_t addr, uint64_t bytes)
{
    uint64_t covered_bytes = 0;
    for (size_t k = 0; k < model->chunks; k++) {
        const struct model_chunk *chunk = &model->chunk[k];
        ms_addr_t from = chunk->addr > addr ? chunk->addr : addr;
        ms_addr_t chunk_end = chunk->addr + chunk->bytes;
        ms_addr_t to = chunk_end < addr + bytes ? chunk_end : addr + bytes;
        covered_bytes += chunk->addr != 0 && to > from ? to - from : 0;
    }
    return covered_bytes == bytes;
}

static void block_event(struct model *model, const struct ms_event *event)
{
    switch (event->kind) {
    case MS_EVENT_BLOCK_ALLOC:
        if (event->id <= model->last_id) {
            model_wrong(model, "id %lu comes after %lu", (unsigned long)event->id,
                        (unsigned long)model->last_id);
        }
        if (!covered(model, event->addr, event->bytes)) {
            model_wrong(model, "block at %#lx, %lu bytes, is told before its backing",
                        (unsigned long)event->addr, (unsigned long)event->bytes);
        }
        model->last_id = event->id;
        model->blocks_told++;
        model->live_told_bytes += event->bytes;
        break;
    case MS_EVENT_BLOCK_FREE:
        model->blocks_told--;
        model->live_told_bytes -= event->bytes;
        break;
    case MS_EVENT_TENSOR_BORN:
        model->tensors++;
        model->tensor_bytes += event->bytes;
        break;
    case MS_EVENT_TENSOR_DIED:
        model->tensors--;
        model->tensor_bytes -= event->bytes;
        break;
    default:
        break;
    }
}

void model_event(void *ctx, const struct ms_event *event)
{
    struct model *model = ctx;
    switch (event->kind) {
    case MS_EVENT_CHUNK_CREATE:
    case MS_EVENT_CHUNK_RELEASE:
    case MS_EVENT_MAP:
    case MS_EVENT_UNMAP:
        chunk_event(model, event);
        break;
    default:
        block_event(model, event);
        break;
    }
}

/* The first block at or after addr. */
static size_t place_of(const struct model *model, ms_addr_t addr)
{
    size_t low = 0;
    size_t high = model->blocks;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (model->block[middle].info.addr < addr) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

size_t model_add(struct model *model, const struct ms_request *request,
                 const struct ms_block_info *info)
{
    size_t at = place_of(model, info->addr);
    if (info->addr == 0 || info->addr % MS_BLOCK_ALIGNMENT_BYTES != 0) {
        model_wrong(model, "block at %#lx is misaligned", (unsigned long)info->addr);
    }
    if (info->bytes != request->bytes || info->stream != request->stream ||
        info->site != request->site || info->arena || info->pinned) {
        model_wrong(model, "block at %#lx is not what was asked for", (unsigned long)info->addr);
    }
    if (at < model->blocks && info->addr + info->bytes > model->block[at].info.addr) {
        model_wrong(model, "block at %#lx runs into the next one", (unsigned long)info->addr);
    }
    if (at > 0) {
        const struct ms_block_info *before = &model->block[at - 1].info;
        if (before->addr + before->bytes > info->addr) {
            model_wrong(model, "block at %#lx begins inside another", (unsigned long)info->addr);
        }
    }
    memmove(&model->block[at + 1], &model->block[at],
            (model->blocks - at) * sizeof(model->block[0]));
    model->block[at] = (struct model_block){.info = *info, .born_on = info->stream};
    model->blocks++;
    return at;
}

void model_remove(struct model *model, size_t at)
{
    model->blocks--;
    memmove(&model->block[at], &model->block[at + 1],
            (model->blocks - at) * sizeof(model->block[0]));
}

uint64_t model_reclaimable_bytes(const struct model *model)
{
    uint64_t bytes = 0;
    for (size_t k = 0; k < model->chunks; k++) {
        const struct model_chunk *chunk = &model->chunk[k];
        bool touched = false;
        if (chunk->addr != 0) {
            size_t at = place_of(model, chunk->addr + 1);
            touched =
                (at < model->blocks && model->block[at].info.addr < chunk->addr + chunk->bytes) ||
                (at > 0 &&
                 model->block[at - 1].info.addr + model->block[at - 1].info.bytes > chunk->addr);
        }
        bytes += touched ? 0 : chunk->bytes;
    }
    return bytes;
}
