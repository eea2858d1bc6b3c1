/* SPDX-License-Identifier: Apache-2.0 */
/* What lies at an address: every block of memory that the driver handed out or registered, in one
 * ordered tree. Mapped memory (cuMemMap) has a tree of its own, vmm.h. All under sim_lock. */
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
    SIM_RANGE_IPC,        /* memory of another process */
};

struct sim_range {
    struct sim_object object;
    struct sim_node node; /* key: address */
    enum sim_range_kind kind;
    char *address;
    uint64_t bytes;    /* as asked for */
    uint64_t occupied; /* of the arena or pool, or mapped from the host */
    struct sim_device *device;
    CUcontext context;              /* NULL for pools; not referenced */
    struct sim_range *next, **link; /* in the context's list */
    CUmemoryPool pool;
    uint64_t id;    /* CU_POINTER_ATTRIBUTE_BUFFER_ID */
    unsigned flags; /* from the call that made it */
    bool sync_memops;
    bool freeing;    /* cuMemFree is waiting for the device, or a stream-ordered free was called */
    bool of_library; /* module globals and arrays, which the application cannot free */
    unsigned graph_references; /* number of allocation nodes for it; 0: not of a graph */
    bool graph_backed;         /* an upload or a launch has given the address memory */
    bool graph_live;           /* a launch has allocated it, and nothing has freed it since */
    CUarray array;             /* the array that lies in it, or NULL */
    unsigned imports;          /* of an IPC handle opened more than once */
    bool charged;              /* managed memory: prefetched to its device */
};

/* The range that holds the address; NULL: none. */
struct sim_range *sim_range_at(CUdeviceptr address);
/* The first range at or after the address; NULL: none. */
struct sim_range *sim_range_from(CUdeviceptr address);

/* Adds a range; the caller fills in the rest. NULL: out of host memory. */
struct sim_range *sim_range_new(enum sim_range_kind kind, char *address, uint64_t bytes,
                                struct sim_device *device, CUcontext context);
/* Removes a range and frees its struct, not its memory. */
void sim_range_delete(struct sim_range *range);

/* Memory of a device that belongs to the driver or to the application. CUDA_ERROR_OUT_OF_MEMORY. */
CUresult sim_device_memory_new(CUcontext context, uint64_t bytes, struct sim_range **result);
/* Frees any range's memory and deletes it, without waiting for anything. */
void sim_range_free(struct sim_range *range);

/* Frees all memory of a context that ends. */
void sim_ranges_free_all(CUcontext context);

/* Where an address lies, for copies, attributes and checks. */
enum sim_place {
    SIM_PLACE_PAGEABLE, /* unknown to the driver: ordinary host memory */
    SIM_PLACE_HOST,     /* page-locked */
    SIM_PLACE_MANAGED,
    SIM_PLACE_DEVICE,
    SIM_PLACE_MAPPED,  /* through cuMemMap */
    SIM_PLACE_NOWHERE, /* device addresses without memory */
};

struct sim_location {
    enum sim_place place;
    struct sim_range *range;     /* NULL if mapped or pageable */
    struct sim_mapping *mapping; /* if mapped: the mapping of the first byte */
    struct sim_device *device;   /* NULL for host memory */
};

struct sim_location sim_locate(CUdeviceptr address);

/* CU_POINTER_ATTRIBUTE_SYNC_MEMOPS of what lies there: copies and sets by functions without a
 * stream are done when they return. */
bool sim_synchronizes(CUdeviceptr address);

/* True: all of [address, address + bytes) is memory that work on `device` may touch. */
bool sim_is_usable(CUdeviceptr address, uint64_t bytes, const struct sim_device *device);

#endif
