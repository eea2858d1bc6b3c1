/* SPDX-License-Identifier: Apache-2.0 */
/* Sockets and messages between two processes that share memory. */
#include "shim/sharing/wire.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "allocator/base/cancel.h"
#include "allocator/base/clock.h"
#include "shim/group/file.h"
#include "shim/group/socket.h"

#define BACKLOG 128

bool ms_share_key_equal(const struct ms_share_key *a, const struct ms_share_key *b)
{
    return memcmp(a->bytes, b->bytes, sizeof a->bytes) == 0;
}

bool ms_share_key_make(struct ms_share_key *out)
{
    return getrandom(out->bytes, sizeof out->bytes, GRND_NONBLOCK) == (ssize_t)sizeof out->bytes;
}

/* Processes in different containers may have the same number. */
struct ms_share_key ms_share_key_of(pid_t process)
{
    struct ms_share_key key = {0};
    struct stat status = {0};
    const uint64_t number = (uint64_t)process;
    (void)stat("/proc/self/ns/pid", &status);
    const uint64_t space = status.st_ino;
    _Static_assert(sizeof number + sizeof space == sizeof key.bytes, "both fill the key");
    memcpy(key.bytes, &space, sizeof space);
    memcpy(key.bytes + sizeof space, &number, sizeof number);
    return key;
}

/* Names and keys are made of these. */
struct digits {
    char text[2 * MS_SHARE_KEY_BYTES + 1];
};

static struct digits digits_of(const struct ms_share_key *process)
{
    struct digits digits;
    for (size_t i = 0; i < sizeof process->bytes; i++) {
        (void)snprintf(digits.text + 2 * i, 3, "%02x", process->bytes[i]);
    }
    return digits;
}

/* The address vanishes with its socket (unix(7)). */
static socklen_t abstract_address(const struct ms_share_key *process, struct sockaddr_un *address)
{
    memset(address, 0, sizeof *address);
    address->sun_family = AF_UNIX;
    const int used = snprintf(address->sun_path + 1, sizeof address->sun_path - 1, "memshim-%s",
                              digits_of(process).text);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)used);
}

int ms_share_socket(void)
{
    return socket(AF_UNIX, MS_SOCKET_KIND, 0);
}

static int listen_abstract(const struct ms_share_key *process)
{
    struct sockaddr_un address;
    const socklen_t length = abstract_address(process, &address);
    int fd = ms_share_socket();
    if (fd >= 0 &&
        (bind(fd, (const struct sockaddr *)&address, length) != 0 || listen(fd, BACKLOG) != 0)) {
        (void)close(fd);
        return -1;
    }
    return fd;
}

void ms_share_listen(const struct ms_share_key *process, int fds[MS_SHARE_PLACES])
{
    (void)ms_socket_sweep(MS_GROUP_FOLDER);
    fds[MS_SHARE_ABSTRACT] = listen_abstract(process);
    const struct ms_share_key number = ms_share_key_of(getpid());
    fds[MS_SHARE_BY_NUMBER] = listen_abstract(&number);
    fds[MS_SHARE_IN_FOLDER] = ms_socket_listen(MS_GROUP_FOLDER, digits_of(process).text, BACKLOG);
}

void ms_share_unlist(const struct ms_share_key *process)
{
    ms_socket_remove(MS_GROUP_FOLDER, digits_of(process).text);
}

static bool connect_to(int fd, const struct sockaddr_un *address, socklen_t length,
                       uint64_t deadline_ns)
{
    /* EAGAIN: too many connections wait there already (connect(2)). poll cannot wait for that. */
    while (connect(fd, (const struct sockaddr *)address, length) != 0) {
        if ((errno != EAGAIN && errno != EINTR) || ms_clock_ns() >= deadline_ns) {
            return false;
        }
        ms_nap(UINT64_C(2000000));
    }
    return true;
}

bool ms_share_connect(int fd, const struct ms_share_key *process, uint64_t deadline_ns)
{
    struct sockaddr_un address;
    socklen_t length = abstract_address(process, &address);
    if (connect_to(fd, &address, length, deadline_ns)) {
        return true;
    }
    if (errno != ECONNREFUSED) {
        return false;
    }
    length = ms_socket_address(MS_GROUP_FOLDER, digits_of(process).text, &address);
    return length != 0 && connect_to(fd, &address, length, deadline_ns);
}

bool ms_share_is_users(int fd)
{
    struct ucred peer;
    socklen_t bytes = sizeof peer;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 && peer.uid == geteuid();
}

/* Holds the descriptors of one message. */
union control {
    struct cmsghdr header;
    char bytes[CMSG_SPACE(MS_SHARE_BATCH * sizeof(int))];
};

bool ms_share_send(int fd, const void *message, size_t bytes, const int *fds, size_t count)
{
    union control control;
    struct iovec vector = {.iov_base = (void *)message, .iov_len = bytes};
    struct msghdr header = {.msg_iov = &vector, .msg_iovlen = 1};
    if (count > 0) {
        memset(&control, 0, sizeof control);
        header.msg_control = control.bytes;
        header.msg_controllen = CMSG_SPACE(count * sizeof *fds);
        struct cmsghdr *rights = CMSG_FIRSTHDR(&header);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(count * sizeof *fds);
        memcpy(CMSG_DATA(rights), fds, count * sizeof *fds);
    }
    ssize_t sent = 0;
    do {
        sent = sendmsg(fd, &header, MSG_DONTWAIT | MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    return sent == (ssize_t)bytes;
}

static size_t take_descriptors(struct msghdr *header, int *fds)
{
    size_t count = 0;
    for (struct cmsghdr *rights = CMSG_FIRSTHDR(header); rights;
         rights = CMSG_NXTHDR(header, rights)) {
        if (rights->cmsg_level == SOL_SOCKET && rights->cmsg_type == SCM_RIGHTS) {
            size_t more = (rights->cmsg_len - CMSG_LEN(0)) / sizeof *fds;
            memcpy(fds + count, CMSG_DATA(rights), more * sizeof *fds);
            count += more;
        }
    }
    return count;
}

static bool await(int fd, uint64_t deadline_ns)
{
    uint64_t now = ms_clock_ns();
    struct pollfd wanted = {.fd = fd, .events = POLLIN};
    int ms = deadline_ns > now ? (int)((deadline_ns - now) / 1000000 + 1) : 0;
    int ready = poll(&wanted, 1, ms);
    return ready > 0 || (ready < 0 && errno == EINTR && ms_clock_ns() < deadline_ns);
}

bool ms_share_receive(int fd, void *message, size_t bytes, int *fds, size_t *count,
                      uint64_t deadline_ns, bool *ended)
{
    *ended = false;
    for (;;) {
        union control control;
        struct iovec vector = {.iov_base = message, .iov_len = bytes};
        struct msghdr header = {.msg_iov = &vector,
                                .msg_iovlen = 1,
                                .msg_control = control.bytes,
                                .msg_controllen = sizeof control.bytes};
        ssize_t came = recvmsg(fd, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        if (came == (ssize_t)bytes) {
            *count = take_descriptors(&header, fds);
            return true;
        }
        if (came >= 0 || (errno != EAGAIN && errno != EINTR)) {
            *ended = true; /* the end of the connection, or no message of ours */
            return false;
        }
        if (errno == EAGAIN && !await(fd, deadline_ns)) {
            return false;
        }
    }
}
