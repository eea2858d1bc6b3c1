/* SPDX-License-Identifier: Apache-2.0 */
/* Groups of processes: leases under one cap, members that end, files that are not ours. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "allocator/base/clock.h"
#include "shim/group/alive.h"
#include "shim/group/file.h"
#include "shim/group/group.h"
#include "shim/group/request.h"

#define CAP UINT64_C(1000)

static char folder[64];
static const uint8_t uuid[16] = {1, 2, 3};

static void make_folder(void)
{
    (void)snprintf(folder, sizeof folder, "/dev/shm/memshim-test-XXXXXX");
    cr_assert_not_null(mkdtemp(folder));
}

static void drop_folder(void)
{
    char path[512];
    DIR *listing = opendir(folder);
    const struct dirent *entry;
    while ((entry = readdir(listing)) != NULL) {
        (void)snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        (void)unlink(path);
    }
    (void)closedir(listing);
    (void)rmdir(folder);
}

TestSuite(group, .init = make_folder, .fini = drop_folder, .timeout = 600);

static struct ms_group_wish wish(void)
{
    struct ms_group_wish made = {.folder = folder,
                                 .name = "run-x",
                                 .total_bytes = 5000,
                                 .cap_bytes = CAP,
                                 .rank = -1,
                                 .program = "test"};
    memcpy(made.uuid, uuid, sizeof uuid);
    return made;
}

static ms_group_t *join(void)
{
    const struct ms_group_wish mine = wish();
    const char *why = NULL;
    ms_group_t *group = ms_group_join(&mine, &why);
    cr_assert_not_null(group, "%s", why);
    return group;
}

static const char *refusal(void)
{
    const struct ms_group_wish mine = wish();
    const char *why = NULL;
    cr_assert_null(ms_group_join(&mine, &why));
    return why;
}

static void path_of(char path[MS_GROUP_PATH_BYTES])
{
    cr_assert(ms_group_path(folder, "run-x", uuid, path));
}

/* A child that does not outlive a test which fails. */
static pid_t start_child(void)
{
    const pid_t pid = fork();
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    }
    return pid;
}

/* A member in a process of its own that leases so much and then waits for its end. */
static pid_t start_member(uint64_t bytes)
{
    int ends[2];
    char ready = 0;
    cr_assert_eq(pipe(ends), 0);
    const pid_t pid = start_child();
    if (pid == 0) {
        ms_group_t *group = join();
        ready = ms_group_lease(group, bytes, bytes) == bytes ? 1 : 0;
        (void)!write(ends[1], &ready, 1);
        for (;;) {
            (void)pause();
        }
    }
    cr_assert_eq(read(ends[0], &ready, 1), 1);
    cr_assert(ready);
    (void)close(ends[0]);
    (void)close(ends[1]);
    return pid;
}

static void end_member(pid_t pid)
{
    (void)kill(pid, SIGKILL);
    cr_assert_eq(waitpid(pid, NULL, 0), pid);
}

Test(group, two_have_one_cap)
{
    const pid_t other = start_member(600);
    ms_group_t *group = join();
    cr_assert_eq(ms_group_cap_bytes(group), CAP);
    cr_assert_eq(ms_group_free_bytes(group), 400);
    cr_assert_eq(ms_group_lease(group, 401, 401), 0);
    cr_assert_eq(ms_group_lease(group, 300, 500), 300);
    cr_assert_eq(ms_group_lease(group, 50, 80), 80);
    ms_group_give(group, 80);
    cr_assert_eq(ms_group_free_bytes(group), 100);
    end_member(other);
}

Test(group, what_is_imposed_may_pass_the_cap)
{
    ms_group_t *group = join();
    cr_assert_eq(ms_group_lease(group, 900, 900), 900);
    ms_group_impose(group, 300);
    cr_assert_eq(ms_group_free_bytes(group), 0);
    cr_assert_eq(ms_group_lease(group, 1, 1), 0);
    ms_group_give(group, 201);
    cr_assert_eq(ms_group_lease(group, 1, 1), 1);
}

Test(group, what_a_killed_member_had_comes_back)
{
    const pid_t other = start_member(600);
    ms_group_t *group = join();
    cr_assert_eq(kill(other, SIGSTOP), 0);
    cr_assert_eq(ms_group_lease(group, 500, 500), 0); /* it is there still */
    end_member(other);
    cr_assert_eq(ms_group_lease(group, 1000, 1000), 1000);
}

Test(group, nor_is_it_waited_for_by_its_parent)
{
    siginfo_t info;
    const pid_t other = start_member(600);
    ms_group_t *group = join();
    cr_assert_eq(kill(other, SIGKILL), 0);
    cr_assert_eq(waitid(P_PID, (id_t)other, &info, WEXITED | WNOWAIT), 0);
    cr_assert_eq(ms_group_lease(group, 1000, 1000), 1000);
    end_member(other);
}

/* The number of a process that lives, which started at another time. */
Test(group, a_number_that_another_process_has)
{
    struct ms_group_file file;
    const char *why = NULL;
    char path[MS_GROUP_PATH_BYTES];
    const pid_t other = start_member(600);
    ms_group_t *group = join();
    path_of(path);
    cr_assert_eq(ms_group_lease(group, 500, 500), 0);
    cr_assert(ms_group_file_open(path, false, &file, &why));
    for (uint32_t i = 0; i < MS_GROUP_MEMBERS_MAX; i++) {
        if (file.region->slots[i].pid == (uint32_t)other) {
            file.region->slots[i].start_ticks++;
        }
    }
    ms_group_file_close(&file, false);
    cr_assert_eq(ms_group_lease(group, 1000, 1000), 1000);
    end_member(other);
}

/* As a program that has taken this one's place (exec). */
Test(group, one_process_is_one_member)
{
    ms_group_t *before = join();
    cr_assert_eq(ms_group_lease(before, 700, 700), 700);
    ms_group_t *after = join();
    cr_assert_eq(ms_group_free_bytes(after), CAP);
}

Test(group, the_first_brings_the_cap)
{
    const pid_t other = start_member(600);
    struct ms_group_wish mine = wish();
    const char *why = NULL;
    mine.cap_bytes = 2 * CAP;
    cr_assert_eq(ms_group_cap_bytes(ms_group_join(&mine, &why)), CAP);
    end_member(other);
}

/* None of those that had it before is left. */
Test(group, a_new_one_brings_a_new_cap)
{
    struct ms_group_wish mine = wish();
    const char *why = NULL;
    end_member(start_member(600));
    mine.cap_bytes = 2 * CAP;
    cr_assert_eq(ms_group_cap_bytes(ms_group_join(&mine, &why)), 2 * CAP);
}

/* ---- racing ---- */

struct ledger {
    _Atomic uint64_t held, most, leases;
};

static void race(struct ledger *ledger, uint64_t state)
{
    ms_group_t *group = join();
    for (int turn = 0; turn < 30000; turn++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        const uint64_t least = (state >> 40) % 400 + 1;
        const uint64_t got = ms_group_lease(group, least, least + 100);
        if (got != 0) {
            const uint64_t now = atomic_fetch_add(&ledger->held, got) + got;
            uint64_t most = atomic_load(&ledger->most);
            while (now > most && !atomic_compare_exchange_weak(&ledger->most, &most, now)) {
            }
            atomic_fetch_add(&ledger->leases, 1);
            atomic_fetch_sub(&ledger->held, got);
            ms_group_give(group, got);
        }
    }
}

Test(group, racing_processes_never_pass_the_cap)
{
    pid_t children[4];
    struct ledger *ledger =
        mmap(NULL, sizeof *ledger, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < 4; i++) {
        children[i] = fork();
        if (children[i] == 0) {
            race(ledger, (uint64_t)i + 7);
            _exit(0);
        }
    }
    for (int i = 0; i < 4; i++) {
        int status = 1;
        cr_assert_eq(waitpid(children[i], &status, 0), children[i]);
        cr_assert_eq(status, 0);
    }
    cr_assert_leq(ledger->most, CAP);
    cr_assert_gt(ledger->leases, 10000);
    cr_assert_eq(ms_group_free_bytes(join()), CAP);
}

/* ---- files ---- */

Test(group, the_file_is_its_users_alone)
{
    struct stat status;
    char path[MS_GROUP_PATH_BYTES];
    (void)join();
    path_of(path);
    cr_assert_eq(stat(path, &status), 0);
    cr_assert_eq(status.st_mode & 0777, 0600);
    cr_assert_eq(chmod(path, 0644), 0);
    cr_assert_str_eq(refusal(), "other users may reach the file of its name in /dev/shm");
}

/* Another holds the file for so long. */
static pid_t hold_file(const char *path, unsigned us)
{
    int ends[2];
    char byte = 0;
    cr_assert_eq(pipe(ends), 0);
    const pid_t holder = fork();
    if (holder == 0) {
        struct ms_group_file file;
        const char *why = NULL;
        const bool held = ms_group_file_open(path, false, &file, &why);
        (void)write(ends[1], &byte, 1);
        (void)usleep(us);
        _exit(held ? 0 : 1);
    }
    (void)close(ends[1]);
    cr_assert_eq(read(ends[0], &byte, 1), 1);
    (void)close(ends[0]);
    return holder;
}

/* The shortest of many waits, because the machine may be busy. Some find the file free. */
Test(group, a_file_that_is_soon_free_is_soon_had)
{
    char path[MS_GROUP_PATH_BYTES];
    uint64_t least_ns = UINT64_MAX;
    ms_group_leave(join());
    path_of(path);
    for (int i = 0; i < 20; i++) {
        struct ms_group_file file;
        const char *why = NULL;
        int status = 0;
        const pid_t holder = hold_file(path, 3000);
        const uint64_t before_ns = ms_clock_ns();
        cr_assert(ms_group_file_open(path, false, &file, &why), "%s", why);
        const uint64_t took_ns = ms_clock_ns() - before_ns;
        ms_group_file_close(&file, false);
        least_ns = took_ns > 1000000 && took_ns < least_ns ? took_ns : least_ns;
        cr_assert_eq(waitpid(holder, &status, 0), holder);
        cr_assert_eq(status, 0);
    }
    cr_assert_lt(least_ns, 8000000);
}

Test(group, no_link_is_followed)
{
    char path[MS_GROUP_PATH_BYTES];
    path_of(path);
    cr_assert_eq(symlink("/dev/shm/elsewhere", path), 0);
    cr_assert_str_eq(refusal(), "a file of its name in /dev/shm belongs to another user");
}

Test(group, a_file_of_another_version)
{
    char path[MS_GROUP_PATH_BYTES];
    path_of(path);
    const int fd = open(path, O_RDWR | O_CREAT, 0600);
    cr_assert_eq(write(fd, "strange", 7), 7);
    (void)close(fd);
    cr_assert_str_eq(refusal(), "its file in /dev/shm is of another version of memshim");
}

Test(group, no_folder)
{
    drop_folder();
    cr_assert_str_eq(refusal(), "there is no /dev/shm");
    cr_assert_eq(mkdir(folder, 0700), 0);
}

Test(group, part_of_a_device)
{
    struct ms_group_wish mine = wish();
    const char *why = NULL;
    (void)join();
    mine.total_bytes = 2500;
    cr_assert_null(ms_group_join(&mine, &why));
    cr_assert_str_eq(why, "the device is part of another one (MIG)");
}

Test(group, files_without_a_member_are_swept)
{
    char path[MS_GROUP_PATH_BYTES];
    const pid_t other = start_member(1);
    path_of(path);
    cr_assert_eq(ms_group_sweep(folder), 0);
    cr_assert_eq(access(path, F_OK), 0);
    end_member(other);
    cr_assert_eq(ms_group_sweep(folder), 1);
    cr_assert_neq(access(path, F_OK), 0);
}

/* ---- questions ---- */

#define LONG_NS UINT64_C(30000000000)

/* The two ends of what a giver does: it writes to `heard` what it was asked, and answers only
 * when `let` has been closed. */
struct held {
    int heard[2], let[2];
};

/* When it is asked to give unused memory, or to move live memory to the host, gives so many bytes,
 * once. It says that its coldest memory was used at coldest_ns. */
static pid_t start_giver(enum ms_group_want want, uint64_t leased, uint64_t given,
                         uint64_t coldest_ns, const struct held *held)
{
    int ends[2];
    char ready = 0;
    cr_assert_eq(pipe(ends), 0);
    const pid_t pid = start_child();
    if (pid == 0) {
        ms_group_t *group = join();
        struct ms_group_question question;
        (void)ms_group_lease(group, leased, leased);
        (void)!write(ends[1], "+", 1);
        for (;;) {
            while (!ms_group_wait(group, &question, 1000000000)) {
            }
            if (held != NULL) {
                (void)close(held->let[1]);
                (void)!write(held->heard[1], "?", 1);
                (void)!read(held->let[0], &ready, 1);
            }
            const uint64_t now = (question.wants & want) != 0 ? given : 0;
            ms_group_give(group, now);
            ms_group_answer(group, &question, 0, coldest_ns, now);
            given -= now;
        }
    }
    cr_assert_eq(read(ends[0], &ready, 1), 1);
    (void)close(ends[0]);
    (void)close(ends[1]);
    return pid;
}

Test(group, who_is_asked_gives)
{
    const pid_t other = start_giver(MS_GROUP_GIVE, 900, 600, 5, NULL);
    ms_group_t *group = join();
    cr_assert(ms_group_ask_all(group, 600, LONG_NS));
    cr_assert_eq(ms_group_lease(group, 600, 600), 600);
    cr_assert_not(ms_group_ask_all(group, 600, LONG_NS)); /* it answers, and has no more */
    end_member(other);
}

static pid_t start_asker(uint64_t bytes, int to_close)
{
    const pid_t pid = start_child();
    if (pid == 0) {
        (void)close(to_close);
        (void)ms_group_ask_all(join(), bytes, LONG_NS);
        for (;;) {
            (void)pause();
        }
    }
    return pid;
}

/* When it answered last it could move nothing, and by now it can. */
Test(group, all_are_asked_before_a_refusal)
{
    const pid_t one = start_giver(MS_GROUP_SPILL, 400, 0, UINT64_MAX, NULL);
    const pid_t two = start_giver(MS_GROUP_SPILL, 500, 300, UINT64_MAX, NULL);
    ms_group_t *group = join();
    cr_assert_not(ms_group_ask_all(group, 300, LONG_NS));
    cr_assert_not(ms_group_ask_spill(group, UINT64_MAX - 1, 300, LONG_NS));
    cr_assert(ms_group_ask_spill(group, UINT64_MAX, 300, LONG_NS));
    cr_assert_eq(ms_group_free_bytes(group), 400);
    end_member(one);
    end_member(two);
}

Test(group, the_coldest_gives_first)
{
    const pid_t warm = start_giver(MS_GROUP_SPILL, 300, 300, 7, NULL);
    const pid_t cold = start_giver(MS_GROUP_SPILL, 300, 200, 5, NULL);
    const pid_t warmer = start_giver(MS_GROUP_SPILL, 300, 250, 8, NULL);
    ms_group_t *group = join();
    cr_assert_not(ms_group_ask_all(group, 700, LONG_NS)); /* now they have said how cold they are */
    cr_assert_not(ms_group_ask_spill(group, 5, 700, LONG_NS));
    cr_assert(ms_group_ask_spill(group, 9, 700, LONG_NS));
    cr_assert_eq(ms_group_free_bytes(group), 300);
    cr_assert_not(ms_group_ask_spill(group, 6, 700, LONG_NS));
    cr_assert(ms_group_ask_spill(group, 9, 700, LONG_NS));
    cr_assert_eq(ms_group_free_bytes(group), 600);
    end_member(warm);
    end_member(cold);
    end_member(warmer);
}

/* It does not answer in time, but it is not stopped: it works on what another member asked. */
Test(group, who_works_on_a_question_is_asked_again)
{
    struct held held;
    char asked = 0;
    cr_assert_eq(pipe(held.heard) | pipe(held.let), 0);
    const pid_t busy = start_giver(MS_GROUP_SPILL, 900, 800, 5, &held);
    const pid_t first = start_asker(800, held.let[1]);
    cr_assert_eq(read(held.heard[0], &asked, 1), 1);
    ms_group_t *group = join();
    cr_assert_not(ms_group_ask_all(group, 800, 50000000));
    (void)close(held.let[1]);
    cr_assert(ms_group_ask_spill(group, UINT64_MAX, 800, LONG_NS));
    cr_assert_eq(ms_group_free_bytes(group), 900);
    end_member(first);
    end_member(busy);
}

Test(group, what_others_took_is_counted)
{
    ms_group_t *group = join();
    const uint64_t before = ms_group_taken_by_others(group);
    const pid_t other = start_member(600);
    cr_assert_eq(ms_group_lease(group, 100, 100), 100);
    cr_assert_eq(ms_group_taken_by_others(group) - before, 600);
    end_member(other);
}

Test(group, who_is_stopped_is_not_waited_for)
{
    const pid_t other = start_member(900);
    ms_group_t *group = join();
    cr_assert_eq(kill(other, SIGSTOP), 0);
    cr_assert_not(ms_group_ask_all(group, 600, 50000000));
    /* Nor once more, however long the time is. */
    cr_assert_not(ms_group_ask_all(group, 600, UINT64_C(1000000000000)));
    end_member(other);
}
