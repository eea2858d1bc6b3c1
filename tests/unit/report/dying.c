/* SPDX-License-Identifier: Apache-2.0 */
/* Makes up training loops that run out of memory. */
#include "dying.h"

#include <criterion/criterion.h>

#include "report/model/reading/read_model.h"
#include "report/model/survey/take.h"
#include "report/render/text/answer.h"
#include "report/trace/encoding.h"

ms_trace_t *trace;
static uint64_t next_id = 1;

uint64_t requested_bytes = ACTIVATION;
struct ms_model *model;
const struct ms_growth *growth;
struct ms_judgement judgement;
uint64_t hole_bytes;
uint8_t grad_mode;
uint64_t above_cap_bytes;
uint8_t pinned_by;

static void define(void *ctx, uint32_t kind, const void *payload, size_t bytes)
{
    ms_trace_define(ctx, kind, payload, bytes);
}

static bool unseen; /* nothing is born in blocks */

static void define_native(void)
{
    const struct ms_native_definition native = {.id = 1, .module = 1, .address = 0x1234};
    const struct ms_site_definition site = {
        .id = NATIVE_GRADIENT, .native = 1, .thread = MS_THREAD_BACKWARD};
    struct {
        struct ms_module_definition is;
        char path[32];
    } module = {.is = {.id = 1, .base = 0x1000, .bytes = 1 << 20}, .path = "/nowhere/libjob.so"};

    define(trace, MS_DEFINE_MODULE, &module, sizeof(module.is) + strlen(module.path));
    define(trace, MS_DEFINE_NATIVE, &native, sizeof(native));
    define(trace, MS_DEFINE_SITE, &site, sizeof(site));
}

static void begin_trace(void)
{
    const struct ms_event cap = {.kind = MS_EVENT_CAP, .bytes = 4 * GIB, .aux = 4 * GIB};

    loop_define(define, trace);
    define_native();
    ms_trace_emit(trace, &cap);
}

void begin(void)
{
    trace = synthetic_open(synthetic_folder());
    begin_trace();
}

void begin_batch(void)
{
    struct ms_trace_config config = synthetic_config(synthetic_folder());
    char note[256] = "";

    config.process.options = "MEMSHIM_BATCH=1000\n";
    trace = ms_trace_open(&config, note, sizeof(note));
    cr_assert_not_null(trace, "%s", note);
    begin_trace();
}

static void begin_blocks(const char *torch_mode)
{
    struct ms_trace_config config = synthetic_config(synthetic_folder());
    char note[256] = "";

    config.process.torch_mode = torch_mode;
    trace = ms_trace_open(&config, note, sizeof(note));
    cr_assert_not_null(trace, "%s", note);
    unseen = true;
    begin_trace();
}

/* Blocks are PyTorch's segments. */
void begin_unseen(void)
{
    begin_blocks("off");
}

/* Blocks are its tensors. */
void begin_tensor_mode(void)
{
    begin_blocks("tensor");
}

void end(void)
{
    if (model) {
        ms_model_delete(model);
        model = NULL;
    }
}

uint64_t born(enum loop_site site, uint64_t bytes)
{
    const struct ms_event event = {.kind = unseen ? MS_EVENT_BLOCK_ALLOC : MS_EVENT_TENSOR_ALLOC,
                                   .id = next_id,
                                   .addr = next_id * GIB,
                                   .bytes = bytes,
                                   .site = site};

    ms_trace_emit(trace, &event);
    return next_id++;
}

void died(uint64_t id, uint64_t bytes)
{
    const struct ms_event event = {
        .kind = MS_EVENT_TENSOR_FREE, .id = id, .addr = id * GIB, .bytes = bytes};

    ms_trace_emit(trace, &event);
}

/* A step that keeps nothing but the optimizer's state, which the first one makes. */
void step(int number)
{
    const uint64_t input = born(LOOP_INPUT, MIB);
    const uint64_t saved = born(LOOP_FORWARD, ACTIVATION);
    const uint64_t gradient = born(LOOP_GRADIENT, GRADIENT);

    died(saved, ACTIVATION);
    if (number == 1) {
        born(LOOP_STATE, 2 * GRADIENT);
    }
    died(born(LOOP_UPDATE, GRADIENT), GRADIENT);
    died(gradient, GRADIENT);
    died(input, MIB);
}

/* The run is over: what was made of it. */
void ends(int exit_status)
{
    char why[512] = "";

    ms_trace_close(trace, true, exit_status);
    model = ms_model_new(ms_trace_dir(trace), why, sizeof(why));
    cr_assert_not_null(model, "%s", why);
    ms_model_name_sites(model, MS_STACKS_NAMES, NULL);
    ms_model_survey(model, MS_SURVEY_SUMS);
    cr_assert_not_null(model->survey);
    growth = &model->survey->devices[0].growth;
}

void refused_before(uint64_t bytes)
{
    struct ms_oom_state state = synthetic_oom(bytes, MS_OOM_TORCH);

    state.site = LOOP_FORWARD;
    ms_trace_oom(trace, 0, &state);
}

/* The site asks for more than there is. */
void dies_at(uint32_t site, uint64_t short_bytes)
{
    struct ms_oom_state state = synthetic_oom(requested_bytes, MS_OOM_TORCH);

    state.cap_bytes = 4 * GIB;
    state.device_total_bytes = state.cap_bytes + above_cap_bytes;
    state.charged_bytes = state.pool_bytes = 4 * GIB - requested_bytes + short_bytes;
    state.live_bytes = state.charged_bytes - hole_bytes;
    state.context_bytes = 0;
    state.driver_free_bytes = above_cap_bytes;
    state.refused_bytes = requested_bytes;
    state.pinned_by = unseen ? MS_PINNED_BY_TORCH_OFF : pinned_by;
    state.site = site;
    state.grad_mode = grad_mode;
    ms_trace_oom(trace, 0, &state);
    ends(1);
    cr_assert_neq(ms_judged_fatal(model), SIZE_MAX);
    ms_judge(model, ms_judged_fatal(model), &judgement);
}

/* A forward in the next step asks for more than there is. */
void dies(uint64_t short_bytes)
{
    born(LOOP_INPUT, MIB);
    born(LOOP_FORWARD, MIB);
    dies_at(LOOP_FORWARD, short_bytes);
}

void expect_culprit(const char *function)
{
    cr_assert_geq(growth->leak_count, 1);
    cr_assert(growth->leaks[0].has_culprit);
    cr_expect_str_eq(growth->leaks[0].culprit.function, function);
}

/* The results of an evaluation are kept, with all that was computed for them. */
void train_and_keep(int steps, int every)
{
    for (int number = 1; number <= steps; number++) {
        step(number);
        if (number % every == 0) {
            born(LOOP_EVALUATION, KEPT);
            born(LOOP_APPENDED, MIB);
        }
    }
    dies(MIB);
}

const struct ms_survey_moment *moment_of_death(void)
{
    return ms_survey_oom_moment(&model->survey->devices[0], ms_judged_fatal(model));
}

/* The lines of the answer, as report.txt has them, have this among them, or have it not. */
static void expect_answer(const char *words, bool said)
{
    struct ms_buffer text = {0};

    ms_answer_text(&text, model);
    ms_buffer_append(&text, "", 1);
    cr_expect_eq(strstr(text.at, words) != NULL, said, "%s: %d in\n%s", words, !said, text.at);
    ms_buffer_free(&text);
}

void expect_said(const char *words)
{
    expect_answer(words, true);
}

void expect_not_said(const char *words)
{
    expect_answer(words, false);
}
