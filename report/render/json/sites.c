/* SPDX-License-Identifier: Apache-2.0 */
/* report.json: call sites, kinds, tags and steps. */
#include <stdlib.h>

#include "allocator/base/units.h"
#include "report/model/site_rows.h"
#include "report/render/json/parts.h"

#define MOST_TAG_DEPTH 64
#define MOST_STEPS     1000 /* steps with listed times */

static void add_text_or_null(struct ms_json *json, const char *key, const char *text)
{
    ms_json_text(json, key, text && text[0] ? text : NULL);
}

/* One line for a frame, however long the stack. */
static void add_frame(struct ms_json *json, const struct ms_frame *frame)
{
    const bool dense = json->dense;
    const bool native = frame->language == MS_FRAME_NATIVE;

    ms_json_open(json, NULL, '{');
    json->dense = true;
    ms_json_text(json, "function", frame->function);
    add_text_or_null(json, "file", frame->file);
    if (frame->line) {
        ms_json_count(json, "line", frame->line);
    } else {
        ms_json_null(json, "line");
    }
    ms_json_text(json, "language", native ? "native" : "python");
    ms_json_flag(json, "inlined", frame->inlined);
    add_text_or_null(json, "module", frame->module);
    ms_json_close(json, '}');
    json->dense = dense;
}

void ms_json_add_frame_table(struct ms_json *json, const char *key,
                             const struct ms_frame_table *table)
{
    ms_json_open(json, key, '[');
    for (size_t i = 0; i < ms_frame_table_count(table); i++) {
        add_frame(json, ms_frame_table_at(table, i));
    }
    ms_json_close(json, ']');
}

static void add_frames(struct ms_json *json, const struct ms_model *model, uint32_t site,
                       struct ms_frame_table *table)
{
    size_t count = 0;
    const struct ms_frame *frames =
        model->stacks ? ms_stacks_frames(model->stacks, site, &count) : NULL;

    ms_json_open(json, "frames", '[');
    for (size_t i = 0; i < count; i++) {
        if (table) {
            ms_json_count(json, NULL, ms_frame_table_add(table, &frames[i]));
        } else {
            add_frame(json, &frames[i]);
        }
    }
    ms_json_close(json, ']');
}

static void add_tag_path(struct ms_json *json, const char *key, const struct ms_model *model,
                         uint32_t tag)
{
    const bool dense = json->dense;
    const char *names[MOST_TAG_DEPTH];
    const size_t depth = ms_tag_path(model, tag, names, MOST_TAG_DEPTH);

    ms_json_open(json, key, '[');
    json->dense = true;
    for (size_t i = 0; i < depth; i++) {
        ms_json_text(json, NULL, names[i]);
    }
    ms_json_close(json, ']');
    json->dense = dense;
}

/* mean_bytes: of the sampling that the site was part of; 0: of none. */
static void add_sums(struct ms_json *json, const struct ms_site_sums *sums, uint64_t mean_bytes)
{
    const double square = (double)sums->estimated_at_peak_variance / 0x1p32; /* of the mean */

    ms_json_count(json, "allocations", sums->allocations);
    ms_json_count(json, "frees", sums->frees);
    ms_json_count(json, "bytes", sums->bytes);
    ms_json_count(json, "live_bytes", sums->live_bytes);
    ms_json_count(json, "peak_bytes", sums->peak_bytes);
    ms_json_count(json, "at_peak_bytes", sums->at_peak_bytes);
    ms_json_count(json, "forwarded_bytes", sums->forwarded_bytes);
    ms_json_count(json, "forwarded_at_peak_bytes", sums->forwarded_at_peak_bytes);
    ms_json_count(json, "pinned_host_bytes", sums->pinned_bytes);
    ms_json_count(json, "peak_pinned_host_bytes", sums->pinned_peak_bytes);
    ms_json_count(json, "spilled_bytes", sums->spilled_bytes);
    ms_json_count(json, "spilled_blocks", sums->spilled_blocks);
    ms_json_count(json, "promoted_bytes", sums->promoted_bytes);
    if (sums->frees > 0) {
        ms_json_count(json, "mean_lifetime_ns", sums->lifetime_ns / sums->frees);
    } else {
        ms_json_null(json, "mean_lifetime_ns");
    }
    ms_json_count(json, "first_ns", sums->first_ns);
    ms_json_count(json, "last_ns", sums->last_ns);
    if (mean_bytes > 0) {
        ms_json_count(json, "estimated_at_peak_bytes", sums->estimated_at_peak_bytes);
        ms_json_count(json, "standard_error_bytes",
                      (uint64_t)(ms_square_root(square) * (double)mean_bytes));
    } else {
        ms_json_null(json, "estimated_at_peak_bytes");
        ms_json_null(json, "standard_error_bytes");
    }
}

static uint64_t sampling_mean(const struct ms_model *model, uint32_t id)
{
    const struct ms_site_definition *site = ms_definitions_site(model->definitions, id);

    return site && !(site->flags & MS_SITE_SAMPLED_OUT)
               ? ms_definitions_sampling_bytes(model->definitions)
               : 0;
}

/* The rule in words, and the kinds of the site's other blocks. */
static void add_kind_reason(struct ms_json *json, const struct ms_site_kinds *kinds,
                            const char *reason)
{
    struct ms_buffer text = {0};

    ms_buffer_add(&text, reason);
    if (kinds->second != kinds->kind) {
        ms_buffer_format(&text, "; others of its blocks are %s",
                         ms_kind_name((enum ms_kind)kinds->second));
    }
    ms_json_part(json, "kind_reason", text.at, text.bytes);
    ms_buffer_free(&text);
}

static void add_row(struct ms_json *json, const struct ms_model *model, int device,
                    const struct ms_site_row *row, struct ms_frame_table *table)
{
    const struct ms_site_definition *site = ms_definitions_site(model->definitions, row->site);
    struct ms_site_kinds kinds;

    ms_site_kinds(model, device, row->site, &kinds);

    const struct ms_site_called called = ms_site_called(row, &kinds);

    ms_json_open(json, NULL, '{');
    ms_json_count(json, "id", row->site);
    ms_json_integer(json, "device", device);
    ms_json_text(json, "kind", called.kind);
    add_kind_reason(json, &kinds, called.reason);
    ms_json_text(json, "thread", ms_site_thread(model, row->site));
    add_tag_path(json, "tags", model, site ? site->tag : 0);
    ms_json_add_site_line(json, "line", model, row->site);
    add_sums(json, &row->sums, sampling_mean(model, row->site));
    ms_json_flag(json, "cut",
                 site && (site->flags & (MS_SITE_NATIVE_CUT | MS_SITE_NATIVE_LOST |
                                         MS_SITE_PYTHON_CUT | MS_SITE_PYTHON_LOST)));
    add_frames(json, model, row->site, table);
    ms_json_close(json, '}');
}

static struct ms_site_sums sum_from(const struct ms_buffer *rows, size_t first)
{
    struct ms_site_sums all = {.first_ns = UINT64_MAX};

    for (size_t i = first; i < ms_site_row_count(rows); i++) {
        const struct ms_site_sums *sums = &ms_site_row_at(rows, i)->sums;

        all.allocations += sums->allocations;
        all.frees += sums->frees;
        all.bytes += sums->bytes;
        all.live_bytes += sums->live_bytes;
        all.peak_bytes += sums->peak_bytes;
        all.at_peak_bytes += sums->at_peak_bytes;
        all.forwarded_bytes += sums->forwarded_bytes;
        all.forwarded_at_peak_bytes += sums->forwarded_at_peak_bytes;
        all.pinned_bytes += sums->pinned_bytes;
        all.pinned_peak_bytes += sums->pinned_peak_bytes;
        all.spilled_bytes += sums->spilled_bytes;
        all.spilled_blocks += sums->spilled_blocks;
        all.promoted_bytes += sums->promoted_bytes;
        all.lifetime_ns += sums->lifetime_ns;
        all.first_ns = sums->first_ns < all.first_ns ? sums->first_ns : all.first_ns;
        all.last_ns = sums->last_ns > all.last_ns ? sums->last_ns : all.last_ns;
        all.estimated_at_peak_bytes += sums->estimated_at_peak_bytes;
        all.estimated_at_peak_variance += sums->estimated_at_peak_variance;
    }
    return all;
}

/* A row for the sites that are not listed, so that the rows add up. */
static void add_rest(struct ms_json *json, const struct ms_model *model, int device,
                     const struct ms_buffer *rows, size_t first)
{
    const struct ms_site_sums rest = sum_from(rows, first);

    ms_json_open(json, NULL, '{');
    ms_json_null(json, "id");
    ms_json_integer(json, "device", device);
    ms_json_text(json, "kind", "rest");
    ms_json_text(json, "kind_reason", "of the sites that are not listed");
    ms_json_text(json, "thread", "other");
    add_tag_path(json, "tags", model, 0);
    ms_json_null(json, "line");
    add_sums(json, &rest, 0);
    ms_json_flag(json, "cut", false);
    ms_json_open(json, "frames", '[');
    ms_json_close(json, ']');
    ms_json_close(json, '}');
}

static void add_attribution(struct ms_json *json, const struct ms_model *model, int device,
                            const struct ms_buffer *rows)
{
    const struct ms_attribution all = ms_attribute(model, rows);

    ms_json_open(json, NULL, '{');
    ms_json_integer(json, "device", device);
    ms_json_count(json, "at_peak_bytes", all.live_bytes);
    ms_json_count(json, "with_site_bytes", all.with_site_bytes);
    ms_json_count(json, "with_python_bytes", all.with_python_bytes);
    ms_json_count(json, "backward_bytes", all.backward_bytes);
    ms_json_count(json, "not_sampled_bytes", all.not_sampled_bytes);
    ms_json_count(json, "sites", ms_site_row_count(rows));
    ms_json_close(json, '}');
}

/* ---- kinds ---- */

static void add_kinds(struct ms_json *json, const struct ms_model *model, int device,
                      const struct ms_buffer *rows)
{
    struct ms_kind_row all[MS_KIND_ROWS];

    ms_kind_rows(model, device, rows, all);
    for (int i = 0; i < MS_KIND_ROWS; i++) {
        if (all[i].sites == 0 && all[i].at_peak_bytes == 0 && all[i].live_bytes == 0 &&
            all[i].driver_at_peak_bytes == 0 && all[i].driver_bytes == 0) {
            continue;
        }
        ms_json_open(json, NULL, '{');
        ms_json_integer(json, "device", device);
        ms_json_text(json, "kind", all[i].name);
        ms_json_count(json, "at_peak_bytes", all[i].at_peak_bytes);
        ms_json_count(json, "live_bytes", all[i].live_bytes);
        ms_json_count(json, "bytes", all[i].bytes);
        ms_json_count(json, "driver_at_peak_bytes", all[i].driver_at_peak_bytes);
        ms_json_count(json, "driver_bytes", all[i].driver_bytes);
        ms_json_count(json, "sites", all[i].sites);
        ms_json_add_site_line(json, "largest_line", model, all[i].largest_site);
        ms_json_close(json, '}');
    }
}

/* ---- tags ---- */

struct tagged {
    uint32_t tag;
    uint64_t at_peak_bytes, live_bytes, bytes;
};

static int by_tag(const void *a, const void *b)
{
    const struct tagged *left = a, *right = b;

    return left->tag < right->tag ? -1 : left->tag > right->tag;
}

static void add_tag(struct ms_json *json, const struct ms_model *model, int device,
                    const struct tagged *tagged)
{
    ms_json_open(json, NULL, '{');
    ms_json_integer(json, "device", device);
    add_tag_path(json, "path", model, tagged->tag);
    ms_json_count(json, "bytes", tagged->bytes);
    ms_json_count(json, "live_bytes", tagged->live_bytes);
    ms_json_count(json, "at_peak_bytes", tagged->at_peak_bytes);
    ms_json_close(json, '}');
}

/* Each tag by itself: an inner tag's bytes are not added to its outer tags again. */
static void add_tags(struct ms_json *json, const struct ms_model *model, int device,
                     const struct ms_buffer *rows, size_t most)
{
    struct ms_buffer tags = {0};
    size_t count = 0;

    for (size_t i = 0; i < ms_site_row_count(rows); i++) {
        const struct ms_site_row *row = ms_site_row_at(rows, i);
        const struct ms_site_definition *site = ms_definitions_site(model->definitions, row->site);
        struct tagged *tagged = site && site->tag ? ms_buffer_extend(&tags, sizeof(*tagged)) : NULL;

        if (tagged) {
            *tagged = (struct tagged){site->tag, row->sums.at_peak_bytes, row->sums.live_bytes,
                                      row->sums.bytes};
            count++;
        }
    }

    struct tagged *all = (struct tagged *)tags.at;

    if (count > 0) {
        qsort(all, count, sizeof(*all), by_tag);
    }
    for (size_t i = 0; i < count && most > 0; i++) {
        if (i + 1 < count && all[i + 1].tag == all[i].tag) {
            all[i + 1].at_peak_bytes += all[i].at_peak_bytes;
            all[i + 1].live_bytes += all[i].live_bytes;
            all[i + 1].bytes += all[i].bytes;
        } else {
            add_tag(json, model, device, &all[i]);
            most--;
        }
    }
    ms_buffer_free(&tags);
}

/* ---- steps ---- */

static void add_times(struct ms_json *json, const uint64_t *times, size_t count, size_t stride)
{
    const bool dense = json->dense;

    ms_json_open(json, "times_ns", '[');
    json->dense = true;
    for (size_t i = 0; i < count; i += stride) {
        ms_json_count(json, NULL, times[i]);
    }
    ms_json_close(json, ']');
    json->dense = dense;
}

/* Steps that the program recorded come first: they are exact. */
static void add_recorded_steps(struct ms_json *json, const struct ms_model_steps *steps)
{
    const struct ms_model_step *all = (const struct ms_model_step *)steps->times.at;
    const size_t kept = steps->times.bytes / sizeof(*all);
    const size_t stride = kept / MOST_STEPS + 1;
    struct ms_buffer times = {0};

    ms_json_text(json, "source", steps->by_source[MS_STEP_CALLED] ? "memshim_step" : "nvtx");
    ms_json_null(json, "why");
    ms_json_count(json, "count", steps->number);
    ms_json_count(json, "every", steps->stride * stride);
    for (size_t i = 0; i < kept; i++) {
        ms_buffer_append(&times, (const char *)&all[i].time_ns, sizeof(all[i].time_ns));
    }
    add_times(json, (const uint64_t *)times.at, times.bytes / sizeof(uint64_t), stride);
    ms_buffer_free(&times);
}

static void add_found_steps(struct ms_json *json, const struct ms_recurrence *found)
{
    const size_t kept = found->begins.bytes / sizeof(uint64_t);
    const size_t stride = kept / MOST_STEPS + 1;

    ms_json_text(json, "source", found->known ? "recurrence" : "unknown");
    ms_json_text(json, "why", found->known ? NULL : found->why);
    if (found->known) {
        ms_json_count(json, "count", found->count);
    } else {
        ms_json_null(json, "count");
    }
    ms_json_count(json, "every", found->every * stride);
    add_times(json, (const uint64_t *)found->begins.at, kept, stride);
}

static void add_confidence(struct ms_json *json, double confidence)
{
    char number[MS_UNIT_TEXT_BYTES];

    if (confidence > 0) {
        ms_json_number(json, "confidence",
                       ms_decimal_text((int64_t)(confidence * 1e6), number, sizeof(number)));
    } else {
        ms_json_null(json, "confidence");
    }
}

static void add_steps(struct ms_json *json, const struct ms_model *model)
{
    const struct ms_recurrence *found = &model->recurrence;

    ms_json_open(json, "steps", '{');
    if (model->steps.count > 0) {
        add_recorded_steps(json, &model->steps);
    } else {
        add_found_steps(json, found);
    }
    if (found->whole) {
        ms_json_count(json, "backward_passes", found->passes);
    } else {
        ms_json_null(json, "backward_passes");
    }
    if (found->evaluations_known) {
        ms_json_count(json, "evaluations", found->evaluations);
        ms_json_count(json, "evaluation_batches", found->evaluation_batches);
    } else {
        ms_json_null(json, "evaluations");
        ms_json_null(json, "evaluation_batches");
    }
    add_confidence(json, found->confidence);
    ms_json_add_site_line(json, "line", model, found->site);
    ms_json_close(json, '}');
}

/* ---- the whole ---- */

static void add_sampling(struct ms_json *json, const struct ms_model *model)
{
    const uint64_t mean_bytes = ms_definitions_sampling_bytes(model->definitions);

    if (mean_bytes == 0) {
        ms_json_null(json, "sampling");
        return;
    }
    ms_json_open(json, "sampling", '{');
    ms_json_count(json, "mean_bytes", mean_bytes);
    ms_json_close(json, '}');
}

void ms_json_add_site_line(struct ms_json *json, const char *key, const struct ms_model *model,
                           uint32_t site)
{
    struct ms_buffer line = {0};

    if (!ms_site_frame(model, site)) {
        ms_json_null(json, key);
        return;
    }
    ms_site_add_line(model, site, &line);
    ms_json_part(json, key, line.at, line.bytes);
    ms_buffer_free(&line);
}

void ms_json_add_site_name(struct ms_json *json, const struct ms_model *model, int device,
                           uint32_t site, struct ms_frame_table *table)
{
    const struct ms_site_definition *definition = ms_definitions_site(model->definitions, site);
    struct ms_site_kinds kinds;

    ms_site_kinds(model, device, site, &kinds);
    ms_json_count(json, "id", site);
    ms_json_integer(json, "device", device);
    ms_json_text(json, "kind", ms_kind_name(kinds.kind));
    add_kind_reason(json, &kinds, kinds.reason);
    add_tag_path(json, "tags", model, definition ? definition->tag : 0);
    ms_json_add_site_line(json, "line", model, site);
    add_frames(json, model, site, table);
}

void ms_json_add_sites(struct ms_json *json, const struct ms_model *model,
                       const struct ms_json_limits *limits)
{
    const size_t most = limits->sites;
    struct ms_buffer rows[MS_DEVICE_COUNT] = {{0}};

    ms_json_open(json, "call_sites", '[');
    for (int device = 0; device < MS_DEVICE_COUNT; device++) {
        if (!model->devices[device].used) {
            continue;
        }
        ms_site_rows(model, device, &rows[device]);

        const size_t count = ms_site_row_count(&rows[device]);

        for (size_t i = 0; i < count && i < most; i++) {
            add_row(json, model, device, ms_site_row_at(&rows[device], i), limits->frames);
        }
        if (count > most) {
            add_rest(json, model, device, &rows[device], most);
        }
    }
    ms_json_close(json, ']');
    ms_json_open(json, "attribution", '[');
    for (int device = 0; device < MS_DEVICE_COUNT; device++) {
        if (model->devices[device].used) {
            add_attribution(json, model, device, &rows[device]);
        }
    }
    ms_json_close(json, ']');
    ms_json_open(json, "kinds", '[');
    for (int device = 0; device < MS_DEVICE_COUNT; device++) {
        if (model->devices[device].used) {
            add_kinds(json, model, device, &rows[device]);
        }
    }
    ms_json_close(json, ']');
    add_sampling(json, model);
    ms_json_open(json, "tags", '[');
    for (int device = 0; device < MS_DEVICE_COUNT; device++) {
        add_tags(json, model, device, &rows[device], limits->tags);
        ms_buffer_free(&rows[device]);
    }
    ms_json_close(json, ']');
    add_steps(json, model);
}
