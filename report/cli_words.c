#include "report/cli_words.h"

#include <stddef.h>
#include <string.h>
#include <sys/stat.h>

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

bool ms_cli_is_folder(const char *path)
{
    struct stat status;

    return stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}
