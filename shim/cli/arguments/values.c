/* SPDX-License-Identifier: Apache-2.0 */
/* Values of options: numbers, names and files, read in one way for every command. */
#include "shim/cli/arguments/values.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

bool ms_cli_take_count(const char *text, uint64_t most, uint64_t *out)
{
    char *end;

    if (text[0] < '0' || text[0] > '9') {
        return false; /* strtoull accepts a sign and blanks */
    }
    errno = 0;

    const uint64_t number = strtoull(text, &end, 10);

    if (*end != '\0' || errno != 0 || number > most) {
        return false;
    }
    *out = number;
    return true;
}

bool ms_cli_take_number(const char *text, double least, double most, double *out)
{
    char *end;

    if (text[0] == '\0' || text[strspn(text, "0123456789.")] != '\0') {
        return false; /* strtod accepts exponents, signs, and words */
    }

    const double number = strtod(text, &end);

    if (*end != '\0' || number < least || number > most) {
        return false;
    }
    *out = number;
    return true;
}

bool ms_cli_take_name(const char *text, const char *const *names, size_t count, int *out)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(names[i], text) == 0) {
            *out = (int)i;
            return true;
        }
    }
    return false;
}

bool ms_cli_take_file(const char *text, const char **out)
{
    *out = text[0] != '\0' ? text : *out;
    return text[0] != '\0';
}

bool ms_cli_take_folder(const char *text, const char **out)
{
    const bool folder = ms_cli_is_folder(text);

    *out = folder ? text : *out;
    return folder;
}

bool ms_cli_is_folder(const char *path)
{
    struct stat status;

    return stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}
