/* SPDX-License-Identifier: Apache-2.0 */
/* The results of dry runs with several batches, as text and as JSON (schema
 * memshim-dry-batches/1). */
#include "allocator/base/json.h"
#include "allocator/base/units.h"
#include "report/render/commands/dry_run_parts.h"

static const char *const grounds[MS_GROUND_COUNT] = {"torch", "expandable", "memshim"};

static bool is_confirmed(const struct ms_dry_batches *batches)
{
    return batches->too_big > 0 && batches->too_big == batches->found + 1;
}

/* The row that needs most with PyTorch alone; null: no run is known. */
static const struct ms_dry_batch_row *row_of_most(const struct ms_dry_batches *batches)
{
    const struct ms_dry_batch_row *most = NULL;

    for (size_t i = 0; i < batches->count; i++) {
        const struct ms_dry_batch_row *row = &batches->rows[i];

        if (row->known &&
            (!most || row->needs_bytes[MS_GROUND_TORCH] > most->needs_bytes[MS_GROUND_TORCH])) {
            most = row;
        }
    }
    return most;
}

/* No batch stands for such a job: what is known is the most that was seen. */
static void add_contrast(const struct ms_dry_batches *batches, struct ms_buffer *out)
{
    const struct ms_batch_contrast *contrast = &batches->contrast;
    const struct ms_dry_batch_row *most = row_of_most(batches);

    ms_buffer_format(out,
                     "\nWhat this job needs does not follow its batch, so there is no largest one: "
                     "%s had %s live,\nand %s, a larger batch, %s. ",
                     MS_COUNT(contrast->smaller), MS_BYTES(contrast->smaller_live_bytes),
                     MS_COUNT(contrast->larger), MS_BYTES(contrast->larger_live_bytes));
    ms_buffer_format(out, "The most that PyTorch alone needed is %s, with a batch of %s",
                     MS_BYTES(most->needs_bytes[MS_GROUND_TORCH]), MS_COUNT(most->batch));
    if (most->steps > 0) {
        ms_buffer_format(out, " in %s step%s", MS_COUNT(most->steps), most->steps > 1 ? "s" : "");
    }
    ms_buffer_add(out, ".\nWhat decides is what it draws or loads: bound that, and run with the "
                       "bound. More steps (--steps) see more of it.\n");
}

/* What a later step asks for is not known where those that ran differ. */
static void add_varying(const struct ms_dry_batches *batches, struct ms_buffer *out)
{
    for (size_t i = 0; i < batches->count; i++) {
        const struct ms_dry_tensor *largest = &batches->rows[i].largest;

        if (ms_dry_tensor_varies(largest)) {
            ms_buffer_format(out,
                             "\nSteps differ: with %s, the largest tensor took %s in step %s, and "
                             "%s at most in step %s, by ",
                             MS_COUNT(batches->rows[i].batch), MS_BYTES(largest->bytes),
                             MS_COUNT(largest->step), MS_BYTES(largest->least_bytes),
                             MS_COUNT(largest->least_step));
            ms_buffer_add(out, largest->line);
            ms_buffer_add(out, ".\nThe answer is of the steps that ran, and a later step may need "
                               "more (--steps).\n");
            return;
        }
    }
}

static void add_found(const struct ms_dry_batches *batches, struct ms_buffer *out)
{
    if (is_confirmed(batches) && batches->found == 0) {
        ms_buffer_add(out, "\nNot even a batch of 1 fits with PyTorch alone.\n");
    } else if (is_confirmed(batches)) {
        ms_buffer_format(
            out, "\nThe largest batch with PyTorch alone is %s: it fits, and %s does not.\n",
            MS_COUNT(batches->found), MS_COUNT(batches->too_big));
    } else if (batches->too_big > 0 && batches->found == 0) {
        ms_buffer_format(out, "\nThe largest batch with PyTorch alone is less than %s.\n",
                         MS_COUNT(batches->too_big));
    } else if (batches->too_big > 0 && batches->too_big < batches->found) {
        ms_buffer_format(out,
                         "\nNo batch is the largest with PyTorch alone: %s fits, and %s, which is "
                         "smaller, does not.\n",
                         MS_COUNT(batches->found), MS_COUNT(batches->too_big));
    } else if (batches->too_big > 0) {
        ms_buffer_format(
            out, "\nThe largest batch with PyTorch alone is at least %s, and less than %s.\n",
            MS_COUNT(batches->found), MS_COUNT(batches->too_big));
    } else if (batches->found == 0) {
        ms_buffer_add(out, "\nNo batch was found: no run got far enough to say what it needs.\n");
    } else if (batches->level.larger > 0) {
        ms_buffer_format(out,
                         "\nNo batch was found that does not fit: %s needs what %s needs. Are the "
                         "data fewer, or does the\ncommand not heed its batch? Then a larger one "
                         "changes nothing.\n",
                         MS_COUNT(batches->level.larger), MS_COUNT(batches->level.smaller));
    } else {
        ms_buffer_format(out, "\nNo batch was found that does not fit; the largest tried is %s.\n",
                         MS_COUNT(batches->found));
    }
}

/* Where the largest batches fit with slower convolutions only. */
static void add_slower(const struct ms_dry_batches *batches, struct ms_buffer *out)
{
    uint64_t fastest = 0, slower = 0;

    for (size_t i = 0; i < batches->count; i++) {
        const struct ms_dry_batch_row *row = &batches->rows[i];

        if (!row->known || !row->fit.fits[MS_GROUND_TORCH]) {
            continue;
        }
        if (!row->fit.slower[MS_GROUND_TORCH]) {
            fastest = row->batch > fastest ? row->batch : fastest;
        } else if (slower == 0 || row->batch < slower) {
            slower = row->batch;
        }
    }
    if (slower == 0) {
        return;
    }
    ms_buffer_format(out,
                     "With %s, convolutions take slower algorithms, because there is no room for "
                     "the work spaces\nof the fastest",
                     MS_COUNT(slower));
    if (fastest > 0) {
        ms_buffer_format(out, "; with %s there is", MS_COUNT(fastest));
    }
    ms_buffer_add(out, ".\n");
}

/* One of: "all three", "no", "memshim", "PyTorch alone (slower), expandable, memshim", ... */
static void add_fits(const struct ms_card_fit *fit, struct ms_buffer *out)
{
    static const char *const names[MS_GROUND_COUNT] = {"PyTorch alone", "expandable", "memshim"};
    const char *between = "";
    unsigned fitting = 0, slower = 0;

    for (int ground = 0; ground < MS_GROUND_COUNT; ground++) {
        fitting += fit->fits[ground];
        slower += fit->slower[ground];
    }
    if (fitting == 0 || (fitting == MS_GROUND_COUNT && slower == 0)) {
        ms_buffer_add(out, fitting == 0 ? "no\n" : "all three\n");
        return;
    }
    for (int ground = 0; ground < MS_GROUND_COUNT; ground++) {
        if (fit->fits[ground]) {
            ms_buffer_format(out, "%s%s%s", between, names[ground],
                             fit->slower[ground] ? " (slower)" : "");
            between = ", ";
        }
    }
    ms_buffer_add(out, "\n");
}

void ms_dry_batches_text(const struct ms_dry_batches *batches, struct ms_buffer *out)
{
    ms_buffer_format(out, "Dry runs on a simulated %s (%s), by ", batches->card->name,
                     MS_BYTES(batches->card->total_bytes));
    ms_buffer_add_plain(out, batches->what);
    ms_buffer_format(out, "\n\n  %8s  %11s  %13s  %11s  %11s   %s\n", "batch", "live",
                     "PyTorch alone", "expandable", "memshim", "fits");
    for (size_t i = 0; i < batches->count; i++) {
        const struct ms_dry_batch_row *row = &batches->rows[i];

        if (!row->known) {
            ms_buffer_format(out, "  %8s  %s\n", MS_COUNT(row->batch),
                             row->interrupted ? "interrupted: no further batch was run"
                                              : "the command failed by itself, or used no device");
            continue;
        }
        ms_buffer_format(out, "  %8s  %11s  %13s  %11s  %11s   ", MS_COUNT(row->batch),
                         MS_BYTES(row->peak_live_bytes),
                         MS_BYTES(row->needs_bytes[MS_GROUND_TORCH]),
                         MS_BYTES(row->needs_bytes[MS_GROUND_EXPANDABLE]),
                         MS_BYTES(row->needs_bytes[MS_GROUND_MEMSHIM]));
        add_fits(&row->fit, out);
    }
    if (!batches->follows) {
        add_contrast(batches, out);
    } else if (batches->wanted) {
        add_found(batches, out);
        add_slower(batches, out);
    }
    add_varying(batches, out);
    if (batches->count > 0 && batches->rows[0].stopped) {
        ms_buffer_add(out,
                      "\nRuns were stopped after their first steps: what comes later is not in the "
                      "answer (--steps, --validation).\n");
    }
    ms_buffer_add(out, "\n");
    ms_dry_compared_text(batches->version, out);
    ms_buffer_add(out, "reports: ");
    ms_buffer_add_plain(out, batches->report);
    ms_buffer_add(out, "\n");
}

void ms_dry_batches_json(const struct ms_dry_batches *batches, struct ms_buffer *out)
{
    const struct ms_card_fit unknown = {0};
    struct ms_json json = {.out = out};

    ms_json_open(&json, NULL, '{');
    ms_json_text(&json, "schema", "memshim-dry-batches/1");
    ms_json_text(&json, "card", batches->card->id);
    ms_json_text(&json, "by", batches->what);
    ms_json_text(&json, "report", batches->report);
    ms_json_text(&json, "version", batches->version);
    ms_dry_compared_json(&json);
    ms_json_flag(&json, "follows_batch", batches->follows);
    if (batches->wanted) {
        ms_json_count(&json, "largest_batch", batches->found);
        ms_json_integer_unless(&json, "too_large_batch", (int64_t)batches->too_big, 0);
        ms_json_flag(&json, "confirmed", is_confirmed(batches));
    }
    ms_json_open(&json, "batches", '[');
    for (size_t i = 0; i < batches->count; i++) {
        const struct ms_dry_batch_row *row = &batches->rows[i];

        ms_json_open(&json, NULL, '{');
        ms_json_count(&json, "batch", row->batch);
        ms_json_flag(&json, "known", row->known);
        ms_json_flag(&json, "interrupted", row->interrupted);
        ms_json_count(&json, "steps", row->steps);
        ms_json_count(&json, "peak_live_bytes", row->peak_live_bytes);
        ms_json_flag(&json, "steps_differ", ms_dry_tensor_varies(&row->largest));
        ms_json_open(&json, "needs_bytes", '{');
        for (int ground = 0; ground < MS_GROUND_COUNT; ground++) {
            ms_json_count(&json, grounds[ground], row->needs_bytes[ground]);
        }
        ms_json_close(&json, '}');
        ms_dry_fit_json(row->known ? &row->fit : &unknown, &json);
        ms_json_close(&json, '}');
    }
    ms_json_close(&json, ']');
    ms_json_close(&json, '}');
    ms_buffer_add(out, "\n");
}
