/* SPDX-License-Identifier: Apache-2.0 */
/* What two processes exchange about exported memory: the 64 bytes of an IPC handle of ours, and the
 * messages on a Unix socket, whose name the handle contains.
 *
 * The opener asks and the exporter answers, with one message each, in order; every question but
 * CLOSE has an answer. The connection lasts as long as anything is open over it. When it ends, all
 * of that counts as closed, however the opener ended. */
#ifndef MEMSHIM_SHIM_SHARING_WIRE_H
#define MEMSHIM_SHIM_SHARING_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define MS_SHARE_KEY_BYTES 16u
/* Descriptors in a message: the kernel allows 253, a process has 1,024. */
#define MS_SHARE_BATCH 64u

/* A name of a process or a block, which nobody can guess. */
struct ms_share_key {
    uint8_t bytes[MS_SHARE_KEY_BYTES];
};

/* The contents of a CUipcMemHandle. */
struct ms_share_name {
    char magic[8];
    struct ms_share_key process; /* the exporter, whose socket's name is made from it */
    struct ms_share_key block;
    uint64_t bytes;   /* size of the block as asked for */
    uint8_t uuid[16]; /* of its device */
};
_Static_assert(sizeof(struct ms_share_name) == 64, "CU_IPC_HANDLE_SIZE");

#define MS_SHARE_MAGIC "memshim"

enum ms_share_question {
    MS_SHARE_OPEN,   /* one more hold on the block */
    MS_SHARE_CHUNKS, /* descriptors of its chunks from byte `from` on, but for those that the
                        exporter has unmapped */
    MS_SHARE_CLOSE,  /* one hold less */
    MS_SHARE_LENT    /* a copy of the descriptor number `from` (lent.h); names no block */
};

struct ms_share_request {
    uint64_t serial; /* copied into the answer, so that answers that come too late can be skipped */
    uint64_t question;
    uint64_t from;
    struct ms_share_key block;
};

struct ms_share_answer {
    uint64_t serial;
    uint32_t known;        /* 0: no such block (any more) */
    uint32_t count;        /* of descriptors */
    uint64_t offset_bytes; /* where the block begins in its first chunk */
    uint64_t whole_bytes;  /* of all its chunks */
    uint64_t next_bytes;   /* where to go on; whole_bytes: that was all */
    uint64_t at_bytes[MS_SHARE_BATCH], chunk_bytes[MS_SHARE_BATCH]; /* of each descriptor */
};

bool ms_share_key_equal(const struct ms_share_key *a, const struct ms_share_key *b);

/* False: the system has no random bytes. */
bool ms_share_key_make(struct ms_share_key *out);

/* By which those find a process who know its number alone. It is no secret. */
struct ms_share_key ms_share_key_of(pid_t process);

/* Sockets, non-blocking and closed on exec; -1: none. Two listen under the process's name: one by
 * an abstract name, which is in no file system, and one by a file in a folder, for processes in
 * other network namespaces. A third listens under its number, by an abstract name. The last one
 * connects. */
enum { MS_SHARE_ABSTRACT, MS_SHARE_IN_FOLDER, MS_SHARE_BY_NUMBER, MS_SHARE_PLACES };
void ms_share_listen(const struct ms_share_key *process, int fds[MS_SHARE_PLACES]);
int ms_share_socket(void);
bool ms_share_connect(int fd, const struct ms_share_key *process, uint64_t deadline_ns);

/* The process no longer listens: removes its name from the folder. */
void ms_share_unlist(const struct ms_share_key *process);

/* Whether the process at the other end belongs to this process's user. */
bool ms_share_is_users(int fd);

/* Sends one message with descriptors, which stay the caller's. Never waits; false: not sent. */
bool ms_share_send(int fd, const void *message, size_t bytes, const int *fds, size_t count);

/* Receives one message, and waits for it until the deadline (0: not at all). The caller owns the
 * descriptors; *count: how many came, at most MS_SHARE_BATCH. False: nothing came. *ended: nothing
 * more will come. */
bool ms_share_receive(int fd, void *message, size_t bytes, int *fds, size_t *count,
                      uint64_t deadline_ns, bool *ended);

#endif
