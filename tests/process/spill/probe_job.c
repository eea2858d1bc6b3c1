/* SPDX-License-Identifier: Apache-2.0 */
/* A program that would notice a child that is not its own: it counts SIGCHLD, and waits for
 * whatever there is to wait for. "ask": it only asks what devices there are. "ignore": it ignores
 * SIGCHLD, as who wants no zombies does; children that end are then nobody's to wait for. "reap": a
 * thread waits for children of every kind, as a debugger does. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

#include "driver.h"
#include "say.h"

static volatile sig_atomic_t signals;

static void count(int signal)
{
    (void)signal;
    signals++;
}

static void ask(const struct driver *driver)
{
    int devices = 0;
    size_t bytes = 0;
    MUST(driver->cuDeviceGetCount(&devices));
    MUST(driver->cuDeviceTotalMem(&bytes, 0));
    EXPECT(devices == 1 && bytes != 0);
}

static void use(const struct driver *driver)
{
    CUcontext context = NULL;
    MUST(driver->cuDevicePrimaryCtxRetain(&context, 0));
    MUST(driver->cuCtxSetCurrent(context));
}

static atomic_bool ends;

static void *reap(void *unused)
{
    (void)unused;
    while (!atomic_load(&ends)) {
        if (waitpid(-1, NULL, __WALL) == -1) {
            (void)nanosleep(&(struct timespec){.tv_nsec = 10000}, NULL);
        }
    }
    return NULL;
}

static void use_beside_a_reaper(const struct driver *driver)
{
    pthread_t reaper;
    EXPECT(pthread_create(&reaper, NULL, reap, NULL) == 0);
    use(driver);
    atomic_store(&ends, true);
    EXPECT(pthread_join(reaper, NULL) == 0);
}

int main(int argc, char **argv)
{
    struct sigaction action = {.sa_handler = count};
    struct driver driver = driver_open();
    const char *how = argc > 1 ? argv[1] : "";
    if (strcmp(how, "ignore") == 0) {
        action.sa_handler = SIG_IGN;
    }
    EXPECT(sigaction(SIGCHLD, &action, NULL) == 0);
    MUST(driver.cuInit(0));
    if (strcmp(how, "ask") == 0) {
        ask(&driver);
    } else if (strcmp(how, "reap") == 0) {
        use_beside_a_reaper(&driver);
    } else {
        use(&driver);
    }
    errno = 0;
    int waited = wait(NULL) == -1 ? errno : 0;
    (void)printf("signals %d, %s\n", (int)signals, strerror(waited));
    return 0;
}
