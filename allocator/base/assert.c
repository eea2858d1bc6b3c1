/* SPDX-License-Identifier: Apache-2.0 */
/* What a failed assertion does: see assert.h. Nothing, in a build without them. */
#include "allocator/base/assert.h"

#ifdef MEMSHIM_CHECKS

#    include <stdio.h>
#    include <stdlib.h>
#    include <unistd.h>

_Noreturn void ms_assert_failed(const char *what, const char *file, int line)
{
    (void)dprintf(STDERR_FILENO, "memshim: %s:%d: does not hold: %s\n", file, line, what);
    abort();
}

#endif
