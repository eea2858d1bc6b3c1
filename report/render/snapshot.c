/* SPDX-License-Identifier: Apache-2.0 */
/* A snapshot of PyTorch's allocator, in the format that torch.cuda.memory._dump_snapshot pickles
 * and memory_viz opens: segments with their live memory at the moment, and the newest events before
 * it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/base/clock.h"
#include "report/model/site_rows.h"
#include "report/model/snapshot.h"
#include "report/render/encodings/pickle.h"
#include "report/render/forms.h"
#include "report/symbols/frame_table.h"

#define WHY_BYTES   (PATH_MAX + 512)
#define LARGE_BYTES (UINT64_C(1) << 20) /* PyTorch's own limit between small and large segments */
#define NOT_KEPT    UINT32_MAX
#define MOST_TAGS   64

struct snapshot_writer {
    const struct ms_model *model;
    struct ms_snapshot *snapshot;
    struct ms_pickle pickle;
    struct ms_frame_table frames;
    struct ms_buffer frame_memos; /* uint32_t: the reader's memo of a frame, by its number */
    struct ms_buffer site_memos;  /* uint32_t: likewise of a site's list of frames; NOT_KEPT */
    struct ms_buffer text;
};

/* ---- frames ---- */

/* A separator of stacks would end a name in flame graphs made from it. */
static void add_name(struct snapshot_writer *writer, const char *name)
{
    writer->text.bytes = 0;
    for (; *name; name++) {
        ms_buffer_append(&writer->text, *name == ';' ? "," : name, 1);
    }
    ms_buffer_append(&writer->text, "", 1);
    ms_pickle_name(&writer->pickle, writer->text.at);
}

static void add_frame(struct snapshot_writer *writer, const struct ms_frame *frame)
{
    const size_t number = ms_frame_table_add(&writer->frames, frame);
    const uint32_t *memos = (const uint32_t *)writer->frame_memos.at;
    uint32_t *memo;

    if (number * sizeof(*memos) < writer->frame_memos.bytes) {
        ms_pickle_again(&writer->pickle, memos[number]);
        return;
    }
    ms_pickle_open_dict(&writer->pickle);
    ms_pickle_word(&writer->pickle, "filename");
    add_name(writer, frame->file ? frame->file : frame->module ? frame->module : "??");
    ms_pickle_add_number(&writer->pickle, "line", frame->line);
    ms_pickle_word(&writer->pickle, "name");
    add_name(writer, frame->function);
    ms_pickle_close_dict(&writer->pickle);
    memo = ms_buffer_extend(&writer->frame_memos, sizeof(*memo));
    if (memo) {
        *memo = ms_pickle_keep(&writer->pickle);
    }
}

/* The member "frames", once for each site. */
static void add_frames(struct snapshot_writer *writer, uint32_t site)
{
    uint32_t *memos = (uint32_t *)writer->site_memos.at;
    const bool known = site < writer->site_memos.bytes / sizeof(*memos);
    size_t count = 0, batch;
    const struct ms_frame *frames =
        writer->model->stacks ? ms_stacks_frames(writer->model->stacks, site, &count) : NULL;

    ms_pickle_word(&writer->pickle, "frames");
    if (known && memos[site] != NOT_KEPT) {
        ms_pickle_again(&writer->pickle, memos[site]);
        return;
    }
    ms_pickle_open_list(&writer->pickle, &batch);
    for (size_t i = 0; i < count; i++) {
        ms_pickle_next(&writer->pickle, &batch);
        add_frame(writer, &frames[i]);
    }
    ms_pickle_close_list(&writer->pickle);
    if (known) {
        memos[site] = ms_pickle_keep(&writer->pickle);
    }
}

/* ---- segments ---- */

static int by_place(const void *a, const void *b)
{
    const struct ms_standing *left = a, *right = b;

    if (left->device != right->device) {
        return left->device < right->device ? -1 : 1;
    }
    return left->addr < right->addr ? -1 : left->addr > right->addr;
}

static void add_block(struct snapshot_writer *writer, uint64_t addr, uint64_t bytes,
                      const struct ms_standing *standing)
{
    struct ms_pickle *pickle = &writer->pickle;

    ms_pickle_open_dict(pickle);
    ms_pickle_add_number(pickle, "address", addr);
    ms_pickle_add_number(pickle, "size", bytes);
    ms_pickle_add_number(pickle, "requested_size", standing ? bytes : 0);
    ms_pickle_add_word(pickle, "state", standing ? "active_allocated" : "inactive");
    add_frames(writer, standing ? standing->site : 0);
    ms_pickle_close_dict(pickle);
}

/* Adds a segment's live blocks, in order from *next; cuts overlaps, which a damaged trace may have.
 * Returns their bytes. */
static uint64_t add_blocks(struct snapshot_writer *writer, const struct ms_container *segment,
                           uint8_t device, size_t *next)
{
    const struct ms_instant *instant = &writer->snapshot->instant;
    const uint64_t end = segment->addr + segment->bytes;
    uint64_t addr = segment->addr, live_bytes = 0;
    size_t batch;

    ms_pickle_word(&writer->pickle, "blocks");
    ms_pickle_open_list(&writer->pickle, &batch);
    for (; *next < ms_instant_count(instant); (*next)++) {
        const struct ms_standing *standing = ms_instant_at(instant, *next);

        if (standing->device != device || standing->addr >= end) {
            break;
        }

        const uint64_t begin = standing->addr > addr ? standing->addr : addr;
        const uint64_t room = end - begin;
        const uint64_t cut = begin - standing->addr;

        if (standing->addr < segment->addr || cut >= standing->bytes || room == 0) {
            continue;
        }

        const uint64_t left = standing->bytes - cut;
        const uint64_t bytes = left < room ? left : room;

        if (begin > addr) {
            ms_pickle_next(&writer->pickle, &batch);
            add_block(writer, addr, begin - addr, NULL);
        }
        ms_pickle_next(&writer->pickle, &batch);
        add_block(writer, begin, bytes, standing);
        live_bytes += bytes;
        addr = begin + bytes;
    }
    if (addr < end) {
        ms_pickle_next(&writer->pickle, &batch);
        add_block(writer, addr, end - addr, NULL);
    }
    ms_pickle_close_list(&writer->pickle);
    return live_bytes;
}

static void add_segment(struct snapshot_writer *writer, uint8_t device,
                        const struct ms_container *segment, size_t *next)
{
    struct ms_pickle *pickle = &writer->pickle;
    uint64_t live_bytes;

    ms_pickle_open_dict(pickle);
    ms_pickle_add_number(pickle, "device", device);
    ms_pickle_add_number(pickle, "address", segment->addr);
    ms_pickle_add_number(pickle, "total_size", segment->bytes);
    ms_pickle_add_number(pickle, "stream", segment->stream);
    ms_pickle_add_word(pickle, "segment_type",
                       segment->bytes > 2 * LARGE_BYTES ? "large" : "small");
    ms_pickle_word(pickle, "segment_pool_id");
    ms_pickle_pair(pickle, 0, 0);
    ms_pickle_word(pickle, "is_expandable");
    ms_pickle_flag(pickle, segment->pages);
    add_frames(writer, segment->site);
    live_bytes = add_blocks(writer, segment, device, next);
    ms_pickle_add_number(pickle, "allocated_size", live_bytes);
    ms_pickle_add_number(pickle, "active_size", live_bytes);
    ms_pickle_add_number(pickle, "requested_size", live_bytes);
    ms_pickle_close_dict(pickle);
}

static void add_segments(struct snapshot_writer *writer)
{
    struct ms_instant *instant = &writer->snapshot->instant;
    size_t batch, next = 0;

    /* From here on they are found by order alone. */
    if (ms_instant_count(instant) > 0) {
        qsort(instant->standing.at, ms_instant_count(instant), sizeof(struct ms_standing),
              by_place);
    }
    ms_pickle_word(&writer->pickle, "segments");
    ms_pickle_open_list(&writer->pickle, &batch);
    for (int i = 0; i < MS_DEVICE_COUNT; i++) {
        const struct ms_containers *segments = &writer->snapshot->devices[i].segments;

        while (next < ms_instant_count(instant) && ms_instant_at(instant, next)->device < i) {
            next++;
        }
        for (size_t k = 0; k < ms_containers_count(segments); k++) {
            ms_pickle_next(&writer->pickle, &batch);
            add_segment(writer, (uint8_t)i, ms_containers_at(segments, k), &next);
        }
    }
    ms_pickle_close_list(&writer->pickle);
}

/* ---- events ---- */

static void add_tags(struct snapshot_writer *writer, uint32_t site)
{
    const struct ms_site_definition *definition =
        ms_definitions_site(writer->model->definitions, site);
    const char *names[MOST_TAGS];
    const size_t count = definition && definition->tag
                             ? ms_tag_path(writer->model, definition->tag, names, MOST_TAGS)
                             : 0;

    writer->text.bytes = 0;
    for (size_t i = 0; i < count; i++) {
        ms_buffer_add(&writer->text, i > 0 ? "/" : "");
        ms_buffer_add(&writer->text, names[i]);
    }
    ms_buffer_append(&writer->text, "", 1);
    ms_pickle_word(&writer->pickle, "user_metadata");
    ms_pickle_name(&writer->pickle, writer->text.at);
}

static void add_entry(struct snapshot_writer *writer, const struct ms_snapshot_entry *entry,
                      const char *action)
{
    const bool oom = entry->action == MS_ACTION_OOM;
    const uint64_t start_us = writer->model->header.start_unix_ns / MS_NS_PER_US;
    struct ms_pickle *pickle = &writer->pickle;

    ms_pickle_open_dict(pickle);
    ms_pickle_add_word(pickle, "action", action);
    ms_pickle_add_number(pickle, oom ? "device_free" : "addr", entry->addr);
    ms_pickle_add_number(pickle, "size", entry->bytes);
    ms_pickle_add_number(pickle, "stream", entry->stream);
    ms_pickle_add_number(pickle, "time_us", start_us + entry->time_ns / MS_NS_PER_US);
    add_tags(writer, entry->site);
    add_frames(writer, entry->site);
    ms_pickle_close_dict(pickle);
}

static void add_trace(struct snapshot_writer *writer, const struct ms_snapshot_device *device)
{
    static const char *const actions[] = {[MS_ACTION_ALLOC] = "alloc",
                                          [MS_ACTION_FREE] = "free_requested",
                                          [MS_ACTION_SEGMENT_ALLOC] = "segment_alloc",
                                          [MS_ACTION_SEGMENT_FREE] = "segment_free",
                                          [MS_ACTION_SEGMENT_MAP] = "segment_map",
                                          [MS_ACTION_SEGMENT_UNMAP] = "segment_unmap",
                                          [MS_ACTION_OOM] = "oom"};
    const size_t count = ms_snapshot_entry_count(device);
    size_t i = count > MS_SNAPSHOT_ENTRIES ? count - MS_SNAPSHOT_ENTRIES : 0;
    size_t batch;

    ms_pickle_open_list(&writer->pickle, &batch);
    for (; i < count; i++) {
        const struct ms_snapshot_entry *entry = ms_snapshot_entry_at(device, i);

        if (entry->action == MS_ACTION_NONE) {
            continue;
        }
        ms_pickle_next(&writer->pickle, &batch);
        add_entry(writer, entry, actions[entry->action]);
        if (entry->action == MS_ACTION_FREE) {
            ms_pickle_next(&writer->pickle, &batch);
            add_entry(writer, entry, "free_completed");
        }
    }
    ms_pickle_close_list(&writer->pickle);
}

/* A list for each device up to the last used one. */
static void add_traces(struct snapshot_writer *writer)
{
    int devices = 0;
    size_t batch;

    for (int i = 0; i < MS_DEVICE_COUNT; i++) {
        devices = writer->snapshot->devices[i].used ? i + 1 : devices;
    }
    ms_pickle_word(&writer->pickle, "device_traces");
    ms_pickle_open_list(&writer->pickle, &batch);
    for (int i = 0; i < devices; i++) {
        ms_pickle_next(&writer->pickle, &batch);
        add_trace(writer, &writer->snapshot->devices[i]);
    }
    ms_pickle_close_list(&writer->pickle);
}

/* ---- the whole ---- */

static void write_snapshot(struct snapshot_writer *writer, struct ms_buffer *out)
{
    const size_t sites = (size_t)ms_definitions_site_count(writer->model->definitions) + 1;
    struct ms_pickle *pickle = &writer->pickle;
    size_t batch;

    if (ms_buffer_extend(&writer->site_memos, sites * sizeof(uint32_t))) {
        memset(writer->site_memos.at, 0xff, writer->site_memos.bytes);
    }
    ms_pickle_begin(pickle, out);
    ms_pickle_open_dict(pickle);
    add_segments(writer);
    add_traces(writer);
    ms_pickle_word(pickle, "allocator_settings");
    ms_pickle_open_dict(pickle);
    ms_pickle_close_dict(pickle);
    ms_pickle_word(pickle, "external_annotations");
    ms_pickle_open_list(pickle, &batch);
    ms_pickle_close_list(pickle);
    ms_pickle_close_dict(pickle);
    ms_pickle_end(pickle);
    out->failed |= writer->site_memos.failed || writer->frame_memos.failed || writer->text.failed;
    ms_pickle_free(pickle);
    ms_frame_table_free(&writer->frames);
    ms_buffer_free(&writer->frame_memos);
    ms_buffer_free(&writer->site_memos);
    ms_buffer_free(&writer->text);
}

/* False, with a sentence in `why` that names the trace. */
static bool export(const struct ms_model *model, const struct ms_moment_name *moment,
                   struct ms_buffer *out, char *why, size_t why_bytes)
{
    struct ms_snapshot snapshot;
    struct snapshot_writer writer = {.model = model, .snapshot = &snapshot};
    bool taken = ms_snapshot_take(&snapshot, model, moment, why, why_bytes);

    if (taken) {
        write_snapshot(&writer, out);
        taken = !out->failed;
        if (!taken) {
            (void)snprintf(why, why_bytes, "%s: no memory to write the snapshot", model->path);
        }
    }
    ms_snapshot_free(&snapshot);
    return taken;
}

void ms_form_snapshot(struct ms_forms *forms, const struct ms_model *model,
                      const struct ms_merged *merged)
{
    char why[WHY_BYTES] = "";

    (void)merged;
    if (!model) {
        return;
    }

    const struct ms_moment_name usual = {.word =
                                             ms_model_fatal_oom(model) ? MS_AT_OOM : MS_AT_PEAK};
    const struct ms_moment_name *moment = forms->choice.at ? &forms->choice.moment : &usual;

    if (!export(model, moment, &forms->out, why, sizeof(why))) {
        ms_forms_complain(forms, "%s", why);
        forms->failed = true;
    }
}
