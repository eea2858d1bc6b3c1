/* SPDX-License-Identifier: Apache-2.0 */
/* Follows live memory and its sites while the records are read again. */
#include <stdlib.h>
#include <string.h>

#include "report/model/paths.h"
#include "report/model/site_rows.h"
#include "report/model/survey/state.h"

static void take(uint64_t *sum, uint64_t bytes)
{
    *sum = *sum > bytes ? *sum - bytes : 0;
}

bool ms_sampler_begin(struct ms_sampler *sampler, const struct ms_model *model, uint8_t device,
                      struct ms_survey_device *to)
{
    const uint32_t end = ms_site_table_end(model->sites, device);

    sampler->model = model;
    sampler->to = to;
    sampler->device = device;
    sampler->site_count = end ? end : 1;
    sampler->epoch = 1;
    sampler->sites = calloc(sampler->site_count, sizeof(*sampler->sites));
    return sampler->sites != NULL;
}

void ms_sampler_end(struct ms_sampler *sampler)
{
    free(sampler->sites);
    ms_buffer_free(&sampler->samples);
    ms_buffer_free(&sampler->ages);
    ms_buffer_free(&sampler->kept);
    ms_buffer_free(&sampler->parts);
}

/* ---- kinds ---- */

/* Whether a larger batch needs more of it. Steps do not make permanent memory anew. */
static bool follows_batch(enum ms_kind kind, int recorded, enum ms_doing doing)
{
    if (recorded == MS_LIFETIME_KEPT) {
        return false;
    }
    switch (kind) {
    case MS_KIND_ACTIVATIONS:
    case MS_KIND_INPUTS:
    case MS_KIND_GRAPHS:
    case MS_KIND_UNKNOWN:
        return true;
    case MS_KIND_TEMPORARY:
        return !ms_doing_is_optimizers(doing);
    default:
        return false;
    }
}

static __attribute__((noinline, cold)) void judge(const struct ms_sampler *sampler, uint32_t id,
                                                  struct ms_sampled_site *site)
{
    const struct ms_model *model = sampler->model;
    const struct ms_kinds_ground ground = ms_site_ground(model);
    const enum ms_doing doing = (enum ms_doing)ms_landmarks_of(model->landmarks, id)->doing;
    struct ms_site_kinds all;
    struct ms_path path;

    ms_kinds_judge(&ground, sampler->device, id, &all);
    ms_kinds_by_lifetime(&ground, sampler->device, id, site->kinds);
    site->kind = all.kind;
    site->kinds[MS_RECORDED_ARENA] = site->kind;
    site->kinds[MS_RECORDED_NOTHING] = site->kind;
    for (int recorded = 0; recorded < MS_RECORDED_COUNT; recorded++) {
        site->scaling |=
            (uint32_t)follows_batch((enum ms_kind)site->kinds[recorded], recorded, doing)
            << recorded;
    }
    ms_path_read(model, id, &path);
    site->backward = doing == MS_DOING_BACKWARD && path.count == 0;
    site->judged = true;
}

static inline struct ms_sampled_site *site_of(const struct ms_sampler *sampler, uint32_t id)
{
    const uint32_t known = id < sampler->site_count ? id : 0;
    struct ms_sampled_site *site = &sampler->sites[known];

    if (!site->judged) {
        judge(sampler, known, site);
    }
    return site;
}

/* A site's bytes at the slice's highest moment are those of now, until they change: then they are
 * saved. Such a moment is numbered, as an epoch. */
static inline void keep(const struct ms_sampler *sampler, struct ms_sampled_site *site)
{
    if (site->kept_epoch != sampler->epoch) {
        site->kept_epoch = sampler->epoch;
        site->kept_bytes = site->bytes;
    }
}

/* ---- allocations and frees ---- */

static void count_size(struct ms_survey_device *to, uint64_t bytes)
{
    struct ms_size_class *size = &to->sizes[bytes ? 63 - __builtin_clzll(bytes) : 0];

    size->count++;
    size->bytes += bytes;
}

/* Memory for loading a checkpoint is recorded separately from memory for training. */
static void note_most(struct ms_sampler *sampler)
{
    const struct ms_growth_clock *clock = &sampler->to->growth.clock;
    uint64_t *most = sampler->next_sample == 0 ? &sampler->to->most_before_steps_bytes
                                               : &sampler->to->most_in_steps_bytes;

    if (clock->count > 0 && !clock->by_time && sampler->live_bytes > *most) {
        *most = sampler->live_bytes;
    }
}

static void note_rise(struct ms_sampler *sampler, uint64_t time_ns)
{
    note_most(sampler);
    sampler->risen = true;
    if (sampler->live_bytes > sampler->highest_bytes) {
        sampler->highest_bytes = sampler->live_bytes;
        sampler->to->buckets[sampler->bucket].highest_ns = time_ns;
        sampler->rising = true;
    }
    if (sampler->live_bytes > sampler->slice_bytes) {
        sampler->slice_bytes = sampler->live_bytes;
        sampler->slice_ns = time_ns;
        sampler->slice_moved_bytes = ms_sampler_moved(sampler);
        sampler->epoch++;
    }
}

void ms_sampler_alloc(struct ms_sampler *sampler, struct ms_live_set *live,
                      const struct ms_event *event, uint32_t allocation, uint64_t time_ns)
{
    const uint8_t recorded = ms_site_table_recorded(sampler->model->sites, allocation);
    struct ms_sampled_site *site;
    struct ms_live *born;

    sampler->newest = allocation + 1;
    if (recorded == MS_RECORDED_ARENA) {
        return; /* its tensors are live instead */
    }
    sampler->emptied_by = 0;
    site = site_of(sampler, event->site);
    born = event->id ? ms_live_add(live, event->id) : NULL;
    if (born) {
        born->addr = event->addr;
        born->bytes = event->bytes;
        born->born_ns = time_ns;
        born->site = event->site < sampler->site_count ? event->site : 0;
        born->allocation = allocation;
        born->born_phase = sampler->rounds->phase;
        born->born_epoch = sampler->rounds->calls;
        born->device = sampler->device;
        born->caller = site->backward ? sampler->rounds->before_backward_site : 0;
    }
    if (site->backward) {
        site->path_site = sampler->rounds->before_backward_site;
    }
    count_size(sampler->to, event->bytes);
    ms_rounds_sample(sampler->rounds, site, time_ns);
    keep(sampler, site);
    site->before_pass |= ms_rounds_before_pass(sampler->rounds);
    site->bytes += event->bytes;
    sampler->kind_bytes[site->kinds[recorded]] += event->bytes;
    sampler->live_bytes += event->bytes;
    sampler->scaling_bytes += site->scaling >> recorded & 1 ? event->bytes : 0;
    note_rise(sampler, time_ns);
}

static void note_temporary(struct ms_sampler *sampler, struct ms_sampled_site *site,
                           const struct ms_live *died, uint64_t time_ns)
{
    site->temporaries++;
    site->temporary_bytes += died->bytes;
    site->temporary_ns += time_ns > died->born_ns ? time_ns - died->born_ns : 0;
    sampler->to->temporary_allocations++;
    sampler->to->temporary_bytes += died->bytes;
}

static void note_drain(const struct ms_growth_clock *clock, struct ms_drain *drain,
                       const struct ms_live *died, uint64_t time_ns)
{
    if (died->born_ns < clock->time_ns[clock->count - 1]) {
        /* Several threads' events may stand out of order. */
        const uint64_t now_ns = time_ns > drain->last_ns ? time_ns : drain->last_ns;
        const uint64_t pause_ns = drain->bytes > 0 ? now_ns - drain->last_ns : 0;

        drain->first_ns = drain->bytes > 0 ? drain->first_ns : now_ns;
        drain->last_ns = now_ns;
        drain->longest_ns = pause_ns > drain->longest_ns ? pause_ns : drain->longest_ns;
        drain->bytes += died->bytes;
    }
}

void ms_sampler_free(struct ms_sampler *sampler, struct ms_live_set *live,
                     const struct ms_event *event, uint64_t time_ns)
{
    const struct ms_growth_clock *clock = &sampler->to->growth.clock;
    struct ms_live died;
    uint8_t recorded = MS_RECORDED_NOTHING;

    if (event->kind == MS_EVENT_BLOCK_FREE && event->aux == 1) {
        return; /* an arena */
    }
    if (!ms_live_take(live, event->id, &died) || died.device != sampler->device) {
        died = (struct ms_live){.bytes = event->bytes};
    } else {
        recorded = ms_site_table_recorded(sampler->model->sites, died.allocation);
    }
    if (sampler->rising) {
        ms_sampler_note_highest(sampler);
    }
    if (sampler->risen) {
        ms_sampler_note_turns(sampler);
        ms_sampler_note_headroom(sampler);
    }

    struct ms_sampled_site *site = site_of(sampler, died.site);

    ms_rounds_sample(sampler->rounds, site, time_ns);
    site->freed = true;
    keep(sampler, site);
    take(&site->bytes, died.bytes);
    take(&sampler->kind_bytes[site->kinds[recorded]], died.bytes);
    take(&sampler->live_bytes, died.bytes);
    take(&sampler->scaling_bytes, site->scaling >> recorded & 1 ? died.bytes : 0);
    if (died.key && ms_rounds_let_go(sampler->rounds, &died)) {
        site->let_go_bytes += died.bytes;
    }
    if (died.key && clock->count > 0 && sampler->next_sample == clock->count) {
        note_drain(clock, &site->drain, &died, time_ns);
    }
    if (died.key && died.allocation + 1 == sampler->newest) {
        note_temporary(sampler, site, &died, time_ns);
    }
}

void ms_sampler_waits(struct ms_sampler *sampler, uint64_t bytes, uint64_t time_ns)
{
    struct ms_survey_bucket *bucket = &sampler->to->buckets[sampler->bucket];

    sampler->waiting_bytes = bytes;
    if (bytes > bucket->most_waiting_bytes) {
        bucket->most_waiting_bytes = bytes;
    }
    if (bytes > sampler->to->most_waiting_bytes) {
        sampler->to->most_waiting_bytes = bytes;
        sampler->to->most_waiting_ns = time_ns;
    }
}

void ms_sampler_rebase(struct ms_sampler *sampler, struct ms_live_set *live,
                       const struct ms_aggregate *sums)
{
    const uint64_t live_bytes = ms_counters_live(&sums->now);
    struct ms_sampled_site *unknown = site_of(sampler, 0);

    ms_sampler_note_highest(sampler);
    sampler->waiting_bytes = 0; /* the next event has the new value */
    ms_live_forget(live, sampler->device);
    for (uint32_t id = 0; id < sampler->site_count; id = ms_sampler_next(sampler, id)) {
        struct ms_sampled_site *site = &sampler->sites[id];

        if (site->bytes > 0) {
            keep(sampler, site);
            site->bytes = 0;
        }
    }
    keep(sampler, unknown);
    unknown->bytes = live_bytes;
    memset(sampler->kind_bytes, 0, sizeof(sampler->kind_bytes));
    sampler->kind_bytes[unknown->kinds[MS_RECORDED_NOTHING]] = live_bytes;
    sampler->live_bytes = live_bytes;
    sampler->scaling_bytes = 0;
    sampler->sums = *sums;
    sampler->newest = 0;
    note_rise(sampler, sampler->slice_ns);
}

void ms_sampler_hold(struct ms_sampler *sampler, const struct ms_digest_holding *holdings,
                     size_t count, uint64_t time_ns)
{
    ms_sampler_note_highest(sampler);
    for (uint32_t id = 0; id < sampler->site_count; id = ms_sampler_next(sampler, id)) {
        if (sampler->sites[id].bytes > 0) {
            keep(sampler, &sampler->sites[id]);
            sampler->sites[id].bytes = 0;
        }
    }
    memset(sampler->kind_bytes, 0, sizeof(sampler->kind_bytes));
    sampler->live_bytes = 0;
    for (size_t i = 0; i < count; i++) {
        struct ms_sampled_site *site = site_of(sampler, (uint32_t)holdings[i].site);

        keep(sampler, site);
        site->bytes += holdings[i].bytes;
        sampler->kind_bytes[site->kind] += holdings[i].bytes;
        sampler->live_bytes += holdings[i].bytes;
    }
    note_rise(sampler, time_ns);
}

void ms_sampler_adopt(struct ms_sampler *sampler, struct ms_live_set *live,
                      const struct ms_live *known)
{
    const uint8_t recorded = ms_site_table_recorded(sampler->model->sites, known->allocation);
    struct ms_sampled_site *unknown = site_of(sampler, 0), *site = site_of(sampler, known->site);
    struct ms_live *adopted = ms_live_add(live, known->key);

    if (!adopted || unknown->bytes < known->bytes) {
        return;
    }
    *adopted = *known;
    adopted->site = known->site < sampler->site_count ? known->site : 0;
    adopted->born_epoch = 0; /* before any call in the records */
    unknown->bytes -= known->bytes;
    take(&sampler->kind_bytes[unknown->kinds[MS_RECORDED_NOTHING]], known->bytes);
    keep(sampler, site);
    site->bytes += known->bytes;
    sampler->kind_bytes[site->kinds[recorded]] += known->bytes;
    sampler->scaling_bytes += site->scaling >> recorded & 1 ? known->bytes : 0;
}
