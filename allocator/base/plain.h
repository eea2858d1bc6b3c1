/* SPDX-License-Identifier: Apache-2.0 */
/* Text from strangers: names of files, functions and tags, arguments, the environment, anything in
 * a trace or a CSV. A terminal obeys some characters instead of showing them, and shows some in
 * another order than written. Everything that memshim writes escapes the same characters:
 *
 *   lines for people    ms_buffer_add_plain, ms_complain, the shim's log: \xNN for each such byte
 *   JSON                ms_json: \uNNNN, which is the same text for whoever parses it
 *   the page            ms_json with `shown`: \xNN, since a browser, too, reorders text */
#ifndef MEMSHIM_ALLOCATOR_BASE_PLAIN_H
#define MEMSHIM_ALLOCATOR_BASE_PLAIN_H

#include <stdbool.h>
#include <stddef.h>

/* The length of the valid UTF-8 sequence at `text`, and its code point; 0: there is none. */
size_t ms_utf8_length(const char *text, unsigned *code_point);

/* Whether it can be shown as it is: not a control character (C0, C1), and nothing that reorders or
 * hides text. */
bool ms_is_plain(unsigned code_point);

#define MS_PLAIN_BYTES 5 /* the most that one step writes, with its zero byte */

/* Writes the next character of `text` as it is, or its first byte as \xNN. Returns the bytes
 * read. */
size_t ms_plain_step(const char *text, char out[MS_PLAIN_BYTES]);

/* As much of the text as fits, always with a zero byte at the end. Returns the length written. */
size_t ms_plain_text(const char *text, char *out, size_t out_bytes);

#endif
