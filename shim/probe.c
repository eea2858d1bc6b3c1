#include "shim/probe.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "allocator/slab.h"
#include "shim/identity.h"

#define STACK_BYTES ((size_t)64 << 10)
#define LONGEST_MS  21000 /* a probe ends itself after 10 s twice, unless the kernel holds it */
#define LOOK_MS     2

/* --- the throw-away process ------------------------------------------------------------------- */

/* The probe must leave no trace in this process: no SIGCHLD, and no child that the program's own
 * wait() could find. So it is a grandchild. Both are made as vfork makes them: they share this
 * process's memory, and this thread stands still meanwhile. The child in between is one that no
 * wait() sees (clone(2), "__WCLONE"), and stays for as long as the probe runs. */
struct launch {
    char *const *argv;
    char *const *environment;
    char *stacks; /* two */
    sigset_t signals;
};

static int probe_process(void *argument)
{
    const struct launch *launch = argument;
    struct sigaction standard = {.sa_handler = SIG_DFL};
    for (int signal = 1; signal < NSIG; signal++) {
        (void)sigaction(signal, &standard, NULL); /* this process's handlers are not for it */
    }
    (void)sigprocmask(SIG_SETMASK, &launch->signals, NULL);
    int nowhere = open("/dev/null", O_RDWR);
    if (nowhere >= 0) {
        (void)dup2(nowhere, STDIN_FILENO);
        (void)dup2(nowhere, STDOUT_FILENO);
        (void)dup2(nowhere, STDERR_FILENO);
    }
    (void)execve(launch->argv[0], launch->argv, launch->environment);
    _exit(MS_PROBE_UNKNOWN);
}

static int waiting_process(void *argument)
{
    const struct launch *launch = argument;
    const struct timespec look = {.tv_nsec = LOOK_MS * 1000000L};
    int status = 0;
    pid_t probe = clone(probe_process, launch->stacks + 2 * STACK_BYTES,
                        CLONE_VM | CLONE_VFORK | SIGCHLD, argument);
    for (int ms = 0; probe > 0 && ms < LONGEST_MS; ms += LOOK_MS) {
        if (waitpid(probe, &status, WNOHANG) == probe) {
            _exit(WIFEXITED(status) ? WEXITSTATUS(status) : MS_PROBE_NO);
        }
        (void)nanosleep(&look, NULL);
    }
    if (probe > 0) {
        (void)kill(probe, SIGKILL);
    }
    _exit(probe > 0 ? MS_PROBE_NO : MS_PROBE_UNKNOWN);
}

/* The exit status of the command, or MS_PROBE_UNKNOWN. */
static int run_apart(char *const *argv, char *const *environment)
{
    int status = 0;
    sigset_t all;
    struct launch launch = {.argv = argv, .environment = environment};
    launch.stacks = mmap(NULL, 2 * STACK_BYTES, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    if (launch.stacks == MAP_FAILED) {
        return MS_PROBE_UNKNOWN;
    }
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &launch.signals);
    pid_t waiter =
        clone(waiting_process, launch.stacks + STACK_BYTES, CLONE_VM | CLONE_VFORK, &launch);
    bool ended = waiter > 0 && waitpid(waiter, &status, __WCLONE) == waiter && WIFEXITED(status);
    (void)pthread_sigmask(SIG_SETMASK, &launch.signals, NULL);
    (void)munmap(launch.stacks, 2 * STACK_BYTES);
    return ended ? WEXITSTATUS(status) : MS_PROBE_UNKNOWN;
}

/* Too large for a small thread's stack. */
struct texts {
    char library[PATH_MAX];
    char command[PATH_MAX + 32];
    char preload[4 * PATH_MAX];
    char folder[PATH_MAX];
    char path[2 * PATH_MAX];
};

/* The command line's executable: beside the library where it was built, in bin/ where it was
 * installed. */
static bool find_command(struct texts *texts)
{
    Dl_info info;
    static const char *const places[] = {"memshim", "../bin/memshim", "../../bin/memshim"};
    if (!dladdr((const void *)ms_probe, &info) || !info.dli_fname ||
        !realpath(info.dli_fname, texts->library)) {
        return false;
    }
    const char *slash = strrchr(texts->library, '/');
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        (void)snprintf(texts->command, sizeof texts->command, "%.*s/%s",
                       (int)(slash - texts->library), texts->library, places[i]);
        if (access(texts->command, X_OK) == 0) {
            return true;
        }
    }
    return false;
}

/* LD_PRELOAD= without the library itself, whatever else is preloaded. */
static void preload_without(const char *value, char *out, size_t out_bytes)
{
    int used = snprintf(out, out_bytes, "LD_PRELOAD=");
    while (*value != '\0') {
        value += strspn(value, " :");
        size_t length = strcspn(value, " :");
        const char *name = value + length;
        while (name > value && name[-1] != '/') {
            name--;
        }
        bool ours = strncmp(name, "libmemshim.so", strlen("libmemshim.so")) == 0;
        if (!ours && length != 0 && (size_t)used + length + 2 < out_bytes) {
            used += snprintf(out + used, out_bytes - (size_t)used, "%.*s:", (int)length, value);
        }
        value += length;
    }
}

static int run_probe(const char *name, const char *argument, struct texts *texts)
{
    size_t count = 0;
    if (!find_command(texts)) {
        return MS_PROBE_UNKNOWN;
    }
    while (environ && environ[count]) {
        count++;
    }
    char **environment = calloc(count + 1, sizeof *environment);
    if (!environment) {
        return MS_PROBE_UNKNOWN;
    }
    for (size_t i = 0; i < count; i++) {
        environment[i] = environ[i];
        if (strncmp(environ[i], "LD_PRELOAD=", strlen("LD_PRELOAD=")) == 0) {
            preload_without(environ[i] + strlen("LD_PRELOAD="), texts->preload,
                            sizeof texts->preload);
            environment[i] = texts->preload;
        }
    }
    char *argv[] = {texts->command, (char *)name, (char *)argument, NULL};
    int status = run_apart(argv, environment);
    free(environment);
    return status;
}

/* --- what is remembered ----------------------------------------------------------------------- */

/* memshim's folder in the user's cache folder. A home that is not there is not made: a service's
 * account may name one that never was, and root could make it. */
static bool find_folder(char *folder, size_t folder_bytes)
{
    const char *cache = ms_environment(environ, "XDG_CACHE_HOME");
    const char *home = ms_environment(environ, "HOME");
    if (cache && cache[0] == '/') {
        (void)snprintf(folder, folder_bytes, "%s/memshim", cache);
    } else if (home && home[0] == '/') {
        (void)snprintf(folder, folder_bytes, "%s/.cache", home);
        (void)mkdir(folder, S_IRWXU);
        (void)snprintf(folder, folder_bytes, "%s/.cache/memshim", home);
    } else {
        return false;
    }
    return mkdir(folder, S_IRWXU) == 0 || errno == EEXIST;
}

/* A file in that folder; locked while it is found out, so that processes that start together ask
 * once. -1: nothing can be remembered here. */
static int open_memory(const char *key, struct texts *texts)
{
    if (!find_folder(texts->folder, sizeof texts->folder)) {
        return -1;
    }
    (void)snprintf(texts->path, sizeof texts->path, "%s/%s", texts->folder, key);
    int file = open(texts->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, S_IRUSR | S_IWUSR);
    /* Not for ever: a network's file system may have locks that nobody gives. */
    const struct timespec look = {.tv_nsec = LOOK_MS * 1000000L};
    for (int ms = 0; file >= 0 && flock(file, LOCK_EX | LOCK_NB) != 0; ms += LOOK_MS) {
        if (ms >= LONGEST_MS) {
            (void)close(file);
            return -1;
        }
        (void)nanosleep(&look, NULL);
    }
    return file;
}

/* One character: '0' plus the exit status. Only what was found out for good. */
static int probe(const char *name, const char *argument, const char *key, struct texts *texts)
{
    char answer = 0;
    int file = key ? open_memory(key, texts) : -1;
    if (file >= 0 && pread(file, &answer, 1, 0) == 1 &&
        (answer == '0' + MS_PROBE_YES || answer == '0' + MS_PROBE_NO)) {
        (void)close(file);
        return answer - '0';
    }
    int status = run_probe(name, argument, texts);
    answer = (char)('0' + status);
    if (file >= 0) {
        if (status == MS_PROBE_YES || status == MS_PROBE_NO) {
            ssize_t written = pwrite(file, &answer, 1, 0);
            (void)written; /* then it is found out again */
        }
        (void)close(file);
    }
    return status;
}

int ms_probe(const char *name, const char *argument, const char *key)
{
    struct texts *texts = ms_pages_map(sizeof *texts);
    if (!texts) {
        return MS_PROBE_UNKNOWN;
    }
    int status = probe(name, argument, key, texts);
    ms_pages_unmap(texts, sizeof *texts);
    return status;
}
