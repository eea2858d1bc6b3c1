/* SPDX-License-Identifier: Apache-2.0 */
/* The calling thread's Python frames, read from its interpreter structures.
 *
 * This takes no lock of Python's, and calls nothing of Python's that could take one. A thread's own
 * frames do not change while it is inside a C call, whether it holds the GIL or not. Supports
 * CPython 3.9 to 3.14; other versions are not guessed. */
#ifndef MEMSHIM_SHIM_SITES_PYTHON_PYTHON_H
#define MEMSHIM_SHIM_SITES_PYTHON_PYTHON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One frame as the interpreter has it. `identity` differs for another function at the same
 * address. */
struct ms_python_frame {
    uint64_t code; /* address of the code object; 0: not readable */
    uint64_t identity;
    uint32_t instruction; /* byte offset of the current instruction */
    uint32_t flags;       /* enum ms_python_flag */
};

struct ms_python_stack {
    const struct ms_python_frame *frames; /* innermost first; in the thread's own memory, valid
                                             until its next capture */
    uint32_t count;
    bool cut;         /* there are more frames than `depth` */
    bool lost;        /* something did not look like a frame: the frames beyond it are missing */
    bool interpreter; /* the thread belongs to an interpreter, even if it runs no frame now */
    uint32_t node;    /* used instead of the frames, which are null then: of a stack that the thread
                         remembers, or of another thread's (ms_site_lend), with count 0. Otherwise 0 */
    uint64_t hash;    /* with a node: the result of ms_python_hash */
};

/* depth: 1 to MS_STACK_DEPTH_MAX. The stack is empty for a thread without Python, in a process
 * without it, with an unknown version, and while the interpreter is finalized. A function that has
 * not begun (its cells are being made) is included, at instruction 0.
 *
 * Before 3.12, a thread that runs in a sub-interpreter and has released the GIL appears in its main
 * interpreter, at the call into the other one. */
void ms_python_capture(uint32_t depth, struct ms_python_stack *out);

/* The same, but for a stack that the thread remembers, only node, count and hash are set. */
void ms_python_recall(uint32_t depth, struct ms_python_stack *out);

/* Remembers the thread's last stack, which ms_python_recall has just read, with its node. Does
 * nothing if the stack was recalled, cut or lost, or if the thread cannot remember stacks. */
void ms_python_remember(const struct ms_python_stack *stack, uint32_t node);

/* Of its frames, for use in a table. Not needed if the native stack is known. */
uint64_t ms_python_hash(const struct ms_python_stack *stack);

/* The names of a code object of the stack just captured. Strings are UTF-8 (lone surrogates in the
 * same encoding), cut to the available room, with a zero byte behind. table: co_linetable or
 * co_lnotab; empty if it is larger than `table`. False: not readable. Not on the hot path. */
struct ms_python_code {
    uint32_t version; /* major << 8 | minor */
    uint32_t first_line;
    size_t file_bytes, function_bytes, table_bytes;
    char file[4096], function[1024];
    uint8_t table[32768];
};
bool ms_python_code(uint64_t code, struct ms_python_code *out);

/* A sentence if the process has an interpreter that cannot be read; otherwise null. */
const char *ms_python_refusal(void);

#endif
