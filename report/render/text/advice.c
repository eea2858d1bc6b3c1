/* SPDX-License-Identifier: Apache-2.0 */
/* report.txt: what helps after an out-of-memory, which is the answer's line `next`. */
#include "allocator/base/arithmetic.h"
#include "allocator/base/units.h"
#include "report/model/ledger.h"
#include "report/model/site_rows.h"
#include "report/model/verdict/held_lines.h"
#include "report/model/verdict/leaks.h"
#include "report/model/verdict/verdict_report.h"
#include "report/render/text/parts.h"

/* A checkpoint is still live beside its copy, if it was loaded with */
#define LOADED_PARTS 8u /* 1/n of live memory or more, and */
#define COPIED_PARTS 4u /* 1/n of that or more is also there as parameters */

/* What is kept each time is a copy of the weights, if both are of one size, within 1/n. Below this
 * many bytes, sizes agree by chance. */
#define WEIGHTS_PARTS        16u
#define FEWEST_WEIGHTS_BYTES (UINT64_C(1) << 20)

/* For holes that could not be used elsewhere. */
static const char *advice_on_holes(uint64_t pinned_by)
{
    switch (pinned_by) {
    case MS_PINNED_BY_TORCH_OFF:
        return "run without MEMSHIM_TORCH=off: memshim can then use the holes in PyTorch's "
               "segments, except where CUDA graphs replay into them";
    case MS_PINNED_BY_POOL_OFF:
        return "run without MEMSHIM_POOL=off: memshim can then use the holes, except where CUDA "
               "graphs replay into them";
    case MS_PINNED_BY_CAPTURE:
        return "capture fewer or smaller CUDA graphs: each keeps the memory that was allocated "
               "during its capture";
    case MS_PINNED_BY_OWNER:
        return "make the allocator that keeps the free memory release it "
               "(cupy.get_default_memory_pool().free_all_blocks()), or limit its size";
    case MS_PINNED_BY_WORK:
        return "synchronize before that line, or set MEMSHIM_WAIT_MS to more than the queued work "
               "takes";
    case MS_PINNED_BY_NO_HOST:
        return "give the process host memory that can stand in for the holes (look at free memory, "
               "the container's limit and ulimit -l; memshim doctor tests it), or free what lies "
               "beside the holes: report.html shows which lines hold that";
    default:
        return "a smaller batch or shape; or free what lies beside the holes, or allocate it "
               "before the short-lived memory: report.html shows which lines hold it";
    }
}

/* Whether the request alone is more than half of the device, or of the cap if that refused it. */
static bool is_most(const struct ms_judgement *judgement, const struct ms_oom_state *state)
{
    return state->requested_bytes >
           (judgement->verdict == MS_VERDICT_CAP ? state->cap_bytes : state->device_total_bytes) /
               2;
}

static bool asks_for_one_tensor(const struct ms_judgement *judgement,
                                const struct ms_model_oom *oom)
{
    return (judgement->verdict == MS_VERDICT_DEMAND || judgement->verdict == MS_VERDICT_CAP) &&
           judgement->short_bytes > 0 && is_most(judgement, &oom->record.state);
}

static bool is_of_a_call(const struct ms_model *model, const struct ms_leak *leak)
{
    return ms_landmarks_of(model->landmarks, leak->all.site)->doing == MS_DOING_FORWARD;
}

static const char *advice_on_growth(const struct ms_model *model, const struct ms_leak *leak,
                                    const struct ms_model_oom *oom)
{
    if (ms_tensors_unseen(model, &oom->record.state)) {
        return "look for what keeps tensors from step to step: a list, a metric, a cache or a "
               "state; run without MEMSHIM_TORCH=off to see its line, as the one above only "
               "asked for the segments";
    }
    if (leak->all.kind == MS_KIND_GRAPHS) {
        return "capture fewer CUDA graphs, for fewer shapes, or let them share a pool "
               "(torch.cuda.graph(..., pool=)): each graph keeps what was allocated during its "
               "capture";
    }
    if (leak->all.kind == MS_KIND_OPTIMIZER) {
        return "look for what keeps each optimizer, or the model that it was made for, such as a "
               "list of them or a closure: let the old ones go before the next is made, and keep "
               "no more of them than a copy of their state_dict() on the host";
    }
    if (leak->graph == MS_GRAPH_NONE) {
        return "look for what keeps that line's results, such as a list, a cache or a queue; no "
               "autograd graph was seen in what grows: limit how many stay on the device (drop "
               "the oldest), or keep them on the host (.cpu())";
    }
    if (leak->graph == MS_GRAPH_UNUSED) {
        return "look for what keeps that line's results, such as a list, a cache or a queue; no "
               "backward pass was seen: if none is to come, call the model under torch.no_grad(), "
               "and limit how many results stay on the device (drop the oldest) or keep them on "
               "the host (.cpu()); if one is to come, let it come sooner, since until then the "
               "graph keeps what it needs";
    }
    if (oom->evaluating && is_of_a_call(model, leak)) {
        return oom->record.state.grad_mode == MS_GRAD_OFF
                   ? "look for what keeps that line's results, such as a list, a metric or a cache "
                     "of tensors, and limit how many stay on the device (drop the oldest), or "
                     "store plain numbers (.item()) or copies on the host (.cpu()) instead; this "
                     "evaluation ran without grad mode already, as under torch.no_grad()"
               : leak->graph == MS_GRAPH_KEPT
                   ? "look for what keeps that line's results, such as a list, a metric or a cache "
                     "of tensors; evaluate under torch.no_grad(), and store plain numbers "
                     "(.item()) or copies on the host (.detach().cpu()) instead"
                   : "look for what keeps that line's results, such as a list, a metric or a cache "
                     "of tensors; evaluate under torch.no_grad(), if it does not yet, and limit "
                     "how many stay on the device (drop the oldest), or store plain numbers "
                     "(.item()) or copies on the host (.detach().cpu()) instead";
    }
    return leak->graph == MS_GRAPH_KEPT
               ? "look for what keeps that line's results, such as a list, a metric, or a state "
                 "that is carried from step to step; most of what the model computed for them "
                 "stays with them, as an autograd graph keeps it: .detach() what is kept, or store "
                 "plain numbers (.item()); where no backward pass follows, compute them under "
                 "torch.no_grad()"
               : "look for what keeps that line's results, such as a list, a metric, a cache "
                 "of tensors, or a state that is carried from step to step; .detach() what "
                 "keeps a graph, and otherwise store plain numbers (.item()), copies on the "
                 "host (.cpu()), or only the last few";
}

static const char *larger_bound(const struct ms_judgement *judgement,
                                const struct ms_model_oom *oom)
{
    return judgement->verdict != MS_VERDICT_CAP ? "a larger device"
           : oom->record.state.fraction_known   ? "a larger MEMSHIM_FRACTION"
                                                : "a larger MEMSHIM_LIMIT";
}

/* Whether it is the evaluation's own need that was too large. */
static bool is_of_an_evaluation(const struct ms_judgement *judgement,
                                const struct ms_model_oom *oom)
{
    const bool too_large = judgement->verdict == MS_VERDICT_DEMAND ||
                           (judgement->verdict == MS_VERDICT_CAP && judgement->short_bytes > 0);

    return oom->evaluating && too_large && !is_most(judgement, &oom->record.state) &&
           !judgement->of_the_model && !judgement->of_one_line && judgement->repeated.segments == 0;
}

static void add_on_evaluation(const struct ms_judgement *judgement, const struct ms_model_oom *oom,
                              struct ms_buffer *out)
{
    const char *larger = larger_bound(judgement, oom);

    switch (oom->record.state.grad_mode) {
    case MS_GRAD_ON:
        ms_buffer_format(out,
                         "evaluate under torch.no_grad(): grad mode was on, so what the model "
                         "computes was kept for a backward pass; if that is not enough, a smaller "
                         "batch, or %s",
                         larger);
        break;
    case MS_GRAD_OFF:
        ms_buffer_format(out,
                         "evaluate with a smaller batch, or use %s: grad mode was off already, as "
                         "under torch.no_grad(), so nothing was kept for a backward pass",
                         larger);
        break;
    default:
        ms_buffer_format(out,
                         "evaluate with a smaller batch, and under torch.no_grad() if it does not "
                         "yet, so that nothing is kept for a backward pass; or use %s",
                         larger);
    }
}

static const char *advice(const struct ms_model *model, const struct ms_judgement *judgement,
                          const struct ms_model_oom *oom)
{
    switch (judgement->verdict) {
    case MS_VERDICT_CAP:
        return judgement->short_bytes == 0 ? "raise or remove per_process_memory_fraction, if it "
                                             "is set (in the program, or in PYTORCH_ALLOC_CONF)"
                                           : larger_bound(judgement, oom);
    case MS_VERDICT_FRAGMENTATION:
        return advice_on_holes(oom->record.state.pinned_by);
    case MS_VERDICT_OTHER_PROCESS:
        return "end the other processes, or take another device";
    case MS_VERDICT_SPILL_LIMIT:
        return "a larger MEMSHIM_SPILL_LIMIT, if the host has the memory; or a smaller batch";
    case MS_VERDICT_DRIVER_LIMIT:
        return "raise that limit; or set MEMSHIM_LIMIT a little below it, so that the run reaches "
               "memshim's cap first and cold memory moves to the host in time";
    case MS_VERDICT_NOT_DEVICE:
        return "look at the host: its free memory, ulimit -v and -l, and the container's limits";
    case MS_VERDICT_GROWTH:
        return advice_on_growth(model, judgement->leak, oom);
    default:
        if (is_most(judgement, &oom->record.state)) {
            return "a smaller batch or shape for that one tensor, or compute it in pieces: it "
                   "alone takes most of the device";
        }
        if (judgement->of_the_model) {
            return "a smaller model, fewer bytes per parameter (bfloat16, an optimizer with less "
                   "state, sharding over devices), or a larger device: a smaller batch would save "
                   "almost nothing";
        }
        if (judgement->of_one_line) {
            return "hold less of that at once: no model was called yet, and that line keeps all "
                   "that it asked for; keep it on the host, and move a part to the device when it "
                   "is needed; or use a larger device";
        }
        if (judgement->repeated.segments > 0) {
            return "run without MEMSHIM_TORCH=off, to see whether a line keeps tensors from step "
                   "to step; if none does: a smaller batch or shape, or a larger device";
        }
        return "a smaller batch or shape, or a larger device";
    }
}

/* Where the cap is to stay. */
static void add_below_cap(const struct ms_judgement *judgement, const struct ms_model_oom *oom,
                          struct ms_buffer *out)
{
    if (judgement->verdict != MS_VERDICT_CAP || judgement->short_bytes == 0) {
        return;
    }
    ms_buffer_add(out,
                  is_most(judgement, &oom->record.state)
                      ? ", or compute that one tensor in pieces: it alone takes most of the cap"
                  : judgement->of_the_model
                      ? ", or a smaller model or fewer bytes per parameter: a smaller batch would "
                        "save almost nothing"
                  : judgement->of_one_line
                      ? ", or hold less of that at once: no model was called yet, and that line "
                        "keeps all that it asked for"
                      : ", or a smaller batch or shape");
}

/* The shortage is that of one request: how much more the step would have asked for is unknown. */
static void add_missing(const struct ms_judgement *judgement, struct ms_buffer *out)
{
    const bool shown = (judgement->verdict == MS_VERDICT_CAP ||
                        (judgement->verdict == MS_VERDICT_DEMAND && !judgement->of_the_model)) &&
                       judgement->short_bytes > 0;

    if (shown) {
        ms_buffer_format(out, "; this one request was %s short%s", MS_BYTES(judgement->short_bytes),
                         judgement->rest_follows ? ", and the rest of the step was still to come"
                                                 : "");
    }
    ms_buffer_add(out, "\n");
}

/* Whether the optimizer's state came with a checkpoint: then it makes none. */
static bool has_loaded_state(const struct ms_model *model, uint64_t device)
{
    const struct ms_survey_moment *moment = ms_ledger_oom_moment(model, ms_judged_fatal(model));

    for (size_t i = 0; moment && i < moment->count; i++) {
        const struct ms_holding *holding =
            ms_survey_holding_at(&model->survey->devices[device], moment->first + i);

        if (holding->kind == MS_KIND_OPTIMIZER &&
            (ms_landmarks_of(model->landmarks, holding->site)->passed &
             (MS_PASSED_LOAD | MS_PASSED_STATE))) {
            return true;
        }
    }
    return false;
}

/* Saves a person from following the advice and running out again. */
static void add_first_step(const struct ms_model *model, const struct ms_judgement *judgement,
                           const struct ms_model_oom *oom, struct ms_buffer *out)
{
    const bool in_optimizer = ms_landmarks_is_optimizers(model->landmarks, oom->record.state.site);
    const bool asks_for_more = judgement->verdict == MS_VERDICT_CAP ||
                               judgement->verdict == MS_VERDICT_DEMAND ||
                               judgement->verdict == MS_VERDICT_SPILL_LIMIT;

    if (in_optimizer && judgement->state_to_come_bytes > 0) {
        ms_buffer_format(out,
                         "         %sthe optimizer had not yet created all of its state: about %s "
                         "of it were still to come, with this request\n",
                         judgement->step == 1 ? "this was the first step, and " : "",
                         MS_BYTES(judgement->state_to_come_bytes));
    } else if (asks_for_more && judgement->step == 1 && judgement->short_bytes > 0 &&
               !(in_optimizer && has_loaded_state(model, oom->device))) {
        ms_buffer_add(out, in_optimizer
                               ? "         this was the first step, and the optimizer had not yet "
                                 "created all of its state\n"
                               : "         this was the first step, which had not yet asked for "
                                 "all that it needs: it also creates gradients and optimizer "
                                 "state\n");
    } else if (judgement->rest_follows && judgement->most_factor <= 0) {
        ms_buffer_add(out,
                      "         no backward pass had begun: if this is training, the rest of the "
                      "step needs memory as well, so take a clearly smaller batch (half of it, to "
                      "begin with)\n");
    }
}

/* Bytes that torch.load made, and that are still live; the line of the largest part. Parameters
 * that came from elsewhere are counted apart. */
static uint64_t sum_loaded(const struct ms_model *model, uint64_t device,
                           const struct ms_survey_moment *moment, uint32_t *site,
                           uint64_t *parameters_bytes)
{
    uint64_t bytes = 0, most = 0;

    for (size_t i = 0; i < moment->count; i++) {
        const struct ms_holding *holding =
            ms_survey_holding_at(&model->survey->devices[device], moment->first + i);

        if (ms_landmarks_of(model->landmarks, holding->site)->passed & MS_PASSED_DESERIALIZED) {
            bytes += holding->bytes;
            *site = holding->bytes > most ? holding->site : *site;
            most = holding->bytes > most ? holding->bytes : most;
        } else if (holding->kind == MS_KIND_PARAMETERS) {
            *parameters_bytes += holding->bytes;
        }
    }
    return bytes;
}

/* A checkpoint that was loaded onto the device, and copied into the model, is there twice. Returns
 * its bytes; 0: there is none. */
static uint64_t find_loaded(const struct ms_model *model, const struct ms_judgement *judgement,
                            const struct ms_model_oom *oom, uint32_t *site)
{
    const struct ms_survey_moment *moment = ms_ledger_oom_moment(model, ms_judged_fatal(model));
    uint64_t parameters_bytes = 0;
    const uint64_t bytes =
        moment ? sum_loaded(model, oom->device, moment, site, &parameters_bytes) : 0;

    return judgement->verdict != MS_VERDICT_GROWTH && bytes > 0 &&
                   bytes >= moment->live_bytes / LOADED_PARTS &&
                   parameters_bytes >= bytes / COPIED_PARTS
               ? bytes
               : 0;
}

/* Whether nothing would have been short without the loaded checkpoint: then this advice comes
 * before all other. */
static bool is_loaded_to_blame(const struct ms_judgement *judgement, uint64_t loaded_bytes)
{
    return (judgement->verdict == MS_VERDICT_DEMAND || judgement->verdict == MS_VERDICT_CAP) &&
           judgement->short_bytes > 0 && loaded_bytes >= judgement->short_bytes;
}

static void add_loaded_first(const struct ms_model *model, uint64_t bytes, uint32_t site,
                             struct ms_buffer *out)
{
    ms_buffer_format(out,
                     "load the checkpoint onto the host (map_location=\"cpu\"), and let go of it "
                     "once the model has copied it: %s of the live bytes, more than was short, "
                     "were loaded from a file at ",
                     MS_BYTES(bytes));
    ms_site_add_line(model, site, out);
    ms_buffer_add(out, "; or ");
}

static void add_loaded(const struct ms_model *model, uint64_t bytes, uint32_t site,
                       struct ms_buffer *out)
{
    ms_buffer_format(out, "         %s of the live bytes were loaded from a file at ",
                     MS_BYTES(bytes));
    ms_site_add_line(model, site, out);
    ms_buffer_add(out, ": if the model has copied them, load onto the host (map_location=\"cpu\"), "
                       "and let go of what was loaded\n");
}

/* The same amount each time as the model has: its weights. */
static void add_copies(const struct ms_model *model, const struct ms_judgement *judgement,
                       struct ms_buffer *out)
{
    const struct ms_survey_moment *moment = ms_ledger_oom_moment(model, ms_judged_fatal(model));
    const uint64_t parameters =
        moment && !ms_model_hides_tensors(model) ? moment->kind_bytes[MS_KIND_PARAMETERS] : 0;

    if (judgement->verdict != MS_VERDICT_GROWTH || parameters < FEWEST_WEIGHTS_BYTES) {
        return;
    }
    if (ms_apart(ms_leak_each_time(judgement->leak), parameters) <= parameters / WEIGHTS_PARTS) {
        ms_buffer_format(out,
                         "         each time it is about as much as the model's parameters (%s): "
                         "probably a copy of the weights (a state_dict)\n",
                         MS_BYTES(parameters));
    }
}

/* Where one large tensor was asked for beside another: the other may not be needed any more, unless
 * it is the model's. */
static void add_beside(const struct ms_model *model, const struct ms_judgement *judgement,
                       const struct ms_model_oom *oom, struct ms_buffer *out)
{
    const struct ms_survey_moment *moment = ms_ledger_oom_moment(model, ms_judged_fatal(model));
    struct ms_held_line line;

    if (!asks_for_one_tensor(judgement, oom) || !moment ||
        ms_held_lines(model, (int)oom->device, moment, MS_KIND_COUNT, &line, 1) == 0) {
        return;
    }
    if (!ms_kind_is_of_model((enum ms_kind)line.kind) && line.bytes >= judgement->short_bytes &&
        line.bytes >= oom->record.state.requested_bytes / 2) {
        ms_buffer_format(out, "         %s of ", MS_BYTES(line.bytes));
        ms_buffer_add(out, line.text.at);
        ms_buffer_add(out, " are live beside it, and without them it fits: let go of them first "
                           "(del), if they are not needed together\n");
    }
    ms_held_lines_free(&line, 1);
}

/* Which capture it was that keeps the free memory. */
static void add_captured(const struct ms_model *model, const struct ms_judgement *judgement,
                         const struct ms_model_oom *oom, struct ms_buffer *out)
{
    struct ms_kind_row kinds[MS_KIND_ROWS];
    struct ms_buffer rows = {0};

    if (judgement->verdict != MS_VERDICT_FRAGMENTATION ||
        oom->record.state.pinned_by != MS_PINNED_BY_CAPTURE) {
        return;
    }
    ms_site_rows(model, (int)oom->device, &rows);
    ms_kind_rows(model, (int)oom->device, &rows, kinds);
    ms_buffer_free(&rows);

    const struct ms_kind_row *graphs = &kinds[MS_KIND_GRAPHS];

    if (graphs->largest_bytes > 0) {
        ms_buffer_add(out, "         most of that was asked for at ");
        ms_site_add_line(model, graphs->largest_site, out);
        ms_buffer_add(out, "\n");
        ms_text_add_callers(out, model, graphs->largest_site);
    }
}

/* The advice for one block that is made anew, and longer, each time. A list that gets one more
 * entry is another case: there, no two blocks are there at once. */
static void add_lengthened(const struct ms_judgement *judgement, const struct ms_model_oom *oom,
                           struct ms_buffer *out)
{
    ms_buffer_format(
        out,
        "  next   look for what keeps that line's result: it is made anew and longer each time. "
        "The request of %s is the %s that are kept and %s more, and while it is filled both are "
        "there: limit its length to at most %s, fill a buffer that is made once, or keep it on the "
        "host\n",
        MS_BYTES(oom->record.state.requested_bytes), MS_BYTES(judgement->lengthened_bytes),
        MS_BYTES(judgement->lengthened_by_bytes), MS_BYTES(judgement->longest_bytes));
}

void ms_text_add_next(struct ms_buffer *out, const struct ms_model *model,
                      const struct ms_judgement *judgement, const struct ms_model_oom *oom)
{
    if (judgement->lengthened_bytes > 0) {
        add_lengthened(judgement, oom, out);
        return;
    }

    uint32_t site = 0;
    const uint64_t loaded_bytes = find_loaded(model, judgement, oom, &site);
    const bool loaded_first = is_loaded_to_blame(judgement, loaded_bytes);

    ms_buffer_add(out, "  next   ");
    if (loaded_first) {
        add_loaded_first(model, loaded_bytes, site, out);
    }
    if (is_of_an_evaluation(judgement, oom)) {
        add_on_evaluation(judgement, oom, out);
    } else {
        ms_buffer_add(out, advice(model, judgement, oom));
        add_below_cap(judgement, oom, out);
    }
    add_missing(judgement, out);
    add_beside(model, judgement, oom, out);
    add_captured(model, judgement, oom, out);
    add_first_step(model, judgement, oom, out);
    if (loaded_bytes > 0 && !loaded_first) {
        add_loaded(model, loaded_bytes, site, out);
    }
    add_copies(model, judgement, out);
}
