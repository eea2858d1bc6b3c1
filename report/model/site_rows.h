/* SPDX-License-Identifier: Apache-2.0 */
/* Call sites as all forms show them: the same rows, order and words. */
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

/* Every site that was active on the device, those with most memory at its peak first. */
void ms_site_rows(const struct ms_model *model, int device, struct ms_buffer *rows);

static inline size_t ms_site_row_count(const struct ms_buffer *rows)
{
    return rows->bytes / sizeof(struct ms_site_row);
}

static inline const struct ms_site_row *ms_site_row_at(const struct ms_buffer *rows, size_t index)
{
    return (const struct ms_site_row *)rows->at + index;
}

/* Bytes live at the peak, or forwarded beside them. */
static inline uint64_t ms_site_row_at_peak(const struct ms_site_row *row)
{
    return row->sums.at_peak_bytes + row->sums.forwarded_at_peak_bytes;
}

/* Parts of the device's live bytes at its peak. */
struct ms_attribution {
    uint64_t live_bytes;
    uint64_t with_site_bytes;   /* with a known stack */
    uint64_t with_python_bytes; /* whose stack has a Python frame */
    uint64_t backward_bytes;    /* asked for by autograd's threads, which have no Python frames */
    uint64_t not_sampled_bytes; /* passed over by sampling */
};

struct ms_attribution ms_attribute(const struct ms_model *model, const struct ms_buffer *rows);

/* The evidence about the model's sites. */
struct ms_kinds_ground ms_site_ground(const struct ms_model *model);

/* The kinds of the site's bytes. */
void ms_site_kinds(const struct ms_model *model, int device, uint32_t site,
                   struct ms_site_kinds *kinds);

/* A site's name in its row: its kind; or what it is, if its memory is not followed from allocation
 * to free. reason: a clause. */
struct ms_site_called {
    const char *kind, *reason;
};

struct ms_site_called ms_site_called(const struct ms_site_row *row,
                                     const struct ms_site_kinds *kinds);

/* A row for each kind. After them one for each reason for which the driver itself holds memory
 * (enum ms_charge_reason), named as in the ledger; NCCL's memory is communication. */
#define MS_KIND_ROWS (MS_KIND_COUNT + MS_CHARGE_REASON_COUNT)

/* All memory of one kind on a device. */
struct ms_kind_row {
    const char *name;
    uint64_t at_peak_bytes, live_bytes, bytes; /* of blocks and tensors */
    /* Charged beside them, at that moment and at the end. */
    uint64_t driver_at_peak_bytes, driver_bytes;
    uint64_t sites;        /* that have blocks or tensors of it */
    uint32_t largest_site; /* of these, at the peak, or over all if none was live then */
    uint64_t largest_bytes;
};

/* at_peak_bytes add up to the device's live bytes at their peak. With the driver's bytes they add
 * up to all charged bytes then, except holes and the program's own chunks. */
void ms_kind_rows(const struct ms_model *model, int device, const struct ms_buffer *rows,
                  struct ms_kind_row kinds[MS_KIND_ROWS]);

/* "python", "backward", "other". */
const char *ms_site_thread(const struct ms_model *model, uint32_t site);

/* The names of a tag and its outer tags, outermost first, at most `room`. Returns their number. */
size_t ms_tag_path(const struct ms_model *model, uint32_t tag, const char **names, size_t room);

/* The frame that identifies the site to a person; null: none is known. */
const struct ms_frame *ms_site_frame(const struct ms_model *model, uint32_t site);

/* "train.py:214 in Attention.forward", as one line of printable text. */
void ms_frame_add_line(const struct ms_frame *frame, struct ms_buffer *out);

/* The same for a site's own frame, with whether that is in a backward pass; without frames, what
 * the site is. */
void ms_site_add_line(const struct ms_model *model, uint32_t site, struct ms_buffer *out);

/* If the site's own frame is an installed model's: adds ", from " and the user's line that called
 * it. */
void ms_site_add_user(const struct ms_model *model, uint32_t site, struct ms_buffer *out);

/* Whether both belong to the same line, as shown to a person. */
bool ms_site_at_one_line(const struct ms_model *model, uint32_t a, uint32_t b);

/* The square root. The C library's would make the traced process load another library. */
double ms_square_root(double value);

#endif
