/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers as people read them, computed from integers: the C library's formatting of fractions
 * follows the application's locale, and a comma would break a report. */
#ifndef MEMSHIM_ALLOCATOR_BASE_UNITS_H
#define MEMSHIM_ALLOCATOR_BASE_UNITS_H

#include <stddef.h>
#include <stdint.h>

#define MS_UNIT_TEXT_BYTES 32 /* enough for every function here; each returns its `text` */

/* "394.0 MiB", "11.72 GiB", "512 B". */
char *ms_bytes_text(uint64_t bytes, char *text, size_t text_bytes);

/* In the unit that the smaller of both would have, or the next smaller unit if both would read
 * alike: for comparing the two in one sentence. Its own unit if it is that much larger that nobody
 * could read it otherwise. */
char *ms_bytes_text_beside(uint64_t bytes, uint64_t other_bytes, char *text, size_t text_bytes);

/* "7 h 41 m", "12.3 s", "78 ms", "41 us". */
char *ms_duration_text(uint64_t ns, char *text, size_t text_bytes);

/* "79.2 %"; "-" where whole is 0. */
char *ms_percent_text(uint64_t part, uint64_t whole, char *text, size_t text_bytes);

/* "18,402". */
char *ms_count_text(uint64_t count, char *text, size_t text_bytes);

/* A value in millionths as a decimal: "0.950000", without trailing zeros: "0.95". */
char *ms_decimal_text(int64_t millionths, char *text, size_t text_bytes);

/* "2026-11-20T03:12:05Z" (UTC). */
char *ms_date_text(uint64_t unix_ns, char *text, size_t text_bytes);

/* These make a text that lives as long as the enclosing block. */
#define MS_BYTES(value) ms_bytes_text((value), (char[MS_UNIT_TEXT_BYTES]){0}, MS_UNIT_TEXT_BYTES)
#define MS_COUNT(value) ms_count_text((value), (char[MS_UNIT_TEXT_BYTES]){0}, MS_UNIT_TEXT_BYTES)
#define MS_DURATION(value) \
    ms_duration_text((value), (char[MS_UNIT_TEXT_BYTES]){0}, MS_UNIT_TEXT_BYTES)
#define MS_PERCENT(part, whole) \
    ms_percent_text((part), (whole), (char[MS_UNIT_TEXT_BYTES]){0}, MS_UNIT_TEXT_BYTES)

#endif
