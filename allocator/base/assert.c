/* SPDX-License-Identifier: Apache-2.0 */
/* Reports a failed check and ends the process: see assert.h. Empty in a build without checks. */
#include "allocator/base/assert.h"

#ifdef MEMSHIM_CHECKS

#    include <stdarg.h>
#    include <stdio.h>
#    include <stdlib.h>
#    include <unistd.h>

#    include "allocator/base/way_out.h"

#    define LINE_BYTES 512 /* small, for threads with small stacks */

void ms_check_say(const char *format, ...)
{
    char line[LINE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    int bytes = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    if (bytes > 0) {
        size_t count = (size_t)bytes < sizeof line ? (size_t)bytes : sizeof line - 1;
        if (write(STDERR_FILENO, line, count) < 0) {
            return;
        }
    }
}

_Noreturn void ms_check_end(void)
{
    ms_check_say("memshim: a check of its own ends the program; " MS_WAY_OUT "\n");
    abort();
}

_Noreturn void ms_assert_failed(const char *what, const char *file, int line)
{
    ms_check_say("memshim: %s:%d: does not hold: %s\n", file, line, what);
    ms_check_end();
}

#endif
