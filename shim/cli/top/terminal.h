/* SPDX-License-Identifier: Apache-2.0 */
/* A terminal that is redrawn in place, with keys, and with signals that end the command: for
 * memshim top. One at a time. */
#ifndef MEMSHIM_SHIM_CLI_TOP_TERMINAL_H
#define MEMSHIM_SHIM_CLI_TOP_TERMINAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MS_TERMINAL_END (-1)

/* Characters in a line of stdout; 0 if it is no terminal, or has no size. */
size_t ms_terminal_width(void);

/* Whether the environment says UTF-8. */
bool ms_terminal_has_blocks(void);

/* Blocks the signals that ms_terminal_wait then reports. redraw: uses the terminal's alternate
 * page, and single keys from stdin if that is a terminal, too. */
void ms_terminal_begin(bool redraw);
void ms_terminal_end(void);

/* Prints as many lines as the window has. */
void ms_terminal_draw(const char *text, size_t bytes);

/* Returns 0 when the time has passed, or at once when the window changes; the key if one was
 * pressed; MS_TERMINAL_END if a signal is to end the command. */
int ms_terminal_wait(uint64_t interval_ns);

#endif
