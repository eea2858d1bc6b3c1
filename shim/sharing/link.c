/* SPDX-License-Identifier: Apache-2.0 */
/* Connections to the processes whose blocks are open here. */
#include "shim/sharing/link.h"

#include <stdlib.h>
#include <unistd.h>

#include "allocator/base/clock.h"
#include "allocator/base/locks/lock.h"
#include "shim/process/fork.h"
#include "shim/sharing/descriptor.h"

#define LONGEST_NS (MS_NS_PER_S * 9 / 10) /* so that the whole call returns within a second */

struct ms_share_link {
    struct ms_share_link *next;
    struct ms_share_key process;
    struct ms_descriptor socket;
    unsigned uses;
    uint64_t serial; /* of the last question */
};

/* Guarded by IMPORTS. Changes also need SHARING, for a child that is forked meanwhile. */
static struct ms_share_link *links;

/* Closes the sockets, so that the other process sees the end of this one, not that of its
 * children. */
static void in_child(void)
{
    for (const struct ms_share_link *link = links; link; link = link->next) {
        ms_descriptor_close(&link->socket);
    }
}

static struct ms_fork_part at_fork = {.in_child = in_child};
static bool at_fork_joined; /* guarded by SHARING */

static struct ms_share_link *make(const struct ms_share_key *process)
{
    struct ms_share_link *link = calloc(1, sizeof *link);
    if (!link) {
        return NULL;
    }
    ms_lock_acquire(MS_LOCK(SHARING));
    link->socket = ms_descriptor_keep(ms_share_socket());
    link->process = *process;
    if (link->socket.fd >= 0) {
        link->next = links;
        links = link;
    }
    if (!at_fork_joined) {
        at_fork_joined = true;
        ms_fork_join(&at_fork);
    }
    ms_lock_release(MS_LOCK(SHARING));
    if (link->socket.fd < 0) {
        free(link);
        return NULL;
    }
    return link;
}

struct ms_share_link *ms_share_link_use(const struct ms_share_key *process)
{
    struct ms_share_link *link = links;
    while (link &&
           !(ms_share_key_equal(&link->process, process) && ms_descriptor_is_ours(&link->socket))) {
        link = link->next;
    }
    if (link) {
        link->uses++;
        return link;
    }
    link = make(process);
    if (!link) {
        return NULL;
    }
    link->uses = 1;
    if (!ms_share_connect(link->socket.fd, process, ms_clock_ns() + LONGEST_NS) ||
        !ms_share_is_users(link->socket.fd)) {
        ms_share_link_leave(link);
        return NULL;
    }
    return link;
}

void ms_share_link_leave(struct ms_share_link *link)
{
    if (--link->uses > 0) {
        return;
    }
    ms_lock_acquire(MS_LOCK(SHARING));
    struct ms_share_link **at = &links;
    while (*at != link) {
        at = &(*at)->next;
    }
    *at = link->next;
    ms_descriptor_close(&link->socket);
    ms_lock_release(MS_LOCK(SHARING));
    free(link);
}

static bool send_question(struct ms_share_link *link, enum ms_share_question question,
                          const struct ms_share_key *block, uint64_t from)
{
    const struct ms_share_request request = {
        .serial = ++link->serial, .question = question, .from = from, .block = *block};
    return ms_descriptor_is_ours(&link->socket) &&
           ms_share_send(link->socket.fd, &request, sizeof request, NULL, 0);
}

bool ms_share_link_ask(struct ms_share_link *link, enum ms_share_question question,
                       const struct ms_share_key *block, uint64_t from,
                       struct ms_share_answer *answer, int *fds, size_t *count)
{
    const uint64_t deadline_ns = ms_clock_ns() + LONGEST_NS;
    bool ended = false;
    if (!send_question(link, question, block, from)) {
        return false;
    }
    while (ms_share_receive(link->socket.fd, answer, sizeof *answer, fds, count, deadline_ns,
                            &ended)) {
        if (answer->serial == link->serial) {
            return true;
        }
        while (*count > 0) { /* of a question whose answer came too late */
            (void)close(fds[--*count]);
        }
    }
    return false;
}

void ms_share_link_close_block(struct ms_share_link *link, const struct ms_share_key *block)
{
    (void)send_question(link, MS_SHARE_CLOSE, block, 0);
}
