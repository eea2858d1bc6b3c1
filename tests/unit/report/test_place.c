/* SPDX-License-Identifier: Apache-2.0 */
/* Where a run puts its traces: names of folders, ranks, and the folder named latest. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "report/write/trace_folder.h"
#include "synthetic.h"

static const char *name_of(const char *path)
{
    return strrchr(path, '/') + 1;
}

static void expect(struct ms_trace_process process, const char *name)
{
    char dir[PATH_MAX];

    cr_assert_eq(ms_place_make(synthetic_folder(), &process, dir), 0);
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

    cr_assert_eq(ms_place_make(output, &process, dir), 0);
    cr_expect_eq(strncmp(dir, output, strlen(output)), 0);
    cr_expect_not_null(strstr(dir, "/_./"));
}

Test(place, the_same_process_again)
{
    struct ms_trace_process process = {.run_id = "r", .program = "p", .host = "h", .rank = -1};
    const char *output = synthetic_folder();
    char first[PATH_MAX], second[PATH_MAX];

    cr_assert_eq(ms_place_make(output, &process, first), 0);
    cr_assert_eq(ms_place_make(output, &process, second), 0);
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
            int error = ms_place_make(deep, &process, dir);

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

    cr_assert_eq(ms_place_make(output, &process, dir), 0);
    ms_place_link(dir);
    process.run_id = "two";
    cr_assert_eq(ms_place_make(output, &process, dir), 0);
    ms_place_link(dir);
    snprintf(link, sizeof(link), "%s/latest", output);
    cr_assert_eq(readlink(link, target, sizeof(target) - 1), 3);
    cr_expect_str_eq(target, "two");
}
