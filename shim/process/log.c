/* SPDX-License-Identifier: Apache-2.0 */
/* Writes lines to stderr. */
#include "shim/process/log.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "allocator/base/cancel.h"
#include "allocator/base/plain.h"
#include "allocator/base/way_out.h"
#include "shim/process/once_in_run.h"
#include "shim/process/process.h"
#include "shim/process/session.h"
#include "shim/tables/options.h"

#define PREFIX          "memshim: "
#define LINE_CHARACTERS 1024

static bool is_wanted(enum ms_log_level level)
{
    return !ms_process_inert() && level <= ms_options()->log;
}

/* Writing to a pipe without a reader would end the program by SIGPIPE. A line of ours must not do
 * that. A SIGPIPE that was pending before belongs to the program. */
static void write_line(const char *line, size_t bytes)
{
    static const struct timespec at_once = {0};
    const int cancellation = ms_cancel_hold();
    sigset_t broken_pipe;
    sigset_t pending;
    sigset_t before;
    (void)sigemptyset(&broken_pipe);
    (void)sigaddset(&broken_pipe, SIGPIPE);
    (void)sigpending(&pending);
    (void)pthread_sigmask(SIG_BLOCK, &broken_pipe, &before);
    /* A closed stderr is no error. */
    if (ms_process_has_stderr() && write(STDERR_FILENO, line, bytes) < 0 && errno == EPIPE &&
        sigismember(&pending, SIGPIPE) != 1) {
        (void)sigtimedwait(&broken_pipe, NULL, &at_once);
    }
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    ms_cancel_let(cancellation);
}

__attribute__((format(printf, 2, 0))) static void put_line(bool note, const char *format,
                                                           va_list arguments)
{
    int saved_errno = errno;
    char line[LINE_CHARACTERS] = PREFIX;
    char *text = line + strlen(PREFIX);
    char said[LINE_CHARACTERS];
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): started by each of the two callers */
    if (vsnprintf(said, sizeof(said), format, arguments) >= 0) {
        /* The line contains options, paths and names from outside. */
        size_t length =
            ms_plain_text(said, text, sizeof(line) - strlen(PREFIX) - 1) + strlen(PREFIX);
        if (note) {
            ms_session_note(text);
        }
        line[length] = '\n';
        write_line(line, length + 1);
    }
    errno = saved_errno;
}

void ms_log(enum ms_log_level level, const char *format, ...)
{
    if (is_wanted(level)) {
        va_list arguments;
        va_start(arguments, format);
        put_line(level == MS_LOG_WARN, format, arguments);
        va_end(arguments);
    }
}

void ms_log_in_run(const char *sentence)
{
    char note[LINE_CHARACTERS];
    if (!is_wanted(MS_LOG_WARN)) {
        return;
    }
    if (ms_once_in_run(sentence)) {
        ms_log(MS_LOG_WARN, "%s", sentence);
    } else {
        (void)ms_plain_text(sentence, note, sizeof(note));
        ms_session_note(note);
    }
}

void ms_log_fatal(const char *format, ...)
{
    char said[LINE_CHARACTERS];
    va_list arguments;
    va_start(arguments, format);
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): it is started right above */
    int bytes = vsnprintf(said, sizeof(said), format, arguments);
    va_end(arguments);
    if (bytes >= 0) {
        ms_log(MS_LOG_WARN, "%s. " MS_WAY_OUT, said);
    }
}

void ms_say(const char *format, ...)
{
    if (is_wanted(MS_LOG_WARN)) {
        va_list arguments;
        va_start(arguments, format);
        put_line(false, format, arguments);
        va_end(arguments);
    }
}
