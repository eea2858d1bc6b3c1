/* SPDX-License-Identifier: Apache-2.0 */
/* Foretells the rest of an optimizer's state. */
#include "report/model/verdict/optimizer_state.h"

#include <stdbool.h>

#include "report/fold/site_sums.h"

#define MOST_VALUES   8u  /* of a parameter */
#define FEWEST_VALUES 2u  /* with one, a list of temporary tensors would look the same */
#define FEWEST_MADE   2u  /* of each, before they are known to be made in turn */
#define SMALL_PARTS   64u /* a value of less than 1/n of the largest is a count of steps */

/* What one line of the optimizer makes: one value of each parameter. */
struct state_value {
    uint32_t python; /* its node */
    uint64_t bytes, allocations;
    bool freed; /* some of it, before memory ran out */
};

struct state_values {
    struct state_value all[MOST_VALUES];
    size_t count;
    bool more; /* than there is room for */
};

static uint32_t python_of(const struct ms_model *model, uint32_t site)
{
    const struct ms_site_definition *is = ms_definitions_site(model->definitions, site);

    return is ? is->python : 0;
}

static void add_holding(const struct ms_model *model, uint8_t device,
                        const struct ms_holding *holding, struct state_values *values)
{
    const uint32_t python = python_of(model, holding->site);
    struct ms_site_sums sums;
    size_t at = 0;

    if (holding->kind != MS_KIND_OPTIMIZER ||
        ms_landmarks_of(model->landmarks, holding->site)->doing != MS_DOING_OPTIMIZER ||
        !ms_site_table_read(model->sites, device, holding->site, &sums)) {
        return;
    }
    while (at < values->count && values->all[at].python != python) {
        at++;
    }
    if (at == MOST_VALUES) {
        values->more = true;
        return;
    }
    if (at == values->count) {
        values->all[values->count++] = (struct state_value){.python = python};
    }
    values->all[at].bytes += holding->bytes;
    values->all[at].allocations += sums.allocations;
    values->all[at].freed |= sums.bytes > holding->bytes;
}

/* Whether the values are made in turn, parameter by parameter, and the request that failed is the
 * next one. Then the value that lags behind lacks no more than that request. */
static bool are_in_turn(const struct state_values *values, uint32_t python,
                        uint64_t requested_bytes)
{
    uint64_t most = 0, least = UINT64_MAX;
    bool is_next = false;

    for (size_t i = 0; i < values->count; i++) {
        const struct state_value *value = &values->all[i];

        most = value->bytes > most ? value->bytes : most;
        least = value->bytes < least ? value->bytes : least;
        is_next |= value->python == python;
        if (value->allocations < FEWEST_MADE || value->freed) {
            return false;
        }
    }
    return !values->more && values->count >= FEWEST_VALUES && is_next &&
           most - least <= requested_bytes;
}

static void drop_small(struct state_values *values)
{
    uint64_t most = 0;
    size_t left = 0;

    for (size_t i = 0; i < values->count; i++) {
        most = values->all[i].bytes > most ? values->all[i].bytes : most;
    }
    for (size_t i = 0; i < values->count; i++) {
        if (values->all[i].bytes >= most / SMALL_PARTS) {
            values->all[left++] = values->all[i];
        }
    }
    values->count = left;
}

uint64_t ms_optimizer_state_to_come(const struct ms_model *model, const struct ms_model_oom *oom,
                                    const struct ms_survey_moment *moment)
{
    const struct ms_oom_state *state = &oom->record.state;
    const uint64_t gradient_bytes = moment ? moment->kind_bytes[MS_KIND_GRADIENTS] : 0;
    struct state_values values = {.count = 0};
    uint64_t made_bytes = 0;

    if (ms_landmarks_of(model->landmarks, state->site)->doing != MS_DOING_OPTIMIZER) {
        return 0;
    }
    for (size_t i = 0; moment && i < moment->count; i++) {
        add_holding(model, (uint8_t)oom->device,
                    ms_survey_holding_at(&model->survey->devices[oom->device], moment->first + i),
                    &values);
    }
    drop_small(&values);
    for (size_t i = 0; i < values.count; i++) {
        made_bytes += values.all[i].bytes;
    }
    /* Only parameters that have a gradient get state; all of those that have one. */
    if (!are_in_turn(&values, python_of(model, state->site), state->requested_bytes) ||
        gradient_bytes > moment->kind_bytes[MS_KIND_PARAMETERS] ||
        made_bytes + state->requested_bytes > values.count * gradient_bytes) {
        return 0;
    }
    return values.count * gradient_bytes - made_bytes;
}
