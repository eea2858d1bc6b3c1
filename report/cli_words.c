#include "report/cli_words.h"

#include <stddef.h>
#include <string.h>

const char *ms_cli_value(const char *name, const char *word, const char *next)
{
    const size_t length = strlen(name);

    if (strncmp(word, name, length) != 0) {
        return NULL;
    }
    if (word[length] == '=') {
        return word + length + 1;
    }
    if (word[length] != '\0') {
        return NULL;
    }
    return next ? next : "";
}
