/* SPDX-License-Identifier: Apache-2.0 */
/* Text of a stranger's: names of files, functions and tags, arguments, the environment, whatever
 * stands in a trace or a CSV. Some of it a terminal obeys instead of showing it, or shows in
 * another order than it is written. One rule says what that is, for everything that memshim writes:
 *
 *   lines for people    ms_buffer_add_plain, ms_complain, the shim's log: \xNN for each such byte
 *   JSON                ms_json: \uNNNN, which is the same text for whoever parses it
 *   the page            ms_json with `shown`: \xNN, since a browser, too, reorders text */
#ifndef MEMSHIM_ALLOCATOR_BASE_PLAIN_H
#define MEMSHIM_ALLOCATOR_BASE_PLAIN_H

#include <stdbool.h>
#include <stddef.h>

/* The length of the valid UTF-8 sequence at `text`, 0 where there is none; its code point. */
size_t ms_utf8_length(const char *text, unsigned *code_point);

/* Whether it can be shown as it is: no control of C0 or C1, nothing that reorders or hides text. */
bool ms_is_plain(unsigned code_point);

#define MS_PLAIN_BYTES 5 /* what one step writes, at most, with its zero */

/* The next character of `text`, as it is or, a byte of it, as \xNN. Returns the bytes taken. */
size_t ms_plain_step(const char *text, char out[MS_PLAIN_BYTES]);

/* All of it, as far as it fits; always ended by a zero. Returns the length written. */
size_t ms_plain_text(const char *text, char *out, size_t out_bytes);

#endif
