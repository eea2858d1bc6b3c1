/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the rows of call sites and of kinds, and a site's words. */
#include "report/model/site_rows.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/base/path.h"
#include "report/model/ledger.h"
#include "report/symbols/stacks_roles.h"

#define FUNCTION_BYTES 72u /* of a function's name in one line: C++ has longer ones */

/* ---- rows ---- */

static int by_peak(const void *a, const void *b)
{
    const struct ms_site_row *left = a, *right = b;
    const uint64_t left_bytes = ms_site_row_at_peak(left);
    const uint64_t right_bytes = ms_site_row_at_peak(right);

    if (left_bytes != right_bytes) {
        return left_bytes > right_bytes ? -1 : 1;
    }
    if (left->sums.peak_bytes != right->sums.peak_bytes) {
        return left->sums.peak_bytes > right->sums.peak_bytes ? -1 : 1;
    }
    return left->site < right->site ? -1 : left->site > right->site;
}

void ms_site_rows(const struct ms_model *model, int device, struct ms_buffer *rows)
{
    const uint32_t end = ms_site_table_end(model->sites, (uint8_t)device);

    for (uint32_t site = 0; site < end;
         site = ms_site_table_after(model->sites, (uint8_t)device, site)) {
        struct ms_site_row row = {.site = site};

        if (ms_site_table_read(model->sites, (uint8_t)device, site, &row.sums)) {
            ms_buffer_append(rows, (const char *)&row, sizeof(row));
        }
    }
    if (rows->bytes > 0) {
        qsort(rows->at, ms_site_row_count(rows), sizeof(struct ms_site_row), by_peak);
    }
}

struct ms_attribution ms_attribute(const struct ms_model *model, const struct ms_buffer *rows)
{
    struct ms_attribution all = {0};

    for (size_t i = 0; i < ms_site_row_count(rows); i++) {
        const struct ms_site_row *row = ms_site_row_at(rows, i);
        const struct ms_site_definition *site = ms_definitions_site(model->definitions, row->site);
        const uint64_t bytes = row->sums.at_peak_bytes;

        all.live_bytes += bytes;
        if (site && (site->flags & MS_SITE_SAMPLED_OUT)) {
            all.not_sampled_bytes += bytes;
        } else if (site) {
            all.with_site_bytes += site->native || site->python ? bytes : 0;
            all.with_python_bytes += site->python ? bytes : 0;
            all.backward_bytes += site->thread == MS_THREAD_BACKWARD && !site->python ? bytes : 0;
        }
    }
    return all;
}

/* ---- words ---- */

struct ms_kinds_ground ms_site_ground(const struct ms_model *model)
{
    return (struct ms_kinds_ground){.definitions = model->definitions,
                                    .landmarks = model->landmarks,
                                    .table = model->sites,
                                    .stacks = model->stacks,
                                    .made_state_bytes = model->made_state_bytes};
}

void ms_site_kinds(const struct ms_model *model, int device, uint32_t site,
                   struct ms_site_kinds *kinds)
{
    const struct ms_kinds_ground ground = ms_site_ground(model);

    ms_kinds_judge(&ground, (uint8_t)device, site, kinds);
}

static bool is_followed(const struct ms_site_kinds *kinds)
{
    for (int i = 0; i < MS_KIND_COUNT; i++) {
        if (kinds->bytes[i] > 0) {
            return true;
        }
    }
    return false;
}

struct ms_site_called ms_site_called(const struct ms_site_row *row,
                                     const struct ms_site_kinds *kinds)
{
    const struct ms_site_sums *sums = &row->sums;

    if (kinds->kind != MS_KIND_UNKNOWN || is_followed(kinds) || sums->at_peak_bytes > 0) {
        return (struct ms_site_called){ms_kind_name((enum ms_kind)kinds->kind), kinds->reason};
    }
    if (sums->forwarded_bytes + sums->forwarded_at_peak_bytes > 0) {
        return (struct ms_site_called){
            "served by the driver",
            "it is no block of the pool: a managed one, an array, NCCL's or another that was "
            "forwarded"};
    }
    if (sums->pinned_bytes + sums->pinned_peak_bytes > 0) {
        return (struct ms_site_called){"pinned host memory", "host memory that the device reaches"};
    }
    if (sums->allocations > 0 && sums->peak_bytes == 0) {
        return (struct ms_site_called){"arenas",
                                       "a framework's allocator puts its tensors into it"};
    }
    return (struct ms_site_called){ms_kind_name(MS_KIND_UNKNOWN), kinds->reason};
}

/* Memory without a known lifetime (a gap in the trace) counts with the rest of the site. */
static void add_kinds(struct ms_kind_row all[MS_KIND_ROWS], const struct ms_site_row *row,
                      const struct ms_site_kinds *kinds)
{
    uint64_t by_kind_bytes = 0;

    for (int i = 0; i < MS_KIND_COUNT; i++) {
        const uint64_t at_peak = kinds->at_peak_bytes[i];
        struct ms_kind_row *kind = &all[i];

        by_kind_bytes += at_peak;
        kind->at_peak_bytes += at_peak;
        kind->bytes += kinds->bytes[i];
        kind->sites += kinds->bytes[i] > 0;
        if (at_peak > kind->largest_bytes || (kind->sites == 1 && kinds->bytes[i] > 0)) {
            kind->largest_bytes = at_peak;
            kind->largest_site = row->site;
        }
    }
    if (row->sums.at_peak_bytes > by_kind_bytes) {
        all[kinds->kind].at_peak_bytes += row->sums.at_peak_bytes - by_kind_bytes;
    }
    all[kinds->kind].live_bytes += row->sums.live_bytes;
}

static void add_charges(struct ms_kind_row all[MS_KIND_ROWS], const struct ms_aggregate *sums)
{
    const struct ms_counters *at_peak = ms_aggregate_at_peak(sums);

    for (int i = 0; i < MS_CHARGE_REASON_COUNT; i++) {
        const enum ms_charge_reason reason = (enum ms_charge_reason)i;
        const struct ms_ledger_row row = ms_ledger_charged(&sums->now, reason);

        all[MS_KIND_COUNT + i].name = row.name;

        struct ms_kind_row *kind =
            &all[reason == MS_CHARGE_NCCL ? (int)MS_KIND_COMMUNICATION : MS_KIND_COUNT + i];

        kind->driver_bytes += row.bytes;
        kind->driver_at_peak_bytes += ms_ledger_charged(at_peak, reason).bytes;
    }
}

void ms_kind_rows(const struct ms_model *model, int device, const struct ms_buffer *rows,
                  struct ms_kind_row all[MS_KIND_ROWS])
{
    memset(all, 0, MS_KIND_ROWS * sizeof(*all));
    for (int i = 0; i < MS_KIND_COUNT; i++) {
        all[i].name = ms_kind_name((enum ms_kind)i);
    }
    add_charges(all, &model->devices[device].sums);
    for (size_t i = 0; i < ms_site_row_count(rows); i++) {
        const struct ms_site_row *row = ms_site_row_at(rows, i);
        struct ms_site_kinds kinds;

        ms_site_kinds(model, device, row->site, &kinds);
        add_kinds(all, row, &kinds);
    }
}

const char *ms_site_thread(const struct ms_model *model, uint32_t id)
{
    const struct ms_site_definition *site = ms_definitions_site(model->definitions, id);

    if (!site || site->thread == MS_THREAD_OTHER) {
        return "other";
    }
    return site->thread == MS_THREAD_BACKWARD ? "backward" : "python";
}

size_t ms_tag_path(const struct ms_model *model, uint32_t tag, const char **names, size_t room)
{
    size_t depth = 0;

    /* An outer tag's number is smaller, so this ends. */
    for (uint32_t id = tag; id != 0 && depth < room;) {
        const struct ms_tag_read *read = ms_definitions_tag(model->definitions, id);

        names[depth++] = read ? read->name : "?";
        id = read ? read->is.outer : 0;
    }
    for (size_t i = 0; i < depth / 2; i++) {
        const char *name = names[i];

        names[i] = names[depth - 1 - i];
        names[depth - 1 - i] = name;
    }
    return depth;
}

const struct ms_frame *ms_site_frame(const struct ms_model *model, uint32_t site)
{
    return model->stacks ? ms_stacks_own_frame(model->stacks, site) : NULL;
}

static void add_short(const char *text, struct ms_buffer *out)
{
    char part[FUNCTION_BYTES + 1];
    size_t bytes = strnlen(text, FUNCTION_BYTES + 1);
    const bool cut = bytes > FUNCTION_BYTES;

    /* Do not cut inside a character. */
    for (bytes -= cut; cut && bytes > 0 && (text[bytes] & 0xc0) == 0x80;) {
        bytes--;
    }
    memcpy(part, text, bytes);
    part[bytes] = '\0';
    ms_buffer_add_plain(out, part);
    ms_buffer_add(out, cut ? "..." : "");
}

/* Shortens a C++ name for a line: without return type, template arguments and parameters. Other
 * names stay as they are. */
static void add_native(const char *function, struct ms_buffer *out)
{
    static const char anonymous[] = "(anonymous namespace)";
    char name[FUNCTION_BYTES + 1];
    size_t bytes = 0, depth = 0;

    for (const char *at = function; *at && bytes < FUNCTION_BYTES; at++) {
        if (strncmp(at, anonymous, sizeof(anonymous) - 1) == 0) {
            at += sizeof(anonymous) - 2;
            bytes -= bytes >= 2 && depth == 0 ? 2 : 0; /* the "::" before it */
            continue;
        }
        if (*at == '(' && depth == 0) {
            break;
        }
        if (*at == ' ' && depth == 0) {
            bytes = 0;
            continue;
        }
        depth -= *at == '>' && depth > 0;
        if (depth == 0 && *at != '<' && *at != '>') {
            name[bytes++] = *at;
        }
        depth += *at == '<';
    }
    name[bytes] = '\0';
    add_short(bytes > 0 && depth == 0 ? name : function, out);
}

static void add_unknown(const struct ms_model *model, uint32_t id, struct ms_buffer *out)
{
    const struct ms_site_definition *site = ms_definitions_site(model->definitions, id);

    if (site && (site->flags & MS_SITE_SAMPLED_OUT)) {
        ms_buffer_add(out, "(passed over by sampling)");
    } else {
        ms_buffer_add(out, id == 0 ? "(no call site)" : "(a call site that is not known)");
    }
}

void ms_frame_add_line(const struct ms_frame *frame, struct ms_buffer *out)
{
    const bool compiled = frame->file && ms_is_compiled_script(frame->file);

    if (frame->file) {
        ms_buffer_add(out, compiled ? "a graph of torch.compile, " : "");
        ms_buffer_add_plain(out, ms_base_name(frame->file));
        if (frame->line) {
            ms_buffer_format(out, ":%" PRIu32, frame->line);
        }
        ms_buffer_add(out, " in ");
    }
    (frame->language == MS_FRAME_NATIVE ? add_native : add_short)(frame->function, out);
    if (!frame->file && frame->module && !strchr(frame->function, '+')) {
        ms_buffer_add(out, " (");
        ms_buffer_add_plain(out, ms_base_name(frame->module));
        ms_buffer_add(out, ")");
    }
}

void ms_site_add_line(const struct ms_model *model, uint32_t site, struct ms_buffer *out)
{
    const struct ms_frame *frame = ms_site_frame(model, site);

    if (!frame) {
        add_unknown(model, site, out);
        return;
    }
    ms_frame_add_line(frame, out);
    if (strcmp(ms_site_thread(model, site), "backward") == 0) {
        ms_buffer_add(out, ", backward");
    }
}

void ms_site_add_user(const struct ms_model *model, uint32_t site, struct ms_buffer *out)
{
    const struct ms_frame *own = ms_site_frame(model, site);
    size_t count;

    if (!own || !own->file || !ms_is_package_script(own->file)) {
        return;
    }

    const struct ms_frame *frames = ms_stacks_frames(model->stacks, site, &count);

    for (const struct ms_frame *at = own + 1; at < frames + count; at++) {
        if (at->language == MS_FRAME_PYTHON && at->file &&
            !ms_is_library_script(at->file, at->function)) {
            ms_buffer_add(out, ", from ");
            ms_frame_add_line(at, out);
            return;
        }
    }
}

static bool same_text(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

bool ms_site_at_one_line(const struct ms_model *model, uint32_t a, uint32_t b)
{
    const struct ms_frame *one = ms_site_frame(model, a), *other = ms_site_frame(model, b);

    return a == b ||
           (one && other && one->line == other->line && same_text(one->file, other->file) &&
            same_text(one->function, other->function) &&
            same_text(ms_site_thread(model, a), ms_site_thread(model, b)));
}

double ms_square_root(double value)
{
    double root = value > 1 ? value : 1;

    /* Newton's method: from above, each step at least halves the excess. */
    for (int i = 0; i < 600 && value > 0; i++) {
        const double next = (root + value / root) / 2;

        if (next >= root) {
            break;
        }
        root = next;
    }
    return value > 0 ? root : 0;
}
