/* SPDX-License-Identifier: Apache-2.0 */
/* The start and the end of the process. A program that never uses CUDA must not pay for this. So
 * the constructor looks up two functions, compares one address (second_copy.h), puts variables into
 * the environment, notes the process's state, and registers the handlers of exits and forks. */
#include "shim/door/life.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <time.h>
#include <unistd.h>

#include "allocator/base/cancel.h"
#include "shim/door/second_copy.h"
#include "shim/driver/next_dlsym.h"
#include "shim/driver/resolve.h"
#include "shim/frameworks/arenas.h"
#include "shim/frameworks/torch.h"
#include "shim/frameworks/torch_descriptors.h"
#include "shim/frameworks/torch_settings.h"
#include "shim/process/command.h"
#include "shim/process/fork.h"
#include "shim/process/guard.h"
#include "shim/process/log.h"
#include "shim/process/probe.h"
#include "shim/process/process.h"
#include "shim/process/session.h"
#include "shim/sharing/exports.h"
#include "shim/tables/identity.h"
#include "shim/tables/options.h"

#define RUN_ID "MEMSHIM_RUN_ID"

static char run_id_variable[64];

/* --- Exit --------------------------------------------------------------------------------------
 */

/* Registered before the program's first instruction, so it runs last: after the program's own
 * handlers, and after the destructors of its libraries, which may still free memory. Other threads
 * may go on; hooks still serve them, only the trace is closed. */
static void at_exit(int status, void *unused)
{
    (void)unused;
    if (ms_process_inert()) {
        return;
    }
    if (!ms_process_served()) {
        if (ms_resolve_bypassed()) {
            ms_log(MS_LOG_WARN,
                   "this program used CUDA in a way that bypasses memshim: libcuda "
                   "was loaded, and none of its functions was looked up through dlsym. "
                   "Nothing was capped or recorded");
        }
        return;
    }
    if (!ms_process_is_own()) {
        return;
    }
    const char *copy = ms_copy_behind();
    if (copy != NULL) {
        ms_log(MS_LOG_WARN, "%s is preloaded as well, after this memshim, and did nothing", copy);
    }
    if (ms_guard.inside) {
        ms_session_left(status); /* called by a signal handler: this thread will never release what
                                    it holds */
        return;
    }
    const int cancellation = ms_cancel_hold();
    ms_torch_end();
    ms_arenas_end();
    ms_exports_end();
    ms_session_end(status);
    ms_cancel_let(cancellation);
}

/* --- _exit -------------------------------------------------------------------------------------
 *
 * It ends the process without any of the above. The trace gets the status, nothing else: signal
 * handlers call this, and children of vfork, whose memory is their parent's. So it stores nothing
 * in memory, and the next function is known from the start. The C library's own exit() does not
 * come here. */

typedef void (*exit_t)(int status);

static struct {
    exit_t posix, standard; /* null: before memshim's constructor */
} next_exits;

static void find_next_exits(void)
{
    next_exits.posix = (exit_t)ms_real_dlsym(RTLD_NEXT, "_exit");
    next_exits.standard = (exit_t)ms_real_dlsym(RTLD_NEXT, "_Exit");
}

static _Noreturn void leave(exit_t next, int status)
{
    if (ms_process_is_own()) {
        ms_session_leave(status);
    }
    if (next != NULL) {
        next(status);
    }
    ms_command_leave(status);
}

__attribute__((visibility("default"))) void _exit(int status)
{
    leave(next_exits.posix, status);
}

__attribute__((visibility("default"))) void _Exit(int status)
{
    leave(next_exits.standard, status);
}

/* --- Load --------------------------------------------------------------------------------------
 */

/* Puts a NAME=value into the environment unless NAME is set. Not by setenv: bash and others export
 * a setenv of their own, which must not be called before main. */
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

/* All processes of a run must have one id. The first preloaded process sets it, and its children
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

/* A setuid program, whose environment is that of whoever started it, is served by nobody's options
 * and writes nobody's files. */
static bool is_left_alone(void)
{
    return (environ != NULL &&
            (ms_environment(environ, MS_PROBING) != NULL || ms_options_switched_off(environ))) ||
           ms_copy_before() || getauxval(AT_SECURE) != 0;
}

static void begin(void)
{
    find_next_exits();
    ms_torch_descriptors_begin();
    if (is_left_alone()) {
        ms_process_make_inert();
        return;
    }
    ms_process_begin();
    put_run_id();
    char *torch_variable = ms_torch_settings_variable();
    if (torch_variable != NULL) {
        put(torch_variable);
    }
    ms_fork_begin();
    (void)on_exit(at_exit, NULL); /* fails only without memory; then the trace ends as after a
                                     kill */
}

void ms_life_begin(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    const int error = errno;
    (void)pthread_once(&once, begin);
    errno = error;
}

/* Constructors of other libraries may run before it. errno is 0 when main begins (C17 7.5). */
__attribute__((constructor)) static void at_load(void)
{
    ms_life_begin();
}
