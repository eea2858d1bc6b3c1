#include "shim/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "shim/life.h"
#include "shim/options.h"
#include "shim/session.h"

#define PREFIX          "memshim: "
#define LINE_CHARACTERS 1024

bool ms_log_enabled(enum ms_log_level level)
{
    return !ms_life_inert() && level <= ms_options()->log;
}

void ms_log(enum ms_log_level level, const char *format, ...)
{
    if (!ms_log_enabled(level)) {
        return;
    }
    int saved_errno = errno;
    char line[LINE_CHARACTERS] = PREFIX;
    va_list arguments;
    va_start(arguments, format);
    int wanted =
        vsnprintf(line + strlen(PREFIX), sizeof(line) - strlen(PREFIX) - 1, format, arguments);
    va_end(arguments);
    if (wanted >= 0) {
        size_t length = strlen(line);
        if (level == MS_LOG_WARN) {
            ms_session_note(line + strlen(PREFIX));
        }
        line[length] = '\n';
        ssize_t written = write(STDERR_FILENO, line, length + 1);
        (void)written; /* a closed stderr is nobody's error */
    }
    errno = saved_errno;
}
