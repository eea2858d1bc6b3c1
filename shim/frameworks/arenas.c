/* SPDX-License-Identifier: Apache-2.0 */
/* Notes which of these libraries are loaded. Their allocators cannot be changed from outside a
 * program, and none reports its pieces. */
#include "shim/frameworks/arenas.h"

#include <stddef.h>

#include "shim/driver/elf.h"
#include "shim/process/session.h"

static const struct {
    const char *library;
    const char *note;
} arenas[] = {
    {"libonnxruntime_providers_cuda.so",
     "memshim sees the blocks that ONNX Runtime's arena takes, not the tensors in them, unless its "
     "CUDA provider has the options of memshim.onnxruntime.options(); with "
     "arena_extend_strategy=kSameAsRequested a block is as large as the request that it serves"},
    {"librmm.so", "memshim sees the blocks that a pool or an arena of RMM takes, not what is in "
                  "them, unless memshim.rmm.seen() is put around it; it sees every allocation of "
                  "RMM's cuda and cuda_async resources"},
};

void ms_arenas_end(void)
{
    struct ms_loaded_elf elf;
    for (size_t i = 0; i < sizeof(arenas) / sizeof(arenas[0]); i++) {
        if (ms_elf_loaded(arenas[i].library, &elf)) {
            ms_session_note(arenas[i].note);
        }
    }
}
