/* SPDX-License-Identifier: Apache-2.0 */
/* Readable stacks of sites: frames outermost or innermost first, Python frames in place of the
 * interpreter's, names demangled, files and lines if known. */
#ifndef MEMSHIM_REPORT_SYMBOLS_STACKS_H
#define MEMSHIM_REPORT_SYMBOLS_STACKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "report/trace/python_line.h"
#include "report/trace/sites.h"

enum ms_frame_language { MS_FRAME_NATIVE, MS_FRAME_PYTHON };

/* Strings belong to the stacks' object and live as long. Their bytes are the program's own: escape
 * them before printing. */
struct ms_frame {
    uint8_t language;     /* enum ms_frame_language */
    bool inlined;         /* a native frame that the compiler inlined into the next outer one */
    const char *function; /* "Attention.forward", "at::native::bmm(...)"; never null: without a name
                             it is a module and an offset ("libfoo.so+0x12f0") */
    const char *file;     /* null: unknown */
    uint32_t line;        /* 0: unknown */
    const char *module;   /* of a native frame: its path; null: none */
};

typedef struct ms_stacks ms_stacks_t;

enum ms_stacks_effort {
    MS_STACKS_NAMES, /* symbol tables only, if the result is needed at once; after half a second of
                        reading, further modules stay without names */
    MS_STACKS_LINES  /* files, lines and inlined functions from DWARF, too */
};

/* modules_dir: where to search for a module that is not at its own path, or is another build there
 * (by build id, then by file name); may be null. definitions must outlive it. Null: no host
 * memory. */
ms_stacks_t *ms_stacks_new(const ms_definitions_t *definitions, enum ms_stacks_effort effort,
                           const char *modules_dir);
void ms_stacks_delete(ms_stacks_t *stacks);

/* The frames of a site, innermost first, without PyTorch's allocator and memshim at the inner end,
 * and without the interpreter's frames in between. Owned by `stacks`, and the same for the same
 * site. An unknown site has none. */
const struct ms_frame *ms_stacks_frames(ms_stacks_t *stacks, uint32_t site, size_t *count);

/* The frame that best identifies the site to a person. First choice: the innermost Python frame
 * that is not a library's (site-packages, the standard library, an importer). If an installed
 * model's call lies inside that one: the innermost frame that is neither PyTorch's nor the standard
 * library's. Then: the innermost Python frame; the innermost native one in the program's own code;
 * the operation whose gradient autograd computes
 * ("torch::autograd::generated::MmBackward0::apply"); the innermost frame. Null: none. */
const struct ms_frame *ms_stacks_own_frame(ms_stacks_t *stacks, uint32_t site);

#endif
