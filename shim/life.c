/* Nothing here may cost a program that never touches CUDA: the constructor writes one environment
 * variable, remembers where the program stands, and registers the exit handler. */
#include "shim/life.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "report/cancel.h"
#include "shim/gate.h"
#include "shim/hook.h"
#include "shim/identity.h"
#include "shim/log.h"
#include "shim/options.h"
#include "shim/resolve.h"
#include "shim/session.h"
#include "shim/sites/site.h"
#include "shim/torch.h"
#include "shim/torch_settings.h"

#define RUN_ID "MEMSHIM_RUN_ID"

static char start_dir[PATH_MAX];
static char run_id_variable[64];
static _Atomic bool inert, armed;
static pid_t armed_pid;
static bool had_stderr;

bool ms_life_inert(void)
{
    return atomic_load_explicit(&inert, memory_order_relaxed);
}

bool ms_life_had_stderr(void)
{
    return had_stderr;
}

const char *ms_life_start_dir(void)
{
    return start_dir;
}

/* --- Fork --------------------------------------------------------------------------------------
 */

/* A signal's handler may fork, too: what this thread holds inside a call it cannot wait for. */
static bool forks_inside_a_call(void)
{
    return ms_guard.inside;
}

static void before_fork(void)
{
    if (!ms_life_inert() && !forks_inside_a_call()) {
        ms_sites_fork_prepare();
        ms_serve_fork_prepare();
        ms_session_fork_prepare();
        ms_gate_fork_prepare();
    }
}

static void after_fork_in_parent(void)
{
    if (!ms_life_inert() && !forks_inside_a_call()) {
        ms_gate_fork_parent();
        ms_session_fork_parent();
        ms_serve_fork_parent();
        ms_sites_fork_parent();
    }
}

/* The driver does not work in a child of a process that has initialized it, and the parent's trace
 * is the parent's: the child has nothing to tell. What it execs starts anew. */
static void after_fork_in_child(void)
{
    if (!ms_life_inert()) {
        atomic_store(&inert, true);
        ms_door_shut();
        ms_gate_fork_child();
        ms_session_fork_child();
        ms_serve_fork_child();
        ms_sites_fork_child();
    }
}

/* Not before the driver is used: a child that is forked earlier (a launcher's worker, a data
 * loader) is a process like any other. A vfork child runs none of this, and only execs. */
void ms_life_arm(void)
{
    armed_pid = getpid();
    ms_options_of_child();
    atomic_store(&armed, true);
    if (pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child) != 0) {
        MS_LOG_ONCE(MS_LOG_WARN, "out of memory: forks of this process are not watched");
    }
}

/* --- Exit --------------------------------------------------------------------------------------
 */

/* Registered before the program's first instruction, so that it runs last: after the program's own
 * handlers, and after the destructors of its libraries, which may still free memory. Other threads
 * may run on; hooks keep serving them, and only the trace is closed. */
static void at_exit(int status, void *unused)
{
    (void)unused;
    if (ms_life_inert()) {
        return;
    }
    if (!atomic_load(&armed)) {
        if (ms_resolve_bypassed()) {
            ms_log(MS_LOG_WARN,
                   "this program used CUDA on a road that does not pass memshim: libcuda "
                   "was loaded, and none of its functions was looked up through dlsym. "
                   "Nothing was capped or recorded");
        }
        return;
    }
    if (armed_pid != getpid()) {
        return; /* a child made by a bare clone, which no fork handler saw */
    }
    if (ms_guard.inside) {
        ms_session_left(); /* by a signal's handler: what this thread holds is never let go */
        return;
    }
    const int cancellation = ms_cancel_hold();
    ms_torch_end();
    ms_serve_exit();
    ms_session_end(status);
    ms_cancel_let(cancellation);
}

/* --- Load --------------------------------------------------------------------------------------
 */

/* A NAME=value that is not set yet. Not by setenv: bash and others export a setenv of their own,
 * which is not ready to be called before main. */
static void put(char *variable)
{
    char name[64];
    size_t count = 0;
    (void)snprintf(name, sizeof(name), "%.*s", (int)strcspn(variable, "="), variable);
    if (environ == NULL || ms_environment(environ, name) != NULL) {
        return;
    }
    while (environ[count] != NULL) {
        count++;
    }
    char **longer = malloc((count + 2) * sizeof(*longer));
    if (longer != NULL) {
        memcpy(longer, environ, count * sizeof(*longer));
        longer[count] = variable;
        longer[count + 1] = NULL;
        environ = longer;
    }
}

/* All processes of a run must find one id: the first that is preloaded puts it where its children
 * inherit it. */
static void put_run_id(void)
{
    struct timespec now;
    if (clock_gettime(CLOCK_REALTIME, &now) == 0) {
        (void)snprintf(run_id_variable, sizeof(run_id_variable), RUN_ID "=");
        size_t used = strlen(run_id_variable);
        ms_identity_start_id(now.tv_sec, getpid(), run_id_variable + used,
                             sizeof(run_id_variable) - used);
        put(run_id_variable);
    }
}

__attribute__((constructor)) static void at_load(void)
{
    const int error = errno; /* 0 where main begins (C17 7.5) */
    had_stderr = fcntl(STDERR_FILENO, F_GETFD) >= 0;
    put_run_id();
    char *torch_variable = ms_torch_settings_variable();
    if (torch_variable != NULL) {
        put(torch_variable);
    }
    if (getcwd(start_dir, sizeof(start_dir)) == NULL) {
        start_dir[0] = '\0';
    }
    (void)on_exit(at_exit, NULL); /* fails only without memory; then the trace ends as if killed */
    errno = error;
}
