/* SPDX-License-Identifier: Apache-2.0 */
/* Handles of the simulated driver. See object.h. */
#include "object.h"

#include "../simgpu.h"
#include "array.h"
#include "call_site.h"
#include "context.h"
#include "entry.h"
#include "event.h"
#include "graph.h"
#include "graph_user.h"
#include "link.h"
#include "memory.h"
#include "module.h"
#include "pool.h"
#include "settings.h"
#include "stream.h"
#include "vmm.h"

#include <string.h>
#include <sys/mman.h>

#define SLAB_BYTES 65536
/* How many destroyed objects of a kind are kept. Destroyed contexts may stay current in other
 * threads, so they are kept forever. */
#define KEPT 65536

#define KINDS(KIND)                                                  \
    KIND(sim_contexts, "context", struct CUctx_st, UINT64_MAX)       \
    KIND(sim_streams, "stream", struct CUstream_st, KEPT)            \
    KIND(sim_events, "event", struct CUevent_st, KEPT)               \
    KIND(sim_modules, "module", struct CUmod_st, KEPT)               \
    KIND(sim_functions_kind, "function", struct CUfunc_st, KEPT)     \
    KIND(sim_libraries, "library", struct CUlib_st, KEPT)            \
    KIND(sim_links, "link", struct CUlinkState_st, KEPT)             \
    KIND(sim_kernels, "kernel", struct CUkern_st, KEPT)              \
    KIND(sim_graphs, "graph", struct CUgraph_st, KEPT)               \
    KIND(sim_graph_nodes, "graph_node", struct CUgraphNode_st, KEPT) \
    KIND(sim_graph_execs, "graph_exec", struct CUgraphExec_st, KEPT) \
    KIND(sim_pools, "pool", struct CUmemPoolHandle_st, KEPT)         \
    KIND(sim_chunks, "chunk", struct sim_chunk, KEPT)                \
    KIND(sim_blocks, "block", struct sim_range, 0)                   \
    KIND(sim_mappings, "mapping", struct sim_mapping, 0)             \
    KIND(sim_reservations, "reservation", struct sim_reservation, 0) \
    KIND(sim_users, "user_object", struct CUuserObject_st, KEPT)     \
    KIND(sim_arrays, "array", struct CUarray_st, KEPT)               \
    KIND(sim_mipmaps, "mipmap", struct CUmipmappedArray_st, KEPT)    \
    KIND(sim_greens, "green_context", struct CUgreenCtx_st, KEPT)    \
    KIND(sim_textures, "texture", struct sim_texture, KEPT)

#define DEFINE_KIND(variable, label, type, keep) \
    struct sim_object_kind variable = {.name = label, .size_bytes = sizeof(type), .kept = (keep)};
KINDS(DEFINE_KIND)

static struct sim_object_kind *const kinds[] = {
#define LIST_KIND(variable, label, type, keep) &variable,
    KINDS(LIST_KIND)};

__attribute__((constructor)) static void number_kinds(void)
{
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        kinds[i]->magic = 0x51A60000u + (uint32_t)i + 1;
    }
}

static bool grow(struct sim_object_kind *kind)
{
    char *slab = sim_pages(SLAB_BYTES);
    if (!slab) {
        return false;
    }
    for (size_t at = 0; at + kind->size_bytes <= SLAB_BYTES; at += kind->size_bytes) {
        struct sim_object *object = (struct sim_object *)(slab + at);
        object->next_free = kind->unused;
        kind->unused = object;
    }
    return true;
}

static struct sim_object *take_oldest(struct sim_object_kind *kind)
{
    struct sim_object *object = kind->oldest;
    kind->oldest = object->next_free;
    kind->waiting--;
    sim_call_site_release(object->destruction);
    return object;
}

static struct sim_object *take_unused(struct sim_object_kind *kind)
{
    struct sim_object *object = kind->unused || grow(kind) ? kind->unused : NULL;
    if (object) {
        kind->unused = object->next_free;
    }
    return object;
}

void *sim_object_new(struct sim_object_kind *kind)
{
    bool again = kind->waiting > kind->kept;
    struct sim_object *object = again ? take_oldest(kind) : take_unused(kind);
    if (!object) {
        return NULL;
    }
    memset(object, 0, kind->size_bytes);
    object->magic = kind->magic;
    object->references = 1;
    kind->live++;
    return object;
}

void sim_object_free(struct sim_object_kind *kind, void *pointer)
{
    struct sim_object *object = pointer;
    if (kind->kept) {
        sim_object_destroy(object);
    }
    object->magic = 0;
    object->next_free = NULL;
    if (kind->waiting++) {
        kind->newest->next_free = object;
    } else {
        kind->oldest = object;
    }
    kind->newest = object;
    kind->live--;
}

void sim_object_destroy(struct sim_object *object)
{
    if (!object->destruction) {
        object->destruction = sim_call_site_here();
    }
}

void sim_object_revive(struct sim_object *object)
{
    sim_call_site_release(object->destruction);
    object->destruction = NULL;
}

bool sim_object_is(const struct sim_object_kind *kind, const void *handle)
{
    const struct sim_object *object = handle;
    if (object && object->destruction && sim_settings.strict) {
        sim_call_site_abort(kind->name, object, object->destruction);
    }
    return object && !object->destruction && object->magic == kind->magic;
}

void *sim_pages(size_t bytes)
{
    void *pages = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return pages == MAP_FAILED ? NULL : pages;
}

uint64_t simgpu_live(const char *name)
{
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (strcmp(kinds[i]->name, name) == 0) {
            sim_lock();
            uint64_t live = kinds[i]->live;
            sim_unlock();
            return live;
        }
    }
    return UINT64_MAX;
}
