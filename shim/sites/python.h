/* SPDX-License-Identifier: Apache-2.0 */
/* The calling thread's Python frames, read from its own interpreter structures.
 *
 * No lock of Python's is taken and nothing of Python's is called that could take one: a thread's
 * own frames stand still while it is inside a C call, whether it holds the GIL or not. CPython 3.9
 * to 3.14; what another version looks like is not guessed at. */
#ifndef MEMSHIM_SHIM_SITES_PYTHON_H
#define MEMSHIM_SHIM_SITES_PYTHON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One frame as the interpreter has it. `identity` changes where another function came to lie at
 * the same address. */
struct ms_python_frame {
    uint64_t code; /* address of the code object; 0: not readable */
    uint64_t identity;
    uint32_t instruction; /* byte offset of the instruction under way */
    uint32_t flags;       /* enum ms_python_flag */
};

struct ms_python_stack {
    const struct ms_python_frame *frames; /* innermost first; the thread's own memory, good until
                                             its next capture */
    uint32_t count;
    bool cut;         /* there are more than `depth` */
    bool lost;        /* a frame did not look like one: what is beyond it is missing */
    bool interpreter; /* the thread belongs to an interpreter, also where it runs no frame now */
    uint32_t lent; /* the node of another thread's stack that stands for it: see ms_site_lend. There
                      are no frames then */
};

/* depth: 1 to MS_STACK_DEPTH_MAX. A thread that never saw Python, a process without it, an unknown
 * version, an interpreter that is being finalized: an empty stack. A function that has not begun
 * (its cells are being made) is there, at instruction 0.
 *
 * In versions before 3.12 a thread that runs in a sub-interpreter and has let go of the GIL is seen
 * in its main interpreter: where it called into the other one. */
void ms_python_capture(uint32_t depth, struct ms_python_stack *out);

/* Of its frames, good for a table. Where the native stack is known, nobody asks. */
uint64_t ms_python_hash(const struct ms_python_stack *stack);

/* What a code object of the stack just captured is called. Strings are UTF-8 (lone surrogates and
 * the like as their bytes would be), cut to the room there is, with a zero byte behind; table:
 * co_linetable or co_lnotab, empty where it is larger than `table` is. False: not readable. Not on
 * the hot path. */
struct ms_python_code {
    uint32_t version; /* major << 8 | minor */
    uint32_t first_line;
    size_t file_bytes, function_bytes, table_bytes;
    char file[4096], function[1024];
    uint8_t table[32768];
};
bool ms_python_code(uint64_t code, struct ms_python_code *out);

/* A sentence where an interpreter is in the process that cannot be read, null otherwise. */
const char *ms_python_refusal(void);

#endif
