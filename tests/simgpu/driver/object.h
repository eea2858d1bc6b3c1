/* SPDX-License-Identifier: Apache-2.0 */
/* Handles. Each kind of object has its own free list, and its memory is never used for anything
 * else, so that a stale handle is recognized by its magic number instead of crashing. A destroyed
 * object's memory is used again only after many others of its kind were destroyed. The caller holds
 * sim_lock.
 *
 * The driver API leaves the use of a destroyed handle undefined ("are not accessed or passed in
 * subsequent API calls and doing so will result in undefined behavior", cuda.h, cuCtxDestroy; "Use
 * of the handle after this call is undefined behavior", the manual's note on the other functions
 * that destroy). Here it ends the process, and prints the place of the use and that of the
 * destruction, unless SIMGPU_STRICT is 0. */
#ifndef SIMGPU_OBJECT_H
#define SIMGPU_OBJECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sim_object {
    uint32_t magic; /* 0: free */
    uint32_t references;
    struct sim_object *next_free;
    struct sim_call_site *destruction; /* NULL: the application may use its handle */
};

struct sim_object_kind {
    const char *name; /* as in simgpu_live */
    size_t size_bytes;
    uint64_t kept; /* this many freed objects wait before the oldest is used again */
    uint32_t magic;
    uint64_t live;
    uint64_t waiting;                   /* freed, and not used again yet */
    struct sim_object *oldest, *newest; /* of the waiting objects */
    struct sim_object *unused;          /* never used */
};

/* Zeroed memory that is never freed. It does not count as heap of the program, because tests look
 * for memshim's leaks there. NULL: no memory. */
void *sim_pages(size_t bytes);

/* Zeroed, with one reference; NULL: out of host memory. The object begins with a sim_object. */
void *sim_object_new(struct sim_object_kind *kind);
/* Returns the object to its kind. Its owner has dropped the last reference. */
void sim_object_free(struct sim_object_kind *kind, void *object);

/* From now on the application must not use the handle, though the object may live on. The present
 * call is the one that destroyed it. Does nothing if it is destroyed already. */
void sim_object_destroy(struct sim_object *object);
/* The opposite, if the driver hands out the same handle again. */
void sim_object_revive(struct sim_object *object);

/* True: the handle is of this kind, and not destroyed. If it is destroyed, and such uses are not
 * allowed, does not return. */
bool sim_object_is(const struct sim_object_kind *kind, const void *handle);

extern struct sim_object_kind sim_contexts, sim_streams, sim_events, sim_modules,
    sim_functions_kind, sim_graphs, sim_graph_nodes, sim_graph_execs, sim_pools, sim_chunks,
    sim_blocks, sim_mappings, sim_reservations, sim_libraries, sim_kernels, sim_arrays, sim_mipmaps,
    sim_textures, sim_users, sim_greens, sim_links;

#endif
