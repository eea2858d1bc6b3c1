#include "object.h"

#include "../simgpu.h"
#include "array.h"
#include "context.h"
#include "entry.h"
#include "event.h"
#include "graph.h"
#include "graph_user.h"
#include "memory.h"
#include "module.h"
#include "pool.h"
#include "stream.h"
#include "vmm.h"

#include <stdlib.h>
#include <string.h>

#define SLAB_OBJECTS 32

#define KINDS(KIND)                                               \
    KIND(sim_contexts, "context", struct CUctx_st)                \
    KIND(sim_streams, "stream", struct CUstream_st)               \
    KIND(sim_events, "event", struct CUevent_st)                  \
    KIND(sim_modules, "module", struct CUmod_st)                  \
    KIND(sim_functions_kind, "function", struct CUfunc_st)        \
    KIND(sim_libraries, "library", struct CUlib_st)               \
    KIND(sim_kernels, "kernel", struct CUkern_st)                 \
    KIND(sim_graphs, "graph", struct CUgraph_st)                  \
    KIND(sim_graph_nodes, "graph_node", struct CUgraphNode_st)    \
    KIND(sim_graph_execs, "graph_exec", struct CUgraphExec_st)    \
    KIND(sim_pools, "pool", struct CUmemPoolHandle_st)            \
    KIND(sim_chunks, "chunk", struct sim_chunk)                   \
    KIND(sim_blocks, "block", struct sim_range)                   \
    KIND(sim_mappings, "mapping", struct sim_mapping)             \
    KIND(sim_reservations, "reservation", struct sim_reservation) \
    KIND(sim_users, "user_object", struct CUuserObject_st)        \
    KIND(sim_arrays, "array", struct CUarray_st)                  \
    KIND(sim_mipmaps, "mipmap", struct CUmipmappedArray_st)       \
    KIND(sim_textures, "texture", struct sim_texture)

#define DEFINE_KIND(variable, label, type) \
    struct sim_object_kind variable = {.name = label, .size_bytes = sizeof(type)};
KINDS(DEFINE_KIND)

static struct sim_object_kind *const kinds[] = {
#define LIST_KIND(variable, label, type) &variable,
    KINDS(LIST_KIND)};

__attribute__((constructor)) static void number_kinds(void)
{
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        kinds[i]->magic = 0x51A60000u + (uint32_t)i + 1;
    }
}

static bool grow(struct sim_object_kind *kind)
{
    size_t header = sizeof(max_align_t);
    char *slab = calloc(1, header + SLAB_OBJECTS * kind->size_bytes);
    if (!slab) {
        return false;
    }
    *(void **)slab = kind->slabs;
    kind->slabs = slab;
    for (size_t i = 0; i < SLAB_OBJECTS; i++) {
        struct sim_object *object = (struct sim_object *)(slab + header + i * kind->size_bytes);
        object->next_free = kind->free_list;
        kind->free_list = object;
    }
    return true;
}

void *sim_object_new(struct sim_object_kind *kind)
{
    if (!kind->free_list && !grow(kind)) {
        return NULL;
    }
    struct sim_object *object = kind->free_list;
    kind->free_list = object->next_free;
    memset(object, 0, kind->size_bytes);
    object->magic = kind->magic;
    object->references = 1;
    kind->live++;
    return object;
}

void sim_object_free(struct sim_object_kind *kind, void *pointer)
{
    struct sim_object *object = pointer;
    object->magic = 0;
    object->next_free = kind->free_list;
    kind->free_list = object;
    kind->live--;
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
