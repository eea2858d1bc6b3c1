/* SPDX-License-Identifier: Apache-2.0 */
/* Host memory, for comparison: the fastest allocator that Debian has. */
#include <mimalloc.h>

#include "subject.h"

const char subject_name[] = "mimalloc";

void subject_begin(void)
{
}

void subject_begin_thread(void)
{
}

void *subject_alloc(size_t bytes)
{
    return mi_malloc(bytes);
}

void subject_free(void *block)
{
    mi_free(block);
}
