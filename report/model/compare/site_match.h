/* SPDX-License-Identifier: Apache-2.0 */
/* Call sites of several runs or ranks, matched by what their frames are (function, file, line) and
 * never by ids or addresses, which are a run's own. A file is what its name is, wherever it lies:
 * a script may have been copied, and another machine has its packages elsewhere. */
#ifndef MEMSHIM_REPORT_MODEL_COMPARE_SITE_MATCH_H
#define MEMSHIM_REPORT_MODEL_COMPARE_SITE_MATCH_H

#include <stddef.h>
#include <stdint.h>

#include "allocator/base/json.h"
#include "allocator/base/strings.h"
#include "report/model/model.h"

struct ms_site_match {
    struct ms_strings keys;  /* lines: what people know the site by, then its frames, innermost
                                first, each as function, name of the file and line between tabs */
    struct ms_buffer shown;  /* the same with the paths of the first site that had that key, each
                                ended by a zero byte */
    struct ms_buffer starts; /* size_t: where that of a key begins, by its number */
    struct ms_buffer text;   /* in the making */
};

/* The number of the site, the same for the same; from 0, in the order of adding. */
size_t ms_site_match_add(struct ms_site_match *match, const struct ms_model *model, uint32_t site);

/* Adds "train.py:57 in update": one line of printable text. */
void ms_site_match_add_line(const struct ms_site_match *match, size_t number,
                            struct ms_buffer *out);

/* The members "line" and "frames". */
void ms_site_match_json(const struct ms_site_match *match, size_t number, struct ms_json *json);

void ms_site_match_free(struct ms_site_match *match);

#endif
