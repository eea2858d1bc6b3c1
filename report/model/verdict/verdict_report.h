/* SPDX-License-Identifier: Apache-2.0 */
/* The report's verdict: the sentence of the moment, refined with results from the whole run: what
 * grew, which batch would have fitted, how the step compares with those before it. */
#ifndef MEMSHIM_REPORT_MODEL_VERDICT_VERDICT_REPORT_H
#define MEMSHIM_REPORT_MODEL_VERDICT_VERDICT_REPORT_H

#include "report/model/model.h"
#include "report/model/survey.h"

/* MEMSHIM_TORCH=off: the line that asked for most of the live bytes, and in how many segments. It
 * may be growth, or one call that needs them all. */
struct ms_repeated {
    uint64_t segments, bytes;
    uint64_t over_ns; /* from the first to the last */
    uint32_t site;    /* one of the line's */
};

struct ms_judgement {
    enum ms_verdict verdict;
    uint64_t short_bytes;
    uint64_t step;                  /* the step of the out-of-memory, from 1; 0: unknown */
    char what[MS_SENTENCE_BYTES];   /* "asked for 2.00 GiB, 1.20 GiB short of the cap (...)" */
    char why[MS_SENTENCE_BYTES];    /* "demand: ..." */
    char beside[MS_SENTENCE_BYTES]; /* growth that is not the reason; empty: none */
    const struct ms_leak *leak;     /* the largest growth, whether the reason or not; or null */
    uint64_t grown_bytes;           /* all growth */
    double fitting_factor;          /* the part of this batch that would have fitted, estimated; 0:
                                       unknown */
    double most_factor;  /* no more than this part of it fits; 0: unknown, or fitting_factor is
                            known */
    double least_factor; /* beside most_factor: this part fits even beside the state of an
                            optimizer like Adam; 0: unknown */
    bool rest_follows;   /* it ran out in the middle of a pass, before any step was over: what
                            the rest of the step needs was never seen, and is not in most_factor
                            or short_bytes */
    bool of_the_model;   /* nearly all live memory is what a model needs for any batch */
    bool of_one_line;    /* no model was called yet, and nearly all live memory is what one line
                            asked for, time after time: there is no batch yet */
    uint64_t state_to_come_bytes; /* of the optimizer, with this request; 0: none, or unknown */
    uint64_t lengthened_bytes; /* MS_VERDICT_GROWTH: the block that the line which asked keeps, if
                                  the request makes it anew, and longer; 0: not so */
    uint64_t lengthened_by_bytes; /* the request is longer by so much */
    uint64_t longest_bytes;       /* the longest such block for which there is room beside the one
                                     that it replaces */
    uint64_t further_steps; /* MS_VERDICT_GROWTH: without a cap, the device would have lasted for
                               this many more */
    /* If this step needs half as much again as any of the steps before it, or more: how many these
     * are, their most live bytes, and what this one needs at least. Otherwise, and with growth,
     * past_steps is 0. */
    uint64_t past_steps, past_most_bytes, needed_bytes;
    /* If each of these steps needed more than all before it, and this one needs more than they:
     * which they are, and what the first of them needed. past_most_bytes (of the last of them) and
     * needed_bytes are set as well. 0: not so, or too few steps, or there is growth. */
    uint64_t rising_since_step, rising_to_step, rising_from_bytes;
    struct ms_repeated repeated; /* segments is 0 if growth is known, or if tensors are */
};

/* Growth is reported only for an out-of-memory of the device without recovery. It is the reason if
 * nothing would have been short without it; or, if enough bytes were free, if the request is no
 * larger than the growth. Otherwise it is mentioned beside the reason. */
void ms_judge(const struct ms_model *model, size_t oom, struct ms_judgement *judgement);

/* The index of ms_model_fatal_oom; SIZE_MAX: there is none. */
size_t ms_judged_fatal(const struct ms_model *model);

#endif
