/* The page's fixed parts, which inline.cmake makes of page.html, page.css, page.js and d3: what
 * stands before the data, and what stands after it. */
#ifndef MEMSHIM_REPORT_PAGE_PAGE_H
#define MEMSHIM_REPORT_PAGE_PAGE_H

#include <stddef.h>

extern const unsigned char ms_page_head[], ms_page_tail[];
extern const size_t ms_page_head_bytes, ms_page_tail_bytes;

#endif
