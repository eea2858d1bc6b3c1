/* SPDX-License-Identifier: Apache-2.0 */
/* The bar: not before a second, not too often, and never past its end. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <pty.h>
#include <string.h>
#include <unistd.h>

#include "report/read/progress.h"

#define MS UINT64_C(1000000)

Test(progress, what_is_quick_shows_nothing)
{
    char line[MS_PROGRESS_LINE_BYTES];

    cr_assert_not(ms_progress_line("reading", 1, 2, 999 * MS, 0, line, sizeof(line)));
    cr_assert(ms_progress_line("reading", 1, 2, 1000 * MS, 0, line, sizeof(line)));
    cr_assert_str_eq(line, "\r\x1b[Kmemshim: reading [###############...............] 50 %");
    cr_assert_not(ms_progress_line("reading", 1, 2, 1050 * MS, 1000 * MS, line, sizeof(line)));
    cr_assert(ms_progress_line("reading", 5, 2, 1200 * MS, 1000 * MS, line, sizeof(line)));
    cr_assert_str_eq(line, "\r\x1b[Kmemshim: reading [##############################] 100 %");
    cr_assert(ms_progress_line("reading", 0, 0, 1300 * MS, 1000 * MS, line, sizeof(line)));
}

/* What a reader says for a bit more than a second reaches the file or terminal that is stderr. */
static size_t told_to(int fd, int from)
{
    char read_back[4096];
    ssize_t got = 0;

    cr_assert_geq(dup2(fd, STDERR_FILENO), 0);
    ms_progress_begin(1, 1);
    for (uint64_t i = 0; i < 120; i++) {
        ms_progress_note("reading", i, 120);
        usleep(10000);
    }
    ms_progress_end();
    (void)fcntl(from, F_SETFL, O_NONBLOCK);
    got = read(from, read_back, sizeof(read_back));
    return got > 0 ? (size_t)got : 0;
}

Test(progress, only_a_terminal_sees_it, .timeout = 600)
{
    int master = -1, slave = -1, pipes[2];

    cr_assert_eq(pipe(pipes), 0);
    cr_assert_eq(told_to(pipes[1], pipes[0]), 0);
    if (openpty(&master, &slave, NULL, NULL, NULL) != 0) {
        cr_skip("no terminals here");
    }
    cr_assert_gt(told_to(slave, master), 0);
}

Test(progress, of_several_traces, .timeout = 600)
{
    int master = -1, slave = -1;
    char seen[4096] = "";

    if (openpty(&master, &slave, NULL, NULL, NULL) != 0) {
        cr_skip("no terminals here");
    }
    cr_assert_geq(dup2(slave, STDERR_FILENO), 0);
    ms_progress_begin(1, 2);
    ms_progress_note("reading", 1, 2);
    usleep(1100000);
    ms_progress_end();
    ms_progress_begin(2, 2); /* the first took its second already */
    ms_progress_note("reading", 1, 2);
    ms_progress_end();
    (void)fcntl(master, F_SETFL, O_NONBLOCK);
    cr_assert_gt(read(master, seen, sizeof(seen) - 1), 0);
    cr_assert_null(strstr(seen, "1 of 2"), "%s", seen);
    cr_assert_not_null(strstr(seen, "2 of 2, reading ["), "%s", seen);
}
