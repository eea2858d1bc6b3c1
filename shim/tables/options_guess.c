/* SPDX-License-Identifier: Apache-2.0 */
/* The switch above all options, and what a value that an option does not take may have meant. */
#include <stdio.h>
#include <string.h>

#include "shim/tables/options.h"

#define GUESSED_GIB 1024 /* a number without a unit is of GiB up to here, of MiB above */

/* Null where the variable is another one. */
static const char *switch_value(const char *variable)
{
    static const char name[] = MS_OPTIONS_SWITCH "=";

    return strncmp(variable, name, strlen(name)) == 0 ? variable + strlen(name) : NULL;
}

bool ms_options_switched_off(char *const *environment)
{
    for (char *const *variable = environment; variable != NULL && *variable != NULL; variable++) {
        const char *value = switch_value(*variable);
        if (value != NULL) {
            return strcmp(value, "off") == 0;
        }
    }
    return false;
}

void ms_options_check_switch(const char *variable, ms_options_warn_t warn, void *ctx)
{
    const char *value = switch_value(variable);
    char sentence[256];
    if (value == NULL || value[0] == '\0' || strcmp(value, "on") == 0 ||
        strcmp(value, "off") == 0) {
        return;
    }
    (void)snprintf(sentence, sizeof(sentence),
                   MS_OPTIONS_SWITCH "=%.128s is not usable: it takes on or off; memshim stays on",
                   value);
    warn(ctx, sentence);
}

void ms_options_meant(const char *value, const char *allowed, char meant[MS_OPTION_MEANT_BYTES])
{
    char digits[MS_OPTION_MEANT_BYTES] = "";
    const size_t length = strspn(value, "0123456789");
    const bool percent = value[length] == '%';
    uint64_t number = 0;
    meant[0] = '\0';
    (void)snprintf(digits, sizeof digits, "%.*s", (int)length, value);
    if (value[length + percent] != '\0' || !ms_parse_bytes(digits, &number) ||
        number < (percent ? 1 : 2)) {
        return;
    }
    if (!percent && strncmp(allowed, "a size", strlen("a size")) == 0 &&
        number < UINT64_C(1) << 20) {
        (void)snprintf(meant, MS_OPTION_MEANT_BYTES, "%.32s%s", value,
                       number <= GUESSED_GIB ? "GiB" : "MiB");
    } else if (strncmp(allowed, "a fraction", strlen("a fraction")) == 0 && number <= 100) {
        (void)snprintf(meant, MS_OPTION_MEANT_BYTES, "%g", (double)number / 100);
    }
}
