/* SPDX-License-Identifier: Apache-2.0 */
/* An actor: a framework's caching allocator, as PyTorch's is. It asks for segments of 2 MiB, 20 MiB
 * and whole multiples, or maps pages of proxies into reservations of several GiB; it carves them
 * into tensors, best fit, splits and merges, keeps what is freed, and reports every allocation and
 * death. Memory is private to a stream, and to what is born while a stream captures. */
#ifndef MEMSHIM_FUZZ_FRAMEWORK_H
#define MEMSHIM_FUZZ_FRAMEWORK_H

#include "stage.h"

enum { FRAMEWORK_SEGMENTS = 48, FRAMEWORK_PIECES = 1024, FRAMEWORK_PAGES = 256 };

enum piece_state { PIECE_VOID, PIECE_FREE, PIECE_LIVE };

struct piece {
    ms_addr_t addr;
    uint64_t bytes;
    enum piece_state state;
    bool stranded; /* its tensor could not be backed */
    uint32_t used; /* a bit for each place of a stream that was given work on it */
    uint64_t owner;
    struct piece *prev, *next; /* in its segment, by address */
    struct segment *segment;   /* null: this piece is in no use */
};

/* A block of the pool, or a reservation with pages of proxies in it. */
struct segment {
    ms_addr_t base;
    uint64_t bytes;      /* 0: no such segment */
    uint64_t page_bytes; /* 0: a block of the pool */
    unsigned place;      /* of its stream */
    bool small, captured;
    bool arena;            /* a block in which a tensor was born */
    bool frozen;           /* a tensor of it was born while a stream captured */
    ms_addr_t replay_addr; /* where a captured graph writes */
    uint64_t replay_bytes; /* 0: nowhere */
    struct piece *first;
    ms_proxy_t *page[FRAMEWORK_PAGES];
    bool pinned[FRAMEWORK_PAGES];
};

struct framework {
    struct stage *stage;
    struct dice dice;
    bool expandable;
    uint32_t places; /* a bit for each stream that it uses */
    size_t most_tensors;
    uint64_t largest_bytes;
    uint64_t shrinks; /* tensors that it frees next, having found no memory for one */
    struct segment segment[FRAMEWORK_SEGMENTS];
    struct piece piece[FRAMEWORK_PIECES];
    size_t tensors;
    uint64_t next_owner;
};

void framework_begin(struct framework *framework, struct stage *stage, uint64_t seed,
                     bool expandable);
void framework_step(struct framework *framework);

/* Frees every tensor and gives all memory back. */
void framework_leave(struct framework *framework);

/* A peer is enabled: access to all that it has mapped. */
void framework_refresh_access(struct framework *framework);

#endif
