/* SPDX-License-Identifier: Apache-2.0 */
/* What the process that reads a module's file says to the one that asked: a run of these, each
 * followed by its two texts. The reader of them trusts none: a damaged file may have made the other
 * say anything. */
#ifndef MEMSHIM_REPORT_SYMBOLS_ANSWERS_H
#define MEMSHIM_REPORT_SYMBOLS_ANSWERS_H

#include <stdint.h>

#include "report/symbols/demangle.h"

#define MS_ANSWER_TEXTS     2u
#define MS_ANSWER_TEXT_MOST MS_FUNCTION_NAME_BYTES /* of one text, its zero byte included */

enum ms_answer_kind {
    MS_ANSWER_SYMBOL,   /* texts: the name as the symbol table has it, and as people write it */
    MS_ANSWER_INLINED,  /* texts: function, file; further in than the answer that follows it */
    MS_ANSWER_FUNCTION, /* likewise: the outermost function, after all that it has inside */
    MS_ANSWER_END       /* nothing more will come */
};

struct ms_answer {
    uint32_t kind;                        /* enum ms_answer_kind */
    uint32_t index;                       /* of the address among those asked for */
    uint32_t line;                        /* 0: not known */
    uint32_t text_bytes[MS_ANSWER_TEXTS]; /* without a zero byte; 0: not known */
};

#endif
