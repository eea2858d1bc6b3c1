/* SPDX-License-Identifier: Apache-2.0 */
/* A process's life around the device: what it does with forks, execs, threads and libraries has to
 * go on as without memshim. One scenario a run: life_job NAME. */
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "driver.h"
#include "say.h"

static struct driver cu;
static CUcontext context;

static void use_device(void)
{
    CUdevice device;
    CUdeviceptr block;
    MUST(cu.cuInit(0));
    MUST(cu.cuDeviceGet(&device, 0));
    MUST(cu.cuDevicePrimaryCtxRetain(&context, device));
    MUST(cu.cuCtxSetCurrent(context));
    MUST(cu.cuMemAlloc(&block, MIB));
    MUST(cu.cuMemsetD8(block, 1, MIB));
    MUST(cu.cuMemFree(block));
}

static int wait_status(pid_t child)
{
    int status;
    EXPECT(child > 0);
    EXPECT(waitpid(child, &status, 0) == child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void fork_after(void)
{
    use_device();
    (void)fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        exit(5);
    }
    (void)printf("exit: %d\n", wait_status(child));
    child = fork();
    if (child == 0) {
        _exit(6);
    }
    (void)printf("_exit: %d\n", wait_status(child));
    use_device();
}

/* Their ends are not its own. */
static void children_leave(void)
{
    use_device();
    pid_t child = fork();
    if (child == 0) {
        _exit(5);
    }
    EXPECT(wait_status(child) == 5);
    /* NOLINTNEXTLINE(clang-analyzer-security.insecureAPI.vfork): programs use it */
    child = vfork();
    if (child == 0) {
        _exit(6);
    }
    EXPECT(wait_status(child) == 6);
    MUST(raise(SIGKILL));
}

static void fork_before(void)
{
    pid_t child = fork();
    if (child == 0) {
        use_device();
        exit(7);
    }
    (void)printf("child with a device of its own: %d\n", wait_status(child));
    use_device();
}

/* A child that is forked while other threads allocate must not find a lock held for ever. */
static _Atomic int churning;

static void *churn(void *unused)
{
    (void)unused;
    CUdeviceptr block;
    MUST(cu.cuCtxSetCurrent(context));
    while (churning) {
        MUST(cu.cuMemAllocAsync(&block, 100 * KIB, NULL));
        MUST(cu.cuMemFreeAsync(block, NULL));
    }
    return NULL;
}

static void fork_while_busy(void)
{
    pthread_t threads[4];
    use_device();
    churning = 1;
    for (int i = 0; i < 4; i++) {
        MUST(pthread_create(&threads[i], NULL, churn, NULL));
    }
    for (int i = 0; i < 30; i++) {
        pid_t child = fork();
        if (child == 0) {
            void *memory = malloc(100000);
            _exit(memory != NULL ? 0 : 1);
        }
        EXPECT(wait_status(child) == 0);
    }
    churning = 0;
    for (int i = 0; i < 4; i++) {
        MUST(pthread_join(threads[i], NULL));
    }
    (void)printf("30 children\n");
}

static void exec_again(char *self, int with_vfork)
{
    char scenario[] = "plain";
    char *const arguments[] = {self, scenario, NULL};
    use_device();
    (void)fflush(stdout);
    pid_t child;
    if (with_vfork) {
        /* NOLINTNEXTLINE(clang-analyzer-security.insecureAPI.vfork): programs use it */
        child = vfork();
    } else {
        child = fork();
    }
    if (child == 0) {
        (void)execv(self, arguments);
        _exit(1);
    }
    (void)printf("child: %d\n", wait_status(child));
}

static void libraries(void)
{
    for (int i = 0; i < 50; i++) {
        void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
        EXPECT(library != NULL);
        EXPECT(dlsym(library, "cuMemAlloc_v2") != NULL);
        EXPECT(dlsym(library, "cuNoSuchFunction") == NULL);
        EXPECT(dlerror() != NULL);
        MUST(dlclose(library));
    }
    use_device();
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    EXPECT(library != NULL);
    MUST(dlclose(library));
    use_device();
    (void)printf("opened and closed\n");
}

/* A limit on file sizes ends a process by a signal when a write of its own, or a library's, crosses
 * it. (The simulated GPU has made its files when cuInit returns.) */
static void small_files(void)
{
    const struct rlimit limit = {4096, 4096};
    MUST(cu.cuInit(0));
    MUST(setrlimit(RLIMIT_FSIZE, &limit));
    use_device();
    for (int i = 0; i < 20000; i++) {
        CUdeviceptr block;
        MUST(cu.cuMemAllocAsync(&block, 100 * KIB, NULL));
        MUST(cu.cuMemFreeAsync(block, NULL));
    }
}

/* The first file that a program opens which was started without a stderr gets its number. */
static void file_as_stderr(void)
{
    struct stat status;
    int file = open("data", O_RDWR | O_CREAT | O_EXCL, 0600);
    EXPECT(file == STDERR_FILENO);
    use_device();
    MUST(fstat(file, &status));
    EXPECT(status.st_size == 0);
    MUST(unlink("data"));
}

/* Who prints there would fill a pipe that nobody reads, and wait for ever. */
static void no_pipe_as_standard_stream(void)
{
    struct stat status;
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        MUST(close(fd));
    }
    use_device();
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        EXPECT(fstat(fd, &status) != 0 || !S_ISFIFO(status.st_mode));
    }
}

/* The program's own stderr: lines follow it. */
static void redirected_stderr(void)
{
    int file = open("log", O_WRONLY | O_CREAT | O_EXCL, 0600);
    EXPECT(dup2(file, STDERR_FILENO) == STDERR_FILENO);
    use_device();
}

/* Handlers that do what they should not, and that works as long as nobody holds a lock for good. */
static _Atomic int handled;

static void leave_in_handler(int signal)
{
    (void)signal;
    exit(0);
}

static void leave_at_once_in_handler(int signal)
{
    (void)signal;
    _exit(7);
}

static void fork_in_handler(int signal)
{
    (void)signal;
    pid_t child = fork();
    if (child == 0) {
        _exit(0);
    }
    (void)waitpid(child, NULL, 0);
    handled++;
}

/* In a handler that interrupts a call as good as always. */
static void interrupt_calls(void (*handler)(int), suseconds_t period_us, int times)
{
    const struct itimerval every = {{0, period_us}, {0, period_us}};
    const struct itimerval never = {{0, 0}, {0, 0}};
    CUdeviceptr block;
    use_device();
    EXPECT(signal(SIGALRM, handler) != SIG_ERR);
    MUST(setitimer(ITIMER_REAL, &every, NULL));
    while (handled < times) {
        MUST(cu.cuMemAllocAsync(&block, 100 * KIB, NULL));
        MUST(cu.cuMemFreeAsync(block, NULL));
    }
    MUST(setitimer(ITIMER_REAL, &never, NULL));
}

static void *churn_until_cancelled(void *unused)
{
    (void)unused;
    CUdeviceptr block;
    MUST(cu.cuCtxSetCurrent(context));
    for (;;) {
        MUST(cu.cuMemAllocAsync(&block, 100 * KIB, NULL));
        MUST(cu.cuMemFreeAsync(block, NULL));
        pthread_testcancel();
    }
}

/* At many moments, the earliest while most is new. */
static void leave_at_any_time(void (*handler)(int), int status)
{
    for (int i = 0; i < 10; i++) {
        pid_t child = fork();
        if (child == 0) {
            interrupt_calls(handler, 1000 + 137 * i, 1);
        }
        EXPECT(wait_status(child) == status);
    }
}

/* Threads end where they ask for it, and not in the midst of a call. */
static void cancel_threads(void)
{
    pthread_t threads[4];
    use_device();
    for (int round = 0; round < 50; round++) {
        for (int i = 0; i < 4; i++) {
            MUST(pthread_create(&threads[i], NULL, churn_until_cancelled, NULL));
        }
        (void)usleep(1000);
        for (int i = 0; i < 4; i++) {
            MUST(pthread_cancel(threads[i]));
        }
        for (int i = 0; i < 4; i++) {
            MUST(pthread_join(threads[i], NULL));
        }
        use_device();
    }
}

/* All thread-specific keys there are belong to the program, and so do their values. */
static void foreign_value(void *value)
{
    (void)printf("the program's destructor got %p\n", value);
}

static void *use_own_stream(void *unused)
{
    (void)unused;
    CUdeviceptr block;
    MUST(cu.cuCtxSetCurrent(context));
    MUST(cu.cuMemAllocAsync(&block, MIB, CU_STREAM_PER_THREAD));
    MUST(cu.cuMemFreeAsync(block, CU_STREAM_PER_THREAD));
    return NULL;
}

static void no_keys_left(void)
{
    pthread_key_t key;
    pthread_t thread;
    while (pthread_key_create(&key, foreign_value) == 0) {
    }
    use_device();
    MUST(pthread_create(&thread, NULL, use_own_stream, NULL));
    MUST(pthread_join(thread, NULL));
}

static CUdeviceptr last_block;

static void free_at_exit(void)
{
    SAY_RESULT(cu.cuMemFree(last_block));
}

static void exit_handler(void)
{
    MUST(atexit(free_at_exit));
    use_device();
    MUST(cu.cuMemAlloc(&last_block, MIB));
}

static void *leave_thread(void *unused)
{
    (void)unused;
    use_device();
    exit(9);
}

static void exit_in_thread(void)
{
    pthread_t thread;
    MUST(pthread_create(&thread, NULL, leave_thread, NULL));
    (void)pthread_join(thread, NULL);
}

int main(int argc, char **argv)
{
    EXPECT(argc == 2);
    cu = driver_open();
    const char *scenario = argv[1];
    if (strcmp(scenario, "plain") == 0) {
        use_device();
    } else if (strcmp(scenario, "idle") == 0) {
        int count;
        MUST(cu.cuInit(0));
        MUST(cu.cuDeviceGetCount(&count));
    } else if (strcmp(scenario, "fork-after") == 0) {
        fork_after();
    } else if (strcmp(scenario, "fork-before") == 0) {
        fork_before();
    } else if (strcmp(scenario, "fork-busy") == 0) {
        fork_while_busy();
    } else if (strcmp(scenario, "exec") == 0) {
        exec_again(argv[0], 0);
    } else if (strcmp(scenario, "vfork") == 0) {
        exec_again(argv[0], 1);
    } else if (strcmp(scenario, "libraries") == 0) {
        libraries();
    } else if (strcmp(scenario, "exit-handler") == 0) {
        exit_handler();
    } else if (strcmp(scenario, "exit-in-thread") == 0) {
        exit_in_thread();
    } else if (strcmp(scenario, "small-files") == 0) {
        small_files();
    } else if (strcmp(scenario, "file-as-stderr") == 0) {
        file_as_stderr();
    } else if (strcmp(scenario, "stderr-closed") == 0) {
        MUST(close(STDERR_FILENO));
        file_as_stderr();
    } else if (strcmp(scenario, "standard-streams-closed") == 0) {
        no_pipe_as_standard_stream();
    } else if (strcmp(scenario, "stderr-redirected") == 0) {
        redirected_stderr();
    } else if (strcmp(scenario, "elsewhere") == 0) {
        MUST(chdir("/"));
        use_device();
    } else if (strcmp(scenario, "no-environment") == 0) {
        MUST(clearenv());
        use_device();
    } else if (strcmp(scenario, "exit-in-handler") == 0) {
        leave_at_any_time(leave_in_handler, 0);
    } else if (strcmp(scenario, "quick-in-handler") == 0) {
        leave_at_any_time(leave_at_once_in_handler, 7);
    } else if (strcmp(scenario, "fork-in-handler") == 0) {
        interrupt_calls(fork_in_handler, 2000, 100);
    } else if (strcmp(scenario, "cancel") == 0) {
        cancel_threads();
    } else if (strcmp(scenario, "no-keys") == 0) {
        no_keys_left();
    } else if (strcmp(scenario, "abort") == 0) {
        use_device();
        abort();
    } else if (strcmp(scenario, "children-leave") == 0) {
        children_leave();
    } else if (strcmp(scenario, "quick") == 0) {
        use_device();
        _exit(4);
    } else if (strcmp(scenario, "quick-standard") == 0) {
        use_device();
        _Exit(4);
    } else if (strcmp(scenario, "quick-daemon") == 0) {
        use_device();
        for (int i = 3; i < 4096; i++) {
            (void)close(i);
        }
        _exit(4);
    } else if (strcmp(scenario, "quick-limited") == 0) {
        const struct rlimit limit = {4096, 4096};
        use_device();
        MUST(setrlimit(RLIMIT_FSIZE, &limit));
        _exit(4);
    } else {
        (void)fprintf(stderr, "no scenario %s\n", scenario);
        return 2;
    }
    (void)printf("%s: done\n", scenario);
    return 0;
}
