/* SPDX-License-Identifier: Apache-2.0 */
/* The page's fixed parts, before and after the data. page/inline.cmake makes them from its HTML,
 * style, scripts and d3. */
#ifndef MEMSHIM_REPORT_RENDER_PAGE_PARTS_H
#define MEMSHIM_REPORT_RENDER_PAGE_PARTS_H

#include <stddef.h>

extern const unsigned char ms_page_head[], ms_page_tail[];
extern const size_t ms_page_head_bytes, ms_page_tail_bytes;

#endif
