/* SPDX-License-Identifier: Apache-2.0 */
/* Folders in /tmp whose name anybody can foretell: what another user made is not used. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "allocator/base/buffer.h"
#include "allocator/base/own_folder.h"
#include "report/write/trace_folder.h"
#include "synthetic.h"

#define NOBODY 65534

static char shared[PATH_MAX]; /* a folder like /tmp */

static const char *in_shared(const char *name)
{
    static char path[2 * PATH_MAX];

    snprintf(path, sizeof(path), "%s/%s", shared, name);
    return path;
}

static void make_shared(void)
{
    if (geteuid() != 0) {
        cr_skip("another user's files need root");
    }
    snprintf(shared, sizeof(shared), "%s", synthetic_folder());
    cr_assert_eq(chmod(shared, 01777), 0);
}

/* Has it done by another user. */
static void as_nobody(void (*act)(void))
{
    const pid_t child = fork();
    int status;

    if (child == 0) {
        if (setgid(NOBODY) != 0 || setuid(NOBODY) != 0) {
            _exit(9);
        }
        (void)umask(0);
        act();
        _exit(0);
    }
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert_eq(status, 0);
}

static void make_folder(void)
{
    if (mkdir(in_shared("out"), 0777) != 0) {
        _exit(8);
    }
}

static void make_link(void)
{
    if (mkdir(in_shared("target"), 0777) != 0 || symlink("target", in_shared("out")) != 0) {
        _exit(8);
    }
}

static void expect_refused(void)
{
    struct ms_trace_config config = synthetic_config("/proc/memshim-out");
    char fallback[2 * PATH_MAX], note[3 * PATH_MAX];

    snprintf(fallback, sizeof(fallback), "%s", in_shared("out"));
    config.fallback_dir = fallback;
    cr_assert_eq(ms_own_folder_open(fallback), -1);
    cr_assert_eq(errno, EPERM);
    cr_assert_not(ms_own_folder_is(fallback));
    cr_assert_null(ms_trace_open(&config, note, sizeof(note)));
    cr_assert_not_null(strstr(note, "which another user made"), "%s", note);
}

Test(own_folder, of_another_user)
{
    make_shared();
    as_nobody(make_folder);
    expect_refused();
    cr_assert_eq(rmdir(in_shared("out")), 0, "nothing was written there");
}

Test(own_folder, a_link)
{
    make_shared();
    as_nobody(make_link);
    expect_refused();
    cr_assert_eq(rmdir(in_shared("target")), 0, "nothing was written there");
}

Test(own_folder, open_to_others)
{
    make_shared();
    cr_assert_eq(mkdir(in_shared("out"), 0700), 0);
    cr_assert_eq(chmod(in_shared("out"), 0777), 0);
    expect_refused();
}

Test(own_folder, a_file)
{
    make_shared();
    cr_assert_geq(open(in_shared("out"), O_CREAT | O_WRONLY, 0600), 0);
    expect_refused();
}

static bool is_private(const char *path)
{
    struct stat status;

    return lstat(path, &status) == 0 && S_ISDIR(status.st_mode) && (status.st_mode & 0777) == 0700;
}

Test(own_folder, made_for_nobody_else)
{
    struct ms_trace_config config = synthetic_config("/proc/memshim-out");
    char fallback[2 * PATH_MAX], note[3 * PATH_MAX];

    snprintf(shared, sizeof(shared), "%s", synthetic_folder());
    snprintf(fallback, sizeof(fallback), "%s", in_shared("out"));
    config.fallback_dir = fallback;
    (void)umask(0);

    ms_trace_t *trace = ms_trace_open(&config, note, sizeof(note));

    cr_assert_not_null(trace, "%s", note);
    cr_assert(is_private(fallback));
    cr_assert(is_private(in_shared("out/r1")));
    cr_assert(is_private(ms_trace_dir(trace)));
    cr_assert(ms_own_folder_is(fallback));
    cr_assert_eq(ms_trace_close(trace, true, 0), 0);
}

static void link_run(void)
{
    if (mkdir(in_shared("target"), 0777) != 0 || symlink("target", in_shared("r1")) != 0) {
        _exit(8);
    }
}

/* In an output folder that others write to as well, the name of a run can be foretold, too. */
Test(own_folder, a_run_that_is_a_link)
{
    const struct ms_trace_config config = synthetic_config(shared);
    char note[3 * PATH_MAX];

    make_shared();
    as_nobody(link_run);
    cr_assert_null(ms_trace_open(&config, note, sizeof(note)));
    cr_assert_eq(rmdir(in_shared("target")), 0, "nothing was written there");
}

static atomic_uint drawn; /* random numbers, so that a name can be foretold here */

ssize_t getrandom(void *to, size_t bytes, unsigned flags)
{
    (void)flags;
    memset(to, (int)atomic_fetch_add(&drawn, 1), bytes);
    return (ssize_t)bytes;
}

/* A report is written beside its place first: no link of that name is followed, not even of one
 * that was foretold. */
Test(own_folder, a_report_that_is_being_written)
{
    struct ms_buffer text = {0};
    char link[64];
    struct stat status;

    snprintf(shared, sizeof(shared), "%s", synthetic_folder());
    snprintf(link, sizeof(link), "report.txt.%d", (int)getpid());
    cr_assert_eq(symlink("victim", in_shared(link)), 0);
    atomic_store(&drawn, 7);
    snprintf(link, sizeof(link), "report.txt.%d.07070707", (int)getpid());
    cr_assert_eq(symlink("victim", in_shared(link)), 0);
    cr_assert_eq(symlink("victim", in_shared("report.txt")), 0);
    ms_buffer_add(&text, "text");
    cr_assert_eq(ms_buffer_save(&text, in_shared("report.txt")), 0);
    cr_assert_eq(atomic_load(&drawn), 9, "the name that was foretold was tried");
    cr_assert_neq(stat(in_shared("victim"), &status), 0, "a link was followed");
    cr_assert_eq(lstat(in_shared("report.txt"), &status), 0);
    cr_assert(S_ISREG(status.st_mode));
    ms_buffer_free(&text);
}
