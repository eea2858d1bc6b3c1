/* SPDX-License-Identifier: Apache-2.0 */
/* For a command that needs the network and does not get it: the host that it looked for in vain is
 * written down for the answer of the dry run. */
#include <dlfcn.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

typedef int lookup_t(const char *node, const char *service, const struct addrinfo *hints,
                     struct addrinfo **result);

static void leave_word(const char *node)
{
    const char *shared = getenv("SIMGPU_SHARED");
    char path[4096], line[256];
    const int length = snprintf(line, sizeof line, "host %s\n", node);
    if (!shared || length >= (int)sizeof line ||
        snprintf(path, sizeof path, "%s.asked", shared) >= (int)sizeof path) {
        return;
    }
    const int file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (file >= 0) {
        (void)!write(file, line, (size_t)length);
        (void)close(file);
    }
}

__attribute__((visibility("default"))) int getaddrinfo(const char *node, const char *service,
                                                       const struct addrinfo *hints,
                                                       struct addrinfo **result)
{
    lookup_t *next = (lookup_t *)dlsym(RTLD_NEXT, "getaddrinfo");
    const int status = next ? next(node, service, hints, result) : EAI_SYSTEM;
    if (node && (status == EAI_NONAME || status == EAI_AGAIN || status == EAI_FAIL)) {
        leave_word(node);
    }
    return status;
}
