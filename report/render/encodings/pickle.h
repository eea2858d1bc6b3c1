/* SPDX-License-Identifier: Apache-2.0 */
/* Python's pickle, protocol 4, of plain data only: dictionaries, lists, whole numbers and text.
 * Reading it calls and imports nothing. It uses only opcodes that PyTorch's memory_viz, which has a
 * reader of its own, also knows. */
#ifndef MEMSHIM_REPORT_RENDER_ENCODINGS_PICKLE_H
#define MEMSHIM_REPORT_RENDER_ENCODINGS_PICKLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "allocator/base/buffer.h"
#include "allocator/base/strings.h"

struct ms_pickle {
    struct ms_buffer *out;
    struct ms_strings texts;
    struct ms_buffer text_memos; /* uint32_t: the reader's memo of each text */
    struct ms_buffer text;       /* under construction */
    uint32_t memos;              /* number of the reader's memos */
};

/* Writes to `out`. Free it at the end. */
void ms_pickle_begin(struct ms_pickle *pickle, struct ms_buffer *out);
void ms_pickle_end(struct ms_pickle *pickle);
void ms_pickle_free(struct ms_pickle *pickle);

/* Members of a dictionary are a key (a text) and a value each. */
void ms_pickle_open_dict(struct ms_pickle *pickle);
void ms_pickle_close_dict(struct ms_pickle *pickle);

/* *batch counts the items since the list was opened; call next before each. */
void ms_pickle_open_list(struct ms_pickle *pickle, size_t *batch);
void ms_pickle_next(struct ms_pickle *pickle, size_t *batch);
void ms_pickle_close_list(struct ms_pickle *pickle);

void ms_pickle_number(struct ms_pickle *pickle, uint64_t value);
void ms_pickle_pair(struct ms_pickle *pickle, uint64_t first, uint64_t second); /* a tuple */
void ms_pickle_flag(struct ms_pickle *pickle, bool value);

/* The first writes a fixed text; the second a stranger's, as one line of printable UTF-8. */
void ms_pickle_word(struct ms_pickle *pickle, const char *text);
void ms_pickle_name(struct ms_pickle *pickle, const char *text);

/* Makes the reader memoize the last object; and inserts that object again. */
uint32_t ms_pickle_keep(struct ms_pickle *pickle);
void ms_pickle_again(struct ms_pickle *pickle, uint32_t memo);

/* A member of a dictionary. */
void ms_pickle_add_number(struct ms_pickle *pickle, const char *key, uint64_t value);
void ms_pickle_add_word(struct ms_pickle *pickle, const char *key, const char *text);

#endif
