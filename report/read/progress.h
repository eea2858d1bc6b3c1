/* SPDX-License-Identifier: Apache-2.0 */
/* A bar for reports that take over a second: on stderr, only if that is a terminal, and removed
 * when the report is ready. The reader reports its progress; only the CLI begins a bar, so that a
 * traced process never draws one. One at a time, one thread. */
#ifndef MEMSHIM_REPORT_READ_PROGRESS_H
#define MEMSHIM_REPORT_READ_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MS_PROGRESS_LINE_BYTES 128

/* Begins a bar for trace `number` (from 1) of `of` traces. The bar appears once reading has taken
 * long enough, counted from the first trace. */
void ms_progress_begin(size_t number, size_t of);

/* Removes the bar. */
void ms_progress_end(void);

/* Notes that so much of a stage ("reading") is done. Does nothing if no bar was begun. */
void ms_progress_note(const char *stage, uint64_t done, uint64_t total);

/* The bar's text at a time since the beginning. False: draw nothing, because a second has not
 * passed yet, or the line drawn at shown_ns (0: none) is recent. */
bool ms_progress_line(const char *stage, uint64_t done, uint64_t total, uint64_t now_ns,
                      uint64_t shown_ns, char *line, size_t line_bytes);

#endif
