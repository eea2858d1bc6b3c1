/* SPDX-License-Identifier: Apache-2.0 */
/* Judges the purpose of a call site's memory with one table of rules: the first that fits
 * decides. */
#include "report/model/kinds.h"

#include <stdbool.h>
#include <string.h>

#include "allocator/base/path.h"

#define INNERMOST 8u /* native frames that may show the purpose */

/* Signs in a native stack. */
enum mark { MARK_WORKSPACE = 1, MARK_COMMUNICATION = 2, MARK_TRANSFER = 4 };

struct evidence {
    const struct ms_site_definition *site; /* null: none */
    struct ms_doings is;
    uint32_t marks; /* enum mark */
    struct ms_site_lifetimes lifetimes;
    bool after_model; /* its first request came after the first call of a model */
    uint64_t made_state_bytes;
    enum ms_lifetime lifetime; /* of the bytes in question */
};

const char *ms_kind_name(enum ms_kind kind)
{
    static const char *const names[MS_KIND_COUNT] = {
        [MS_KIND_PARAMETERS] = "parameters",
        [MS_KIND_GRADIENTS] = "gradients",
        [MS_KIND_OPTIMIZER] = "optimizer state",
        [MS_KIND_ACTIVATIONS] = "activations",
        [MS_KIND_INPUTS] = "inputs",
        [MS_KIND_TEMPORARY] = "temporary",
        [MS_KIND_WORKSPACE] = "workspace",
        [MS_KIND_COMMUNICATION] = "communication",
        [MS_KIND_GRAPHS] = "CUDA-graph pools",
        [MS_KIND_PERSISTENT] = "other persistent",
        [MS_KIND_UNKNOWN] = "unknown",
    };

    return names[kind];
}

const char *ms_kind_meaning(enum ms_kind kind)
{
    static const char *const meanings[MS_KIND_COUNT] = {
        [MS_KIND_ACTIVATIONS] =
            "made by a model's call, or for a backward pass to come; also data made for that call",
        [MS_KIND_INPUTS] = "copied to the device again and again, outside of models",
        [MS_KIND_TEMPORARY] = "such memory is freed again before the next backward pass",
        [MS_KIND_WORKSPACE] = "asked for by a library for itself, such as cuBLAS",
        [MS_KIND_PERSISTENT] = "it stayed, and is no parameter, gradient or optimizer state",
        [MS_KIND_UNKNOWN] = "it has no call site, or no rule fits",
    };

    return meanings[kind];
}

/* ---- conditions of the rules ---- */

static bool stays(const struct evidence *e)
{
    return e->lifetime == MS_LIFETIME_KEPT || e->lifetime == MS_LIFETIME_OPEN;
}

static bool outlives(const struct evidence *e)
{
    return stays(e) || e->lifetime == MS_LIFETIME_CROSSED || e->lifetime == MS_LIFETIME_OUTLIVED;
}

static bool passed(const struct evidence *e, uint32_t landmark)
{
    return (e->is.passed & landmark) != 0;
}

static bool has_no_stack(const struct evidence *e)
{
    return !e->site || e->is.doing == MS_DOING_UNKNOWN;
}

static bool is_captured(const struct evidence *e)
{
    return e->lifetime == MS_LIFETIME_CAPTURED;
}

static bool in_graph(const struct evidence *e)
{
    return passed(e, MS_PASSED_GRAPH);
}

static bool is_workspace(const struct evidence *e)
{
    return e->marks & MARK_WORKSPACE;
}

static bool is_gathered(const struct evidence *e)
{
    return passed(e, MS_PASSED_GATHER);
}

static bool is_reduced_shard(const struct evidence *e)
{
    return passed(e, MS_PASSED_REDUCE) && outlives(e);
}

static bool is_being_reduced(const struct evidence *e)
{
    return passed(e, MS_PASSED_REDUCE);
}

static bool is_shard(const struct evidence *e)
{
    return passed(e, MS_PASSED_SHARDING) && e->is.doing == MS_DOING_OTHER && stays(e);
}

static bool is_communication(const struct evidence *e)
{
    return e->marks & MARK_COMMUNICATION;
}

static bool is_loaded_state(const struct evidence *e)
{
    return passed(e, MS_PASSED_STATE) && stays(e);
}

static bool in_optimizer(const struct evidence *e)
{
    return ms_doing_is_optimizers((enum ms_doing)e->is.doing);
}

/* The last step's temporaries may seem to have stayed. */
static bool is_state(const struct evidence *e)
{
    return in_optimizer(e) && outlives(e) &&
           e->lifetimes.bytes[MS_LIFETIME_MOMENT] < e->lifetimes.bytes[e->lifetime];
}

static bool in_backward(const struct evidence *e)
{
    return e->is.doing == MS_DOING_BACKWARD;
}

static bool is_recomputed(const struct evidence *e)
{
    return in_backward(e) && passed(e, MS_PASSED_MODULE);
}

static bool is_gradient(const struct evidence *e)
{
    return in_backward(e) && e->lifetime == MS_LIFETIME_OUTLIVED;
}

static bool is_reused(const struct evidence *e)
{
    return in_backward(e) && e->lifetime == MS_LIFETIME_REUSED;
}

static bool is_copy(const struct evidence *e)
{
    return passed(e, MS_PASSED_COPY) && outlives(e);
}

/* An optimizer that was given its state makes none, and a checkpoint's other tensors are copied to
 * their places. If a run ended before training, none of this is known. */
static bool is_resumed_state(const struct evidence *e)
{
    return passed(e, MS_PASSED_LOAD) && !passed(e, MS_PASSED_MODULE) &&
           e->lifetime == MS_LIFETIME_KEPT &&
           e->made_state_bytes < e->lifetimes.bytes[MS_LIFETIME_KEPT];
}

static bool is_parameter(const struct evidence *e)
{
    return passed(e, MS_PASSED_CONSTRUCTION) && e->is.doing != MS_DOING_FORWARD && stays(e);
}

static bool is_gradient_buffer(const struct evidence *e)
{
    return passed(e, MS_PASSED_GRADIENT_MADE) && !passed(e, MS_PASSED_STATE_MADE) && stays(e);
}

static bool is_made_state(const struct evidence *e)
{
    return passed(e, MS_PASSED_STATE_MADE) && stays(e);
}

static bool in_forward(const struct evidence *e)
{
    return e->is.doing == MS_DOING_FORWARD;
}

static bool is_kept_by_module(const struct evidence *e)
{
    return in_forward(e) && stays(e);
}

static bool is_saved(const struct evidence *e)
{
    return e->lifetime == MS_LIFETIME_BACKWARD;
}

static bool is_result(const struct evidence *e)
{
    return in_forward(e) && e->lifetime == MS_LIFETIME_CROSSED;
}

static bool has_python(const struct evidence *e)
{
    return e->site->python != 0;
}

/* The run ended before a pass. The site's memory of earlier steps decides; in the first step, its
 * having allocated since the call of a model. A site that mostly kept its memory keeps this too. */
static bool is_under_way(const struct evidence *e)
{
    const bool of_step = in_forward(e) || (e->after_model && has_python(e));
    const uint64_t *bytes = e->lifetimes.bytes;
    const uint64_t passing =
        bytes[MS_LIFETIME_BACKWARD] + (in_forward(e) ? bytes[MS_LIFETIME_CROSSED] : 0);

    if (e->lifetime != MS_LIFETIME_OPEN || bytes[MS_LIFETIME_KEPT] > passing) {
        return false;
    }
    return passing > 0 ? passing >= bytes[MS_LIFETIME_MOMENT]
                       : of_step && bytes[MS_LIFETIME_MOMENT] == 0;
}

static bool is_under_way_briefly(const struct evidence *e)
{
    const uint64_t *bytes = e->lifetimes.bytes;
    const uint64_t brief =
        bytes[MS_LIFETIME_MOMENT] + (in_forward(e) ? 0 : bytes[MS_LIFETIME_CROSSED]);

    return e->lifetime == MS_LIFETIME_OPEN && brief > bytes[MS_LIFETIME_KEPT] &&
           brief >= bytes[MS_LIFETIME_OPEN];
}

/* Memory that is copied once and stays is no input of a step. */
static bool is_input(const struct evidence *e)
{
    const uint64_t *bytes = e->lifetimes.bytes;

    return (e->marks & MARK_TRANSFER) &&
           (e->is.doing == MS_DOING_OTHER || e->is.doing == MS_DOING_ASIDE) &&
           bytes[MS_LIFETIME_MOMENT] + bytes[MS_LIFETIME_BACKWARD] + bytes[MS_LIFETIME_CROSSED] > 0;
}

static bool is_crossing(const struct evidence *e)
{
    return e->lifetime == MS_LIFETIME_CROSSED;
}

static bool is_kept(const struct evidence *e)
{
    return has_python(e) && stays(e);
}

static bool is_brief(const struct evidence *e)
{
    return (has_python(e) || in_backward(e)) &&
           (e->lifetime == MS_LIFETIME_MOMENT || e->lifetime == MS_LIFETIME_SPENT);
}

static bool is_anything(const struct evidence *e)
{
    (void)e;
    return true;
}

/* ---- the rules ---- */

static const struct rule {
    enum ms_kind kind;
    bool (*fits)(const struct evidence *e);
    const char *reason;
} rules[] = {
    {MS_KIND_GRAPHS, is_captured, "in an arena that the capture of a CUDA graph froze"},
    {MS_KIND_UNKNOWN, has_no_stack, "it has no stack"},
    {MS_KIND_GRAPHS, in_graph, "asked for while a CUDA graph was captured"},
    {MS_KIND_WORKSPACE, is_workspace, "a library's workspace, by the native frames"},
    {MS_KIND_COMMUNICATION, is_gathered, "FSDP or ZeRO gathered parameters into it"},
    {MS_KIND_GRADIENTS, is_reduced_shard,
     "FSDP or ZeRO reduced gradients into it, and it outlived that"},
    {MS_KIND_COMMUNICATION, is_being_reduced, "FSDP or ZeRO reduced gradients through it"},
    {MS_KIND_PARAMETERS, is_shard, "FSDP made it before training, and it stayed"},
    {MS_KIND_COMMUNICATION, is_communication, "asked for by collectives, by the native frames"},
    {MS_KIND_OPTIMIZER, is_loaded_state, "an optimizer's state was loaded into it"},
    {MS_KIND_OPTIMIZER, is_state, "asked for in an optimizer's step, and it outlived that"},
    {MS_KIND_TEMPORARY, in_optimizer, "an optimizer's step needed it for a moment"},
    {MS_KIND_ACTIVATIONS, is_recomputed, "a module computed it again in a backward pass"},
    {MS_KIND_GRADIENTS, is_gradient, "made in a backward pass, and it outlived that"},
    {MS_KIND_ACTIVATIONS, is_reused, "made in a backward pass for the backward of that"},
    {MS_KIND_PERSISTENT, is_copy, "a copy of a whole model, and it stayed"},
    {MS_KIND_PARAMETERS, is_parameter, "a module was made, moved or converted, and it stayed"},
    {MS_KIND_OPTIMIZER, is_made_state,
     "an optimizer made it when it was constructed, and it stayed"},
    {MS_KIND_GRADIENTS, is_gradient_buffer, "ZeRO made it for gradients, and it stayed"},
    {MS_KIND_OPTIMIZER, is_resumed_state,
     "a checkpoint was loaded into it, it stayed through training, and optimizers made no state of "
     "their own"},
    {MS_KIND_INPUTS, is_input, "copied to the device outside of modules, again and again"},
    {MS_KIND_ACTIVATIONS, is_under_way,
     "made since a model was called; no backward pass came since"},
    {MS_KIND_TEMPORARY, is_under_way_briefly,
     "similar memory was freed before the next backward pass"},
    {MS_KIND_PERSISTENT, is_kept_by_module, "a module asked for it in a call, and it stayed"},
    {MS_KIND_ACTIVATIONS, is_saved, "made before a backward pass, and freed in it"},
    {MS_KIND_ACTIVATIONS, is_result, "a module made it, and it outlived the backward pass"},
    {MS_KIND_PERSISTENT, is_kept, "it stayed, and no other rule fits"},
    {MS_KIND_TEMPORARY, is_brief, "it was freed before the next backward pass, or in its own"},
    {MS_KIND_TEMPORARY, is_crossing, "it outlived a backward pass, and was freed soon after"},
    {MS_KIND_UNKNOWN, is_anything, "no rule fits"},
};

/* ---- native frames ---- */

static bool has(const char *text, const char *part)
{
    return strstr(text, part) != NULL;
}

/* Such a library gets its operands, so it keeps what it asks for by itself: 32 MiB for each handle
 * of cuBLAS 13.1 on an H200. */
static bool asks_for_itself(const struct ms_frame *innermost)
{
    static const char *const libraries[] = {"libcublas",   "libcudnn", "libcusolver",
                                            "libcusparse", "libcufft", "libcurand"};
    const char *name = innermost->module ? ms_base_name(innermost->module) : "";

    for (size_t i = 0; i < sizeof(libraries) / sizeof(*libraries); i++) {
        if (strncmp(name, libraries[i], strlen(libraries[i])) == 0) {
            return true;
        }
    }
    return false;
}

bool ms_kinds_is_convolutions(ms_stacks_t *stacks, uint32_t site)
{
    static const char *const askers[] = {"run_conv_plan", "generate_and_filter_plans"};
    size_t count = 0;
    const struct ms_frame *frames = stacks ? ms_stacks_frames(stacks, site, &count) : NULL;

    for (size_t i = 0; i < count && i < INNERMOST; i++) {
        for (size_t j = 0; j < sizeof(askers) / sizeof(*askers); j++) {
            if (frames[i].language == MS_FRAME_NATIVE && has(frames[i].function, askers[j])) {
                return true;
            }
        }
    }
    return false;
}

static uint32_t marks_of(ms_stacks_t *stacks, uint32_t site)
{
    size_t count = 0, native = 0;
    const struct ms_frame *frames = stacks ? ms_stacks_frames(stacks, site, &count) : NULL;
    uint32_t marks = 0;

    for (size_t i = 0; i < count && frames[i].language == MS_FRAME_NATIVE; i++, native++) {
        const char *function = frames[i].function;

        if ((native < INNERMOST && (has(function, "Workspace") || has(function, "workspace"))) ||
            (native == 0 && asks_for_itself(&frames[i]))) {
            marks |= MARK_WORKSPACE;
        }
        if (has(function, "c10d::") || has(function, "nccl") || has(function, "libnccl")) {
            marks |= MARK_COMMUNICATION;
        }
        if (has(function, "THPVariable_to(") || has(function, "THPVariable_cuda(") ||
            has(function, "tensor_ctor(")) {
            marks |= MARK_TRANSFER;
        }
    }
    return marks;
}

/* ---- judging ---- */

static const struct rule *rule_for(const struct evidence *evidence)
{
    const struct rule *rule = rules;

    while (!rule->fits(evidence)) {
        rule++;
    }
    return rule;
}

/* The largest kind at the peak, or over all. */
static void choose(struct ms_site_kinds *kinds, const char *const reasons[MS_KIND_COUNT])
{
    uint64_t at_peak = 0;

    for (int i = 0; i < MS_KIND_COUNT; i++) {
        at_peak += kinds->at_peak_bytes[i];
    }

    const uint64_t *bytes = at_peak > 0 ? kinds->at_peak_bytes : kinds->bytes;

    kinds->kind = MS_KIND_UNKNOWN;
    for (int i = MS_KIND_COUNT; i-- > 0;) {
        kinds->kind = bytes[i] > bytes[kinds->kind] ? (uint8_t)i : kinds->kind;
    }
    kinds->second = kinds->kind;
    for (int i = MS_KIND_COUNT; i-- > 0;) {
        if (i != kinds->kind && kinds->bytes[i] > 0 &&
            (kinds->second == kinds->kind || kinds->bytes[i] > kinds->bytes[kinds->second])) {
            kinds->second = (uint8_t)i;
        }
    }
    kinds->reason = reasons[kinds->kind];
}

static void gather(struct evidence *evidence, const struct ms_kinds_ground *ground, uint8_t device,
                   uint32_t site)
{
    *evidence = (struct evidence){
        .site = ms_definitions_site(ground->definitions, site),
        .is = *ms_landmarks_of(ground->landmarks, site),
        .marks = marks_of(ground->stacks, site),
        /* Sites are numbered in the order in which they were first seen. */
        .after_model = site > ms_landmarks_first_call(ground->landmarks),
        .made_state_bytes = ground->made_state_bytes[device],
    };
    ms_site_table_lifetimes(ground->table, device, site, &evidence->lifetimes);
}

uint64_t ms_kinds_made_state(const ms_landmarks_t *landmarks, const ms_site_table_t *table,
                             uint8_t device)
{
    const uint32_t end = ms_site_table_end(table, device);
    uint64_t bytes = 0;

    for (uint32_t site = 0; site < end; site = ms_site_table_after(table, device, site)) {
        struct evidence evidence = {.is = *ms_landmarks_of(landmarks, site)};

        if (!in_optimizer(&evidence) ||
            !ms_site_table_lifetimes(table, device, site, &evidence.lifetimes)) {
            continue;
        }
        for (int lifetime = 0; lifetime < MS_LIFETIME_COUNT; lifetime++) {
            evidence.lifetime = (enum ms_lifetime)lifetime;
            bytes += is_state(&evidence) ? evidence.lifetimes.bytes[lifetime] : 0;
        }
    }
    return bytes;
}

void ms_kinds_by_lifetime(const struct ms_kinds_ground *ground, uint8_t device, uint32_t site,
                          uint8_t kinds[MS_LIFETIME_COUNT])
{
    struct evidence evidence;

    gather(&evidence, ground, device, site);
    for (int lifetime = 0; lifetime < MS_LIFETIME_COUNT; lifetime++) {
        evidence.lifetime = (enum ms_lifetime)lifetime;
        kinds[lifetime] = (uint8_t)rule_for(&evidence)->kind;
    }
}

void ms_kinds_judge(const struct ms_kinds_ground *ground, uint8_t device, uint32_t site,
                    struct ms_site_kinds *kinds)
{
    struct evidence evidence;
    const char *reasons[MS_KIND_COUNT] = {[MS_KIND_UNKNOWN] =
                                              "its memory has no lifetimes that memshim tracks"};

    *kinds = (struct ms_site_kinds){0};
    gather(&evidence, ground, device, site);
    for (int lifetime = 0; lifetime < MS_LIFETIME_COUNT; lifetime++) {
        if (evidence.lifetimes.bytes[lifetime] == 0) {
            continue;
        }
        evidence.lifetime = (enum ms_lifetime)lifetime;

        const struct rule *rule = rule_for(&evidence);

        kinds->bytes[rule->kind] += evidence.lifetimes.bytes[lifetime];
        kinds->at_peak_bytes[rule->kind] += evidence.lifetimes.at_peak_bytes[lifetime];
        reasons[rule->kind] = rule->reason;
    }
    choose(kinds, reasons);
}
