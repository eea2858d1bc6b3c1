/* SPDX-License-Identifier: Apache-2.0 */
/* An allocator whose hot path is measured (hotpath.c): one file for each of those compared. */
#ifndef MEMSHIM_TESTS_BENCH_SUBJECT_H
#define MEMSHIM_TESTS_BENCH_SUBJECT_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

extern const char subject_name[];

/* Once, and then in each thread that uses it. */
void subject_begin(void);
void subject_begin_thread(void);

void *subject_alloc(size_t bytes);
void subject_free(void *block);

#ifdef __cplusplus
}
#endif

#endif
