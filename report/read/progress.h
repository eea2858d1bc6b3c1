/* SPDX-License-Identifier: Apache-2.0 */
/* A bar for reports that take over a second: on stderr, only where that is a terminal, and gone
 * when the report is there. The reader tells how far it is; only the CLI begins one, so that
 * nothing is ever drawn by a traced process. One at a time, one thread. */
#ifndef MEMSHIM_REPORT_READ_PROGRESS_H
#define MEMSHIM_REPORT_READ_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MS_PROGRESS_LINE_BYTES 128

/* From here on progress is shown of this one of so many traces (1 and more), if the whole has taken
 * long enough since the first of them. */
void ms_progress_begin(size_t number, size_t of);

/* Takes the bar away. */
void ms_progress_end(void);

/* So much is done of the whole of a stage ("reading"). Nothing where none was begun. */
void ms_progress_note(const char *stage, uint64_t done, uint64_t total);

/* The bar's text at a time since the beginning. False where nothing is to be drawn: it has not
 * taken a second yet, or the line that was drawn at shown_ns (0: none) is young. */
bool ms_progress_line(const char *stage, uint64_t done, uint64_t total, uint64_t now_ns,
                      uint64_t shown_ns, char *line, size_t line_bytes);

#endif
