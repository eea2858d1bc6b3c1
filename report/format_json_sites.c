#include <stdlib.h>

#include "report/format_sites.h"
#include "report/site_rows.h"

#define MOST_TAG_DEPTH 64
#define MOST_STEPS     1000 /* whose times are listed */

static void add_text_or_null(struct ms_json *json, const char *key, const char *text)
{
    ms_json_text(json, key, text && text[0] ? text : NULL);
}

/* One a line, however long the stack. */
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

static void add_frames(struct ms_json *json, const struct ms_model *model, uint32_t site)
{
    size_t count = 0;
    const struct ms_frame *frames =
        model->stacks ? ms_stacks_frames(model->stacks, site, &count) : NULL;

    ms_json_open(json, "frames", '[');
    for (size_t i = 0; i < count; i++) {
        add_frame(json, &frames[i]);
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

static void add_sums(struct ms_json *json, const struct ms_site_sums *sums, bool sampled)
{
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
    if (sums->frees > 0) {
        ms_json_count(json, "mean_lifetime_ns", sums->lifetime_ns / sums->frees);
    } else {
        ms_json_null(json, "mean_lifetime_ns");
    }
    ms_json_count(json, "first_ns", sums->first_ns);
    ms_json_count(json, "last_ns", sums->last_ns);
    if (sampled) {
        ms_json_count(json, "estimated_at_peak_bytes", (uint64_t)sums->estimated_at_peak_bytes);
        ms_json_count(json, "standard_error_bytes",
                      (uint64_t)ms_square_root(sums->estimated_at_peak_variance));
    } else {
        ms_json_null(json, "estimated_at_peak_bytes");
        ms_json_null(json, "standard_error_bytes");
    }
}

static bool is_sampled(const struct ms_model *model, uint32_t id)
{
    const struct ms_site_definition *site = ms_definitions_site(model->definitions, id);

    return ms_definitions_sampling_bytes(model->definitions) > 0 && site &&
           !(site->flags & MS_SITE_SAMPLED_OUT);
}

static void add_row(struct ms_json *json, const struct ms_model *model, int device,
                    const struct ms_site_row *row)
{
    const struct ms_site_definition *site = ms_definitions_site(model->definitions, row->site);

    ms_json_open(json, NULL, '{');
    ms_json_count(json, "id", row->site);
    ms_json_integer(json, "device", device);
    ms_json_text(json, "kind", ms_site_kind(model, row->site));
    ms_json_text(json, "thread", ms_site_thread(model, row->site));
    add_tag_path(json, "tags", model, site ? site->tag : 0);
    ms_json_add_site_line(json, "line", model, row->site);
    add_sums(json, &row->sums, is_sampled(model, row->site));
    ms_json_flag(json, "cut",
                 site && (site->flags & (MS_SITE_NATIVE_CUT | MS_SITE_NATIVE_LOST |
                                         MS_SITE_PYTHON_CUT | MS_SITE_PYTHON_LOST)));
    add_frames(json, model, row->site);
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
        all.lifetime_ns += sums->lifetime_ns;
        all.first_ns = sums->first_ns < all.first_ns ? sums->first_ns : all.first_ns;
        all.last_ns = sums->last_ns > all.last_ns ? sums->last_ns : all.last_ns;
        all.estimated_at_peak_bytes += sums->estimated_at_peak_bytes;
        all.estimated_at_peak_variance += sums->estimated_at_peak_variance;
    }
    return all;
}

/* What the listed ones leave, so that the rows add up. */
static void add_rest(struct ms_json *json, const struct ms_model *model, int device,
                     const struct ms_buffer *rows, size_t first)
{
    const struct ms_site_sums rest = sum_from(rows, first);

    ms_json_open(json, NULL, '{');
    ms_json_null(json, "id");
    ms_json_integer(json, "device", device);
    ms_json_text(json, "kind", "rest");
    ms_json_text(json, "thread", "other");
    add_tag_path(json, "tags", model, 0);
    ms_json_null(json, "line");
    add_sums(json, &rest, false);
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

/* Each by itself: what an inner tag holds is not counted to those around it again. */
static void add_tags(struct ms_json *json, const struct ms_model *model, int device,
                     const struct ms_buffer *rows)
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
    for (size_t i = 0; i < count; i++) {
        if (i + 1 < count && all[i + 1].tag == all[i].tag) {
            all[i + 1].at_peak_bytes += all[i].at_peak_bytes;
            all[i + 1].live_bytes += all[i].live_bytes;
            all[i + 1].bytes += all[i].bytes;
        } else {
            add_tag(json, model, device, &all[i]);
        }
    }
    ms_buffer_free(&tags);
}

/* ---- steps ---- */

static const char *step_source(const struct ms_model_steps *steps)
{
    if (steps->count == 0) {
        return NULL;
    }
    return steps->by_source[MS_STEP_CALLED] ? "called" : "nvtx";
}

static void add_steps(struct ms_json *json, const struct ms_model_steps *steps)
{
    const bool dense = json->dense;
    const struct ms_model_step *all = (const struct ms_model_step *)steps->times.at;
    const size_t kept = steps->times.bytes / sizeof(*all);
    const size_t stride = kept / MOST_STEPS + 1;

    ms_json_open(json, "steps", '{');
    ms_json_text(json, "source", step_source(steps));
    if (steps->count > 0) {
        ms_json_count(json, "count", steps->number);
    } else {
        ms_json_null(json, "count");
    }
    ms_json_count(json, "every", steps->count > 0 ? steps->stride * stride : 1);
    ms_json_open(json, "times_ns", '[');
    json->dense = true;
    for (size_t i = 0; i < kept; i += stride) {
        ms_json_count(json, NULL, all[i].time_ns);
    }
    ms_json_close(json, ']');
    json->dense = dense;
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

void ms_json_add_sites(struct ms_json *json, const struct ms_model *model, size_t most)
{
    struct ms_buffer rows[MS_DEVICE_COUNT] = {{0}};

    ms_json_open(json, "call_sites", '[');
    for (int device = 0; device < MS_DEVICE_COUNT; device++) {
        if (!model->devices[device].used) {
            continue;
        }
        ms_site_rows(model, device, &rows[device]);

        const size_t count = ms_site_row_count(&rows[device]);

        for (size_t i = 0; i < count && i < most; i++) {
            add_row(json, model, device, ms_site_row_at(&rows[device], i));
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
    add_sampling(json, model);
    ms_json_open(json, "tags", '[');
    for (int device = 0; device < MS_DEVICE_COUNT; device++) {
        add_tags(json, model, device, &rows[device]);
        ms_buffer_free(&rows[device]);
    }
    ms_json_close(json, ']');
    add_steps(json, &model->steps);
}
