/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers as a person reads them. */
#include <criterion/criterion.h>
#include <locale.h>

#include "allocator/base/units.h"

static void bytes(uint64_t value, const char *expected)
{
    char text[MS_UNIT_TEXT_BYTES];

    cr_expect_str_eq(ms_bytes_text(value, text, sizeof(text)), expected);
}

Test(units, bytes)
{
    bytes(0, "0 B");
    bytes(512, "512 B");
    bytes(1023, "1023 B");
    bytes(1024, "1.0 KiB");
    bytes(413138944, "394.0 MiB");
    bytes(UINT64_C(12584254177), "11.72 GiB");
    bytes(1024 * 1024 - 1, "1.0 MiB");
    bytes(UINT64_C(1) << 40, "1.00 TiB");
    bytes(UINT64_C(1) << 50, "1.00 PiB");
    bytes(UINT64_C(1) << 63, "8.00 EiB");
    bytes(UINT64_MAX, "16.00 EiB");
}

static void beside(uint64_t value, uint64_t other, const char *expected)
{
    char text[MS_UNIT_TEXT_BYTES];

    cr_expect_str_eq(ms_bytes_text_beside(value, other, text, sizeof(text)), expected);
}

Test(units, two_that_are_compared)
{
    beside(UINT64_C(1) << 30, UINT64_C(1013) << 20, "1024.0 MiB");
    beside(UINT64_C(1013) << 20, UINT64_C(1) << 30, "1013.0 MiB");
    beside(UINT64_C(1) << 30, UINT64_C(2) << 30, "1.00 GiB");
    beside(2048, 0, "2048 B");
    beside((UINT64_C(1) << 30) + 420000, UINT64_C(1) << 30, "1024.4 MiB");
    beside(UINT64_C(1) << 30, (UINT64_C(1) << 30) + 420000, "1024.0 MiB");
    beside(UINT64_C(1) << 30, UINT64_C(1) << 30, "1.00 GiB");
    beside(1025, 1026, "1.0 KiB");
    beside(UINT64_C(80) << 30, UINT64_C(64) << 20, "81920.0 MiB");
    beside(UINT64_C(32) << 40, UINT64_C(64) << 20, "32.00 TiB");
    beside(UINT64_C(64) << 20, UINT64_C(32) << 40, "64.0 MiB");
    beside(UINT64_C(32) << 40, 0, "32.00 TiB");
}

Test(units, durations)
{
    char text[MS_UNIT_TEXT_BYTES];

    cr_expect_str_eq(ms_duration_text(41999, text, sizeof(text)), "41 us");
    cr_expect_str_eq(ms_duration_text(78000000, text, sizeof(text)), "78 ms");
    cr_expect_str_eq(ms_duration_text(UINT64_C(12340000000), text, sizeof(text)), "12.3 s");
    cr_expect_str_eq(ms_duration_text(UINT64_C(125000000000), text, sizeof(text)), "2 m 05 s");
    cr_expect_str_eq(ms_duration_text(UINT64_C(27660000000000), text, sizeof(text)), "7 h 41 m");
}

Test(units, other_numbers)
{
    char text[MS_UNIT_TEXT_BYTES];

    cr_expect_str_eq(ms_percent_text(792, 1000, text, sizeof(text)), "79.2 %");
    cr_expect_str_eq(ms_percent_text(1, 0, text, sizeof(text)), "-");
    cr_expect_str_eq(ms_count_text(18402, text, sizeof(text)), "18,402");
    cr_expect_str_eq(ms_count_text(999, text, sizeof(text)), "999");
    cr_expect_str_eq(ms_decimal_text(950000, text, sizeof(text)), "0.95");
    cr_expect_str_eq(ms_decimal_text(0, text, sizeof(text)), "0.0");
    cr_expect_str_eq(ms_decimal_text(-1500000, text, sizeof(text)), "-1.5");
    cr_expect_str_eq(ms_date_text(UINT64_C(1763608325000000000), text, sizeof(text)),
                     "2025-11-20T03:12:05Z");
}
