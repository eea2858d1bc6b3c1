/* SPDX-License-Identifier: Apache-2.0 */
/* Every line that tells of the program's end names the switch that keeps memshim out. */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "allocator/base/assert.h"
#include "shim/process/log.h"
#include "shim/process/process.h"
#include "shim/tables/options.h"

/* What a process says on stderr that does this; *status gets how it ended. */
static const char *said_by(void (*act)(void), int *status)
{
    static char said[4096];
    int ends[2];
    cr_assert_eq(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0) {
        (void)signal(SIGABRT, SIG_DFL);
        (void)dup2(ends[1], STDERR_FILENO);
        act();
        _exit(0);
    }
    (void)close(ends[1]);
    size_t length = 0;
    ssize_t bytes;
    while ((bytes = read(ends[0], said + length, sizeof said - 1 - length)) > 0) {
        length += (size_t)bytes;
    }
    said[length] = '\0';
    (void)close(ends[0]);
    cr_assert_eq(waitpid(child, status, 0), child);
    return said;
}

static void log_twice(void)
{
    ms_process_begin();
    for (int i = 0; i < 2; i++) {
        MS_LOG_FATAL_ONCE("device %d: 100%% of it is lost", 3);
    }
}

Test(way_out, of_a_fatal_line)
{
    int status;
    cr_assert_str_eq(said_by(log_twice, &status),
                     "memshim: device 3: 100% of it is lost. MEMSHIM=off runs the program without "
                     "memshim\n");
    cr_assert_eq(status, 0);
}

Test(way_out, is_a_setting_that_switches_off)
{
    char setting[] = "MEMSHIM=off";
    char *const environment[] = {setting, NULL};
    cr_assert(ms_options_switched_off(environment));
}

#ifdef MEMSHIM_CHECKS
static void fail_check(void)
{
    MS_ASSERT(getpid() == 0);
}

Test(way_out, of_a_check)
{
    int status;
    const char *said = said_by(fail_check, &status);
    cr_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    cr_assert_not_null(strstr(said, "does not hold: getpid() == 0\n"), "%s", said);
    cr_assert_not_null(strstr(said, "MEMSHIM=off runs the program without memshim\n"), "%s", said);
}
#endif
