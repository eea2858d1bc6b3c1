/* SPDX-License-Identifier: Apache-2.0 */
/* Forks while another thread waits for the answer of the device to PyTorch's settings. The child
 * reads them, too. Prints what it found. */
#include <pthread.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "say.h"
#include "torch_double.h"

enum { MIDST_MS = 500, MOST_S = 20 };

static void *ask(void *unused)
{
    EXPECT(torch_settings() != NULL);
    return unused;
}

int main(void)
{
    const struct timespec nap = {.tv_nsec = MIDST_MS * 1000000L};
    pthread_t thread;
    int status;
    EXPECT(pthread_create(&thread, NULL, ask, NULL) == 0);
    (void)nanosleep(&nap, NULL);
    pid_t child = fork();
    if (child == 0) {
        (void)alarm(MOST_S);
        const char *settings = torch_settings();
        (void)printf("%s\n", settings != NULL ? settings : "none");
        return 0;
    }
    EXPECT(child > 0 && waitpid(child, &status, 0) == child);
    EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    EXPECT(pthread_join(thread, NULL) == 0);
    return 0;
}
