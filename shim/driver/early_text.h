/* SPDX-License-Identifier: Apache-2.0 */
/* Text, without a call. The sanitizers' strcmp and its like stand before the C library's, and
 * first ask dlsym for these: until then, a call of one jumps to null. So what dlsym does for names
 * that are none of ours calls none of them. */
#ifndef MEMSHIM_SHIM_DRIVER_EARLY_TEXT_H
#define MEMSHIM_SHIM_DRIVER_EARLY_TEXT_H

#include <stdbool.h>
#include <stddef.h>

static inline bool ms_early_same(const char *a, const char *b)
{
    while (*a != '\0' && *a == *b) {
        a++;
        b++;
    }
    return *a == *b;
}

/* The part after the last slash, in place. */
static inline const char *ms_early_base_name(const char *path)
{
    const char *base = path;
    for (const char *at = path; *at != '\0'; at++) {
        base = *at == '/' && at[1] != '\0' ? at + 1 : base;
    }
    return base;
}

/* As much of `text` as fits, with a zero byte at the end. */
static inline void ms_early_copy(const char *text, char *out, size_t out_bytes)
{
    while (*text != '\0' && out_bytes > 1) {
        *out++ = *text++;
        out_bytes--;
    }
    *out = '\0';
}

#endif
