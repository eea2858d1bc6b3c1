/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What lies at an address: every block of memory that the driver handed out or was told of, in one
 * ordered tree. Mapped memory (cuMemMap) has a tree of its own, vmm.h. All under sim_lock.
 */
#ifndef SIMGPU_MEMORY_H
#define SIMGPU_MEMORY_H

#include "driver_api.h"
#include "object.h"
#include "tree.h"

#include <stdbool.h>

enum sim_range_kind {
    SIM_RANGE_DEVICE, /* cuMemAlloc, cuMemAllocPitch, module globals, arrays */
    SIM_RANGE_POOL,   /* cuMemAllocAsync and its kin */
    SIM_RANGE_MANAGED,
    SIM_RANGE_HOST,       /* cuMemHostAlloc, cuMemAllocHost */
    SIM_RANGE_REGISTERED, /* cuMemHostRegister */
    SIM_RANGE_IPC,        /* another process' memory */
};

struct sim_range {
    struct sim_object object;
    struct sim_node node; /* key: address */
    enum sim_range_kind kind;
    char *address;
    uint64_t bytes;    /* as asked for */
    uint64_t occupied; /* of the arena, of the pool, or mapped from the host */
    struct sim_device *device;
    CUcontext context;              /* NULL for pools; not referenced */
    struct sim_range *next, **link; /* in the context's list */
    CUmemoryPool pool;
    uint64_t id;    /* CU_POINTER_ATTRIBUTE_BUFFER_ID */
    unsigned flags; /* of the call that made it */
    bool sync_memops;
    bool freeing;    /* a cuMemFree waits for the device, or a stream-ordered free was called */
    bool of_library; /* not the application's to free: module globals, arrays */
    unsigned graph_references; /* allocation nodes that stand for it; 0: none of a graph */
    bool graph_live;           /* a launch has allocated it, and nothing has freed it since */
    CUarray array;             /* whose memory it is, else NULL */
    unsigned imports;          /* of an IPC handle opened more than once */
    bool charged;              /* managed memory: prefetched to its device */
};

/* The range that holds the address; NULL: none. */
struct sim_range *sim_range_at(CUdeviceptr address);
/* The first range at or behind the address; NULL: none. */
struct sim_range *sim_range_from(CUdeviceptr address);

/* Enters a range; the caller fills the rest in. NULL: out of host memory. */
struct sim_range *sim_range_new(enum sim_range_kind kind, char *address, uint64_t bytes,
                                struct sim_device *device, CUcontext context);
/* Takes a range out and gives its struct back, not its memory. */
void sim_range_delete(struct sim_range *range);

/* Memory of a device that belongs to the driver or to the application. CUDA_ERROR_OUT_OF_MEMORY. */
CUresult sim_device_memory_new(CUcontext context, uint64_t bytes, struct sim_range **result);
/* Gives any range's memory back and deletes it, without waiting for anything. */
void sim_range_free(struct sim_range *range);

/* All that belongs to a context that ends. */
void sim_ranges_free_all(CUcontext context);

/*
 * Where an address is, for copies, attributes and checks.
 */
enum sim_place {
    SIM_PLACE_PAGEABLE, /* nothing that the driver knows: ordinary host memory */
    SIM_PLACE_HOST,     /* page-locked */
    SIM_PLACE_MANAGED,
    SIM_PLACE_DEVICE,
    SIM_PLACE_MAPPED,  /* through cuMemMap */
    SIM_PLACE_NOWHERE, /* device addresses with nothing there */
};

struct sim_location {
    enum sim_place place;
    struct sim_range *range;     /* NULL where mapped or pageable */
    struct sim_mapping *mapping; /* the mapping that holds the first byte, where mapped */
    struct sim_device *device;   /* NULL for host memory */
};

struct sim_location sim_locate(CUdeviceptr address);

/* CU_POINTER_ATTRIBUTE_SYNC_MEMOPS of what lies there: copies and sets of the functions without a
 * stream are done when these return. */
bool sim_synchronizes(CUdeviceptr address);

/* True: all of [address, address + bytes) is memory that work may touch on `device`. */
bool sim_is_usable(CUdeviceptr address, uint64_t bytes, const struct sim_device *device);

#endif
