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
     "ONNX Runtime's arena is seen as the blocks that it takes, not as the tensors in them; with "
     "its CUDA provider's arena_extend_strategy=kSameAsRequested a block is as large as what it "
     "was taken for"},
    {"librmm.so", "a pool or an arena of RMM's is seen as the blocks that it takes, unless "
                  "memshim.rmm.seen() is "
                  "put around it; its cuda and cuda_async resources are seen whole"},
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
