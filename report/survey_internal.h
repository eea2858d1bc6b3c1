/* What the files of the survey share: a device while the records are read again. */
#ifndef MEMSHIM_REPORT_SURVEY_INTERNAL_H
#define MEMSHIM_REPORT_SURVEY_INTERNAL_H

#include "report/digest.h"
#include "report/live_set.h"
#include "report/model.h"
#include "report/survey.h"

/* One call site on the device. */
struct ms_look_site {
    uint64_t bytes;                  /* live now */
    uint64_t kept_epoch, kept_bytes; /* what it held at the slice's highest moment: see keep */
    uint64_t temporaries, temporary_bytes, temporary_ns;
    uint32_t samples; /* its row of struct ms_look's, + 1; 0: none */
    uint32_t scaling; /* a bit for each of what ms_site_table_told returns */
    bool judged;
    uint8_t kind;                 /* of what is not told otherwise */
    uint8_t kinds[MS_TOLD_COUNT]; /* by what ms_site_table_told returns */
};

struct ms_look {
    const struct ms_model *model;
    struct ms_survey_device *to;
    uint8_t device;
    struct ms_look_site *sites; /* null until the device is seen */
    uint32_t site_count;
    uint64_t kind_bytes[MS_KIND_COUNT], live_bytes; /* now */
    uint64_t scaling_bytes;                         /* of them: they follow the batch */
    struct ms_aggregate sums;                       /* now: what is charged, reserved, the cap */
    uint64_t waiting_bytes;                         /* now */

    /* The bucket of time that is open, and the slice. */
    uint32_t bucket, slice;
    uint64_t highest_bytes; /* in the bucket */
    uint64_t slice_bytes, slice_ns;
    uint64_t epoch;
    bool rising; /* live bytes have not fallen since they were the bucket's highest */
    bool risen;  /* nor since headroom was looked at */
    uint64_t fixed_at_peak, scaling_at_peak, highest_ever;

    uint32_t newest; /* the last birth's number, + 1 */

    size_t next_sample;
    struct ms_buffer samples; /* uint64_t[clock.count], by site */
    uint64_t whole[MS_GROWTH_SAMPLES];
};

/* From one site to the next one to look at: those in between hold nothing. */
static inline uint32_t ms_look_next(const struct ms_look *look, uint32_t site)
{
    return ms_site_table_after(look->model->sites, look->device, site);
}

/* ---- survey_look.c: what is live, and whose ---- */

bool ms_look_begin(struct ms_look *look, const struct ms_model *model, uint8_t device,
                   struct ms_survey_device *to);
void ms_look_end(struct ms_look *look);

/* A block or a tensor is born; birth: its number. */
void ms_look_birth(struct ms_look *look, struct ms_live_set *live, const struct ms_event *event,
                   uint32_t birth, uint64_t time_ns);
void ms_look_death(struct ms_look *look, struct ms_live_set *live, const struct ms_event *event,
                   uint64_t time_ns);

/* So much waits from now on. */
void ms_look_waits(struct ms_look *look, uint64_t bytes, uint64_t time_ns);

/* Only who held what at that moment is known: it stands so until more is. */
void ms_look_hold(struct ms_look *look, const struct ms_digest_holding *holdings, size_t count,
                  uint64_t time_ns);

/* After ms_look_rebase: this, which is live, is known all the same. */
void ms_look_adopt(struct ms_look *look, struct ms_live_set *live, const struct ms_live *known);

/* Records are missing: what is live from here on has no site. */
void ms_look_rebase(struct ms_look *look, struct ms_live_set *live,
                    const struct ms_aggregate *sums);

/* ---- survey_moments.c: time passes ---- */

/* Before anything at that time: closes buckets, slices and steps that are over. */
void ms_look_pass(struct ms_look *look, uint64_t bucket_ns, uint64_t time_ns);

/* Before live bytes fall, or anything else of a bucket changes. */
void ms_look_note_highest(struct ms_look *look);

/* Who is live now. */
void ms_look_moment(struct ms_look *look, enum ms_moment_kind kind, uint64_t time_ns, size_t oom);

/* After the last record. */
void ms_look_finish(struct ms_look *look, uint64_t bucket_ns);

/* ---- survey_judge.c: what it all means ---- */

/* Where steps lie. */
void ms_survey_set_clock(const struct ms_model *model, struct ms_growth *growth);

void ms_survey_judge_growth(struct ms_look *look);
void ms_survey_judge_headroom(struct ms_look *look);

/* At a local maximum of live bytes. */
void ms_look_note_headroom(struct ms_look *look);

#endif
