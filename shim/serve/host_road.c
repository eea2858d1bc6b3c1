#include "shim/serve/host_road.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "report/verdict.h"
#include "shim/cli/probe.h"
#include "shim/identity.h"
#include "shim/log.h"
#include "shim/serve/driver.h"
#include "shim/serve/host_bytes.h"
#include "shim/serve/nvml.h"

#define STACK_BYTES ((size_t)64 << 10)
#define LONGEST_MS  11000 /* the probe ends itself after 10 s, unless the kernel holds it */
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
            _exit(WIFEXITED(status) ? WEXITSTATUS(status) : MS_PROBE_NOT_REACHED);
        }
        (void)nanosleep(&look, NULL);
    }
    if (probe > 0) {
        (void)kill(probe, SIGKILL);
    }
    _exit(probe > 0 ? MS_PROBE_NOT_REACHED : MS_PROBE_UNKNOWN);
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

/* The command line's executable: beside the library where it was built, in bin/ where it was
 * installed. */
static bool find_command(char *path, size_t path_bytes)
{
    char library[PATH_MAX];
    Dl_info info;
    static const char *const places[] = {"memshim", "../bin/memshim", "../../bin/memshim"};
    if (!dladdr((const void *)ms_host_road_open, &info) || !info.dli_fname ||
        !realpath(info.dli_fname, library)) {
        return false;
    }
    const char *slash = strrchr(library, '/');
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        (void)snprintf(path, path_bytes, "%.*s/%s", (int)(slash - library), library, places[i]);
        if (access(path, X_OK) == 0) {
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

static int run_probe(const struct ms_device *device)
{
    char command[PATH_MAX + 32];
    char uuid[2 * sizeof device->uuid + 1];
    char preload[4 * PATH_MAX];
    size_t count = 0;
    if (!find_command(command, sizeof command)) {
        return MS_PROBE_UNKNOWN;
    }
    for (size_t i = 0; i < sizeof device->uuid; i++) {
        (void)snprintf(uuid + 2 * i, 3, "%02x", device->uuid[i]);
    }
    while (environ[count]) {
        count++;
    }
    char **environment = calloc(count + 1, sizeof *environment);
    if (!environment) {
        return MS_PROBE_UNKNOWN;
    }
    for (size_t i = 0; i < count; i++) {
        environment[i] = environ[i];
        if (strncmp(environ[i], "LD_PRELOAD=", strlen("LD_PRELOAD=")) == 0) {
            preload_without(environ[i] + strlen("LD_PRELOAD="), preload, sizeof preload);
            environment[i] = preload;
        }
    }
    char *argv[] = {command, "probe-host", uuid, NULL};
    int status = run_apart(argv, environment);
    free(environment);
    return status;
}

/* --- what is remembered ----------------------------------------------------------------------- */

/* A file for each device and driver in the user's cache folder; locked while it is found out, so
 * that processes that start together ask once. -1: nothing can be remembered here. */
static int open_memory(const struct ms_device *device)
{
    char folder[PATH_MAX];
    char path[2 * PATH_MAX];
    char driver[64];
    const char *cache = ms_environment(environ, "XDG_CACHE_HOME");
    const char *home = ms_environment(environ, "HOME");
    int version = 0;
    (void)ms_driver()->cuDriverGetVersion(&version);
    if (!ms_nvml_driver_version(driver, sizeof driver)) {
        (void)snprintf(driver, sizeof driver, "cuda-%d", version);
    }
    if (cache) {
        (void)snprintf(folder, sizeof folder, "%s/memshim", cache);
    } else if (home) {
        (void)snprintf(folder, sizeof folder, "%s/.cache/memshim", home);
    } else {
        ms_identity_fallback_dir(environ, getuid(), folder, sizeof folder);
    }
    for (char *slash = strchr(folder + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        (void)mkdir(folder, S_IRWXU);
        *slash = '/';
    }
    (void)mkdir(folder, S_IRWXU);
    int used = snprintf(path, sizeof path, "%s/host-%s-", folder, driver);
    for (size_t i = 0; i < sizeof device->uuid; i++) {
        used += snprintf(path + used, sizeof path - (size_t)used, "%02x", device->uuid[i]);
    }
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, S_IRUSR | S_IWUSR);
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

/* One character: '0' plus the probe's exit status. Only what was found out for good. */
static int proven(const struct ms_device *device)
{
    char answer = 0;
    int file = open_memory(device);
    if (file >= 0 && pread(file, &answer, 1, 0) == 1 &&
        (answer == '0' + MS_PROBE_REACHED || answer == '0' + MS_PROBE_NOT_REACHED)) {
        (void)close(file);
        return answer - '0';
    }
    int status = run_probe(device);
    answer = (char)('0' + status);
    if (file >= 0) {
        if (status == MS_PROBE_REACHED || status == MS_PROBE_NOT_REACHED) {
            ssize_t written = pwrite(file, &answer, 1, 0);
            (void)written; /* then it is found out again */
        }
        (void)close(file);
    }
    return status;
}

/* --- the road --------------------------------------------------------------------------------- */

static int attribute(const struct ms_device *device, CUdevice_attribute which)
{
    int value = 0;
    return ms_driver()->cuDeviceGetAttribute(&value, which, device->handle) == CUDA_SUCCESS ? value
                                                                                            : 0;
}

/* Where host chunks would lie: beside the device where the driver can say so (CUDA 12.2), else
 * anywhere. False: it has none. */
static bool find_location(struct ms_device *device)
{
    device->host_location.type = CU_MEM_LOCATION_TYPE_INVALID;
    if (attribute(device, CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)) {
        int node = attribute(device, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID);
        device->host_location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
        device->host_location.id = node > 0 ? node : 0;
    } else if (attribute(device, CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)) {
        device->host_location.type = CU_MEM_LOCATION_TYPE_HOST;
    }
    return device->host_location.type != CU_MEM_LOCATION_TYPE_INVALID;
}

static const char *reason_against(struct ms_device *device)
{
    if (!find_location(device)) {
        return "its driver offers none";
    }
    switch (proven(device)) {
    case MS_PROBE_REACHED:
        return NULL;
    case MS_PROBE_NOT_REACHED:
        return "the driver offers it, but a test of it failed";
    default:
        return "it could not be tested (is the memshim command beside the library?)";
    }
}

uint64_t ms_host_road_open(struct ms_device *device)
{
    char text[24];
    uint64_t bytes = ms_host_share_bytes(ms_host_available_bytes(""));
    device->no_host_road = reason_against(device);
    if (device->no_host_road) {
        device->host_location.type = CU_MEM_LOCATION_TYPE_INVALID;
        ms_log(MS_LOG_INFO,
               "device %d cannot use host memory: %s; holes are taken only as far as free memory "
               "could fill them again",
               device->ordinal, device->no_host_road);
        return 0;
    }
    ms_log(MS_LOG_INFO, "device %d may use up to %s of host memory to fill holes again",
           device->ordinal, ms_bytes_text(bytes, text, sizeof text));
    return bytes;
}
