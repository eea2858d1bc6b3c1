/* SPDX-License-Identifier: Apache-2.0 */
/* Notes which of these libraries are loaded. Their allocators cannot be changed from outside a
 * program, and none reports its pieces. */
#include "shim/frameworks/arenas.h"

#include <stddef.h>

#include "report/fold/frame_hints.h"
#include "shim/driver/elf.h"
#include "shim/process/session.h"
#include "shim/sites/intern.h"

static const struct {
    const char *library;
    const char *note;
    uint32_t instead; /* enum ms_landmark: something else was in the arena's place */
    const char *note_instead;
} arenas[] = {
    {.library = "libonnxruntime_providers_cuda.so",
     .note = "ONNX Runtime's arena is in use: memshim sees the blocks that it takes, not the "
             "tensors in them. Options of the CUDA provider change that: with those of "
             "memshim.onnxruntime.options() there is no arena; with "
             "arena_extend_strategy=kSameAsRequested a block is as large as the request that it "
             "serves",
     .instead = MS_PASSED_PROVIDER,
     .note_instead = "ONNX Runtime's arena is not in use, in sessions whose CUDA provider has the "
                     "options of memshim.onnxruntime.options(): memshim sees each of their "
                     "tensors"},
    {.library = "librmm.so",
     .note = "memshim sees the blocks that a pool or an arena of RMM takes, not what is in them, "
             "unless memshim.rmm.seen() is put around it; it sees every allocation of RMM's cuda "
             "and cuda_async resources"},
};

void ms_arenas_end(void)
{
    const uint32_t passed = ms_intern_passed();
    struct ms_loaded_elf elf;

    for (size_t i = 0; i < sizeof(arenas) / sizeof(arenas[0]); i++) {
        if (ms_elf_loaded(arenas[i].library, &elf)) {
            ms_session_note((passed & arenas[i].instead) != 0 ? arenas[i].note_instead
                                                              : arenas[i].note);
        }
    }
}
