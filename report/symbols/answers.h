/* SPDX-License-Identifier: Apache-2.0 */
/* The protocol between the process that reads a module's file and the one that asked: a sequence of
 * these, each followed by its two texts. The receiver trusts no byte: a damaged file may have made
 * the sender write anything. */
#ifndef MEMSHIM_REPORT_SYMBOLS_ANSWERS_H
#define MEMSHIM_REPORT_SYMBOLS_ANSWERS_H

#include <stdint.h>

#include "report/symbols/demangle.h"

#define MS_ANSWER_TEXTS     2u
#define MS_ANSWER_TEXT_MOST MS_FUNCTION_NAME_BYTES /* the longest text, with its zero byte */

enum ms_answer_kind {
    MS_ANSWER_SYMBOL,   /* texts: the name in the symbol table, and the demangled one */
    MS_ANSWER_INLINED,  /* texts: function, file; one level further in than the next answer */
    MS_ANSWER_FUNCTION, /* likewise: the outermost function, after all those inlined into it */
    MS_ANSWER_END       /* no more will come */
};

struct ms_answer {
    uint32_t kind;                        /* enum ms_answer_kind */
    uint32_t index;                       /* of the address among those asked for */
    uint32_t line;                        /* 0: unknown */
    uint32_t text_bytes[MS_ANSWER_TEXTS]; /* without a zero byte; 0: unknown */
};

#endif
