/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the rows of a ledger out of the counters of one moment. */
#include "report/model/ledger.h"

#include "allocator/base/arithmetic.h"
#include "report/model/model.h"
#include "report/model/survey.h"

#define DRIVER_ROW(name, what, estimated)                                \
    {                                                                    \
        name, what, 0, estimated, false, MS_LEDGER_DRIVER, MS_KIND_COUNT \
    }

static const struct ms_ledger_row reasons[MS_CHARGE_REASON_COUNT] = {
    [MS_CHARGE_ALLOCATION] = DRIVER_ROW("forwarded", "allocations forwarded to the driver", false),
    [MS_CHARGE_ARRAY] = DRIVER_ROW("arrays", "arrays, forwarded to the driver", false),
    [MS_CHARGE_MANAGED] = DRIVER_ROW("managed", "managed memory, forwarded to the driver", true),
    [MS_CHARGE_NCCL] = DRIVER_ROW("nccl", "NCCL's own, forwarded to the driver", false),
    [MS_CHARGE_DRIVER_POOL] = DRIVER_ROW("driver_pools", "memory pools of the driver", false),
    [MS_CHARGE_IPC] = DRIVER_ROW("ipc", "shared between processes", false),
    [MS_CHARGE_CONTEXT] = DRIVER_ROW("context", "CUDA context", true),
    [MS_CHARGE_MODULE] = DRIVER_ROW("modules", "modules, loaded by the driver", true),
    [MS_CHARGE_LAUNCH] = DRIVER_ROW("launches", "local memory and the like, at launches", true),
    [MS_CHARGE_GRAPH] = DRIVER_ROW("graphs", "CUDA graphs, uploaded by the driver", true),
    [MS_CHARGE_LIMIT] = DRIVER_ROW("limits", "stacks, heaps, buffers that limits ask for", true),
};

/* What beside the counters is known of the moment. */
struct scene {
    const struct ms_survey_moment *moment; /* null: none */
    bool hides_tensors;                    /* live blocks are PyTorch's segments */
    uint64_t cached_bytes;                 /* free in these, as PyTorch said when it ran out */
};

struct list {
    struct ms_ledger_row *rows;
    size_t count;
};

static void add(struct list *list, struct ms_ledger_row row, uint64_t bytes)
{
    if (bytes > 0) {
        row.bytes = bytes;
        list->rows[list->count++] = row;
    }
}

/* With the pool off the framework's segments are forwarded allocations: the ground under the
 * tensors, which are counted themselves. */
static bool driver_is_ground(const struct ms_counters *counters)
{
    return (counters->outside & MS_OUTSIDE_TENSORS) && counters->owner_bytes[MS_OWNER_POOL] == 0 &&
           counters->owner_bytes[MS_OWNER_APPLICATION] == 0;
}

struct ms_ledger_row ms_ledger_charged(const struct ms_counters *counters,
                                       enum ms_charge_reason reason)
{
    const bool under_tensors = reason == MS_CHARGE_ALLOCATION && driver_is_ground(counters);
    struct ms_ledger_row row = reasons[reason];

    row.bytes = under_tensors ? 0 : counters->reason_bytes[reason];
    return row;
}

/* ---- charged ---- */

static void add_live(struct list *list, const struct ms_counters *counters,
                     const struct scene *scene)
{
    const struct ms_survey_moment *moment = scene->moment;
    struct ms_ledger_row row = {.part = MS_LEDGER_LIVE, .kind = MS_KIND_COUNT};

    /* What lies in a segment may be of any kind, whoever asked for it. */
    if (scene->hides_tensors) {
        row.name = "blocks";
        row.what = scene->cached_bytes > 0
                       ? "live in PyTorch's segments, of kinds that are not seen"
                       : "PyTorch's segments, and all that lies in them";
        add(list, row, ms_less(ms_counters_live(counters), scene->cached_bytes));
        return;
    }
    /* If both are of the same moment; otherwise kinds are not shown. */
    if (moment && moment->live_bytes == ms_counters_live(counters)) {
        for (int kind = 0; kind < MS_KIND_COUNT; kind++) {
            row.name = ms_kind_name((enum ms_kind)kind);
            row.what = "live";
            row.kind = (uint8_t)kind;
            add(list, row, moment->kind_bytes[kind]);
        }
        return;
    }
    row.name = "tensors";
    row.what = "live tensors";
    add(list, row, counters->tensor_bytes);
    row.name = "blocks";
    row.what = "live blocks that are no tensors";
    add(list, row, counters->block_bytes);
}

/* Live bytes on the host. Chunks on the host have a known size only, and some hold nothing; the
 * bytes moved there and not back limit the sum. Live bytes beyond all device chunks are certainly
 * on the host. */
static uint64_t on_host(const struct ms_counters *counters, uint64_t live, uint64_t moved)
{
    const uint64_t held = ms_least(counters->host_chunk_bytes, live);
    const uint64_t chunks = ms_least(held, moved);
    const uint64_t least = held > 0 ? ms_less(live, ms_counters_reserved(counters)) : 0;

    return chunks > least ? chunks : least;
}

uint64_t ms_ledger_forwarded_live(const struct ms_counters *counters)
{
    return driver_is_ground(counters)
               ? 0
               : ms_least(counters->forwarded_block_bytes, ms_counters_live(counters));
}

uint64_t ms_ledger_least_on_host(const struct ms_counters *counters)
{
    return on_host(counters, ms_counters_live(counters) - ms_ledger_forwarded_live(counters), 0);
}

static void add_charged(struct list *list, const struct ms_counters *counters,
                        const struct scene *scene)
{
    const struct ms_ledger_row holes = {.name = "holes",
                                        .what = "reserved, not live",
                                        .part = MS_LEDGER_HOLES,
                                        .kind = MS_KIND_COUNT};
    const struct ms_ledger_row forwarded = {
        .name = "live_forwarded",
        .what =
            "subtracted: live bytes above that the driver served (below), or that another process "
            "is charged for",
        .negative = true,
        .part = MS_LEDGER_ELSEWHERE,
        .kind = MS_KIND_COUNT};
    const struct ms_ledger_row host = {.name = "on_host",
                                       .what = "subtracted: live bytes above that lie in host "
                                               "memory, moved there or made there for want of "
                                               "device memory",
                                       .estimated = true,
                                       .negative = true,
                                       .part = MS_LEDGER_ELSEWHERE,
                                       .kind = MS_KIND_COUNT};
    const struct ms_ledger_row application = {.name = "application",
                                              .what = "chunks that the program made itself",
                                              .part = MS_LEDGER_DRIVER,
                                              .kind = MS_KIND_COUNT};

    const uint64_t live = ms_counters_live(counters);
    const uint64_t reserved = ms_counters_reserved(counters);
    const uint64_t below = ms_ledger_forwarded_live(counters);
    const uint64_t away =
        on_host(counters, live - below, scene->moment ? scene->moment->moved_bytes : UINT64_MAX);

    add(list, forwarded, below);
    add(list, host, away);
    add(list, holes, ms_less(reserved, live - below - away) + scene->cached_bytes);
    if (!counters->outside) {
        add(list, application, counters->owner_bytes[MS_OWNER_APPLICATION]);
    }
    for (int reason = 0; reason < MS_CHARGE_REASON_COUNT; reason++) {
        const struct ms_ledger_row row = ms_ledger_charged(counters, (enum ms_charge_reason)reason);

        add(list, row, row.bytes);
    }
}

/* ---- the rest of the device ---- */

/* Free bytes according to the driver. */
struct seen {
    bool known, free_estimated, others_known;
    uint64_t free_bytes, others_bytes;
};

/* From the last sample; bytes charged since are no longer free. */
static struct seen seen_in_sample(const struct ms_counters *counters)
{
    const uint64_t charged = ms_counters_charged(counters);

    return (struct seen){
        .known = counters->samples > 0,
        .free_estimated = charged != counters->sampled_charged_bytes,
        .others_known = counters->sampled_others_bytes != UINT64_MAX,
        .free_bytes = ms_less(counters->sampled_free_bytes,
                              ms_less(charged, counters->sampled_charged_bytes)) +
                      ms_less(counters->sampled_charged_bytes, charged),
        .others_bytes = counters->sampled_others_bytes,
    };
}

/* From the out-of-memory itself, if the driver could be asked then. */
static struct seen seen_at_oom(const struct ms_log_oom *record)
{
    struct seen seen = seen_in_sample(&record->counters);

    if (record->state.driver_free_known) {
        seen.known = true;
        seen.free_estimated = false;
        seen.free_bytes = record->state.driver_free_bytes;
        seen.others_known = record->state.others.known != 0;
        seen.others_bytes = record->state.others.bytes;
    }
    return seen;
}

static void add_free(struct list *list, const struct ms_counters *counters, const struct seen *seen)
{
    struct ms_ledger_row row = {.name = "free",
                                .what = "free below the cap",
                                .part = MS_LEDGER_FREE,
                                .kind = MS_KIND_COUNT};
    const uint64_t below_bytes = ms_less(counters->cap_bytes, ms_counters_charged(counters));

    if (!seen->known) {
        add(list, row, below_bytes);
        return;
    }
    row.estimated = seen->free_estimated;
    add(list, row, ms_least(below_bytes, seen->free_bytes));
    row.name = "free_above_cap";
    row.what = "free on the device, above the cap";
    add(list, row, ms_less(seen->free_bytes, below_bytes));
}

static void add_others(struct list *list, const struct seen *seen)
{
    const struct ms_ledger_row row = {.name = "other_processes",
                                      .what = "other processes, as NVML lists them",
                                      .estimated = true,
                                      .part = MS_LEDGER_OTHERS,
                                      .kind = MS_KIND_COUNT};

    if (seen->others_known) {
        add(list, row, seen->others_bytes);
    }
}

static void add_unexplained(struct list *list, uint64_t total_bytes)
{
    struct ms_ledger_row row = {.name = "unexplained",
                                .what = "in none of these rows",
                                .estimated = true,
                                .part = MS_LEDGER_UNEXPLAINED,
                                .kind = MS_KIND_COUNT};
    uint64_t sum_bytes = 0;

    for (size_t i = 0; i < list->count; i++) {
        const uint64_t bytes = list->rows[i].bytes;

        sum_bytes = list->rows[i].negative ? ms_less(sum_bytes, bytes)
                                           : sum_bytes + ms_least(bytes, UINT64_MAX - sum_bytes);
    }
    row.negative = sum_bytes > total_bytes;
    row.bytes = row.negative ? sum_bytes - total_bytes : total_bytes - sum_bytes;
    list->rows[list->count++] = row;
}

static size_t fill(const struct ms_counters *counters, const struct seen *seen,
                   const struct scene *scene, struct ms_ledger_row *rows)
{
    struct list list = {rows, 0};

    add_live(&list, counters, scene);
    add_charged(&list, counters, scene);
    if (seen->known) {
        add_others(&list, seen);
    }
    add_free(&list, counters, seen);
    if (seen->known && counters->total_bytes > 0) {
        add_unexplained(&list, counters->total_bytes);
    }
    return list.count;
}

size_t ms_ledger(const struct ms_counters *counters, struct ms_ledger_row rows[MS_LEDGER_ROWS])
{
    const struct seen seen = seen_in_sample(counters);
    const struct scene nothing = {0};

    return fill(counters, &seen, &nothing, rows);
}

static const struct ms_survey_moment *find_moment(const struct ms_model *model, uint64_t device,
                                                  enum ms_moment_kind kind, size_t oom)
{
    const struct ms_survey_device *surveyed =
        model->survey ? &model->survey->devices[device] : NULL;

    for (size_t i = 0; surveyed && i < ms_survey_moment_count(surveyed); i++) {
        const struct ms_survey_moment *moment = ms_survey_moment_at(surveyed, i);

        if (moment->kind == kind && (kind != MS_MOMENT_OOM || moment->oom == oom)) {
            return moment;
        }
    }
    return NULL;
}

const struct ms_survey_moment *ms_ledger_peak_moment(const struct ms_model *model, int device)
{
    return find_moment(model, (uint64_t)device, MS_MOMENT_PEAK, 0);
}

const struct ms_survey_moment *ms_ledger_oom_moment(const struct ms_model *model, size_t oom)
{
    return find_moment(model, ms_model_oom_at(model, oom)->device, MS_MOMENT_OOM, oom);
}

size_t ms_ledger_at_peak(const struct ms_model *model, int device,
                         struct ms_ledger_row rows[MS_LEDGER_ROWS])
{
    const struct ms_counters *counters = ms_aggregate_at_peak(&model->devices[device].sums);
    const struct seen seen = seen_in_sample(counters);
    const struct scene scene = {.moment = ms_ledger_peak_moment(model, device),
                                .hides_tensors = ms_model_hides_tensors(model)};

    return fill(counters, &seen, &scene, rows);
}

size_t ms_ledger_at_oom(const struct ms_model *model, size_t oom,
                        struct ms_ledger_row rows[MS_LEDGER_ROWS])
{
    const struct ms_model_oom *at = ms_model_oom_at(model, oom);
    const struct seen seen = seen_at_oom(&at->record);
    const bool unseen = ms_tensors_unseen(model, &at->record.state);
    const uint64_t live = ms_counters_live(&at->record.counters);
    const struct scene scene = {.moment = ms_ledger_oom_moment(model, oom),
                                .hides_tensors = ms_model_hides_tensors(model),
                                .cached_bytes =
                                    unseen ? ms_less(live, at->record.state.live_bytes) : 0};

    return fill(&at->record.counters, &seen, &scene, rows);
}

/* ---- spilling ---- */

/* Of the cap (MEMSHIM_THRESHOLDS): from there on cold memory moves. */
#define EMERGENCY_PERCENT 97

uint64_t ms_cap_without_spill(const struct ms_aggregate *aggregate)
{
    const struct ms_counters *peak = ms_aggregate_at_peak(aggregate);
    uint64_t bytes = ms_aggregate_peak_live(aggregate).live_bytes +
                     peak->owner_bytes[MS_OWNER_FORWARDED] + peak->owner_bytes[MS_OWNER_CONTEXT];

    if (!peak->outside) {
        bytes += peak->owner_bytes[MS_OWNER_APPLICATION];
    }
    return (bytes / EMERGENCY_PERCENT + 2) * 100; /* rounded up */
}

int64_t ms_fraction_without_spill(const struct ms_aggregate *aggregate, int64_t steps)
{
    const double part = (double)ms_cap_without_spill(aggregate) /
                        (double)aggregate->now.total_bytes * (double)steps;
    const int64_t down = (int64_t)part;

    return down + (part > (double)down);
}
