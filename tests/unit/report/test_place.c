/* SPDX-License-Identifier: Apache-2.0 */
/* Where a run puts its traces: names of folders, ranks, and the folder named latest. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "report/write/attempt.h"
#include "report/write/trace_folder.h"
#include "synthetic.h"

static const char *name_of(const char *path)
{
    return strrchr(path, '/') + 1;
}

/* On a local file system, which has this host's clock. */
static int make(const char *output, const struct ms_trace_process *process, char *dir)
{
    int64_t ahead_ns = 0;
    const int error = ms_place_make(output, process, dir, &ahead_ns);

    cr_expect_eq(ahead_ns, 0);
    return error;
}

static void expect(struct ms_trace_process process, const char *name)
{
    char dir[PATH_MAX];

    cr_assert_eq(make(synthetic_folder(), &process, dir), 0);
    cr_expect_str_eq(name_of(dir), name);
}

Test(place, names)
{
    expect(
        (struct ms_trace_process){
            .run_id = "r", .program = "train.py", .host = "node-a", .pid = 12, .rank = 3},
        "train.py-r3-node-a-12");
    expect(
        (struct ms_trace_process){
            .run_id = "r", .program = "train.py", .host = "node-a", .pid = 12, .rank = -1},
        "train.py-node-a-12");
    expect((struct ms_trace_process){.program = "../../etc/passwd", .host = "a b\n", .rank = -1},
           "_._.._etc_passwd-a_b_-0");
    expect((struct ms_trace_process){.program = "", .host = NULL, .rank = -1}, "process-host-0");
}

Test(place, a_run_never_leaves_the_output)
{
    struct ms_trace_process process = {.run_id = "..", .program = "p", .host = "h", .rank = -1};
    char dir[PATH_MAX];
    const char *output = synthetic_folder();

    cr_assert_eq(make(output, &process, dir), 0);
    cr_expect_eq(strncmp(dir, output, strlen(output)), 0);
    cr_expect_not_null(strstr(dir, "/_./"));
}

Test(place, the_same_process_again)
{
    struct ms_trace_process process = {.run_id = "r", .program = "p", .host = "h", .rank = -1};
    const char *output = synthetic_folder();
    char first[PATH_MAX], second[PATH_MAX];

    cr_assert_eq(make(output, &process, first), 0);
    cr_assert_eq(make(output, &process, second), 0);
    cr_expect_str_eq(name_of(first), "p-h-0");
    cr_expect_str_eq(name_of(second), "p-h-0-2");
}

Test(place, many_ranks_at_once)
{
    enum { RANKS = 32 };
    const char *output = synthetic_folder();
    char deep[PATH_MAX], link[PATH_MAX + 16], target[PATH_MAX] = "";
    int failed = 0;

    snprintf(deep, sizeof(deep), "%s/a/b", output);
    for (int rank = 0; rank < RANKS; rank++) {
        if (fork() == 0) {
            struct ms_trace_process process = {
                .run_id = "r", .program = "p", .host = "h", .rank = rank, .pid = getpid()};
            char dir[PATH_MAX];
            int error = make(deep, &process, dir);

            if (!error) {
                ms_place_link(dir);
            }
            _exit(error ? 1 : 0);
        }
    }
    for (int rank = 0; rank < RANKS; rank++) {
        int status;

        cr_assert_gt(wait(&status), 0);
        failed += status != 0;
    }
    cr_assert_eq(failed, 0);
    snprintf(link, sizeof(link), "%s/latest", deep);
    cr_assert_eq(readlink(link, target, sizeof(target) - 1), 1);
    cr_expect_str_eq(target, "r");
}

Test(place, latest_moves_on)
{
    const char *output = synthetic_folder();
    struct ms_trace_process process = {.run_id = "one", .program = "p", .host = "h", .rank = -1};
    char dir[PATH_MAX], link[PATH_MAX + 16], target[PATH_MAX] = "";

    cr_assert_eq(make(output, &process, dir), 0);
    ms_place_link(dir);
    process.run_id = "two";
    cr_assert_eq(make(output, &process, dir), 0);
    ms_place_link(dir);
    snprintf(link, sizeof(link), "%s/latest", output);
    cr_assert_eq(readlink(link, target, sizeof(target) - 1), 3);
    cr_expect_str_eq(target, "two");
}

/* ---- attempts of a run ---- */

/* The attempt that a rank's process finds, and its folder made there. */
static int32_t starts(const char *output, int32_t pid, int32_t rank, int32_t least, bool leads)
{
    struct ms_trace_process process = {.program = "p", .host = "h", .pid = pid, .rank = rank};
    const int32_t attempt = ms_attempt_find(output, "j", &process, least, leads);
    char dir[PATH_MAX], run[32];

    (void)snprintf(run, sizeof run, attempt > 0 ? "j.%d" : "j", attempt);
    process.run_id = run;
    cr_assert_eq(make(output, &process, dir), 0);
    return attempt;
}

Test(place, a_rank_is_once_in_each_attempt)
{
    const char *output = synthetic_folder();

    cr_expect_eq(starts(output, 10, 0, 0, true), 0);
    cr_expect_eq(starts(output, 11, 1, 0, true), 0);
    cr_expect_eq(starts(output, 12, 0, 0, false), 0, "what a rank starts is of its attempt");
    cr_expect_eq(starts(output, 10, 0, 0, true), 0, "an exec");
    /* Rank 1 failed: its host counts, and the other's does not. */
    cr_expect_eq(starts(output, 20, 0, 0, true), 1);
    cr_expect_eq(starts(output, 21, 1, 1, true), 1);
    cr_expect_eq(starts(output, 22, 0, 0, false), 1);
    /* Rank 0's host counts for the first time; nobody used a device in the third attempt. */
    cr_expect_eq(starts(output, 31, 1, 3, true), 3);
    cr_expect_eq(starts(output, 30, 0, 1, true), 3);
    cr_expect_eq(starts(output, 40, 0, 1, true), 4);
}

Test(place, an_attempt_without_an_output_is_the_launchers)
{
    const struct ms_trace_process process = {.program = "p", .host = "h", .rank = 0};

    cr_expect_eq(ms_attempt_find("/nowhere", "j", &process, 2, true), 2);
}
