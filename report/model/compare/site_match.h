/* SPDX-License-Identifier: Apache-2.0 */
/* Matches call sites of several runs or ranks by their frames (function, file, line), never by ids
 * or addresses, which differ between runs. Only a file's name counts, not its folder: a script may
 * have been copied, and another machine has its packages elsewhere. */
#ifndef MEMSHIM_REPORT_MODEL_COMPARE_SITE_MATCH_H
#define MEMSHIM_REPORT_MODEL_COMPARE_SITE_MATCH_H

#include <stddef.h>
#include <stdint.h>

#include "allocator/base/json.h"
#include "allocator/base/strings.h"
#include "report/model/model.h"

struct ms_site_match {
    struct ms_strings keys;  /* lines: the site's own frame, then its frames, innermost first, each
                                as function, name of the file and line between tabs */
    struct ms_buffer shown;  /* the same with the paths of the first site that had that key, each
                                ended by a zero byte */
    struct ms_buffer starts; /* size_t: the start of each key's text, by its number */
    struct ms_buffer text;   /* under construction */
};

/* The site's number: equal for equal frames; from 0, in the order of adding. */
size_t ms_site_match_add(struct ms_site_match *match, const struct ms_model *model, uint32_t site);

/* Adds "train.py:57 in update": one line of printable text. */
void ms_site_match_add_line(const struct ms_site_match *match, size_t number,
                            struct ms_buffer *out);

/* Adds the members "line" and "frames". */
void ms_site_match_json(const struct ms_site_match *match, size_t number, struct ms_json *json);

void ms_site_match_free(struct ms_site_match *match);

#endif
