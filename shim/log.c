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

__attribute__((format(printf, 2, 0))) static void put_line(bool note, const char *format,
                                                           va_list arguments)
{
    int saved_errno = errno;
    char line[LINE_CHARACTERS] = PREFIX;
    char *text = line + strlen(PREFIX);
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): started by each of the two callers */
    if (vsnprintf(text, sizeof(line) - strlen(PREFIX) - 1, format, arguments) >= 0) {
        size_t length = strlen(line);
        if (note) {
            ms_session_note(text);
        }
        line[length] = '\n';
        ssize_t written = write(STDERR_FILENO, line, length + 1);
        (void)written; /* a closed stderr is nobody's error */
    }
    errno = saved_errno;
}

void ms_log(enum ms_log_level level, const char *format, ...)
{
    if (ms_log_enabled(level)) {
        va_list arguments;
        va_start(arguments, format);
        put_line(level == MS_LOG_WARN, format, arguments);
        va_end(arguments);
    }
}

void ms_say(const char *format, ...)
{
    if (ms_log_enabled(MS_LOG_WARN)) {
        va_list arguments;
        va_start(arguments, format);
        put_line(false, format, arguments);
        va_end(arguments);
    }
}
