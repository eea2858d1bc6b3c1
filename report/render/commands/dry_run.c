/* SPDX-License-Identifier: Apache-2.0 */
/* The answer of a dry run, as text and as JSON (schema memshim-dry-run/1). */
#include "report/render/commands/dry_run.h"

#include <string.h>

#include "allocator/base/json.h"
#include "allocator/base/units.h"
#include "report/render/commands/dry_run_parts.h"

#define MILLION 1000000

static const char *const grounds[MS_GROUND_COUNT] = {"torch", "expandable", "memshim"};

const struct ms_dry_rank *ms_dry_largest_rank(const struct ms_dry_answer *answer)
{
    const struct ms_dry_rank *largest = NULL;

    for (size_t i = 0; i < ms_dry_rank_count(answer); i++) {
        const struct ms_dry_rank *rank = ms_dry_rank_at(answer, i);

        if (!largest || rank->peak_live_bytes > largest->peak_live_bytes) {
            largest = rank;
        }
    }
    return largest;
}

const struct ms_dry_rank *ms_dry_other_rank(const struct ms_dry_answer *answer)
{
    for (size_t i = 0; answer->world > 0 && i < ms_dry_rank_count(answer); i++) {
        const struct ms_dry_rank *rank = ms_dry_rank_at(answer, i);

        if (rank->rank > 0 || (rank->world > 0 && rank->world != answer->world)) {
            return rank;
        }
    }
    return NULL;
}

static void add_rank(struct ms_dry_card_row *row, const struct ms_dry_rank *rank, size_t card)
{
    const struct ms_card_fit *fit = &rank->fits[card];

    row->fit.known = row->fit.known && rank->replayed && fit->known;
    row->fit.spilled_bytes =
        fit->spilled_bytes > row->fit.spilled_bytes ? fit->spilled_bytes : row->fit.spilled_bytes;
    row->fit.fraction_percent = fit->fraction_percent > row->fit.fraction_percent
                                    ? fit->fraction_percent
                                    : row->fit.fraction_percent;
    for (int ground = 0; ground < MS_GROUND_COUNT; ground++) {
        const struct ms_dry_batch *batch = &rank->batches[card][ground];
        struct ms_dry_batch *least = &row->batches[ground];

        row->fit.fits[ground] = row->fit.fits[ground] && fit->fits[ground];
        row->fit.slower[ground] = row->fit.slower[ground] || fit->slower[ground];
        if (batch->factor < least->factor || (least->unbounded && !batch->unbounded)) {
            *least = *batch;
        }
    }
}

struct ms_dry_card_row ms_dry_card_row(const struct ms_dry_answer *answer, size_t card)
{
    struct ms_dry_card_row row = {.fit = {.known = ms_dry_rank_count(answer) > 0}};

    for (int ground = 0; ground < MS_GROUND_COUNT; ground++) {
        row.fit.fits[ground] = true;
        row.batches[ground] = (struct ms_dry_batch){.factor = 1e9, .unbounded = true};
    }
    for (size_t i = 0; i < ms_dry_rank_count(answer); i++) {
        add_rank(&row, ms_dry_rank_at(answer, i), card);
    }
    for (int ground = 0; ground < MS_GROUND_COUNT; ground++) {
        row.fit.slower[ground] = row.fit.slower[ground] && row.fit.fits[ground];
    }
    return row;
}

/* What a command that failed had looked for in vain. */
static void add_asked(const struct ms_dry_asked *asked, struct ms_buffer *out)
{
    if (asked->device >= 0) {
        ms_buffer_format(
            out, "It asked for device %d, counted from 0: --gpus %d simulates enough of them.\n",
            asked->device, asked->device + 1);
    }
    if (asked->host[0]) {
        ms_buffer_add(out, "It looked for the host ");
        ms_buffer_add_plain(out, asked->host);
        ms_buffer_add(out, ", which was not found. Fetch what it needs from there before.\n");
    }
    if (asked->hub[0]) {
        ms_buffer_add(out, "It looked for ");
        ms_buffer_add_plain(out, asked->hub);
        ms_buffer_add(out,
                      " of the Hugging Face hub, which is not on this machine, and a dry run is "
                      "offline.\nFetch it before, or see --offline-weights and "
                      "--data-stub.\n");
    }
}

/* ---- text ---- */

static const char *what_was_seen(const struct ms_dry_rank *rank)
{
    if (rank->has_state) {
        return " of the optimizer seen";
    }
    return rank->is_loop ? " of a loop seen, and no backward pass"
                         : " seen, and no optimizer state";
}

/* Files that the command wrote are in memory: they may fill their layer, or be most of what the
 * command takes. Which is seen first is a matter of moments. */
static void add_written(const struct ms_dry_answer *answer, struct ms_buffer *out)
{
    if (answer->layer_full_bytes > 0) {
        ms_buffer_format(out, "What it wrote filled its private layer, %s of memory.",
                         MS_BYTES(answer->layer_full_bytes));
    } else if (answer->end == MS_DRY_HOST_FULL &&
               answer->host_written_bytes > answer->host_all_bytes / 2) {
        ms_buffer_format(out, "Most of it, %s, was in files that it wrote.",
                         MS_BYTES(answer->host_written_bytes));
    } else {
        return;
    }
    ms_buffer_add(out, " Let it save no checkpoints, or write real files (--allow-writes).\n");
}

static bool any_validates(const struct ms_dry_answer *answer)
{
    for (size_t i = 0; i < ms_dry_rank_count(answer); i++) {
        if (ms_dry_rank_at(answer, i)->validates) {
            return true;
        }
    }
    return false;
}

static void add_end(const struct ms_dry_answer *answer, struct ms_buffer *out)
{
    const struct ms_dry_rank *rank = ms_dry_largest_rank(answer);

    if (!rank) {
        ms_buffer_add(out, "no process of the command used a device");
    } else if (rank->steps > 0) {
        ms_buffer_format(out, "%s %s%s%s%s", MS_COUNT(rank->steps),
                         rank->is_loop && !rank->has_state ? "turn" : "step",
                         rank->steps == 1 ? "" : "s", what_was_seen(rank),
                         any_validates(answer) ? ", and a validation" : "");
    } else {
        ms_buffer_add(out,
                      "no step of an optimizer was seen, so that the answer lacks what one needs");
    }
    if (answer->end == MS_DRY_FAILED && answer->status < 0) {
        ms_buffer_format(out, "; the command failed: signal %d ended it", -answer->status);
    } else if (answer->end == MS_DRY_FAILED) {
        ms_buffer_format(out, "; the command failed: it ended with status %d", answer->status);
    } else if (answer->end == MS_DRY_INTERRUPTED) {
        ms_buffer_add(out, "; interrupted: the answer covers what was seen until then");
    } else if (answer->end == MS_DRY_HOST_FULL &&
               answer->host_all_bytes > answer->host_limit_bytes) {
        ms_buffer_format(out,
                         "; it was ended, because it took more than %s of this machine's memory",
                         MS_BYTES(answer->host_limit_bytes));
    } else if (answer->end == MS_DRY_HOST_FULL) {
        ms_buffer_add(out, "; it was ended, because this machine had next to no memory left");
    } else if (answer->end == MS_DRY_ENDED) {
        ms_buffer_add(out, "; the command ended normally");
    }
    ms_buffer_format(out, " (%s)\n", MS_DURATION(answer->elapsed_ns));
    add_written(answer, out);
    if (answer->end == MS_DRY_STOPPED) {
        ms_buffer_add(out, "It was stopped then. What comes later may need more, as ");
        ms_buffer_add(out, any_validates(answer)
                               ? "longer inputs, another\noptimizer's first step or another "
                                 "phase: --steps N runs N steps.\n"
                               : "an evaluation, longer\ninputs, another optimizer's first step "
                                 "or another phase: --steps N runs N steps,\n--validation waits "
                                 "for an evaluation.\n");
    } else if (answer->wants_validation && rank && !any_validates(answer)) {
        ms_buffer_add(out, "No validation was seen, with a step before and another behind it.\n");
    }
    if (answer->end == MS_DRY_STOPPED && rank && rank->steps > 0 && !rank->is_loop &&
        !rank->has_state) {
        ms_buffer_add(out, "Plain SGD makes no state. If another optimizer comes later, as after a "
                           "search for the\nlearning rate, give an N that reaches it.\n");
    }
    if (rank && rank->steps == 1 && rank->has_state) {
        ms_buffer_add(out,
                      "A single step does not show what of its memory is state: that which was "
                      "there when it asked\nfor the last time counts as state, and may have "
                      "gone as it returned.\n");
    }
    if (answer->end == MS_DRY_FAILED) {
        add_asked(&answer->asked, out);
    } else if (answer->end == MS_DRY_ENDED && !rank) {
        ms_buffer_add(out, "Does it run on the CPU, because of an option or of a PyTorch without "
                           "CUDA?\n");
    }
}

static void add_parts(const struct ms_dry_rank *rank, struct ms_buffer *out)
{
    bool first = true;

    for (int kind = 0; kind < MS_KIND_COUNT; kind++) {
        if (rank->kind_bytes[kind] > 0) {
            ms_buffer_format(out, "%s%s %s", first ? "" : ", ", ms_kind_name((enum ms_kind)kind),
                             MS_BYTES(rank->kind_bytes[kind]));
            first = false;
        }
    }
}

static void add_rank_lines(const struct ms_dry_answer *answer, struct ms_buffer *out)
{
    for (size_t i = 0; i < ms_dry_rank_count(answer); i++) {
        const struct ms_dry_rank *rank = ms_dry_rank_at(answer, i);

        if (ms_dry_rank_count(answer) == 1) {
            ms_buffer_add(out, "  peak     ");
        } else if (rank->rank >= 0) {
            ms_buffer_format(out, "  rank %-4d", (int)rank->rank);
        } else {
            ms_buffer_format(out, "  %s  ", rank->folder);
        }
        ms_buffer_format(out, "live %s", MS_BYTES(rank->peak_live_bytes));
        if (rank->peak_tensor_bytes > 0 && rank->peak_tensor_bytes < rank->peak_live_bytes) {
            ms_buffer_format(out, " (tensors at most %s)", MS_BYTES(rank->peak_tensor_bytes));
        }
        ms_buffer_format(out, ", reserved %s, charged %s%s\n", MS_BYTES(rank->peak_reserved_bytes),
                         MS_BYTES(rank->peak_charged_bytes),
                         rank->died_of_oom ? "; ran out of memory" : "");
    }
}

static void add_holds(const struct ms_dry_rank *rank, struct ms_buffer *out)
{
    const char *name = "where";

    for (size_t i = 0; i < rank->holds.bytes; i += strlen(rank->holds.at + i) + 1) {
        ms_buffer_format(out, "  %-7s  ", name);
        ms_buffer_add(out, rank->holds.at + i);
        ms_buffer_add(out, "\n");
        name = "";
    }
    if (rank->peak_step > 0) {
        ms_buffer_format(out, "           the peak is in step %s\n", MS_COUNT(rank->peak_step));
    }
}

bool ms_dry_tensor_varies(const struct ms_dry_tensor *tensor)
{
    return tensor->least_bytes > 0 && tensor->least_bytes < tensor->bytes;
}

/* How large an input was seen: its shape does not reach the allocator. */
static void add_largest(const struct ms_dry_tensor *largest, struct ms_buffer *out)
{
    if (largest->bytes == 0) {
        return;
    }
    ms_buffer_format(out, "  largest  one tensor of %s, ", MS_BYTES(largest->bytes));
    ms_buffer_add(out, largest->line);
    ms_buffer_format(out, "   %s", ms_kind_name(largest->kind));
    if (largest->step > 0) {
        ms_buffer_format(out, ", in step %s", MS_COUNT(largest->step));
    }
    if (ms_dry_tensor_varies(largest)) {
        ms_buffer_format(out, "; steps differ: at most %s in step %s",
                         MS_BYTES(largest->least_bytes), MS_COUNT(largest->least_step));
    }
    ms_buffer_add(out, "\n");
}

/* NCCL's own buffers: no kernel of the program asks for them, so they come from a table. */
static void add_nccl(const struct ms_card *card, const struct ms_dry_rank *rank,
                     struct ms_buffer *out)
{
    const struct ms_card_nccl nccl = ms_card_nccl(card);

    if (rank->nccl_bytes == 0) {
        return;
    }
    ms_buffer_format(
        out, "  NCCL     %s for its own buffers, included in charged; from a table, %s (%u ",
        MS_BYTES(rank->nccl_bytes), ms_card_known_name(nccl.known), nccl.channels);
    if (nccl.on_host) {
        ms_buffer_add(out, "channels, buffers on the host)\n");
    } else {
        ms_buffer_format(out, "channels, %u NVLS; LL + LL128 + Simple)\n", nccl.nvls_channels);
    }
}

/* A script may have several, as of a search for the learning rate before training. */
static void add_optimizer(const struct ms_dry_rank *rank, struct ms_buffer *out)
{
    if (rank->optimizer_line[0]) {
        ms_buffer_add(out, "  steps    of the optimizer that is called by ");
        ms_buffer_add(out, rank->optimizer_line);
        ms_buffer_add(out, "\n");
    }
}

static void add_rank_detail(const struct ms_card *card, const struct ms_dry_rank *rank,
                            struct ms_buffer *out)
{
    const struct ms_headroom *headroom = &rank->headroom;

    add_optimizer(rank, out);
    if (headroom->known) {
        ms_buffer_format(out, "  stays    %s; %s follow the batch\n",
                         MS_BYTES(headroom->persistent_bytes), MS_BYTES(headroom->per_step_bytes));
    } else {
        ms_buffer_format(out, "  batch    what follows the batch is not known: %s\n",
                         headroom->why ? headroom->why : "no step was seen");
    }
    if (rank->kinds_known) {
        ms_buffer_add(out, "  kinds    ");
        add_parts(rank, out);
        ms_buffer_add(out, "\n");
    }
    add_holds(rank, out);
    add_largest(&rank->largest, out);
    add_nccl(card, rank, out);
    if (rank->replayed) {
        ms_buffer_format(out,
                         "  needs    PyTorch alone %s, with expandable segments %s, under memshim "
                         "%s\n",
                         MS_BYTES(rank->needs.charged_bytes[MS_GROUND_TORCH]),
                         MS_BYTES(rank->needs.charged_bytes[MS_GROUND_EXPANDABLE]),
                         MS_BYTES(rank->needs.charged_bytes[MS_GROUND_MEMSHIM]));
    }
}

/* What memshim makes of it, one of: "fits from 0.61", "spills 3.20 GiB, 205 ms", "no". */
static void add_under_memshim(const struct ms_card *card, const struct ms_card_fit *fit,
                              struct ms_buffer *out)
{
    if (fit->fits[MS_GROUND_MEMSHIM]) {
        ms_buffer_format(out, "fits from %s",
                         ms_decimal_text((int64_t)fit->fraction_percent * (MILLION / 100),
                                         (char[MS_UNIT_TEXT_BYTES]){0}, MS_UNIT_TEXT_BYTES));
    } else if (fit->spilled_bytes > 0) {
        ms_buffer_format(out, "spills %s, %s", MS_BYTES(fit->spilled_bytes),
                         MS_DURATION(ms_card_spill_ns(card, fit->spilled_bytes)));
    } else {
        ms_buffer_add(out, "no");
    }
    ms_buffer_append(out, "", 1);
}

static const char *fit_word(const struct ms_card_fit *fit, int ground)
{
    return fit->slower[ground] ? "slower" : fit->fits[ground] ? "fits" : "no";
}

static void add_card_line(const struct ms_dry_answer *answer, size_t card, struct ms_buffer *out)
{
    const struct ms_dry_card_row row = ms_dry_card_row(answer, card);
    const struct ms_dry_batch *batch = &row.batches[MS_GROUND_MEMSHIM];
    struct ms_buffer under_memshim = {0};

    if (!row.fit.known) {
        return;
    }
    add_under_memshim(&answer->cards[card], &row.fit, &under_memshim);
    ms_buffer_format(out, "  %-12s %10s   %-13s  %-10s  %-23s  ", answer->cards[card].id,
                     MS_BYTES(answer->cards[card].total_bytes), fit_word(&row.fit, MS_GROUND_TORCH),
                     fit_word(&row.fit, MS_GROUND_EXPANDABLE),
                     under_memshim.failed ? "" : under_memshim.at);
    ms_buffer_free(&under_memshim);
    if (batch->factor > 0) {
        ms_buffer_format(out, "%s%s",
                         ms_decimal_text((int64_t)(batch->factor * 100) * (MILLION / 100),
                                         (char[MS_UNIT_TEXT_BYTES]){0}, MS_UNIT_TEXT_BYTES),
                         batch->unbounded ? " or more" : "");
    } else {
        ms_buffer_add(out, "-");
    }
    ms_buffer_add(out, "\n");
}

/* What the words in the cards' lines mean, where they are there. */
static void add_card_words(const struct ms_dry_answer *answer, struct ms_buffer *out)
{
    bool fits = false, spills = false, slower = false;

    for (size_t i = 0; i < answer->card_count; i++) {
        const struct ms_dry_card_row row = ms_dry_card_row(answer, i);

        fits = fits || (row.fit.known && row.fit.fits[MS_GROUND_MEMSHIM]);
        spills = spills || (row.fit.known && row.fit.spilled_bytes > 0);
        slower = slower || (row.fit.known && (row.fit.slower[MS_GROUND_TORCH] ||
                                              row.fit.slower[MS_GROUND_EXPANDABLE]));
    }
    if (slower) {
        ms_buffer_add(out, "  slower: it fits, and convolutions take slower algorithms, which need "
                           "no work space\n");
    }
    if (fits) {
        ms_buffer_add(out, "  from: the smallest MEMSHIM_FRACTION that serves, rounded up\n");
    }
    if (spills) {
        ms_buffer_add(out,
                      "  spills: on the host under memshim; a step that uses all of it takes at "
                      "least that long, for the\n  way there and back over the card's bus: a "
                      "bound, no estimate\n");
    }
}

/* No file says how much memory cuDNN takes. */
static void add_cudnn(const struct ms_dry_cudnn *cudnn, struct ms_buffer *out)
{
    if (cudnn->work_bytes > 0) {
        ms_buffer_format(
            out,
            "  cuDNN    recurrent networks: work space of %s and reserve space of %s at most for a "
            "call;\n           included above, by a bound and not by cuDNN\n",
            MS_BYTES(cudnn->work_bytes), MS_BYTES(cudnn->reserve_bytes));
    }
    if (cudnn->convolution_bytes > 0) {
        ms_buffer_format(out,
                         "  cuDNN    convolutions: work space of %s at most for a call; included "
                         "above,\n           by a bound and not by cuDNN, which may choose "
                         "otherwise for another card\n",
                         MS_BYTES(cudnn->convolution_bytes));
    }
    if (cudnn->missed_bytes > 0) {
        ms_buffer_format(out,
                         "  cuDNN    convolutions: there was no room for a work space of %s; an "
                         "algorithm without\n           one served, which is slower\n",
                         MS_BYTES(cudnn->missed_bytes));
    }
}

/* A context takes another amount with another version of CUDA. */
static void add_context(const struct ms_card *card, struct ms_buffer *out)
{
    if (card->context_known == MS_CARD_GIVEN) {
        ms_buffer_format(out, "The context's %s are as given.\n", MS_BYTES(card->context_bytes));
        return;
    }
    ms_buffer_format(out, "The context's %s are from a table: %s", MS_BYTES(card->context_bytes),
                     ms_card_known_name(card->context_known));
    if (card->context_cuda[0]) {
        ms_buffer_format(out, " with CUDA %s", card->context_cuda);
    } else {
        ms_buffer_add(out, ", for no version of CUDA in particular");
    }
    ms_buffer_add(out, ".\nOther versions take more or less; before CUDA 11.7 all kernels were "
                       "loaded, more than 1 GB.\n");
}

void ms_dry_run_text(const struct ms_dry_answer *answer, struct ms_buffer *out)
{
    const struct ms_dry_rank *rank = ms_dry_largest_rank(answer);
    const struct ms_dry_rank *other = ms_dry_other_rank(answer);

    ms_buffer_format(out, "Dry run on %s%s simulated %s (%s each): ", MS_COUNT(answer->devices), "",
                     answer->card->name, MS_BYTES(answer->card->total_bytes));
    add_end(answer, out);
    if (!rank) {
        return;
    }
    if (answer->ample) {
        ms_buffer_format(
            out, "It does not fit that card. What follows is from a run with enough memory.\n");
    }
    if (other) {
        ms_buffer_format(
            out,
            "It is no answer for one rank of %s: rank %d of %s ran. The command starts "
            "a launcher of its\nown: leave that out.\n",
            MS_COUNT(answer->world), (int)other->rank, MS_COUNT(other->world));
    } else if (answer->world > 0) {
        ms_buffer_format(
            out,
            "One rank of %s ran alone. The others' part of a collective counts as equal "
            "to its own.\n",
            MS_COUNT(answer->world));
    }
    ms_buffer_add(out, "\n");
    add_rank_lines(answer, out);
    add_rank_detail(answer->card, rank, out);
    ms_dry_schedules_text(answer, out);
    add_cudnn(&answer->cudnn, out);
    if (answer->host_bytes > 0) {
        ms_buffer_format(
            out,
            "  host     of this machine's memory, one process held at most %s, and all "
            "together %s",
            MS_BYTES(answer->host_bytes), MS_BYTES(answer->host_all_bytes));
        if (answer->host_written_bytes > 0) {
            ms_buffer_format(out, ", %s of it in files that it wrote",
                             MS_BYTES(answer->host_written_bytes));
        }
        ms_buffer_add(out, "\n");
    }
    if (rank->replayed) {
        ms_buffer_format(out, "\n  %-12s %10s   %-13s  %-10s  %-23s  %s\n", "card", "memory",
                         "PyTorch alone", "expandable", "memshim", "batch under memshim, x this");
        for (size_t i = 0; i < answer->card_count; i++) {
            add_card_line(answer, i, out);
        }
        add_card_words(answer, out);
    }
    ms_dry_values_text(answer, out);
    ms_buffer_add(out, "\nNo kernel ran, so memory that depends on computed values is not "
                       "included.\n");
    add_context(answer->card, out);
    ms_dry_compared_text(answer->version, out);
    if (answer->report) {
        ms_buffer_add(out, "report: ");
        ms_buffer_add_plain(out, answer->report);
        ms_buffer_add(out, "\n");
    }
}

/* ---- JSON ---- */

static void add_decimal(struct ms_json *json, const char *key, double value)
{
    ms_json_number(json, key,
                   ms_decimal_text((int64_t)(value * MILLION), (char[MS_UNIT_TEXT_BYTES]){0},
                                   MS_UNIT_TEXT_BYTES));
}

static void add_rank_json(const struct ms_dry_rank *rank, struct ms_json *json)
{
    ms_json_open(json, NULL, '{');
    ms_json_text(json, "folder", rank->folder);
    ms_json_integer_unless(json, "rank", rank->rank, -1);
    ms_json_count(json, "steps", rank->steps);
    ms_json_flag(json, "loop", rank->is_loop);
    ms_json_flag(json, "optimizer_state", rank->has_state);
    ms_json_flag(json, "validation", rank->validates);
    if (rank->optimizer_line[0]) {
        ms_json_text(json, "optimizer_line", rank->optimizer_line);
    }
    ms_json_flag(json, "out_of_memory", rank->died_of_oom);
    ms_json_count(json, "peak_live_bytes", rank->peak_live_bytes);
    ms_json_count(json, "peak_tensor_bytes", rank->peak_tensor_bytes);
    ms_json_count(json, "peak_reserved_bytes", rank->peak_reserved_bytes);
    ms_json_count(json, "peak_charged_bytes", rank->peak_charged_bytes);
    ms_json_integer_unless(json, "peak_step", (int64_t)rank->peak_step, 0);
    ms_json_count(json, "nccl_bytes", rank->nccl_bytes);
    ms_json_open(json, "kinds", '{');
    for (int kind = 0; rank->kinds_known && kind < MS_KIND_COUNT; kind++) {
        ms_json_count(json, ms_kind_name((enum ms_kind)kind), rank->kind_bytes[kind]);
    }
    ms_json_close(json, '}');
    ms_json_open(json, "holds", '[');
    for (size_t i = 0; i < rank->holds.bytes; i += strlen(rank->holds.at + i) + 1) {
        ms_json_text(json, NULL, rank->holds.at + i);
    }
    ms_json_close(json, ']');
    if (rank->largest.bytes > 0) {
        ms_json_open(json, "largest_tensor", '{');
        ms_json_count(json, "bytes", rank->largest.bytes);
        ms_json_text(json, "line", rank->largest.line);
        ms_json_text(json, "kind", ms_kind_name(rank->largest.kind));
        ms_json_integer_unless(json, "step", (int64_t)rank->largest.step, 0);
        ms_json_integer_unless(json, "least_bytes", (int64_t)rank->largest.least_bytes, 0);
        ms_json_integer_unless(json, "least_step", (int64_t)rank->largest.least_step, 0);
        ms_json_close(json, '}');
    }
    ms_json_flag(json, "batch_known", rank->headroom.known);
    if (rank->headroom.known) {
        ms_json_count(json, "persistent_bytes", rank->headroom.persistent_bytes);
        ms_json_count(json, "per_step_bytes", rank->headroom.per_step_bytes);
    }
    ms_json_open(json, "needs_bytes", '{');
    for (int ground = 0; rank->replayed && ground < MS_GROUND_COUNT; ground++) {
        ms_json_count(json, grounds[ground], rank->needs.charged_bytes[ground]);
    }
    ms_json_close(json, '}');
    ms_json_close(json, '}');
}

void ms_dry_fit_json(const struct ms_card_fit *fit, struct ms_json *json)
{
    ms_json_open(json, "fits", '{');
    for (int ground = 0; ground < MS_GROUND_COUNT; ground++) {
        ms_json_flag(json, grounds[ground], fit->fits[ground]);
    }
    ms_json_close(json, '}');
    ms_json_open(json, "slower", '{');
    for (int ground = 0; ground < MS_GROUND_MEMSHIM; ground++) {
        ms_json_flag(json, grounds[ground], fit->slower[ground]);
    }
    ms_json_close(json, '}');
}

static void add_card_json(const struct ms_dry_answer *answer, size_t index, struct ms_json *json)
{
    const struct ms_card *card = &answer->cards[index];
    const struct ms_dry_card_row row = ms_dry_card_row(answer, index);

    ms_json_open(json, NULL, '{');
    ms_json_text(json, "id", card->id);
    ms_json_text(json, "name", card->name);
    ms_json_count(json, "total_bytes", card->total_bytes);
    ms_json_text(json, "total_is", ms_card_known_name(card->total_known));
    ms_json_count(json, "context_bytes", card->context_bytes);
    ms_json_text(json, "context_is", ms_card_known_name(card->context_known));
    if (card->context_cuda[0]) {
        ms_json_text(json, "context_cuda", card->context_cuda);
    }
    ms_json_count(json, "bus_bytes_per_s", card->bus_bytes_per_s);
    ms_json_text(json, "bus_is", ms_card_known_name(card->bus_known));
    ms_json_text(json, "source", card->source);
    if (row.fit.known) {
        ms_dry_fit_json(&row.fit, json);
        if (row.fit.spilled_bytes > 0) {
            ms_json_count(json, "spilled_bytes", row.fit.spilled_bytes);
            ms_json_count(json, "spilling_ns_per_step",
                          ms_card_spill_ns(card, row.fit.spilled_bytes));
        }
        if (row.fit.fits[MS_GROUND_MEMSHIM]) {
            ms_json_number(json, "fraction",
                           ms_decimal_text((int64_t)row.fit.fraction_percent * (MILLION / 100),
                                           (char[MS_UNIT_TEXT_BYTES]){0}, MS_UNIT_TEXT_BYTES));
        }
        ms_json_open(json, "batch_factor", '{');
        for (int ground = 0; ground < MS_GROUND_COUNT; ground++) {
            add_decimal(json, grounds[ground], row.batches[ground].factor);
        }
        ms_json_close(json, '}');
    }
    ms_json_close(json, '}');
}

static void add_cards_json(const struct ms_dry_answer *answer, struct ms_json *json)
{
    ms_json_open(json, "cards", '[');
    for (size_t i = 0; ms_dry_rank_count(answer) > 0 && i < answer->card_count; i++) {
        add_card_json(answer, i, json);
    }
    ms_json_close(json, ']');
}

void ms_dry_cards_json(const struct ms_dry_answer *answer, struct ms_buffer *out)
{
    struct ms_json json = {.out = out, .dense = true};

    ms_json_open(&json, NULL, '{');
    add_cards_json(answer, &json);
    ms_json_close(&json, '}');
}

static void add_nccl_json(const struct ms_card *card, struct ms_json *json)
{
    const struct ms_card_nccl nccl = ms_card_nccl(card);

    ms_json_open(json, "nccl_table", '{');
    ms_json_text(json, "is", ms_card_known_name(nccl.known));
    ms_json_count(json, "channels", nccl.channels);
    ms_json_count(json, "nvls_channels", nccl.nvls_channels);
    ms_json_count(json, "peer_channels", nccl.peer_channels);
    ms_json_flag(json, "buffers_on_host", nccl.on_host);
    ms_json_text(json, "source", nccl.source);
    ms_json_close(json, '}');
}

void ms_dry_run_json(const struct ms_dry_answer *answer, struct ms_buffer *out)
{
    static const char *const ends[] = {"stopped", "ended", "failed", "interrupted", "host memory"};
    struct ms_json json = {.out = out};

    ms_json_open(&json, NULL, '{');
    ms_json_text(&json, "schema", "memshim-dry-run/1");
    ms_json_text(&json, "card", answer->card->id);
    ms_json_count(&json, "devices", answer->devices);
    ms_json_integer_unless(&json, "one_rank_of", (int64_t)answer->world, 0);
    ms_json_flag(&json, "other_ranks_ran", ms_dry_other_rank(answer) != NULL);
    ms_json_text(&json, "end", ends[answer->end]);
    ms_json_integer(&json, "status", answer->status);
    ms_json_flag(&json, "fits_the_card", !answer->ample);
    if (answer->asked.device >= 0) {
        ms_json_count(&json, "asked_device", (uint64_t)answer->asked.device);
    }
    if (answer->asked.host[0]) {
        ms_json_text(&json, "asked_host", answer->asked.host);
    }
    if (answer->asked.hub[0]) {
        ms_json_text(&json, "asked_hub", answer->asked.hub);
    }
    ms_json_text(&json, "report", answer->report);
    ms_json_count(&json, "elapsed_ns", answer->elapsed_ns);
    ms_json_text(&json, "version", answer->version);
    ms_dry_compared_json(&json);
    ms_json_integer_unless(&json, "host_bytes", (int64_t)answer->host_bytes, 0);
    ms_json_integer_unless(&json, "host_all_bytes", (int64_t)answer->host_all_bytes, 0);
    ms_json_integer_unless(&json, "host_written_bytes", (int64_t)answer->host_written_bytes, 0);
    ms_json_integer_unless(&json, "host_limit_bytes", (int64_t)answer->host_limit_bytes, 0);
    add_nccl_json(answer->card, &json);
    ms_json_open(&json, "ranks", '[');
    for (size_t i = 0; i < ms_dry_rank_count(answer); i++) {
        add_rank_json(ms_dry_rank_at(answer, i), &json);
    }
    ms_json_close(&json, ']');
    ms_dry_schedules_json(answer, &json);
    if (answer->cudnn.work_bytes > 0) {
        ms_json_count(&json, "cudnn_work_bytes_bound", answer->cudnn.work_bytes);
        ms_json_count(&json, "cudnn_reserve_bytes_bound", answer->cudnn.reserve_bytes);
    }
    if (answer->cudnn.convolution_bytes > 0) {
        ms_json_count(&json, "cudnn_convolution_bytes_bound", answer->cudnn.convolution_bytes);
    }
    if (answer->cudnn.missed_bytes > 0) {
        ms_json_count(&json, "cudnn_convolution_bytes_missed", answer->cudnn.missed_bytes);
    }
    ms_dry_values_json(answer, &json);
    add_cards_json(answer, &json);
    ms_json_close(&json, '}');
    ms_buffer_add(out, "\n");
}
