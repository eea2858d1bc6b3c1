/* SPDX-License-Identifier: Apache-2.0 */
/* One rank of a large world, alone: it can run collectives in which all ranks do the same. */
#include "nccl_double.h"

#include <stdlib.h>
#include <string.h>

bool simnccl_is_alone(void)
{
    const char *text = getenv("SIMGPU_NCCL_ALONE");

    return text && strcmp(text, "1") == 0;
}

bool simnccl_can_run_alone(simnccl_kind_t kind)
{
    switch (kind) {
    case SIMNCCL_ALL_REDUCE:
    case SIMNCCL_BROADCAST:
    case SIMNCCL_REDUCE:
    case SIMNCCL_ALL_GATHER:
    case SIMNCCL_REDUCE_SCATTER:
        return true;
    default:
        return false;
    }
}

/* A sum includes at most this many ranks. With more it is too small, but nothing depends on it. */
static void reduce(const struct ncclComm *comm, const simnccl_op_t *op, const char *from,
                   size_t count)
{
    const void *in[SIMNCCL_MAX_RANKS];
    int nranks = comm->nranks < SIMNCCL_MAX_RANKS ? comm->nranks : SIMNCCL_MAX_RANKS;

    for (int rank = 0; rank < nranks; rank++) {
        in[rank] = from;
    }
    simnccl_reduce(op->recv, in, nranks, count, op);
}

static void copy(char *to, const char *from, size_t bytes)
{
    simnccl_note_write(to, bytes);
    memmove(to, from, bytes);
}

static void gather(const struct ncclComm *comm, const simnccl_op_t *op, size_t bytes)
{
    for (int rank = 0; rank < comm->nranks; rank++) {
        copy(op->recv + (size_t)rank * op->count * op->element_bytes, op->send, bytes);
    }
}

void simnccl_run_alone(const struct ncclComm *comm, const simnccl_op_t *op, size_t count)
{
    size_t bytes = count * op->element_bytes;

    if (bytes == 0) {
        return;
    }
    switch (op->kind) {
    case SIMNCCL_ALL_REDUCE:
        reduce(comm, op, op->send, count);
        break;
    case SIMNCCL_REDUCE:
        if (comm->rank == op->peer) {
            reduce(comm, op, op->send, count);
        }
        break;
    case SIMNCCL_REDUCE_SCATTER:
        reduce(comm, op, op->send + (size_t)comm->rank * op->count * op->element_bytes, count);
        break;
    case SIMNCCL_BROADCAST:
        if (comm->rank == op->peer) {
            copy(op->recv, op->send, bytes);
        }
        break;
    default:
        gather(comm, op, bytes);
        break;
    }
}
