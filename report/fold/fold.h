/* SPDX-License-Identifier: Apache-2.0 */
/* Folds windows into a digest in the traced process. One caller at a time. It has pages of its own,
 * which grow with live blocks, call sites and backward passes, not with the number of events: about
 * 72 bytes for each live block, 500 for each call site and device, 24 for each pass (of 2^20 at
 * most), and the definitions of call sites once more. */
#ifndef MEMSHIM_REPORT_FOLD_FOLD_H
#define MEMSHIM_REPORT_FOLD_FOLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "allocator/base/buffer.h"
#include "report/trace/format.h"

typedef struct ms_fold ms_fold_t;

/* An out-of-memory, whose moment is kept. */
struct ms_fold_oom {
    uint64_t event; /* number of events recorded before it */
    uint32_t device;
};

/* Null: there is no memory. */
ms_fold_t *ms_fold_new(void);
void ms_fold_delete(ms_fold_t *fold); /* null: nothing */

/* Adds a definition, before the first event that names it. */
void ms_fold_define(ms_fold_t *fold, uint32_t kind, const void *payload, size_t bytes);

enum ms_fold_state {
    MS_FOLD_MORE,  /* the window has more records */
    MS_FOLD_DONE,  /* go on with the next window */
    MS_FOLD_FAILED /* it is not the next one (some events have no records), or there is no memory:
                      nothing can be folded any more */
};

/* Folds that many more records of the next window, which lies whole at `header` and stays there
 * until it is done. ooms: all so far, by event. */
enum ms_fold_state ms_fold_some(ms_fold_t *fold, const struct ms_extent_header *header,
                                const struct ms_fold_oom *ooms, size_t oom_count,
                                uint64_t most_records);

/* Writes the digest of all folded events; no window may be half done. */
void ms_fold_store(const ms_fold_t *fold, struct ms_buffer *out);

#endif
