/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The devices: their memory, identity and primary contexts.
 *
 * A device's memory is one sparse memory file. Its first part is mapped as a whole at `arena`, and
 * cuMemAlloc and the pools take their addresses there; behind it lie the chunks of cuMemCreate.
 * What limits a device is not the file but the account (account.h); freed bytes are punched out of
 * it.
 */
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
    struct sim_extents small_free; /* parts of granules that hold small blocks */
    struct CUctx_st *primary;      /* NULL: never retained, or reset */
    unsigned primary_references;
    unsigned primary_flags;
    struct CUmemPoolHandle_st *default_pool, *current_pool; /* made when first asked for */
    struct CUmemPoolHandle_st *graph_pool;
    uint64_t graph_peak_used, graph_peak_reserved;
};

extern struct sim_device sim_devices[SIM_MAX_DEVICES];
extern struct sim_backing sim_host_backing; /* of host-located chunks */

/* Builds all devices. With sim_lock held. */
CUresult sim_devices_create(void);

/* NULL: no such device. */
/* A device that is not there: left beside the shared file, for the answer of a dry run. */
void sim_note_asked(int ordinal);

struct sim_device *sim_device_of(CUdevice device);

/* What cuDeviceGetAttribute answers; 0 for what it does not know. */
int sim_attribute(const struct sim_device *device, CUdevice_attribute number);

/*
 * Addresses of a device's arena, charged to it: small sizes come from shared granules, others are
 * whole granules. charged_bytes is what to give to sim_arena_free beside the address, and what the
 * block occupies. CUDA_ERROR_OUT_OF_MEMORY.
 */
CUresult sim_arena_alloc(struct sim_device *device, uint64_t bytes, char **address,
                         uint64_t *occupied_bytes);
void sim_arena_free(struct sim_device *device, char *address, uint64_t occupied_bytes);

/* Gives the host memory behind [offset, offset + bytes) of the file back to the host. */
void sim_backing_discard(const struct sim_backing *backing, uint64_t offset, uint64_t bytes);

/* name and text may be NULL. False: no such error. */
bool sim_error_text(CUresult error, const char **name, const char **text);

#endif
