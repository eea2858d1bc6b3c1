/* SPDX-License-Identifier: Apache-2.0 */
/* The state that the survey's files share: the sampler of one device, while the records are read
 * again. */
#ifndef MEMSHIM_REPORT_MODEL_SURVEY_STATE_H
#define MEMSHIM_REPORT_MODEL_SURVEY_STATE_H

#include "report/fold/digest.h"
#include "report/fold/live_set.h"
#include "report/model/model.h"
#include "report/model/survey.h"

#define MS_ROUND_CALLERS 4

/* The position of the records in the run's rounds, over all devices. */
struct ms_rounds {
    uint32_t phase;        /* as in steps.h */
    uint32_t calls;        /* of a model, so far */
    uint32_t passed_calls; /* so many of them when the last backward pass began */
    bool calling;
    bool hides_tensors; /* only PyTorch's segments for them are reported */
    bool turned;        /* without tensors: a loop around models' calls came round, once */
    uint32_t site;      /* of the last request */
    uint32_t callers[MS_ROUND_CALLERS]; /* without tensors: of the last models called, the latest
                                           first (struct ms_doings) */
    uint32_t caller;                    /* of the last call of a model */
    uint32_t trained[MS_ROUND_CALLERS]; /* callers whose call a backward pass followed, the latest
                                           first */
    uint32_t backward_site;        /* the Python site that called autograd last; 0: none seen */
    uint32_t before_backward_site; /* the same; or, if that asked for nothing, the last site that
                                      asked for memory before the pass */
};

/* The part of what a site of autograd's workers kept for which this caller's Python called
 * autograd.
 */
struct ms_kept_part {
    uint32_t site, caller;
    uint64_t bytes;
};

/* One call site on the device. */
struct ms_sampled_site {
    uint64_t bytes;                  /* live now */
    uint64_t kept_epoch, kept_bytes; /* its bytes at the slice's highest moment: see keep */
    uint64_t temporaries, temporary_bytes, temporary_ns;
    uint64_t let_go_bytes; /* freed after one or more rounds, as from a queue of constant length */
    uint32_t path_site;    /* for an autograd worker: the site that called autograd */
    uint32_t samples;      /* its row among the sampler's samples, + 1; 0: none */
    uint32_t scaling;      /* a bit for each result of ms_site_table_recorded */
    struct ms_rise rise;   /* from call to call, since a backward pass */
    uint32_t rise_call;    /* the last call at whose beginning its bytes were taken */
    uint64_t rise_round;   /* how many passes had been completed then */
    struct ms_drain drain;
    bool freed;       /* some of it, ever */
    bool before_pass; /* some of it, ever: ms_rounds_before_pass */
    bool judged;
    bool backward;                    /* an autograd worker's, which has no Python frames */
    uint8_t kind;                     /* for memory without another result */
    uint8_t kinds[MS_RECORDED_COUNT]; /* by result of ms_site_table_recorded */
};

struct ms_sampler {
    const struct ms_model *model;
    struct ms_survey_device *to;
    uint8_t device;
    struct ms_sampled_site *sites; /* null until the device is seen */
    uint32_t site_count;
    uint64_t kind_bytes[MS_KIND_COUNT], live_bytes; /* now */
    uint64_t scaling_bytes;                         /* the part of them that follows the batch */
    struct ms_aggregate sums;                       /* now: charged, reserved, the cap */
    uint64_t waiting_bytes;                         /* now */

    /* The current bucket of time, and the slice. */
    uint32_t bucket, slice;
    uint64_t highest_bytes; /* in the bucket */
    uint64_t slice_bytes, slice_ns, slice_moved_bytes;
    uint64_t epoch;
    bool rising;           /* live bytes have not fallen since they were the bucket's highest */
    bool risen;            /* nor since the last call of ms_sampler_note_headroom */
    uint64_t highest_ever; /* of live bytes */

    /* See headroom.c; at the out-of-memory that ended the run, if there was one. */
    uint64_t passing_bytes[MS_HEADROOM_FACTORS];
    uint64_t kinds_at_end[MS_KIND_COUNT], kept_at_end, live_at_end;

    uint32_t newest;     /* the last allocation's number, + 1 */
    uint32_t emptied_by; /* the site that gave memory back since that; 0: none */

    const struct ms_rounds *rounds;
    struct ms_buffer kept;  /* struct ms_growing_site: by what rounds left when memory ran out */
    struct ms_buffer parts; /* struct ms_kept_part: likewise, by site */

    size_t next_sample;
    struct ms_buffer samples; /* uint64_t[clock.count], by site */
    struct ms_buffer ages; /* the same rows: of the last sample's bytes, those made before each */
    uint64_t whole[MS_GROWTH_SAMPLES];
};

/* The next site to look at: those in between hold nothing. */
static inline uint32_t ms_sampler_next(const struct ms_sampler *sampler, uint32_t site)
{
    return ms_site_table_after(sampler->model->sites, sampler->device, site);
}

/* Live memory that moved to the host and not back, as far as the records show. */
static inline uint64_t ms_sampler_moved(const struct ms_sampler *sampler)
{
    const struct ms_aggregate *sums = &sampler->sums;
    const uint64_t moved =
        sums->spilled_bytes > sums->promoted_bytes ? sums->spilled_bytes - sums->promoted_bytes : 0;

    return sums->events == 0 && sampler->model->digest_events > 0 ? UINT64_MAX : moved;
}

/* Growth's pace over that time; 0: no time passed. */
static inline double ms_bytes_per_hour(double bytes, uint64_t over_ns)
{
    return over_ns > 0 ? bytes / (double)over_ns * 3.6e12 : 0;
}

/* ---- sample.c: live memory and its sites ---- */

bool ms_sampler_begin(struct ms_sampler *sampler, const struct ms_model *model, uint8_t device,
                      struct ms_survey_device *to);
void ms_sampler_end(struct ms_sampler *sampler);

/* Takes an allocation of a block or a tensor; allocation: its number. */
void ms_sampler_alloc(struct ms_sampler *sampler, struct ms_live_set *live,
                      const struct ms_event *event, uint32_t allocation, uint64_t time_ns);
void ms_sampler_free(struct ms_sampler *sampler, struct ms_live_set *live,
                     const struct ms_event *event, uint64_t time_ns);

/* Sets the pending bytes. */
void ms_sampler_waits(struct ms_sampler *sampler, uint64_t bytes, uint64_t time_ns);

/* Sets the holders at that moment, if nothing else is known: they stay until more is. */
void ms_sampler_hold(struct ms_sampler *sampler, const struct ms_digest_holding *holdings,
                     size_t count, uint64_t time_ns);

/* After ms_sampler_rebase: adds live memory that is known nevertheless. */
void ms_sampler_adopt(struct ms_sampler *sampler, struct ms_live_set *live,
                      const struct ms_live *known);

/* Records are missing: live memory has no site from here on. */
void ms_sampler_rebase(struct ms_sampler *sampler, struct ms_live_set *live,
                       const struct ms_aggregate *sums);

/* ---- emptied.c: memory given back ---- */

/* Takes memory that a framework gave back. */
void ms_sampler_given_back(struct ms_sampler *sampler, const struct ms_event *event);
/* Keeps of it what the program asked for by emptying a cache, the largest first. */
void ms_sampler_list_emptyings(struct ms_sampler *sampler);

/* ---- moments.c: time ---- */

/* To be called before anything at that time: closes buckets and slices that have ended. */
void ms_sampler_pass(struct ms_sampler *sampler, uint64_t bucket_ns, uint64_t time_ns);

/* A step begins. */
void ms_sampler_step(struct ms_sampler *sampler);

/* To be called after the last of them: takes the age of what is live. */
void ms_sampler_note_ages(struct ms_sampler *sampler, const struct ms_live_set *live);

/* To be called before live bytes fall, or anything else of a bucket changes. */
void ms_sampler_note_highest(struct ms_sampler *sampler);

/* Notes the holders of live memory now. */
void ms_sampler_moment(struct ms_sampler *sampler, enum ms_moment_kind kind, uint64_t time_ns,
                       size_t oom);

/* To be called after the last record. */
void ms_sampler_finish(struct ms_sampler *sampler, uint64_t bucket_ns);

/* ---- rounds.c: memory left from rounds ---- */

/* Takes an allocation, before ms_sampler_alloc of it. */
void ms_rounds_allocation(struct ms_rounds *rounds, const struct ms_model *model, uint32_t site);

/* Whether it is between a model's call, by a line that trains it, and the backward pass: what is
 * made now may have a graph. */
bool ms_rounds_before_pass(const struct ms_rounds *rounds);

/* Whether memory freed now had been kept: over a whole round, or from call to call. */
bool ms_rounds_let_go(const struct ms_rounds *rounds, const struct ms_live *died);

/* The records begin in that phase, or later. */
void ms_rounds_begin(struct ms_rounds *rounds, uint32_t phase);

/* To be called before a site's bytes change: takes those that it had when the latest call began. */
void ms_rounds_sample(const struct ms_rounds *rounds, struct ms_sampled_site *site,
                      uint64_t time_ns);

/* Memory ran out for good: notes kept memory. */
void ms_sampler_note_kept(struct ms_sampler *sampler, const struct ms_live_set *live,
                          uint64_t time_ns);

/* ---- turns.c: moments at which sites hold their most ---- */

/* To be called at the beginning, if turns are wanted. */
void ms_sampler_choose_turns(struct ms_sampler *sampler);

/* To be called at a local maximum of live bytes. */
void ms_sampler_note_turns(struct ms_sampler *sampler);

/* ---- judge.c: growth ---- */

/* A row of growth, with what is known of the site itself. */
struct ms_growing_site ms_sampler_growing(const struct ms_sampler *sampler, uint32_t site,
                                          enum ms_growth_degree degree, enum ms_growth_round round);

/* Whether one of these rows (struct ms_growing_site) is that site's. */
bool ms_growing_has(const struct ms_buffer *growing, uint32_t site);

/* Sets the places of steps. */
void ms_survey_set_clock(const struct ms_model *model, struct ms_growth *growth);

void ms_survey_judge_growth(struct ms_sampler *sampler);

/* ---- headroom.c: the needs of a larger batch ---- */

/* To be called at a local maximum of live bytes. */
void ms_sampler_note_headroom(struct ms_sampler *sampler);

/* To be called at the out-of-memory that ended the run. */
void ms_sampler_note_fatal(struct ms_sampler *sampler, uint64_t requested_bytes);

/* To be called after growth is judged. */
void ms_survey_judge_headroom(struct ms_sampler *sampler);

#endif
