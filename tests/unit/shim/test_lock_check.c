/* SPDX-License-Identifier: Apache-2.0 */
/* The build that tests run on ends a process that takes locks in another order than lock_rank.def,
 * or calls the driver under a lock that forbids it, or where the thread may be cancelled and would
 * leave something behind. */
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "allocator/base/cancel.h"
#include "allocator/base/locks/debt.h"
#include "allocator/base/locks/lock.h"
#include "shim/driver/driver.h"
#include "shim/driver/resolve.h"

#ifdef MEMSHIM_CHECKS
/* What a process says on stderr that does this; *signal gets what ended it, or 0. */
static const char *said_by(void (*act)(void), int *signal_number)
{
    static char said[4096];
    int ends[2], status;
    size_t length = 0;
    ssize_t bytes;
    cr_assert_eq(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0) {
        (void)signal(SIGABRT, SIG_DFL);
        (void)dup2(ends[1], STDERR_FILENO);
        cr_assert_not_null(dlopen(getenv("DRIVER"), RTLD_NOW));
        cr_assert_neq(ms_resolve(), &ms_real_none);
        act();
        _exit(0);
    }
    (void)close(ends[1]);
    while ((bytes = read(ends[0], said + length, sizeof said - 1 - length)) > 0) {
        length += (size_t)bytes;
    }
    said[length] = '\0';
    (void)close(ends[0]);
    cr_assert_eq(waitpid(child, &status, 0), child);
    *signal_number = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    return said;
}

static void call_under(ms_lock_t *lock)
{
    CUresult (*const kept)(CUdeviceptr_v2) = MS_REAL(cuMemFree_v2);
    ms_lock_acquire(lock);
    (void)kept(0);
    ms_lock_release(lock);
}

static void call_where_it_may_be_cancelled(void)
{
    call_under(MS_LOCK(IMPORTS));
}

static void owe_where_it_may_be_cancelled(void)
{
    ms_debt_note(1);
    (void)ms_driver()->cuEventQuery(NULL);
}

static void call_under_one_that_may_be_held(void)
{
    const int cancellation = ms_cancel_hold();
    call_under(MS_LOCK(IMPORTS));
    ms_cancel_let(cancellation);
}

static void call_under_one_that_may_not(void)
{
    call_under(MS_LOCK(SITES));
}

static void ask_under_one_that_may_not(void)
{
    ms_lock_acquire(MS_LOCK(SITES));
    (void)ms_driver()->cuEventQuery(NULL);
    ms_lock_release(MS_LOCK(SITES));
}

static void take_upwards(void)
{
    ms_lock_acquire(MS_LOCK(SITES));
    ms_lock_acquire(MS_LOCK(VMM));
}

static void ends(void (*act)(void), const char *sentence, const char *holds)
{
    int signal_number;
    const char *said = said_by(act, &signal_number);
    cr_assert_eq(signal_number, SIGABRT, "%s", said);
    cr_assert_not_null(strstr(said, sentence), "%s", said);
    cr_assert_not_null(strstr(said, holds), "%s", said);
}

Test(lock_check, a_call_of_the_driver_is_checked_when_it_is_made)
{
    int signal_number;
    const char *said = said_by(call_under_one_that_may_be_held, &signal_number);
    cr_assert_eq(signal_number, 0, "%s", said);
    ends(call_under_one_that_may_not,
         "cuMemFree_v2 of the driver is called by a thread that holds SITES\n",
         "holds SITES, taken at ");
    ends(ask_under_one_that_may_not,
         "a function of the driver is called by a thread that holds SITES\n",
         "holds SITES, taken at ");
}

Test(lock_check, locks_are_taken_downwards)
{
    ends(take_upwards, "VMM is taken at ", "holds SITES, taken at ");
}

Test(lock_check, a_thread_that_owes_something_is_not_cancelled_in_a_call_of_the_driver)
{
    ends(call_where_it_may_be_cancelled, "a thread that may be cancelled calls cuMemFree_v2 of",
         "holds IMPORTS, taken at ");
    ends(owe_where_it_may_be_cancelled, "a thread that may be cancelled calls a function of",
         "uses and captures (1)");
}
#else
Test(lock_check, is_not_in_this_build)
{
}
#endif
