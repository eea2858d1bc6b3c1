/* SPDX-License-Identifier: Apache-2.0 */
/* A terminal that is redrawn in place, keys that are pressed in it, and signals that end the
 * command: for memshim top. One at a time. */
#ifndef MEMSHIM_SHIM_CLI_TOP_TERMINAL_H
#define MEMSHIM_SHIM_CLI_TOP_TERMINAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MS_TERMINAL_END (-1)

/* Characters of a line of the standard output, 0 where it is no terminal or has no size. */
size_t ms_terminal_width(void);

/* Whether the environment says UTF-8. */
bool ms_terminal_has_blocks(void);

/* Blocks the signals that ms_terminal_wait then reports. redraw: takes another page of the
 * terminal, and single keys from the standard input where that is a terminal, too. */
void ms_terminal_begin(bool redraw);
void ms_terminal_end(void);

/* As many lines as the window has. */
void ms_terminal_draw(const char *text, size_t bytes);

/* Until the time has passed: 0; at once where the window changes: 0; where a key was pressed: that;
 * where a signal is to end the command: MS_TERMINAL_END. */
int ms_terminal_wait(uint64_t interval_ns);

#endif
