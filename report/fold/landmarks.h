/* SPDX-License-Identifier: Apache-2.0 */
/* Landmarks: what the program was doing when it asked for memory, by a site's Python frames. They
 * are the functions of PyTorch that every training loop passes through, whoever wrote it, and
 * functions named `step`, which every optimizer has. Needs no names of native functions. */
#ifndef MEMSHIM_REPORT_FOLD_LANDMARKS_H
#define MEMSHIM_REPORT_FOLD_LANDMARKS_H

#include <stdbool.h>
#include <stdint.h>

#include "report/fold/frame_hints.h"
#include "report/trace/sites.h"

enum ms_doing {
    MS_DOING_UNKNOWN,  /* no stack */
    MS_DOING_ASIDE,    /* on another thread than the loop's: a prefetcher's, NCCL's; a loop is where
                          models are called, be it on such a thread */
    MS_DOING_OTHER,    /* the program's own work: inputs, losses, construction */
    MS_DOING_FORWARD,  /* in a call of an nn.Module */
    MS_DOING_BACKWARD, /* on a worker of autograd, or in a call of backward */
    MS_DOING_OPTIMIZER, /* in torch.optim */
    MS_DOING_STEP       /* in a function named step that calls no model, in a run with backward
                           passes: the user's own optimizer */
};

static inline bool ms_doing_is_optimizers(enum ms_doing doing)
{
    return doing == MS_DOING_OPTIMIZER || doing == MS_DOING_STEP;
}

struct ms_doings {
    uint8_t doing;   /* enum ms_doing */
    uint32_t passed; /* enum ms_landmark, or-ed: anywhere in the stack */
    uint32_t caller; /* Python node that called the outermost step or module; 0: none */
};

typedef struct ms_landmarks ms_landmarks_t;

/* For the sites that `definitions` has now, which must outlive it. Null: no host memory. */
ms_landmarks_t *ms_landmarks_new(const ms_definitions_t *definitions);
void ms_landmarks_delete(ms_landmarks_t *landmarks);

/* Of a site; all zero if it is unknown. */
const struct ms_doings *ms_landmarks_of(const ms_landmarks_t *landmarks, uint32_t site);

static inline bool ms_landmarks_is_optimizers(const ms_landmarks_t *landmarks, uint32_t site)
{
    return ms_doing_is_optimizers((enum ms_doing)ms_landmarks_of(landmarks, site)->doing);
}

/* The first site in a call of an nn.Module; UINT32_MAX: there is none. */
uint32_t ms_landmarks_first_call(const ms_landmarks_t *landmarks);

#endif
