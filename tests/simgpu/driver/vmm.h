/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Virtual memory management: reserved addresses, chunks (cuMemCreate handles) and their mappings.
 * An address that is not mapped, or mapped without access, really faults. All under sim_lock.
 */
#ifndef SIMGPU_VMM_H
#define SIMGPU_VMM_H

#include "driver_api.h"
#include "object.h"
#include "tree.h"

#include <stdbool.h>

struct sim_reservation {
    struct sim_object object;
    struct sim_node node; /* key: address */
    char *address;
    uint64_t bytes;
    unsigned mappings; /* number of mappings in it */
};

struct sim_chunk {
    struct sim_object object; /* its references are the application's handles and the mappings */
    unsigned handles;
    CUmemAllocationProp properties;
    uint64_t bytes;
    uint64_t offset; /* in the backing's file */
    struct sim_backing *backing;
    struct sim_device *device; /* the device that is charged; NULL: in host memory, or imported */
    int imported_fd;           /* -1: own */
    bool exported;
    struct sim_team
        *team; /* of a multicast object, which has no memory (multicast.h); NULL: memory */
};

struct sim_mapping {
    struct sim_object object;
    struct sim_node node; /* key: address */
    char *address;
    uint64_t bytes;
    struct sim_chunk *chunk;
    struct sim_reservation *reservation;
    uint32_t read_devices, write_devices; /* bit i: device i has that access */
    bool host_read, host_write;
    bool visible;     /* accessible to the process */
    bool sync_memops; /* CU_POINTER_ATTRIBUTE_SYNC_MEMOPS */
    uint64_t id;
};

struct sim_mapping *sim_mapping_at(CUdeviceptr address);
/* True: all of [address, address + bytes) is mapped. */
bool sim_is_mapped(CUdeviceptr address, uint64_t bytes);
struct sim_reservation *sim_reservation_at(CUdeviceptr address);

/* The API's handle for a chunk, and back; NULL: no such handle, or all references released. */
CUmemGenericAllocationHandle sim_chunk_handle(const struct sim_chunk *chunk);
struct sim_chunk *sim_chunk_of(CUmemGenericAllocationHandle handle);

/* Drops a reference, which may have been the last one. */
void sim_chunk_drop(struct sim_chunk *chunk);

#endif
