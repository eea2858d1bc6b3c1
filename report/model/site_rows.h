/* SPDX-License-Identifier: Apache-2.0 */
/* Call sites as every form shows them: the same rows, the same order, the same words. */
#ifndef MEMSHIM_REPORT_MODEL_SITE_ROWS_H
#define MEMSHIM_REPORT_MODEL_SITE_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "allocator/base/buffer.h"
#include "report/model/model.h"

struct ms_site_row {
    uint32_t site; /* 0: memory without one */
    struct ms_site_sums sums;
};

/* Every site that did something on the device, those that held most at its peak first. */
void ms_site_rows(const struct ms_model *model, int device, struct ms_buffer *rows);

static inline size_t ms_site_row_count(const struct ms_buffer *rows)
{
    return rows->bytes / sizeof(struct ms_site_row);
}

static inline const struct ms_site_row *ms_site_row_at(const struct ms_buffer *rows, size_t index)
{
    return (const struct ms_site_row *)rows->at + index;
}

/* What was live at the peak, or stood beside it forwarded. */
static inline uint64_t ms_site_row_at_peak(const struct ms_site_row *row)
{
    return row->sums.at_peak_bytes + row->sums.forwarded_at_peak_bytes;
}

/* Of what was live on the device at its peak, in bytes. */
struct ms_attribution {
    uint64_t live_bytes;
    uint64_t with_site_bytes;   /* its stack is known */
    uint64_t with_python_bytes; /* and has a Python frame */
    uint64_t backward_bytes;    /* asked for by autograd's threads, which have none */
    uint64_t not_sampled_bytes; /* passed over by sampling */
};

struct ms_attribution ms_attribute(const struct ms_model *model, const struct ms_buffer *rows);

/* What sites of the model are judged by. */
struct ms_kinds_ground ms_site_ground(const struct ms_model *model);

/* What the bytes of the site are to the program. */
void ms_site_kinds(const struct ms_model *model, int device, uint32_t site,
                   struct ms_site_kinds *kinds);

/* How a row of the site names that: its kind, or what it is where nothing of it is followed from
 * allocation to free. reason: a clause. */
struct ms_site_called {
    const char *kind, *reason;
};

struct ms_site_called ms_site_called(const struct ms_site_row *row,
                                     const struct ms_site_kinds *kinds);

/* A row for each kind, and behind them one for each reason for which the driver itself holds memory
 * (enum ms_charge_reason), named as the ledger has it; what NCCL holds is communication. */
#define MS_KIND_ROWS (MS_KIND_COUNT + MS_CHARGE_REASON_COUNT)

/* All memory of one kind on a device. */
struct ms_kind_row {
    const char *name;
    uint64_t at_peak_bytes, live_bytes, bytes; /* of blocks and tensors */
    /* Charged beside them, at that same moment and at the end. */
    uint64_t driver_at_peak_bytes, driver_bytes;
    uint64_t sites;        /* that have blocks or tensors of it */
    uint32_t largest_site; /* of those, at the peak, or over all where none was live then */
    uint64_t largest_bytes;
};

/* at_peak_bytes add up to what was live when the device's live bytes peaked; with those of the
 * driver, to all that was charged then but for holes and chunks that the program made itself. */
void ms_kind_rows(const struct ms_model *model, int device, const struct ms_buffer *rows,
                  struct ms_kind_row kinds[MS_KIND_ROWS]);

/* "python", "backward", "other". */
const char *ms_site_thread(const struct ms_model *model, uint32_t site);

/* The names of a tag and those it was pushed in, outermost first, at most `room`. Returns their
 * number. */
size_t ms_tag_path(const struct ms_model *model, uint32_t tag, const char **names, size_t room);

/* The frame that a person knows the site by: null where none is known. */
const struct ms_frame *ms_site_frame(const struct ms_model *model, uint32_t site);

/* "train.py:214 in Attention.forward", as one line of printable text. */
void ms_frame_add_line(const struct ms_frame *frame, struct ms_buffer *out);

/* The same of a site's own frame, and whether that is in a backward pass; what the site is, where
 * it has no frames. */
void ms_site_add_line(const struct ms_model *model, uint32_t site, struct ms_buffer *out);

/* Of a site whose own frame is an installed model's: ", from " and the user's line that called it;
 * else nothing. */
void ms_site_add_user(const struct ms_model *model, uint32_t site, struct ms_buffer *out);

/* The square root, without the C library's, which the traced process would have to load. */
double ms_square_root(double value);

#endif
