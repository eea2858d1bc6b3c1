/* SPDX-License-Identifier: Apache-2.0 */
/* Prints a line to stderr, without characters that control a terminal. */
#include "shim/cli/arguments/complain.h"

#include <stdarg.h>
#include <stdio.h>

#include "allocator/base/plain.h"

#define LINE_BYTES 16384

void ms_complain(const char *format, ...)
{
    char line[LINE_BYTES], plain[LINE_BYTES];
    va_list values;

    va_start(values, format);
    (void)vsnprintf(line, sizeof(line), format, values);
    va_end(values);
    (void)ms_plain_text(line, plain, sizeof(plain));
    (void)fprintf(stderr, "%s\n", plain);
}
