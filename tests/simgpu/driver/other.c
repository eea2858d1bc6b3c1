/* SPDX-License-Identifier: Apache-2.0 */
/* Another process that uses the first device, as set by SIMGPU_OTHER. See other.h. */
#include "other.h"

#include "account.h"
#include "settings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_MOMENTS 32

static struct moment {
    struct sim_function_name function;
    uint64_t call_number;
    uint64_t bytes; /* what the other process holds from then on */
} moments[MAX_MOMENTS];
static int moment_count;

/* Parses FUNCTION@N=BYTES; false for anything else. */
static bool parse_moment(const char *text, size_t length)
{
    char size[32];
    const char *at = memchr(text, '@', length);
    const char *equals = memchr(text, '=', length);
    struct moment *moment = &moments[moment_count];
    if (!at || !equals || equals < at || moment_count == MAX_MOMENTS) {
        return false;
    }
    size_t size_length = length - (size_t)(equals + 1 - text);
    if (size_length == 0 || size_length >= sizeof size) {
        return false;
    }
    memcpy(size, equals + 1, size_length);
    size[size_length] = '\0';
    char *end;
    moment->call_number = strtoull(at + 1, &end, 10);
    if (end != equals || moment->call_number == 0 || at[1] < '0' || at[1] > '9' ||
        !sim_find_function(text, (size_t)(at - text), &moment->function) ||
        !sim_parse_bytes(size, &moment->bytes)) {
        return false;
    }
    moment_count++;
    return true;
}

void sim_other_read(const char *text)
{
    while (*text) {
        size_t length = strcspn(text, ",");
        if (length && !parse_moment(text, length)) {
            fprintf(stderr,
                    "simgpu: SIMGPU_OTHER=%.*s is not understood; allowed: FUNCTION@N=SIZE, with a "
                    "driver function or \"any\", the number of the call and a size such as "
                    "512MiB, at most %d of them. It is ignored.\n",
                    (int)length, text, MAX_MOMENTS);
        }
        text += length + (text[length] == ',');
    }
}

void sim_other_check(enum sim_function function, struct sim_call_number number)
{
    for (int i = 0; i < moment_count; i++) {
        const struct moment *moment = &moments[i];
        if (sim_is_named(function, moment->function) &&
            sim_number_for(moment->function, number) == moment->call_number) {
            sim_lock();
            sim_account_other(0, moment->bytes);
            sim_unlock();
        }
    }
}
