/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the survey share: the sampler, which is one device while the records are read
 * again. */
#ifndef MEMSHIM_REPORT_MODEL_SURVEY_STATE_H
#define MEMSHIM_REPORT_MODEL_SURVEY_STATE_H

#include "report/fold/digest.h"
#include "report/fold/live_set.h"
#include "report/model/model.h"
#include "report/model/survey.h"

/* Where in the run's rounds the records stand: over all devices. */
struct ms_rounds {
    uint32_t phase; /* as steps.h has it */
    uint32_t calls; /* of a model, so far */
    bool calling;
    bool tensors;           /* they are told of, else only what a framework keeps for them */
    uint32_t site;          /* that asked last */
    uint32_t backward_site; /* the Python that called autograd last; 0: not seen */
};

/* One call site on the device. */
struct ms_sampled_site {
    uint64_t bytes;                  /* live now */
    uint64_t kept_epoch, kept_bytes; /* what it held at the slice's highest moment: see keep */
    uint64_t temporaries, temporary_bytes, temporary_ns;
    uint64_t let_go_bytes; /* that were freed after rounds, as from a queue that has its length */
    uint32_t path_site;    /* of a worker of autograd: who called autograd */
    uint32_t samples;      /* its row of the sampler's samples, + 1; 0: none */
    uint32_t scaling;      /* a bit for each of what ms_site_table_recorded returns */
    bool judged;
    bool backward;                    /* on a worker of autograd, which has no Python */
    uint8_t kind;                     /* of what is not told otherwise */
    uint8_t kinds[MS_RECORDED_COUNT]; /* by what ms_site_table_recorded returns */
};

struct ms_sampler {
    const struct ms_model *model;
    struct ms_survey_device *to;
    uint8_t device;
    struct ms_sampled_site *sites; /* null until the device is seen */
    uint32_t site_count;
    uint64_t kind_bytes[MS_KIND_COUNT], live_bytes; /* now */
    uint64_t scaling_bytes;                         /* of them: they follow the batch */
    struct ms_aggregate sums;                       /* now: what is charged, reserved, the cap */
    uint64_t waiting_bytes;                         /* now */

    /* The bucket of time that is open, and the slice. */
    uint32_t bucket, slice;
    uint64_t highest_bytes; /* in the bucket */
    uint64_t slice_bytes, slice_ns, slice_moved_bytes;
    uint64_t epoch;
    bool rising;           /* live bytes have not fallen since they were the bucket's highest */
    bool risen;            /* nor since headroom was looked at */
    uint64_t highest_ever; /* of live bytes */

    /* See survey_headroom.c; at the out-of-memory that ended the run, if one did. */
    uint64_t passing_bytes[MS_HEADROOM_FACTORS];
    uint64_t kinds_at_end[MS_KIND_COUNT], kept_at_end, live_at_end;

    uint32_t newest;     /* the last allocation's number, + 1 */
    uint32_t emptied_by; /* the site that gave something back since that; 0: none */

    const struct ms_rounds *rounds;
    struct ms_buffer kept; /* struct ms_growing_site: by what rounds left when memory ran out */

    size_t next_sample;
    struct ms_buffer samples; /* uint64_t[clock.count], by site */
    uint64_t whole[MS_GROWTH_SAMPLES];
};

/* From one site to the next one to look at: those in between hold nothing. */
static inline uint32_t ms_sampler_next(const struct ms_sampler *sampler, uint32_t site)
{
    return ms_site_table_after(sampler->model->sites, sampler->device, site);
}

/* Live memory that went to the host and did not come back, as far as the records tell. */
static inline uint64_t ms_sampler_moved(const struct ms_sampler *sampler)
{
    const struct ms_aggregate *sums = &sampler->sums;
    const uint64_t moved =
        sums->spilled_bytes > sums->promoted_bytes ? sums->spilled_bytes - sums->promoted_bytes : 0;

    return sums->events == 0 && sampler->model->digest_events > 0 ? UINT64_MAX : moved;
}

/* ---- survey_sample.c: what is live, and whose ---- */

bool ms_sampler_begin(struct ms_sampler *sampler, const struct ms_model *model, uint8_t device,
                      struct ms_survey_device *to);
void ms_sampler_end(struct ms_sampler *sampler);

/* A block or a tensor is allocated; allocation: its number. */
void ms_sampler_alloc(struct ms_sampler *sampler, struct ms_live_set *live,
                      const struct ms_event *event, uint32_t allocation, uint64_t time_ns);
void ms_sampler_free(struct ms_sampler *sampler, struct ms_live_set *live,
                     const struct ms_event *event, uint64_t time_ns);

/* A framework gave something back. */
void ms_sampler_given_back(struct ms_sampler *sampler, const struct ms_event *event);
/* Of those, what the program asked for by emptying a cache stays, the largest first. */
void ms_sampler_list_emptyings(struct ms_sampler *sampler);

/* So much waits from now on. */
void ms_sampler_waits(struct ms_sampler *sampler, uint64_t bytes, uint64_t time_ns);

/* Only who held what at that moment is known: it stands so until more is. */
void ms_sampler_hold(struct ms_sampler *sampler, const struct ms_digest_holding *holdings,
                     size_t count, uint64_t time_ns);

/* After ms_sampler_rebase: this, which is live, is known all the same. */
void ms_sampler_adopt(struct ms_sampler *sampler, struct ms_live_set *live,
                      const struct ms_live *known);

/* Records are missing: what is live from here on has no site. */
void ms_sampler_rebase(struct ms_sampler *sampler, struct ms_live_set *live,
                       const struct ms_aggregate *sums);

/* ---- survey_moments.c: time passes ---- */

/* Before anything at that time: closes buckets, slices and steps that are over. */
void ms_sampler_pass(struct ms_sampler *sampler, uint64_t bucket_ns, uint64_t time_ns);

/* Before live bytes fall, or anything else of a bucket changes. */
void ms_sampler_note_highest(struct ms_sampler *sampler);

/* Who is live now. */
void ms_sampler_moment(struct ms_sampler *sampler, enum ms_moment_kind kind, uint64_t time_ns,
                       size_t oom);

/* After the last record. */
void ms_sampler_finish(struct ms_sampler *sampler, uint64_t bucket_ns);

/* ---- survey_rounds.c: what is left of rounds ---- */

/* Memory is asked for, before ms_sampler_alloc of it. */
void ms_rounds_allocation(struct ms_rounds *rounds, const struct ms_model *model, uint32_t site);

/* Whether what is freed now had been kept: over a whole round, or from call to call. */
bool ms_rounds_let_go(const struct ms_rounds *rounds, const struct ms_live *died);

/* The records begin in that phase, or later. */
void ms_rounds_begin(struct ms_rounds *rounds, uint32_t phase);

/* Memory has run out, for good. */
void ms_sampler_note_kept(struct ms_sampler *sampler, const struct ms_live_set *live,
                          uint64_t time_ns);

/* ---- survey_turns.c: when other sites than the peak's hold their most ---- */

/* At the beginning, where turns are asked for. */
void ms_sampler_choose_turns(struct ms_sampler *sampler);

/* At a local maximum of live bytes. */
void ms_sampler_note_turns(struct ms_sampler *sampler);

/* ---- survey_judge.c: what grew ---- */

/* Where steps lie. */
void ms_survey_set_clock(const struct ms_model *model, struct ms_growth *growth);

void ms_survey_judge_growth(struct ms_sampler *sampler);

/* ---- survey_headroom.c: what a larger batch would need ---- */

/* At a local maximum of live bytes. */
void ms_sampler_note_headroom(struct ms_sampler *sampler);

/* At the out-of-memory that ended the run. */
void ms_sampler_note_fatal(struct ms_sampler *sampler, uint64_t requested_bytes);

/* After growth is judged. */
void ms_survey_judge_headroom(struct ms_sampler *sampler);

#endif
