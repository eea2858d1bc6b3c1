/* SPDX-License-Identifier: Apache-2.0 */
/* Merges the native and the Python stack of one moment. */
#ifndef MEMSHIM_REPORT_SYMBOLS_STACKS_MERGE_H
#define MEMSHIM_REPORT_SYMBOLS_STACKS_MERGE_H

#include <stddef.h>
#include <stdint.h>

/* A frame of the merged stack. */
struct ms_merged_frame {
    uint32_t language; /* enum ms_frame_language */
    uint32_t index;    /* in its own stack */
};

/* Roles (enum ms_native_role) and flags (enum ms_python_flag) of the two stacks, innermost first,
 * and the site's flags. out: room for native_count + python_count. Returns how many it wrote. */
size_t ms_stacks_merge(const uint8_t *roles, size_t native_count, const uint32_t *python_flags,
                       size_t python_count, uint32_t site_flags, struct ms_merged_frame *out);

#endif
