/* SPDX-License-Identifier: Apache-2.0 */
/* Finds who makes a framework give back cached memory, and the cost of that: the memory has to be
 * allocated again. */
#include <stdlib.h>
#include <string.h>

#include "report/model/survey/state.h"

/* Calls of the driver's virtual memory management so far. */
static uint64_t driver_calls(const struct ms_aggregate *sums)
{
    uint64_t calls = 0;

    for (int i = 0; i < MS_CALL_COUNT; i++) {
        calls += sums->driver_calls[i];
    }
    return calls;
}

/* One call gives back memory of several pools, by several native stacks: a row is a line of
 * Python's. Null: there are too many. */
static struct ms_emptying *row_of(struct ms_sampler *sampler, uint32_t site)
{
    const ms_definitions_t *definitions = sampler->model->definitions;
    struct ms_survey_device *to = sampler->to;
    size_t i = 0;

    while (i < to->emptying_count &&
           !ms_definitions_same_python(definitions, to->emptyings[i].site, site)) {
        i++;
    }
    if (i == MS_SURVEY_EMPTYINGS) {
        return NULL;
    }
    if (i == to->emptying_count) {
        to->emptying_count++;
        to->emptyings[i] = (struct ms_emptying){
            .site = site,
            .chunks_before = sampler->sums.driver_calls[MS_CALL_CREATE],
            .driver_calls_before = driver_calls(&sampler->sums),
        };
    }
    return &to->emptyings[i];
}

void ms_sampler_given_back(struct ms_sampler *sampler, const struct ms_event *event)
{
    struct ms_emptying *row = row_of(sampler, event->site);

    if (row) {
        row->calls += sampler->emptied_by != row->site;
        row->pieces++;
        row->bytes += event->bytes;
        sampler->emptied_by = row->site;
    }
}

/* Whether the program called torch.cuda.empty_cache or torch.accelerator.empty_cache. PyTorch also
 * gives back memory by itself, as when memory is short: that does not count. */
static bool empties(const struct ms_model *model, uint32_t site)
{
    size_t count = 0;
    const struct ms_frame *frames =
        model->stacks ? ms_stacks_frames(model->stacks, site, &count) : NULL;

    for (size_t i = 0; i < count; i++) {
        if (frames[i].language == MS_FRAME_PYTHON && frames[i].function &&
            strcmp(frames[i].function, "empty_cache") == 0) {
            return true;
        }
    }
    return false;
}

static int by_bytes(const void *a, const void *b)
{
    const struct ms_emptying *left = a, *right = b;

    if (left->bytes != right->bytes) {
        return left->bytes > right->bytes ? -1 : 1;
    }
    return left->site < right->site ? -1 : left->site > right->site;
}

void ms_sampler_list_emptyings(struct ms_sampler *sampler)
{
    struct ms_survey_device *to = sampler->to;
    size_t kept = 0;

    for (size_t i = 0; i < to->emptying_count; i++) {
        if (empties(sampler->model, to->emptyings[i].site)) {
            to->emptyings[kept++] = to->emptyings[i];
        }
    }
    to->emptying_count = kept;
    qsort(to->emptyings, kept, sizeof(*to->emptyings), by_bytes);
}
