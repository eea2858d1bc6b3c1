/* A program that would notice a child that is not its own: it counts SIGCHLD, and waits for
 * whatever there is to wait for. */
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

int main(void)
{
    struct sigaction action = {.sa_handler = count};
    struct driver driver = driver_open();
    CUcontext context = NULL;
    EXPECT(sigaction(SIGCHLD, &action, NULL) == 0);
    MUST(driver.cuInit(0));
    MUST(driver.cuDevicePrimaryCtxRetain(&context, 0));
    MUST(driver.cuCtxSetCurrent(context));
    errno = 0;
    int waited = wait(NULL) == -1 ? errno : 0;
    (void)printf("signals %d, %s\n", (int)signals, strerror(waited));
    return 0;
}
