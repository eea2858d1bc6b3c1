/*
 * Handles. Each kind of object has its own free list and its memory never becomes anything else, so
 * that a stale handle is recognised by its magic number and not by a crash. The caller holds
 * sim_lock.
 */
#ifndef SIMGPU_OBJECT_H
#define SIMGPU_OBJECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sim_object {
    uint32_t magic; /* 0: free */
    uint32_t references;
    struct sim_object *next_free;
};

struct sim_object_kind {
    const char *name; /* as in simgpu_live */
    size_t size_bytes;
    uint32_t magic;
    uint64_t live;
    struct sim_object *free_list;
    void *slabs;
};

/* Zeroed, with one reference; NULL: out of host memory. The object begins with a sim_object. */
void *sim_object_new(struct sim_object_kind *kind);
/* Gives the object back to its kind. Its owner has dropped the last reference. */
void sim_object_free(struct sim_object_kind *kind, void *object);

static inline bool sim_object_is(const struct sim_object_kind *kind, const void *object)
{
    return object && ((const struct sim_object *)object)->magic == kind->magic;
}

extern struct sim_object_kind sim_contexts, sim_streams, sim_events, sim_modules,
    sim_functions_kind, sim_graphs, sim_graph_nodes, sim_graph_execs, sim_pools, sim_chunks,
    sim_blocks, sim_mappings, sim_reservations, sim_libraries, sim_kernels, sim_arrays, sim_mipmaps,
    sim_textures, sim_users;

#endif
