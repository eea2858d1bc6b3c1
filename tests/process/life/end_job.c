/* SPDX-License-Identifier: Apache-2.0 */
/* What a program may mind of the process that makes its report: one scenario a run, end_job NAME.
 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "driver.h"
#include "say.h"

static struct driver cu;

static void use_device(void)
{
    CUcontext context;
    CUdevice device;
    CUdeviceptr block;
    MUST(cu.cuInit(0));
    MUST(cu.cuDeviceGet(&device, 0));
    MUST(cu.cuDevicePrimaryCtxRetain(&context, device));
    MUST(cu.cuCtxSetCurrent(context));
    MUST(cu.cuMemAlloc(&block, MIB));
    MUST(cu.cuMemFree(block));
}

static void say(const char *line)
{
    (void)!write(STDOUT_FILENO, line, strlen(line));
}

static void on_child(int signal)
{
    (void)signal;
    say("SIGCHLD\n");
}

/* As a launcher's thread does that reaps whatever ends. */
static void *reap(void *unused)
{
    for (;;) {
        if (waitpid(-1, NULL, 0) > 0) {
            say("a child ended\n");
        }
        const struct timespec pause = {.tv_nsec = 100000};
        (void)nanosleep(&pause, NULL);
    }
    return unused;
}

static void reaping(void)
{
    pthread_t thread;
    (void)signal(SIGCHLD, on_child);
    use_device();
    MUST(pthread_create(&thread, NULL, reap, NULL));
}

/* At any port; no descriptor is closed by an exec. */
static void listening(void)
{
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof(here);
    const int server = socket(AF_INET, SOCK_STREAM, 0);
    EXPECT(server >= 0);
    MUST(bind(server, (struct sockaddr *)&here, sizeof(here)));
    MUST(listen(server, 1));
    MUST(getsockname(server, (struct sockaddr *)&here, &bytes));
    EXPECT(dup(server) >= 0); /* one has the number of what the report's process is given */
    (void)printf("%d\n", ntohs(here.sin_port));
    use_device();
}

/* From here on no process can be started. */
static void no_processes(void)
{
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EAGAIN),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {sizeof(rules) / sizeof(*rules), rules};
    use_device();
    MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
        say("no seccomp\n");
    }
}

static void ignoring(void)
{
    (void)signal(SIGCHLD, SIG_IGN);
    (void)signal(SIGUSR1, SIG_IGN);
    sigset_t all;
    (void)sigfillset(&all);
    use_device();
    (void)sigprocmask(SIG_SETMASK, &all, NULL);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } scenarios[] = {{"plain", use_device},
                     {"reaping", reaping},
                     {"listening", listening},
                     {"ignoring", ignoring},
                     {"no-processes", no_processes}};
    EXPECT(argc == 2);
    cu = driver_open();
    for (size_t i = 0; i < sizeof(scenarios) / sizeof(*scenarios); i++) {
        if (strcmp(argv[1], scenarios[i].name) == 0) {
            scenarios[i].run();
            return 5;
        }
    }
    return 2;
}
