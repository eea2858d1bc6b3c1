/* SPDX-License-Identifier: Apache-2.0 */
/* Finds MEMSHIM_BATCH among the options that a trace holds. */
#include "report/read/batch.h"

#include <string.h>

#define NAME "MEMSHIM_BATCH="

/* The digits up to the line's end; 0: there is anything else, or more than 32 bits. */
static uint32_t number(const char *text)
{
    uint64_t value = 0;

    for (; *text && *text != '\n'; text++) {
        if (*text < '0' || *text > '9') {
            return 0;
        }
        value = value * 10 + (uint64_t)(*text - '0');
        if (value > UINT32_MAX) {
            return 0;
        }
    }
    return (uint32_t)value;
}

uint32_t ms_batch_samples(const char *options)
{
    const char *line = options;

    while (*line) {
        if (strncmp(line, NAME, sizeof(NAME) - 1) == 0) {
            return number(line + sizeof(NAME) - 1);
        }
        line += strcspn(line, "\n");
        line += *line == '\n';
    }
    return 0;
}
