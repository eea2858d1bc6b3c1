/* SPDX-License-Identifier: Apache-2.0 */
/* The devices: their memory, identity and primary contexts.
 *
 * A device's memory is one sparse memory file. Its first part is mapped as a whole at `arena`,
 * where cuMemAlloc and the pools take their addresses; the chunks of cuMemCreate lie after it. The
 * account (account.h) limits a device, not the file; freed bytes are punched out of the file. */
#ifndef SIMGPU_DEVICE_H
#define SIMGPU_DEVICE_H

#include "account.h"
#include "driver_api.h"
#include "extent.h"
#include "settings.h"

#include <stdbool.h>

#define SIM_GRANULE_BYTES (2ull << 20)

struct sim_backing {
    int fd;
    struct sim_extents chunks; /* free ranges of the file for cuMemCreate */
};

struct sim_device {
    int index;
    CUuuid uuid;
    char pci_id[24];
    struct sim_backing backing;
    char *arena;
    uint64_t arena_bytes;
    struct sim_extents arena_free; /* granules of the arena, by offset */
    struct sim_extents small_free; /* parts of granules with small blocks */
    struct CUctx_st *primary;      /* NULL: never retained, or reset */
    unsigned primary_references;
    unsigned primary_flags;
    struct CUmemPoolHandle_st *default_pool, *current_pool; /* made at their first use */
    struct CUmemPoolHandle_st *graph_pool;
};

extern struct sim_device sim_devices[SIM_MAX_DEVICES];
extern struct sim_backing sim_host_backing; /* for host-located chunks */

/* Builds all devices. With sim_lock held. */
CUresult sim_devices_create(void);

/* NULL: no such device. */
/* Notes, in a file beside the shared one, that a program asked for a device that does not exist. A
 * dry run reads it. */
void sim_note_asked(int ordinal);

struct sim_device *sim_device_of(CUdevice device);

/* cuDeviceGetAttribute's answer; 0 for unknown attributes. */
int sim_attribute(const struct sim_device *device, CUdevice_attribute number);

/* What a multiprocessor holds at a time. */
struct sim_processor {
    unsigned capability; /* 10 * major + minor */
    int threads, blocks, shared_bytes;
};

/* Those of the devices, by their compute capability. */
const struct sim_processor *sim_processor(void);

/* The most shared memory that one block may have. */
#define SIM_SHARED_RESERVED 1024 /* for each block, from capability 8.0 on */
int sim_block_shared_bytes(void);

/* Allocates addresses of a device's arena, and charges them to it: small sizes share granules,
 * others get whole granules. charged_bytes: the size of the block, to be passed to sim_arena_free
 * with the address. CUDA_ERROR_OUT_OF_MEMORY. */
CUresult sim_arena_alloc(struct sim_device *device, uint64_t bytes, char **address,
                         uint64_t *occupied_bytes);
void sim_arena_free(struct sim_device *device, char *address, uint64_t occupied_bytes);

/* Addresses alone, in whole granules: memory that comes to them is charged by the caller. */
CUresult sim_arena_reserve(struct sim_device *device, uint64_t bytes, char **address);
void sim_arena_unreserve(struct sim_device *device, char *address, uint64_t bytes);

/* Frees the host memory behind [offset, offset + bytes) of the file. */
void sim_backing_discard(const struct sim_backing *backing, uint64_t offset, uint64_t bytes);

/* name and text may be NULL. False: no such error. */
bool sim_error_text(CUresult error, const char **name, const char **text);

#endif
