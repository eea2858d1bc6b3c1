/* SPDX-License-Identifier: Apache-2.0 */
/* Device memory that the real library takes for itself, by the rules of its source (2.30.7):
 *
 * - Everything comes from cuMemCreate, so that the smallest piece is a granule of 2 MiB (alloc.h).
 * - A communicator: three pieces for each channel, and two of its own (channel.cc, init.cc); one
 *   more for each NVLS channel, and one for their credits (nvls.cc).
 * - A connection from a peer on a channel: a receive buffer for each of the protocols LL, LL128
 *   and Simple, and one piece beside it for sending (transport/p2p.cc). Without access between the
 *   devices, all of that lies on the host (transport/shm.cc).
 * - In a ring each rank has one peer before it. A tree inside a machine is a chain, which adds one
 *   peer if there are more than two ranks. NVLS: two buffers of 8 steps for each channel and head
 *   (nvls.cc).
 * - send, recv and all-to-all have connections of their own to each peer that they reach.
 *
 * From 2.22 on, a connection is made when an algorithm first uses it; before, with the
 * communicator. The algorithm depends on the size of a message; this counts every algorithm that it
 * may be. */
#include "nccl_double.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB       ((size_t)1 << 20)
#define GRANULE   (2 * MIB)
#define LAZY_FROM 22200 /* the first version that makes connections late */

enum {
    LL_BYTES = 8 * 512 * 8 * 16,        /* lines per thread, threads, steps, bytes per line */
    LL128_BYTES = 120 * 640 * 8 * 8,    /* elements per thread, threads, steps, bytes per element */
    SIMPLE_BYTES = 4 * 1024 * 1024,     /* NCCL_BUFFSIZE */
    HEAD_BYTES = 4096,                  /* of a connection's memory, besides its buffers */
    NVLS_BUFFER_BYTES = 128 * 1024 * 8, /* NCCL_NVLS_CHUNKSIZE, steps */
    MOST_HEADS = 8,                     /* devices per machine */
    MOST_CHANNELS = 64,
    /* Without a table for the card: less than the real library takes. */
    OWN_BYTES = 16 * 1024 * 1024,
};

/* From the card's table, and from the user's settings for the real library. */
typedef struct {
    bool known, on_host;
    size_t channels, nvls_channels, peer_channels, connection_bytes;
} table_t;

static size_t round_up(size_t bytes)
{
    return (bytes + GRANULE - 1) / GRANULE * GRANULE;
}

static size_t set_by_user(const char *name, size_t otherwise)
{
    const char *text = getenv(name);
    long long value = text ? strtoll(text, NULL, 10) : 0;

    return value > 0 ? (size_t)value : otherwise;
}

static bool is_set_to(const char *name, const char *value)
{
    const char *text = getenv(name);

    return text && strcmp(text, value) == 0;
}

static size_t limited(size_t channels)
{
    size_t least = set_by_user("NCCL_MIN_CTAS", set_by_user("NCCL_MIN_NCHANNELS", 1));
    size_t most = set_by_user("NCCL_MAX_CTAS", set_by_user("NCCL_MAX_NCHANNELS", MOST_CHANNELS));

    channels = channels < least ? least : channels;
    channels = channels < most ? channels : most;
    return channels < MOST_CHANNELS ? channels : MOST_CHANNELS;
}

/* "24,16,32": channels, NVLS channels, channels to a peer; ",host" if devices have no access to
 * each other. */
static table_t read_table(void)
{
    const char *text = getenv("SIMGPU_NCCL");
    table_t table = {0};
    char host[8] = "";

    if (!text || sscanf(text, "%4zu,%4zu,%4zu,%7s", &table.channels, &table.nvls_channels,
                        &table.peer_channels, host) < 3) {
        return table;
    }
    table.known = true;
    table.on_host = strcmp(host, "host") == 0 || is_set_to("NCCL_P2P_DISABLE", "1");
    table.channels = limited(table.channels);
    table.nvls_channels = table.nvls_channels == 0 || is_set_to("NCCL_NVLS_ENABLE", "0")
                              ? 0
                              : limited(table.nvls_channels);
    table.connection_bytes =
        GRANULE + round_up(HEAD_BYTES + set_by_user("NCCL_LL_BUFFSIZE", LL_BYTES) +
                           set_by_user("NCCL_LL128_BUFFSIZE", LL128_BYTES) +
                           set_by_user("NCCL_BUFFSIZE", SIMPLE_BYTES));
    return table;
}

static size_t power_above(size_t number)
{
    size_t power = 1;

    while (power < number) {
        power *= 2;
    }
    return power;
}

static size_t own_bytes(const table_t *table)
{
    if (!table->known) {
        return OWN_BYTES;
    }
    size_t pieces = 2 + 3 * power_above(table->channels);

    return (pieces + (table->nvls_channels > 0 ? table->nvls_channels + 1 : 0)) * GRANULE;
}

static size_t bytes_of(const table_t *table, int slot, int nranks)
{
    size_t heads = nranks < MOST_HEADS ? (size_t)nranks : MOST_HEADS;

    if (slot == SIMNCCL_MEMORY_OWN) {
        return own_bytes(table);
    }
    if (!table->known || nranks < 2) {
        return 0;
    }
    if (slot == SIMNCCL_MEMORY_NVLS) {
        return round_up(2 * table->nvls_channels * heads * NVLS_BUFFER_BYTES);
    }
    if (table->on_host || (slot == SIMNCCL_MEMORY_TREE && nranks == 2)) {
        return 0;
    }
    return table->connection_bytes *
           (slot >= SIMNCCL_MEMORY_PEERS ? table->peer_channels : table->channels);
}

static CUresult take(ncclComm_t comm, int slot)
{
    const table_t table = read_table();
    size_t bytes = comm->memory[slot].at ? 0 : bytes_of(&table, slot, comm->nranks);
    CUresult result = CUDA_SUCCESS;

    if (bytes > 0) {
        result = simnccl_device_alloc(&comm->memory[slot].at, bytes, comm->device);
        comm->memory[slot].bytes = result == CUDA_SUCCESS ? bytes : 0;
    }
    return result;
}

static CUresult take_all(ncclComm_t comm)
{
    CUresult result = take(comm, SIMNCCL_MEMORY_RING);

    result = result == CUDA_SUCCESS ? take(comm, SIMNCCL_MEMORY_TREE) : result;
    return result == CUDA_SUCCESS ? take(comm, SIMNCCL_MEMORY_NVLS) : result;
}

CUresult simnccl_memory_begin(ncclComm_t comm)
{
    CUresult result = take(comm, SIMNCCL_MEMORY_OWN);

    return result == CUDA_SUCCESS && simnccl_version < LAZY_FROM ? take_all(comm) : result;
}

static CUresult take_peers(ncclComm_t comm)
{
    CUresult result = CUDA_SUCCESS;

    for (int peer = 0; peer < comm->nranks && result == CUDA_SUCCESS; peer++) {
        result = peer == comm->rank ? CUDA_SUCCESS : take(comm, SIMNCCL_MEMORY_PEERS + peer);
    }
    return result;
}

CUresult simnccl_memory_connect(ncclComm_t comm, const simnccl_op_t *op)
{
    switch (op->kind) {
    case SIMNCCL_SEND:
    case SIMNCCL_RECV:
        return op->peer == comm->rank ? CUDA_SUCCESS : take(comm, SIMNCCL_MEMORY_PEERS + op->peer);
    case SIMNCCL_ALL_TO_ALL:
    case SIMNCCL_GATHER:
    case SIMNCCL_SCATTER:
        return take_peers(comm);
    case SIMNCCL_ALL_REDUCE:
        return take_all(comm);
    default:
        return take(comm, SIMNCCL_MEMORY_RING);
    }
}

void simnccl_memory_end(ncclComm_t comm)
{
    for (int slot = 0; slot < SIMNCCL_MEMORY_SLOTS; slot++) {
        if (comm->memory[slot].at) {
            /* At exit the driver, and the memory with it, may be gone already. */
            simnccl_device_free(comm->memory[slot].at);
            comm->memory[slot].at = 0;
            comm->memory[slot].bytes = 0;
        }
    }
}

uint64_t simnccl_memory_bytes(const struct ncclComm *comm)
{
    uint64_t bytes = 0;

    for (int slot = 0; slot < SIMNCCL_MEMORY_SLOTS; slot++) {
        bytes += comm->memory[slot].bytes;
    }
    return bytes;
}
