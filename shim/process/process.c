/* SPDX-License-Identifier: Apache-2.0 */
/* The state of the process, from load to end. */
#include "shim/process/process.h"

#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shim/process/fork.h"
#include "shim/process/hot.h"
#include "shim/process/log.h"
#include "shim/tables/options.h"

MS_HOT_DATA _Atomic int ms_process_state;

static char start_dir[PATH_MAX];
static bool begun;
static struct stat first_stderr; /* all 0: there was none */
static pid_t served_pid;

void ms_process_begin(void)
{
    begun = true;
    if (fstat(STDERR_FILENO, &first_stderr) != 0) {
        memset(&first_stderr, 0, sizeof first_stderr);
    }
    if (getcwd(start_dir, sizeof(start_dir)) == NULL) {
        start_dir[0] = '\0';
    }
}

/* Forks are not watched before the driver is used: a child that is forked earlier (a launcher's
 * worker, a data loader) is a process like any other. A vfork child runs none of this code, and
 * only execs. */
bool ms_process_serve(void)
{
    int state = MS_PROCESS_IDLE;
    if (atomic_compare_exchange_strong(&ms_process_state, &state, MS_PROCESS_SERVED)) {
        served_pid = getpid();
        ms_options_of_child();
        if (!ms_fork_watch()) {
            MS_LOG_ONCE(MS_LOG_WARN, "out of memory: forks of this process are not watched");
        }
    }
    return state != MS_PROCESS_INERT;
}

void ms_process_make_inert(void)
{
    atomic_store(&ms_process_state, MS_PROCESS_INERT);
}

bool ms_process_is_own(void)
{
    return served_pid == getpid();
}

/* What programs redirect stderr to is opened for writing alone, or is a pipe or a device. */
static bool may_be_redirected(const struct stat *now)
{
    const int flags = S_ISREG(now->st_mode) ? fcntl(STDERR_FILENO, F_GETFL) : -1;
    return S_ISFIFO(now->st_mode) || S_ISCHR(now->st_mode) ||
           (flags >= 0 && (flags & O_ACCMODE) == O_WRONLY);
}

bool ms_process_has_stderr(void)
{
    struct stat now;
    if (!begun) {
        ms_process_begin(); /* a line from before the constructors */
    }
    if (first_stderr.st_mode == 0 || fstat(STDERR_FILENO, &now) != 0) {
        return false;
    }
    const bool same = now.st_dev == first_stderr.st_dev && now.st_ino == first_stderr.st_ino;
    return same || may_be_redirected(&now);
}

const char *ms_process_start_dir(void)
{
    return start_dir;
}
