/* SPDX-License-Identifier: Apache-2.0 */
/* The access model: which ranges the device uses, and when. */
#include "report/replay/replay_uses.h"

#include <stdlib.h>

#define MOST_SITES (1u << 20) /* a damaged recording may claim any number */

struct step_span {
    size_t begin, peak, end; /* operations; end: that of the step's end */
};

struct life {
    size_t allocation, freed; /* operations */
};

struct uses_search {
    const struct ms_recording *recording;
    struct ms_buffer steps; /* struct step_span */
    struct life *lives;     /* by object */
    struct ms_buffer kept;  /* size_t: allocations of long-lived memory, in order */
    struct ms_buffer *uses, *optimizers;
};

/* Whether the operation allocates or frees a range that counts as live. */
static bool is_range(const struct ms_operation *operation)
{
    const bool block =
        operation->kind == MS_OPERATION_ALLOC || operation->kind == MS_OPERATION_FREE;

    return operation->kind == MS_OPERATION_TENSOR_ALLOC ||
           operation->kind == MS_OPERATION_TENSOR_FREE ||
           (block && operation->arena == MS_RECORDED_NONE);
}

static bool begins(const struct ms_operation *operation)
{
    return operation->kind == MS_OPERATION_TENSOR_ALLOC || operation->kind == MS_OPERATION_ALLOC;
}

static void find_lives(struct uses_search *search)
{
    const size_t operations = ms_recording_count(search->recording);
    struct step_span step = {0};
    uint64_t live_bytes = 0, peak_bytes = 0;

    for (uint32_t object = 0; object <= search->recording->objects; object++) {
        search->lives[object].freed = operations;
    }
    for (size_t i = 0; i < operations; i++) {
        const struct ms_operation *operation = ms_recording_at(search->recording, i);

        if (operation->kind == MS_OPERATION_STEP) {
            step.end = i;
            ms_buffer_append(&search->steps, (const char *)&step, sizeof(step));
            step = (struct step_span){.begin = i, .peak = i};
            peak_bytes = 0;
        } else if (is_range(operation) && begins(operation)) {
            live_bytes += operation->bytes;
            search->lives[operation->object].allocation = i;
        } else if (is_range(operation)) {
            live_bytes -= operation->bytes;
            search->lives[operation->object].freed = i;
        }
        if (live_bytes > peak_bytes) {
            peak_bytes = live_bytes;
            step.peak = i;
        }
    }
}

static size_t steps_of(const struct uses_search *search)
{
    return search->steps.bytes / sizeof(struct step_span);
}

static const struct step_span *step_at(const struct uses_search *search, size_t index)
{
    return (const struct step_span *)search->steps.at + index;
}

/* Finds allocations that are live at two ends of steps. */
static void find_kept(struct uses_search *search)
{
    const size_t steps = steps_of(search);
    size_t next = 0; /* the first step that ends after the allocation */

    for (size_t i = 0; i < ms_recording_count(search->recording); i++) {
        const struct ms_operation *operation = ms_recording_at(search->recording, i);

        while (next < steps && step_at(search, next)->end < i) {
            next++;
        }
        if (next + 1 < steps && is_range(operation) && begins(operation) &&
            search->lives[operation->object].freed > step_at(search, next + 1)->end) {
            ms_buffer_append(&search->kept, (const char *)&i, sizeof(i));
        }
    }
}

static void add_use(struct uses_search *search, size_t allocation, size_t operation, bool written)
{
    const uint32_t object = ms_recording_at(search->recording, allocation)->object;
    const struct ms_recorded_use use = {
        .operation = operation, .allocation = allocation, .written = written};

    if (operation > allocation && operation <= search->lives[object].freed) {
        ms_buffer_append(search->uses, (const char *)&use, sizeof(use));
    }
}

static void add_step(struct uses_search *search, const struct step_span *step, size_t parameters)
{
    const size_t *kept = (const size_t *)(const void *)search->kept.at;
    const size_t count = search->kept.bytes / sizeof(*kept);

    for (size_t k = 0; k < parameters; k++) {
        add_use(search, kept[k], step->begin + (step->peak - step->begin) * (k + 1) / parameters,
                false);
    }
    for (size_t k = parameters; k-- > 0;) {
        add_use(search, kept[k],
                step->peak + (step->end - step->peak) * (parameters - k) / (parameters + 1), false);
    }
    for (size_t k = 0; k < count; k++) {
        add_use(search, kept[k], step->end, true);
    }
}

/* Site 0 is unknown, and no run has as many sites as MOST_SITES. */
static void find_optimizers(struct uses_search *search, size_t parameters)
{
    const size_t *kept = (const size_t *)(const void *)search->kept.at;
    char *optimizers = ms_buffer_extend(search->optimizers, MOST_SITES);

    for (size_t k = search->kept.bytes / sizeof(*kept); optimizers && k-- > 0;) {
        const uint32_t site = ms_recording_at(search->recording, kept[k])->site;

        if (site != 0 && site < MOST_SITES) {
            optimizers[site] = (char)(k >= parameters);
        }
    }
}

static void find_uses(struct uses_search *search)
{
    size_t parameters = 0;

    find_lives(search);
    find_kept(search);

    const size_t steps = steps_of(search);
    const size_t *kept = (const size_t *)(const void *)search->kept.at;
    while (steps > 0 && parameters < search->kept.bytes / sizeof(*kept) &&
           kept[parameters] < step_at(search, 0)->peak) {
        parameters++;
    }
    for (size_t k = 0; k < steps; k++) {
        add_step(search, step_at(search, k), parameters);
    }
    find_optimizers(search, parameters);
}

bool ms_recorded_uses(const struct ms_recording *recording, struct ms_buffer *uses,
                      struct ms_buffer *optimizers)
{
    struct uses_search search = {.recording = recording, .uses = uses, .optimizers = optimizers};
    bool found;

    search.lives = calloc((size_t)recording->objects + 1, sizeof(*search.lives));
    if (search.lives) {
        find_uses(&search);
    }
    found = search.lives && !search.steps.failed && !search.kept.failed && !uses->failed &&
            !optimizers->failed;
    free(search.lives);
    ms_buffer_free(&search.steps);
    ms_buffer_free(&search.kept);
    return found;
}
