/* SPDX-License-Identifier: Apache-2.0 */
/* Sites as people read them: one stack, outermost frame first or last as it is asked for, Python
 * frames in place of the interpreter's, names demangled, files and lines where they can be known.
 */
#ifndef MEMSHIM_REPORT_SYMBOLS_STACKS_H
#define MEMSHIM_REPORT_SYMBOLS_STACKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "report/trace/python_line.h"
#include "report/trace/sites.h"

enum ms_frame_language { MS_FRAME_NATIVE, MS_FRAME_PYTHON };

/* Strings belong to the stacks' object and live as long; bytes are as the program had them, so that
 * who prints them must escape. */
struct ms_frame {
    uint8_t language;     /* enum ms_frame_language */
    bool inlined;         /* a native frame that the compiler put into the next outer one */
    const char *function; /* "Attention.forward", "at::native::bmm(...)"; never null: a module and
                             an offset ("libfoo.so+0x12f0") where no name is known */
    const char *file;     /* null: not known */
    uint32_t line;        /* 0: not known */
    const char *module;   /* of a native frame: its path; null: none */
};

typedef struct ms_stacks ms_stacks_t;

enum ms_stacks_effort {
    MS_STACKS_NAMES, /* symbol tables only, where a picture is wanted at once; modules whose turn
                        comes after half a second of reading tables stay without names */
    MS_STACKS_LINES  /* files, lines and inlined functions from DWARF as well */
};

/* modules_dir: where to look for a module that is not at its own path, or is another build there
 * (by build id, then by file name); may be null. definitions outlives it. Null: no host memory. */
ms_stacks_t *ms_stacks_new(const ms_definitions_t *definitions, enum ms_stacks_effort effort,
                           const char *modules_dir);
void ms_stacks_delete(ms_stacks_t *stacks);

/* The frames of a site, innermost first. Frames of PyTorch's allocator and of memshim at the inner
 * end are left out, and frames of the interpreter in between. Owned by `stacks`; the same for the
 * same site. An unknown site has none. */
const struct ms_frame *ms_stacks_frames(ms_stacks_t *stacks, uint32_t site, size_t *count);

/* The frame by which a person knows the site: the innermost Python frame that is not a library's
 * (site-packages, the standard library, an importer); of a model that was installed as well, whose
 * call lies inside of that one, the innermost frame that is neither PyTorch's nor the standard
 * library's. Else the innermost Python frame, else the
 * innermost native one in the program's own code, else the operation whose gradient autograd
 * computes ("torch::autograd::generated::MmBackward0::apply"), else the innermost. Null: none. */
const struct ms_frame *ms_stacks_own_frame(ms_stacks_t *stacks, uint32_t site);

#endif
