/* SPDX-License-Identifier: Apache-2.0 */
/* A program that would notice a child that is not its own: it counts SIGCHLD, and waits for
 * whatever there is to wait for. "ask": it only asks what devices there are. "ignore": it ignores
 * SIGCHLD, as who wants no zombies does; children that end are then nobody's to wait for. */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

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
    } else {
        use(&driver);
    }
    errno = 0;
    int waited = wait(NULL) == -1 ? errno : 0;
    (void)printf("signals %d, %s\n", (int)signals, strerror(waited));
    return 0;
}
