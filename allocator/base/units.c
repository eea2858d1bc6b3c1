/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes, times and counts as text that no locale changes. */
#include "allocator/base/units.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "allocator/base/clock.h"

#define NS_PER_MS UINT64_C(1000000)

#define MOST_BESIDE UINT64_C(100000) /* so much of a smaller unit can still be read */

static const struct unit {
    const char *name;
    unsigned shift;
    unsigned scale; /* 10 to the power of the number of decimals */
} units[] = {{"KiB", 10, 10},  {"MiB", 20, 10},  {"GiB", 30, 100},
             {"TiB", 40, 100}, {"PiB", 50, 100}, {"EiB", 60, 100}};

static uint64_t scaled_to(uint64_t bytes, const struct unit *unit)
{
    const unsigned __int128 half = (unsigned __int128)1 << (unit->shift - 1);

    return (uint64_t)(((unsigned __int128)bytes * unit->scale + half) >> unit->shift);
}

/* A value that would round to 1024 gets the next unit. Null: plain bytes. */
static const struct unit *unit_of(uint64_t bytes)
{
    const struct unit *unit = units, *last = units + sizeof(units) / sizeof(units[0]) - 1;

    while (unit < last && scaled_to(bytes, unit) >= 1024ull * unit->scale) {
        unit++;
    }
    return bytes < 1024 ? NULL : unit;
}

static char *text_in(uint64_t bytes, const struct unit *unit, char *text, size_t text_bytes)
{
    if (unit) {
        const uint64_t scaled = scaled_to(bytes, unit);

        snprintf(text, text_bytes, "%" PRIu64 ".%0*" PRIu64 " %s", scaled / unit->scale,
                 unit->scale == 10 ? 1 : 2, scaled % unit->scale, unit->name);
    } else {
        snprintf(text, text_bytes, "%" PRIu64 " B", bytes);
    }
    return text;
}

char *ms_bytes_text(uint64_t bytes, char *text, size_t text_bytes)
{
    return text_in(bytes, unit_of(bytes), text, text_bytes);
}

char *ms_bytes_text_beside(uint64_t bytes, uint64_t other_bytes, char *text, size_t text_bytes)
{
    const struct unit *unit = unit_of(bytes < other_bytes ? bytes : other_bytes);

    if (unit && unit > units && bytes != other_bytes &&
        scaled_to(bytes, unit) == scaled_to(other_bytes, unit)) {
        unit--;
    } else if ((unit ? scaled_to(bytes, unit) / unit->scale : bytes) >= MOST_BESIDE) {
        unit = unit_of(bytes);
    }
    return text_in(bytes, unit, text, text_bytes);
}

char *ms_duration_text(uint64_t ns, char *text, size_t text_bytes)
{
    const uint64_t s = ns / MS_NS_PER_S;

    if (ns < NS_PER_MS) {
        snprintf(text, text_bytes, "%" PRIu64 " us", ns / MS_NS_PER_US);
    } else if (ns < MS_NS_PER_S) {
        snprintf(text, text_bytes, "%" PRIu64 " ms", ns / NS_PER_MS);
    } else if (s < 60) {
        snprintf(text, text_bytes, "%" PRIu64 ".%" PRIu64 " s", s,
                 ns % MS_NS_PER_S / (MS_NS_PER_S / 10));
    } else if (s < 3600) {
        snprintf(text, text_bytes, "%" PRIu64 " m %02" PRIu64 " s", s / 60, s % 60);
    } else {
        snprintf(text, text_bytes, "%" PRIu64 " h %02" PRIu64 " m", s / 3600, s % 3600 / 60);
    }
    return text;
}

char *ms_percent_text(uint64_t part, uint64_t whole, char *text, size_t text_bytes)
{
    if (whole == 0) {
        snprintf(text, text_bytes, "-");
        return text;
    }

    const uint64_t tenths = (uint64_t)(((unsigned __int128)part * 1000 + whole / 2) / whole);

    snprintf(text, text_bytes, "%" PRIu64 ".%" PRIu64 " %%", tenths / 10, tenths % 10);
    return text;
}

char *ms_count_text(uint64_t count, char *text, size_t text_bytes)
{
    char digits[24];
    const int length = snprintf(digits, sizeof(digits), "%" PRIu64, count);
    size_t used = 0;

    for (int i = 0; i < length && used + 2 < text_bytes; i++) {
        if (i > 0 && (length - i) % 3 == 0) {
            text[used++] = ',';
        }
        text[used++] = digits[i];
    }
    text[used] = '\0';
    return text;
}

char *ms_decimal_text(int64_t millionths, char *text, size_t text_bytes)
{
    const uint64_t size = millionths < 0 ? 0 - (uint64_t)millionths : (uint64_t)millionths;

    snprintf(text, text_bytes, "%s%" PRIu64 ".%06" PRIu64, millionths < 0 ? "-" : "",
             size / 1000000, size % 1000000);
    for (size_t end = strlen(text); end > 2 && text[end - 1] == '0' && text[end - 2] != '.';
         end--) {
        text[end - 1] = '\0';
    }
    return text;
}

char *ms_date_text(uint64_t unix_ns, char *text, size_t text_bytes)
{
    const time_t seconds = (time_t)(unix_ns / MS_NS_PER_S);
    struct tm parts;

    if (!gmtime_r(&seconds, &parts) ||
        strftime(text, text_bytes, "%Y-%m-%dT%H:%M:%SZ", &parts) == 0) {
        snprintf(text, text_bytes, "unknown");
    }
    return text;
}
