/* SPDX-License-Identifier: Apache-2.0 */
/* Out-of-memories: finds those that a run recovered from, and those that repeat one request. */
#include "report/model/reading/refusals.h"

#include <string.h>

#include "allocator/base/arithmetic.h"
#include "report/model/reading/reading.h"
#include "report/read/log_entries.h"

/* Two requests count as the same if, between them, */
#define SAME_PARTS       64u /* live bytes change by less than 1/n, and */
#define SAME_ALLOCATIONS 8u  /* no more allocations than this are made */

void ms_refusals_init(struct ms_refusals *refusals)
{
    *refusals = (struct ms_refusals){0};
    memset(refusals->smallest_open, 0xff, sizeof(refusals->smallest_open));
}

void ms_refusals_free(struct ms_refusals *refusals)
{
    ms_buffer_free(&refusals->pending);
}

/* Reads an entry of any version. */
static void read_oom(const struct ms_log_entry *entry, const char *payload,
                     struct ms_log_oom *record)
{
    const size_t known = (size_t)ms_log_oom_state_bytes(entry->bytes);

    memset(record, 0, sizeof(*record));
    memcpy(&record->state, payload, known);
    memcpy((char *)record + sizeof(record->state), payload + known,
           sizeof(*record) - sizeof(record->state));
}

void ms_refusals_add(struct ms_refusals *refusals, const struct ms_log_entry *entry,
                     const char *payload)
{
    struct ms_model_oom *oom = ms_buffer_extend(&refusals->pending, sizeof(*oom));

    if (oom) {
        oom->event = entry->event;
        oom->times = 1;
        oom->time_ns = entry->time_ns;
        oom->device = entry->device & (MS_DEVICE_COUNT - 1);
        read_oom(entry, payload, &oom->record);
        oom->verdict = ms_verdict_parts(&oom->record.state, &oom->short_bytes, NULL, 0, NULL, 0);
    }
}

/* Handles out-of-memories that came before the event of this number. */
void ms_refusals_start(struct ms_refusals *refusals, struct ms_model *model, uint64_t event)
{
    const struct ms_model_oom *all = (const struct ms_model_oom *)refusals->pending.at;
    const size_t count = refusals->pending.bytes / sizeof(*all);

    while (refusals->next < count && all[refusals->next].event <= event) {
        const struct ms_model_oom *pending = &all[refusals->next];

        refusals->next++;

        struct ms_model_device *device = ms_reading_device(model, pending->device);
        uint64_t *smallest = &refusals->smallest_open[pending->device];

        if (device) {
            ms_aggregate_oom(&device->sums, pending->record.state.source == MS_OOM_TORCH);
        }
        if (pending->record.state.requested_bytes < *smallest) {
            *smallest = pending->record.state.requested_bytes;
        }
    }
}

/* An allocation of so many bytes succeeded: so the run recovered from failed requests of at most
 * that size. */
void ms_refusals_meet(struct ms_refusals *refusals, uint64_t device, uint64_t bytes)
{
    struct ms_model_oom *all = (struct ms_model_oom *)refusals->pending.at;
    uint64_t smallest = UINT64_MAX;

    for (size_t i = 0; i < refusals->next; i++) {
        struct ms_model_oom *oom = &all[i];
        const uint64_t requested = oom->record.state.requested_bytes;

        if (oom->device != device || oom->recovered) {
            continue;
        }
        if (requested <= bytes) {
            oom->recovered = true;
        } else if (requested < smallest) {
            smallest = requested;
        }
    }
    refusals->smallest_open[device] = smallest;
}

/* Whether an allocator that was refused `before` asks for `now` in its place: for as much, or for
 * nine tenths of it, as allocators do that carve up what they get (kBackpedalFactor in the
 * bfc_allocator.cc of TensorFlow, bfc_arena.cc of ONNX Runtime; a float, rounded to 256 bytes). */
static bool stands_for(uint64_t now_bytes, uint64_t before_bytes)
{
    const uint64_t less = before_bytes - before_bytes / 10;

    return now_bytes == before_bytes || ms_apart(now_bytes, less) <= 256 + before_bytes / 4096;
}

/* Whether a request repeats a refused one, as an allocator (JAX's) or a persistent program does: if
 * almost nothing came or went in between, it is the same event. Each of PyTorch's own errors is for
 * a separate request of the program's. */
static bool asked_again(const struct ms_model *model, const struct ms_model_oom *before,
                        const struct ms_model_oom *now)
{
    const struct ms_oom_state *a = &before->record.state;
    const struct ms_oom_state *b = &now->record.state;

    return before->device == now->device && a->source == MS_OOM_DRIVER &&
           b->source == MS_OOM_DRIVER && stands_for(b->requested_bytes, a->requested_bytes) &&
           ms_apart(a->live_bytes, b->live_bytes) < a->requested_bytes / SAME_PARTS &&
           now->record.allocations - before->record.allocations <= SAME_ALLOCATIONS &&
           before->recovered == now->recovered && before->verdict == now->verdict &&
           ms_definitions_same_python(model->definitions, (uint32_t)a->site, (uint32_t)b->site);
}

/* The newest one of a row stands for all. False: there is no memory. */
static bool add_finished(struct ms_model *model, const struct ms_model_oom *now)
{
    const size_t count = ms_model_oom_count(model);
    struct ms_model_oom *oom = count > 0 ? ms_model_oom_at(model, count - 1) : NULL;
    uint64_t times = 1;

    if (oom && asked_again(model, oom, now)) {
        times = oom->times + 1;
    } else {
        oom = ms_buffer_extend(&model->ooms, sizeof(*oom));
    }
    if (oom) {
        *oom = *now;
        oom->times = times;
    }
    return oom != NULL;
}

void ms_refusals_finish(const struct ms_refusals *refusals, struct ms_model *model)
{
    const struct ms_model_oom *all = (const struct ms_model_oom *)refusals->pending.at;
    const size_t count = refusals->pending.bytes / sizeof(*all);
    const bool ended_well = ms_model_exit_known(model) && model->header.exit_status == 0;

    for (size_t i = 0; i < count; i++) {
        const struct ms_aggregate *sums = &model->devices[all[i].device].sums;
        struct ms_model_oom oom = all[i];

        oom.recovered |= ended_well || sums->allocations + sums->tensor_allocations >
                                           oom.record.allocations + MS_WENT_ON_ALLOCATIONS;
        if (!add_finished(model, &oom)) {
            return;
        }
    }
}

/* The log is in order unless it is damaged. */
void ms_refusals_check(const struct ms_refusals *refusals, struct ms_model *model)
{
    const struct ms_model_oom *all = (const struct ms_model_oom *)refusals->pending.at;
    const size_t count = refusals->pending.bytes / sizeof(*all);

    for (size_t i = 1; i < count; i++) {
        if (all[i - 1].event > all[i].event) {
            ms_model_warn(model, "the log is out of order: what was recovered from may be wrong");
            return;
        }
    }
}
