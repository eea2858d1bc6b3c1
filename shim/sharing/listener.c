/* SPDX-License-Identifier: Apache-2.0 */
/* The thread that answers other processes about the blocks that this one has exported.
 *
 * It never waits for anybody: questions and answers are single messages, sent without blocking, and
 * the tables' lock is the only one it takes. It asks the driver for descriptors of chunks, and for
 * nothing else. A forked child has no such thread. The child closes the sockets, so that the other
 * ends see the end of this process. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "allocator/base/locks/lock.h"
#include "shim/driver/driver.h"
#include "shim/process/fork.h"
#include "shim/process/guard.h"
#include "shim/process/log.h"
#include "shim/sharing/descriptor.h"
#include "shim/sharing/export_table.h"

struct hold {
    struct hold *next;
    struct ms_export *export;
};

struct connection {
    struct ms_descriptor socket;
    struct hold *holds; /* used by the thread alone */
};

/* The thread alone changes it, under SHARING for a child that is forked meanwhile. */
static struct connection *connections;
static size_t connection_count, connection_room;
static struct ms_descriptor listening[MS_SHARE_PLACES];

/* --- answers ---------------------------------------------------------------------------------- */

static struct hold **hold_of(struct connection *connection, const struct ms_share_key *block)
{
    struct hold **at = &connection->holds;
    while (*at && !ms_share_key_equal(&(*at)->export->name.block, block)) {
        at = &(*at)->next;
    }
    return at;
}

static void let(struct hold **at)
{
    struct hold *hold = *at;
    *at = hold->next;
    ms_exports_let(hold->export);
    free(hold);
}

static void open_block(struct connection *connection, const struct ms_share_request *request,
                       struct ms_share_answer *answer)
{
    struct hold *hold = malloc(sizeof *hold);
    struct ms_export *export = hold ? ms_exports_hold(&request->block) : NULL;
    if (!export) {
        free(hold);
        return;
    }
    *hold = (struct hold){.next = connection->holds, .export = export};
    connection->holds = hold;
    answer->known = 1;
    answer->offset_bytes = export->offset_bytes;
    answer->whole_bytes = export->whole_bytes;
}

static bool open_chunk(CUmemGenericAllocationHandle_v1 chunk, int *fd)
{
    return MS_REAL(cuMemExportToShareableHandle)(
               fd, chunk, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) == CUDA_SUCCESS;
}

/* answer->count: the number of open descriptors. Either all of a batch, or the answer says that
 * there is no such block. */
static void open_chunks(struct connection *connection, const struct ms_share_request *request,
                        struct ms_share_answer *answer, int *fds)
{
    struct ms_export_piece pieces[MS_SHARE_BATCH];
    uint64_t next_bytes = 0;
    const struct hold *hold = *hold_of(connection, &request->block);
    if (!hold) {
        return;
    }
    const size_t count = ms_exports_pieces(hold->export, request->from, pieces, &next_bytes);
    bool known = true;
    answer->next_bytes = next_bytes;
    for (size_t i = 0; i < count && known; i++) {
        answer->at_bytes[i] = pieces[i].at_bytes;
        answer->chunk_bytes[i] = pieces[i].bytes;
        known = open_chunk(pieces[i].handle, &fds[i]);
        answer->count += known;
    }
    answer->known = known;
}

/* False: the connection is of no more use. */
static bool answer_one(struct connection *connection, const struct ms_share_request *request)
{
    int fds[MS_SHARE_BATCH];
    struct ms_share_answer answer = {.serial = request->serial};
    switch (request->question) {
    case MS_SHARE_OPEN:
        open_block(connection, request, &answer);
        break;
    case MS_SHARE_CHUNKS:
        open_chunks(connection, request, &answer, fds);
        break;
    case MS_SHARE_LENT:
        fds[0] = ms_lent_copy(request->from);
        answer.known = answer.count = fds[0] >= 0;
        break;
    case MS_SHARE_CLOSE: {
        struct hold **hold = hold_of(connection, &request->block);
        if (*hold) {
            let(hold);
        }
        return true;
    }
    default:
        return false;
    }
    bool sent = ms_share_send(connection->socket.fd, &answer, sizeof answer, fds, answer.count);
    for (uint32_t i = 0; i < answer.count; i++) {
        (void)close(fds[i]);
    }
    return sent;
}

/* Answers all that the connection asked. False: the other end is gone, or the program closed this
 * one. */
static bool serve(struct connection *connection)
{
    struct ms_share_request request;
    int strange[MS_SHARE_BATCH];
    size_t count = 0;
    bool ended = false;
    if (!ms_descriptor_is_ours(&connection->socket)) {
        return false;
    }
    while (ms_share_receive(connection->socket.fd, &request, sizeof request, strange, &count, 0,
                            &ended)) {
        for (size_t i = 0; i < count; i++) {
            (void)close(strange[i]); /* our own messages send none */
        }
        if (!answer_one(connection, &request)) {
            return false;
        }
    }
    return !ended;
}

/* --- connections ------------------------------------------------------------------------------ */

static bool need_room(void)
{
    if (connection_count < connection_room) {
        return true;
    }
    const size_t room = connection_room ? 2 * connection_room : 16;
    struct connection *more = realloc(connections, room * sizeof *more);
    if (more) {
        connections = more;
        connection_room = room;
    }
    return more != NULL;
}

/* Accepts and enters it in one step, so that no forked child misses it. */
static void accept_one(const struct ms_descriptor *listener)
{
    const struct timespec later = {.tv_nsec = 20000000};
    if (!ms_descriptor_is_ours(listener)) {
        return;
    }
    ms_lock_acquire(MS_LOCK(SHARING));
    const bool room = need_room();
    int fd = room ? accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK) : -1;
    const int error = errno;
    if (fd >= 0 && ms_share_is_users(fd)) {
        connections[connection_count++] = (struct connection){.socket = ms_descriptor_keep(fd)};
    } else if (fd >= 0) {
        (void)close(fd);
    }
    ms_lock_release(MS_LOCK(SHARING));
    if (fd < 0 && (!room || error == EMFILE || error == ENFILE || error == ENOMEM)) {
        (void)nanosleep(&later, NULL); /* the connection waits to be accepted */
    }
}

static void drop(size_t index)
{
    struct connection gone = connections[index];
    while (gone.holds) {
        let(&gone.holds);
    }
    ms_lock_acquire(MS_LOCK(SHARING));
    ms_descriptor_close(&gone.socket);
    connections[index] = connections[--connection_count];
    ms_lock_release(MS_LOCK(SHARING));
}

/* What to wait for. What the program has closed is waited for no more: its number may be the
 * program's own by now. */
static struct pollfd awaited(const struct ms_descriptor *descriptor)
{
    return (struct pollfd){.fd = ms_descriptor_is_ours(descriptor) ? descriptor->fd : -1,
                           .events = POLLIN};
}

static void *listen_on(void *unused)
{
    (void)unused;
    struct pollfd *wanted = NULL;
    size_t room = 0;
    ms_guard.inside = true; /* so that what the driver calls goes straight to the driver */
    for (;;) {
        if (!wanted || room < connection_count + MS_SHARE_PLACES) {
            free(wanted);
            room = 2 * (connection_count + MS_SHARE_PLACES);
            wanted = malloc(room * sizeof *wanted);
            if (!wanted) {
                return NULL; /* no more can be opened; what is open stays open */
            }
        }
        for (size_t i = 0; i < connection_count; i++) {
            wanted[i] = awaited(&connections[i].socket);
        }
        const size_t count = connection_count;
        for (size_t i = 0; i < MS_SHARE_PLACES; i++) {
            wanted[count + i] = awaited(&listening[i]);
        }
        if (poll(wanted, count + MS_SHARE_PLACES, -1) <= 0) {
            continue;
        }
        for (size_t i = count; i-- > 0;) { /* backwards, because the last connection moves into the
                                              place of one that is gone */
            if (wanted[i].revents != 0 && !serve(&connections[i])) {
                drop(i);
            }
        }
        for (size_t i = 0; i < MS_SHARE_PLACES; i++) {
            if (wanted[count + i].revents != 0) {
                accept_one(&listening[i]);
            }
        }
    }
}

/* --- beginning and end ------------------------------------------------------------------------ */

static void close_listening(void)
{
    for (size_t i = 0; i < MS_SHARE_PLACES; i++) {
        ms_descriptor_close(&listening[i]);
    }
}

static void in_child(void)
{
    for (size_t i = 0; i < connection_count; i++) {
        ms_descriptor_close(&connections[i].socket);
    }
    close_listening();
}

static struct ms_fork_part at_fork = {.in_child = in_child};

static enum { NOT_BEGUN, BEGUN, IMPOSSIBLE } state; /* SHARING */
static struct ms_share_key own;

/* All signals are blocked while the thread is made, and so inside it: the handlers are the
 * program's. */
static bool start_thread(void)
{
    sigset_t all;
    sigset_t before;
    pthread_t thread;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    bool made = pthread_create(&thread, NULL, listen_on, NULL) == 0;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (made) {
        (void)pthread_detach(thread);
    }
    return made;
}

static bool begin(void)
{
    if (!ms_share_key_make(&own)) {
        return false;
    }
    int fds[MS_SHARE_PLACES];
    ms_share_listen(&own, fds);
    for (size_t i = 0; i < MS_SHARE_PLACES; i++) {
        listening[i] = ms_descriptor_keep(fds[i]);
    }
    if ((listening[MS_SHARE_ABSTRACT].fd >= 0 || listening[MS_SHARE_IN_FOLDER].fd >= 0) &&
        start_thread()) {
        return true;
    }
    close_listening();
    ms_share_unlist(&own);
    return false;
}

bool ms_listener_start(struct ms_share_key *process)
{
    ms_lock_acquire(MS_LOCK(SHARING));
    if (state == NOT_BEGUN) {
        state = begin() ? BEGUN : IMPOSSIBLE;
        if (state == BEGUN) {
            ms_fork_join(&at_fork);
        } else {
            ms_log(MS_LOG_WARN, "memory cannot be shared with other processes: no socket or no "
                                "thread for it can be had");
        }
    }
    const bool begun = state == BEGUN;
    *process = own;
    ms_lock_release(MS_LOCK(SHARING));
    return begun;
}

void ms_exports_end(void)
{
    if (state == BEGUN) {
        ms_share_unlist(&own);
    }
}
