/* SPDX-License-Identifier: Apache-2.0 */
/* Bump allocation: memory for many small objects that never move and are freed together. */
#ifndef MEMSHIM_REPORT_SYMBOLS_BUMP_H
#define MEMSHIM_REPORT_SYMBOLS_BUMP_H

#include <stddef.h>

#define MS_BUMP_PAGE_BYTES (256u << 10)

struct ms_bump {
    struct ms_bump_page *newest;
};

/* Zeroed, aligned for any number. Null: memory ran out, or bytes is more than a page has. */
void *ms_bump_take(struct ms_bump *bump, size_t bytes);

/* A copy of the text, with a zero byte at its end; null likewise. */
char *ms_bump_copy(struct ms_bump *bump, const char *text);

void ms_bump_free(struct ms_bump *bump);

#endif
