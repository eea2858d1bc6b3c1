/* SPDX-License-Identifier: Apache-2.0 */
/* What two processes say to each other about memory that one has exported: the 64 bytes of an IPC
 * handle of ours, and the messages on a Unix socket whose name stands in them.
 *
 * The opener asks, the exporter answers, one message each, in order; every question but CLOSE has
 * an answer. The connection stands for as long as anything is open on it: where it ends, all of
 * that is closed, however the opener ended. */
#ifndef MEMSHIM_SHIM_SHARING_WIRE_H
#define MEMSHIM_SHIM_SHARING_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MS_SHARE_KEY_BYTES 16u
#define MS_SHARE_BATCH     64u /* descriptors a message: the kernel takes 253, a process 1,024 */

/* A name nobody can guess, of a process or a block. */
struct ms_share_key {
    uint8_t bytes[MS_SHARE_KEY_BYTES];
};

/* The contents of a CUipcMemHandle. */
struct ms_share_name {
    char magic[8];
    struct ms_share_key process; /* whose socket's name is made of it */
    struct ms_share_key block;
    uint64_t bytes;   /* of the block, as asked for */
    uint8_t uuid[16]; /* of its device */
};
_Static_assert(sizeof(struct ms_share_name) == 64, "CU_IPC_HANDLE_SIZE");

#define MS_SHARE_MAGIC "memshim"

enum ms_share_question {
    MS_SHARE_OPEN,   /* the block is held from here on, once more */
    MS_SHARE_CHUNKS, /* `count` chunks of it, from `first` on: their descriptors come along */
    MS_SHARE_CLOSE   /* it is held once less */
};

struct ms_share_request {
    uint64_t serial; /* the answer has the same: those to a question given up are passed over */
    uint32_t question;
    uint32_t count;
    uint64_t first;
    struct ms_share_key block;
};

struct ms_share_answer {
    uint64_t serial;
    uint32_t known;        /* 0: no such block is to be had (any more) */
    uint32_t count;        /* of descriptors */
    uint64_t offset_bytes; /* where the block begins in its first chunk */
    uint64_t chunk_count;
    uint64_t whole_bytes; /* of all its chunks */
    uint64_t chunk_bytes[MS_SHARE_BATCH];
};

bool ms_share_key_equal(const struct ms_share_key *a, const struct ms_share_key *b);

/* False: the system has no randomness. */
bool ms_share_key_make(struct ms_share_key *out);

/* Sockets, not blocking, closed on exec; -1: there is none. Those that listen under the process's
 * name: by an abstract one, which no file system has, and by one in a folder, for processes in
 * other network namespaces; and one that is to be connected. */
enum { MS_SHARE_ABSTRACT, MS_SHARE_IN_FOLDER, MS_SHARE_PLACES };
void ms_share_listen(const struct ms_share_key *process, int fds[MS_SHARE_PLACES]);
int ms_share_socket(void);
bool ms_share_connect(int fd, const struct ms_share_key *process, uint64_t deadline_ns);

/* The process does not listen any more: its name in the folder goes. */
void ms_share_unlist(const struct ms_share_key *process);

/* Whether the process at the other end is of this process's user. */
bool ms_share_is_users(int fd);

/* One message, with descriptors, which stay the caller's. Never waits; false: it was not sent. */
bool ms_share_send(int fd, const void *message, size_t bytes, const int *fds, size_t count);

/* One message, waited for until the deadline (0: not at all). The descriptors are the caller's;
 * *count: how many came, at most MS_SHARE_BATCH. False: nothing came. *ended: and nothing will. */
bool ms_share_receive(int fd, void *message, size_t bytes, int *fds, size_t *count,
                      uint64_t deadline_ns, bool *ended);

#endif
