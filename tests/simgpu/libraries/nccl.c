/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NCCL's double: communicators, groups, and the queueing of operations on streams.
 *
 * Unlike the real library it accepts several ranks on one device, so that a two-rank job can be
 * tried on one simulated GPU.
 */
#include "nccl_double.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

/* A double that is made for a program's own libraries replaces this by their version. */
__attribute__((weak)) const int simnccl_version = 23007;

#define EXPORT __attribute__((visibility("default")))

enum {
    MAX_GROUP_NESTING = 1000,
};

/* Operations that are queued together: those of one communicator and one stream in a group. */
typedef struct batch_t {
    struct batch_t *next;
    ncclComm_t comm;
    CUstream stream;
    bool captured; /* part of a graph: may run any number of times, and takes no ticket */
    uint64_t ticket;
    simnccl_op_t *ops;
    size_t count;
} batch_t;

/* A communicator that still waits for its other ranks. */
typedef struct join_t {
    struct join_t *next;
    ncclComm_t comm;
    ncclComm_t *result;
    ncclComm_t parent; /* NULL: not made by a split */
    int color;
} join_t;

static _Thread_local struct {
    int depth;
    batch_t *batches; /* newest first */
    join_t *joins;    /* newest first */
    char last_error[160];
} group;

static ncclResult_t fail(ncclResult_t result, const char *what)
{
    snprintf(group.last_error, sizeof(group.last_error), "simulated NCCL: %s", what);
    return result;
}

/* Also prints it, because a program's message about an NCCL error seldom has the reason. */
static ncclResult_t refuse_alone(const char *what, const char *why)
{
    (void)fprintf(stderr,
                  "memshim dry-run: --only: %s cannot be simulated with one rank of many: only the "
                  "others know %s. Run all of them (--gpus N, torchrun), or a world without it\n",
                  what, why);
    return fail(ncclInvalidUsage, "one rank alone cannot do this operation");
}

static ncclResult_t from_driver(CUresult result, const char *call)
{
    if (result == CUDA_SUCCESS) {
        return ncclSuccess;
    }
    snprintf(group.last_error, sizeof(group.last_error),
             "simulated NCCL: %s failed with CUresult %d", call, (int)result);
    return ncclUnhandledCudaError;
}

/* ---- communicators ---- */

static void comm_release(ncclComm_t comm)
{
    if (atomic_fetch_sub(&comm->references, 1) != 1) {
        return;
    }
    simnccl_region_detach(&comm->region);
    pthread_cond_destroy(&comm->turn);
    pthread_mutex_destroy(&comm->lock);
    free(comm);
}

static ncclResult_t comm_new(ncclComm_t *result, const char *name, int rank, int nranks,
                             CUdevice device)
{
    bool alone = simnccl_is_alone();
    if (nranks < 1 || nranks > (alone ? SIMNCCL_MAX_RANKS_ALONE : SIMNCCL_MAX_RANKS) || rank < 0 ||
        rank >= nranks) {
        return fail(ncclInvalidArgument, "rank or number of ranks out of range (at most 64 ranks)");
    }
    ncclComm_t comm = calloc(1, sizeof(*comm));
    if (!comm) {
        return ncclSystemError;
    }
    comm->rank = rank;
    comm->nranks = nranks;
    comm->alone = alone;
    comm->device = device;
    atomic_store(&comm->references, 1);
    snprintf(comm->name, sizeof(comm->name), "%s", name);
    pthread_mutex_init(&comm->lock, NULL);
    pthread_cond_init(&comm->turn, NULL);
    ncclResult_t outcome =
        from_driver(simnccl_device_context(&comm->context, device), "cuDevicePrimaryCtxRetain");
    if (outcome == ncclSuccess) {
        outcome = from_driver(simnccl_memory_begin(comm), "allocating the communicator's memory");
    }
    if (outcome == ncclSuccess && !alone) {
        outcome = simnccl_region_attach(&comm->region, name, nranks);
        if (outcome != ncclSuccess) {
            fail(outcome, "the communicator's shared file cannot be made, or the ranks disagree "
                          "about their number");
        }
    }
    if (outcome != ncclSuccess) {
        simnccl_memory_end(comm);
        comm_release(comm);
        return outcome;
    }
    *result = comm;
    return ncclSuccess;
}

static ncclResult_t comm_close(ncclComm_t comm, bool abort_running)
{
    if (!comm) {
        return ncclSuccess;
    }
    if (abort_running) {
        atomic_store(&comm->aborted, 1);
        pthread_mutex_lock(&comm->lock);
        pthread_cond_broadcast(&comm->turn);
        pthread_mutex_unlock(&comm->lock);
    }
    simnccl_memory_end(comm);
    comm_release(comm);
    return ncclSuccess;
}

/* FNV-1a: derives a child's name from its parent's, so that all ranks get the same name without
 * communication. */
static void child_name(char *name, size_t name_bytes, const char *parent, uint32_t number,
                       int color)
{
    char text[96];
    snprintf(text, sizeof(text), "%s/%u/%d", parent, number, color);
    uint64_t low = 0xcbf29ce484222325ULL;
    uint64_t high = 0x84222325cbf29ce4ULL;
    for (const char *c = text; *c; c++) {
        low = (low ^ (unsigned char)*c) * 0x100000001b3ULL;
        high = (high ^ (unsigned char)*c) * 0x100000001b3ULL;
    }
    snprintf(name, name_bytes, "%016llx%016llx", (unsigned long long)low, (unsigned long long)high);
}

/* Waits until the parent's ranks have given their colors, and joins those with this rank's
 * color. */
static ncclResult_t split_now(const join_t *join)
{
    ncclComm_t parent = join->parent;
    simnccl_head_t *head = parent->region.head;
    if (!simnccl_barrier(&head->host_barrier, parent->nranks, &parent->aborted)) {
        return fail(ncclInternalError, "the communicator was aborted during ncclCommSplit");
    }
    int rank = 0;
    int nranks = 0;
    for (int other = 0; other < parent->nranks; other++) {
        if (head->color[other] != join->color) {
            continue;
        }
        nranks++;
        int32_t mine = head->key[parent->rank];
        rank += head->key[other] < mine || (head->key[other] == mine && other < parent->rank);
    }
    uint32_t number = ++parent->children;
    /* Nobody may begin the next split before all ranks have read this one's colors. */
    if (!simnccl_barrier(&head->host_barrier, parent->nranks, &parent->aborted)) {
        return fail(ncclInternalError, "the communicator was aborted during ncclCommSplit");
    }
    *join->result = NULL;
    if (join->color == NCCL_SPLIT_NOCOLOR) {
        return ncclSuccess;
    }
    char name[SIMNCCL_REGION_NAME_BYTES];
    child_name(name, sizeof(name), parent->name, number, join->color);
    ncclComm_t comm = NULL;
    ncclResult_t outcome = comm_new(&comm, name, rank, nranks, parent->device);
    if (outcome == ncclSuccess) {
        outcome = simnccl_region_wait_all(&comm->region, nranks);
        *join->result = comm;
    }
    return outcome;
}

/* All ranks of this thread have attached by now, so it may wait for them in any order. */
static ncclResult_t finish_joins(join_t *joins)
{
    join_t *reversed = NULL;
    while (joins) {
        join_t *next = joins->next;
        joins->next = reversed;
        reversed = joins;
        joins = next;
    }
    ncclResult_t outcome = ncclSuccess;
    while (reversed) {
        join_t *join = reversed;
        reversed = join->next;
        ncclResult_t result =
            join->parent ? split_now(join)
                         : simnccl_region_wait_all(&join->comm->region, join->comm->nranks);
        outcome = outcome == ncclSuccess ? result : outcome;
        free(join);
    }
    return outcome;
}

static ncclResult_t add_join(join_t wanted)
{
    if (wanted.comm && wanted.comm->alone) {
        return ncclSuccess;
    }
    join_t *join = malloc(sizeof(*join));
    if (!join) {
        return ncclSystemError;
    }
    *join = wanted;
    join->next = group.joins;
    group.joins = join;
    if (group.depth > 0) {
        return ncclSuccess;
    }
    join_t *joins = group.joins;
    group.joins = NULL;
    return finish_joins(joins);
}

EXPORT ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    unsigned char random[SIMNCCL_REGION_NAME_BYTES / 2 - 4];
    if (!id || getrandom(random, sizeof(random), 0) != (ssize_t)sizeof(random)) {
        return id ? ncclSystemError : ncclInvalidArgument;
    }
    memset(id, 0, sizeof(*id));
    for (size_t i = 0; i < sizeof(random); i++) {
        snprintf(id->internal + 2 * i, 3, "%02x", random[i]);
    }
    return ncclSuccess;
}

/* Ignores the `config` of the public entry points: every call here blocks, which a non-blocking
 * caller sees as an operation that was done at once. */
static ncclResult_t init_rank(ncclComm_t *result, int nranks, const ncclUniqueId *id, int rank)
{
    char name[SIMNCCL_REGION_NAME_BYTES];
    if (!result || strspn(id->internal, "0123456789abcdef") != sizeof(name) - 8) {
        return fail(ncclInvalidArgument, "the unique id is not one of ncclGetUniqueId's");
    }
    snprintf(name, sizeof(name), "%.*s", (int)sizeof(name) - 1, id->internal);
    CUdevice device = 0;
    ncclComm_t comm = NULL;
    ncclResult_t outcome = from_driver(simnccl_current_device(&device), "cuCtxGetDevice");
    if (outcome == ncclSuccess) {
        outcome = comm_new(&comm, name, rank, nranks, device);
    }
    if (outcome != ncclSuccess) {
        return outcome;
    }
    *result = comm;
    return add_join((join_t){.comm = comm});
}

EXPORT ncclResult_t ncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank)
{
    return init_rank(comm, nranks, &id, rank);
}

EXPORT ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank,
                                           const void *config)
{
    (void)config;
    return init_rank(comm, nranks, &id, rank);
}

EXPORT ncclResult_t ncclCommInitRankScalable(ncclComm_t *comm, int nranks, int rank, int id_count,
                                             const ncclUniqueId *ids, const void *config)
{
    (void)config;
    return id_count > 0 ? init_rank(comm, nranks, &ids[0], rank) : ncclInvalidArgument;
}

/* One thread with all ranks, one for each device. */
EXPORT ncclResult_t ncclCommInitAll(ncclComm_t *comms, int count, const int *devices)
{
    ncclUniqueId id;
    ncclResult_t outcome = comms ? ncclGetUniqueId(&id) : ncclInvalidArgument;
    int made = 0;
    while (outcome == ncclSuccess && made < count) {
        outcome = comm_new(&comms[made], id.internal, made, count, devices ? devices[made] : made);
        made += outcome == ncclSuccess;
    }
    if (outcome != ncclSuccess) {
        while (made > 0) {
            comm_close(comms[--made], true);
        }
    }
    return outcome;
}

EXPORT ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *result,
                                  const void *config)
{
    (void)config;
    if (!comm || !result || (color < 0 && color != NCCL_SPLIT_NOCOLOR)) {
        return fail(ncclInvalidArgument, "ncclCommSplit needs a communicator and a color >= 0");
    }
    if (comm->alone) {
        return refuse_alone("ncclCommSplit", "how many join the new communicator");
    }
    comm->region.head->color[comm->rank] = color;
    comm->region.head->key[comm->rank] = key;
    return add_join((join_t){.parent = comm, .color = color, .result = result});
}

EXPORT ncclResult_t ncclCommShrink(ncclComm_t comm, const int *excluded, int excluded_count,
                                   ncclComm_t *result, const void *config, int flags)
{
    (void)config;
    (void)flags;
    if (!comm || !result || excluded_count < 0 || excluded_count >= comm->nranks) {
        return fail(ncclInvalidArgument, "ncclCommShrink must leave at least one rank");
    }
    int rank = comm->rank;
    for (int i = 0; i < excluded_count; i++) {
        if (excluded[i] == comm->rank) {
            return fail(ncclInvalidArgument, "ncclCommShrink was called by an excluded rank");
        }
        rank -= excluded[i] < comm->rank;
    }
    char name[SIMNCCL_REGION_NAME_BYTES];
    child_name(name, sizeof(name), comm->name, ++comm->children, -excluded_count);
    ncclComm_t child = NULL;
    ncclResult_t outcome =
        comm_new(&child, name, rank, comm->nranks - excluded_count, comm->device);
    if (outcome != ncclSuccess) {
        return outcome;
    }
    *result = child;
    return add_join((join_t){.comm = child});
}

EXPORT ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    return comm_close(comm, false);
}

EXPORT ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    return comm_close(comm, true);
}

EXPORT ncclResult_t ncclCommRevoke(ncclComm_t comm, int flags)
{
    (void)flags;
    atomic_store(&comm->aborted, 1);
    return ncclSuccess;
}

EXPORT ncclResult_t ncclCommCount(ncclComm_t comm, int *count)
{
    *count = comm->nranks;
    return ncclSuccess;
}

EXPORT ncclResult_t ncclCommUserRank(ncclComm_t comm, int *rank)
{
    *rank = comm->rank;
    return ncclSuccess;
}

EXPORT ncclResult_t ncclCommCuDevice(ncclComm_t comm, int *device)
{
    *device = comm->device;
    return ncclSuccess;
}

EXPORT ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error)
{
    (void)comm;
    *error = ncclSuccess;
    return ncclSuccess;
}

EXPORT ncclResult_t ncclCommMemStats(ncclComm_t comm, int which, uint64_t *value)
{
    enum { MEMORY_PERSISTENT = 2, MEMORY_TOTAL = 3 };
    bool counts = which == MEMORY_PERSISTENT || which == MEMORY_TOTAL;
    *value = counts ? simnccl_memory_bytes(comm) : 0;
    return ncclSuccess;
}

/* ---- queueing ---- */

/* Runs on a stream. Operations of a communicator run one at a time, in the order in which they were
 * queued, on whatever streams. So all ranks agree which operation is which. */
static void CUDA_CB run_batch(void *argument)
{
    batch_t *batch = argument;
    ncclComm_t comm = batch->comm;
    pthread_mutex_lock(&comm->lock);
    while (!atomic_load(&comm->aborted) &&
           (comm->executing || (!batch->captured && comm->now_serving != batch->ticket))) {
        pthread_cond_wait(&comm->turn, &comm->lock);
    }
    comm->executing = true;
    pthread_mutex_unlock(&comm->lock);
    if (!atomic_load(&comm->aborted)) {
        simnccl_run(comm, batch->ops, batch->count);
    }
    pthread_mutex_lock(&comm->lock);
    comm->executing = false;
    comm->now_serving += !batch->captured;
    pthread_cond_broadcast(&comm->turn);
    pthread_mutex_unlock(&comm->lock);
    if (!batch->captured) {
        free(batch->ops);
        free(batch);
        comm_release(comm);
    }
}

static ncclResult_t queue_batch(batch_t *batch)
{
    ncclComm_t comm = batch->comm;
    /* A group may end while another one of its devices is current. */
    CUcontext before = NULL;
    CUresult result = simnccl_enter(comm->context, &before);
    if (result != CUDA_SUCCESS) {
        free(batch->ops);
        free(batch);
        return from_driver(result, "cuCtxSetCurrent");
    }
    batch->captured = simnccl_is_capturing(batch->stream);
    /* A captured batch belongs to a graph, whose end is not reported. So it is never freed, and
     * keeps its communicator. */
    atomic_fetch_add(&comm->references, 1);
    pthread_mutex_lock(&comm->lock);
    batch->ticket = comm->next_ticket;
    comm->next_ticket += !batch->captured;
    pthread_mutex_unlock(&comm->lock);
    result = simnccl_launch_host(batch->stream, run_batch, batch);
    simnccl_enter(before, NULL);
    if (result == CUDA_SUCCESS) {
        return ncclSuccess;
    }
    pthread_mutex_lock(&comm->lock);
    comm->next_ticket -= !batch->captured;
    pthread_mutex_unlock(&comm->lock);
    comm_release(comm);
    free(batch->ops);
    free(batch);
    return from_driver(result, "cuLaunchHostFunc");
}

static ncclResult_t queue_batches(batch_t *batches)
{
    ncclResult_t outcome = ncclSuccess;
    batch_t *reversed = NULL;
    while (batches) {
        batch_t *next = batches->next;
        batches->next = reversed;
        reversed = batches;
        batches = next;
    }
    while (reversed) {
        batch_t *next = reversed->next;
        ncclResult_t result = queue_batch(reversed);
        outcome = outcome == ncclSuccess ? result : outcome;
        reversed = next;
    }
    return outcome;
}

/* Notes whether the host may use what it will read there. What other ranks send is unknown here;
 * for a reduction it is assumed to be like this rank's own. A shorter object is sent in a buffer of
 * the longest one's size, whose rest nobody has written. So data that is only passed on counts like
 * its beginning. */
static void note_values(const struct ncclComm *comm, const simnccl_op_t *op)
{
    const size_t part = op->count * simnccl_type_bytes(op->type);
    const size_t begin = part > 0 ? 1 : 0;
    const bool root = op->peer == comm->rank;
    const bool all = op->kind == SIMNCCL_ALL_GATHER || op->kind == SIMNCCL_ALL_TO_ALL ||
                     op->kind == SIMNCCL_GATHER;
    if (!simnccl_is_moved(op) && !simnccl_may_be_object(op)) {
        simnccl_note_lost(op->recv, all ? part * (size_t)comm->nranks : part);
        return;
    }
    switch (op->kind) {
    case SIMNCCL_ALL_GATHER:
    case SIMNCCL_ALL_TO_ALL:
        simnccl_note_carried(op->recv, part * (size_t)comm->nranks, op->send, begin);
        break;
    case SIMNCCL_GATHER:
        if (root) {
            simnccl_note_carried(op->recv, part * (size_t)comm->nranks, op->send, begin);
        }
        break;
    case SIMNCCL_REDUCE:
        if (root) {
            simnccl_note_carried(op->recv, part, op->send, part);
        }
        break;
    case SIMNCCL_BROADCAST:
    case SIMNCCL_SCATTER:
        simnccl_note_carried(op->recv, part, root ? op->send : NULL, begin);
        break;
    default:
        simnccl_note_carried(op->recv, part, op->send, part);
        break;
    }
}

static ncclResult_t add_op(ncclComm_t comm, CUstream stream, const simnccl_op_t *op)
{
    if (!comm || simnccl_type_bytes(op->type) == 0 || op->peer < 0 || op->peer >= comm->nranks) {
        return fail(ncclInvalidArgument, "no such communicator, data type or peer");
    }
    if (comm->alone && !simnccl_can_run_alone(op->kind)) {
        return refuse_alone(op->kind == SIMNCCL_SEND || op->kind == SIMNCCL_RECV
                                ? "send and recv (a pipeline)"
                                : "gather, scatter and all-to-all",
                            "what they send");
    }
    ncclResult_t connected =
        from_driver(simnccl_memory_connect(comm, op), "allocating the connections' buffers");
    if (connected != ncclSuccess) {
        return connected;
    }
    note_values(comm, op);
    batch_t *batch = group.batches;
    while (batch && (batch->comm != comm || batch->stream != stream)) {
        batch = batch->next;
    }
    if (!batch) {
        batch = calloc(1, sizeof(*batch));
        if (!batch) {
            return ncclSystemError;
        }
        batch->comm = comm;
        batch->stream = stream;
        batch->next = group.batches;
        group.batches = batch;
    }
    simnccl_op_t *ops = realloc(batch->ops, (batch->count + 1) * sizeof(*ops));
    if (!ops) {
        return ncclSystemError;
    }
    batch->ops = ops;
    ops[batch->count] = *op;
    ops[batch->count].knows = simnccl_is_known(op->send, 1);
    ops[batch->count++].element_bytes = simnccl_type_bytes(op->type);
    if (group.depth > 0) {
        return ncclSuccess;
    }
    batch_t *batches = group.batches;
    group.batches = NULL;
    return queue_batches(batches);
}

static ncclResult_t add_reduction(ncclComm_t comm, CUstream stream, simnccl_op_t op)
{
    if (!comm || !simnccl_can_reduce(op.type)) {
        return fail(ncclInvalidArgument, "this data type cannot be reduced on this device");
    }
    op.scale = 1;
    if (op.op >= ncclNumOps) {
        int index = op.op - ncclNumOps;
        if (index >= SIMNCCL_MAX_SCALARS || !comm->scalar_used[index]) {
            return fail(ncclInvalidArgument, "no such reduction operation");
        }
        op.scale = comm->scalar[index];
        op.scaled = true;
        op.op = ncclSum;
    }
    return add_op(comm, stream, &op);
}

EXPORT ncclResult_t ncclGroupStart(void)
{
    if (group.depth >= MAX_GROUP_NESTING) {
        return fail(ncclInvalidUsage, "groups nested too deeply");
    }
    group.depth++;
    return ncclSuccess;
}

EXPORT ncclResult_t ncclGroupEnd(void)
{
    if (group.depth == 0) {
        return fail(ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
    }
    if (--group.depth > 0) {
        return ncclSuccess;
    }
    join_t *joins = group.joins;
    batch_t *batches = group.batches;
    group.joins = NULL;
    group.batches = NULL;
    ncclResult_t joined = finish_joins(joins);
    ncclResult_t queued = queue_batches(batches);
    return joined != ncclSuccess ? joined : queued;
}

EXPORT ncclResult_t ncclGroupSimulateEnd(void *info)
{
    (void)info;
    return ncclGroupEnd();
}

/* ---- operations ---- */

EXPORT ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count, ncclDataType_t type,
                                  ncclRedOp_t op, ncclComm_t comm, CUstream stream)
{
    return add_reduction(comm, stream,
                         (simnccl_op_t){.kind = SIMNCCL_ALL_REDUCE,
                                        .send = send,
                                        .recv = recv,
                                        .count = count,
                                        .type = type,
                                        .op = (int)op});
}

EXPORT ncclResult_t ncclReduce(const void *send, void *recv, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, int root, ncclComm_t comm, CUstream stream)
{
    return add_reduction(comm, stream,
                         (simnccl_op_t){.kind = SIMNCCL_REDUCE,
                                        .send = send,
                                        .recv = recv,
                                        .count = count,
                                        .type = type,
                                        .op = (int)op,
                                        .peer = root});
}

EXPORT ncclResult_t ncclReduceScatter(const void *send, void *recv, size_t count,
                                      ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                                      CUstream stream)
{
    return add_reduction(comm, stream,
                         (simnccl_op_t){.kind = SIMNCCL_REDUCE_SCATTER,
                                        .send = send,
                                        .recv = recv,
                                        .count = count,
                                        .type = type,
                                        .op = (int)op});
}

/* Operations that only move bytes differ only in their kind and buffers. */
static ncclResult_t add_move(simnccl_kind_t kind, const void *send, void *recv, size_t count,
                             ncclDataType_t type, int peer, ncclComm_t comm, CUstream stream)
{
    return add_op(
        comm, stream,
        &(simnccl_op_t){
            .kind = kind, .send = send, .recv = recv, .count = count, .type = type, .peer = peer});
}

EXPORT ncclResult_t ncclBroadcast(const void *send, void *recv, size_t count, ncclDataType_t type,
                                  int root, ncclComm_t comm, CUstream stream)
{
    return add_move(SIMNCCL_BROADCAST, send, recv, count, type, root, comm, stream);
}

EXPORT ncclResult_t ncclBcast(void *buffer, size_t count, ncclDataType_t type, int root,
                              ncclComm_t comm, CUstream stream)
{
    return add_move(SIMNCCL_BROADCAST, buffer, buffer, count, type, root, comm, stream);
}

EXPORT ncclResult_t ncclAllGather(const void *send, void *recv, size_t count, ncclDataType_t type,
                                  ncclComm_t comm, CUstream stream)
{
    return add_move(SIMNCCL_ALL_GATHER, send, recv, count, type, 0, comm, stream);
}

EXPORT ncclResult_t ncclAlltoAll(const void *send, void *recv, size_t count, ncclDataType_t type,
                                 ncclComm_t comm, CUstream stream)
{
    return add_move(SIMNCCL_ALL_TO_ALL, send, recv, count, type, 0, comm, stream);
}

EXPORT ncclResult_t ncclGather(const void *send, void *recv, size_t count, ncclDataType_t type,
                               int root, ncclComm_t comm, CUstream stream)
{
    return add_move(SIMNCCL_GATHER, send, recv, count, type, root, comm, stream);
}

EXPORT ncclResult_t ncclScatter(const void *send, void *recv, size_t count, ncclDataType_t type,
                                int root, ncclComm_t comm, CUstream stream)
{
    return add_move(SIMNCCL_SCATTER, send, recv, count, type, root, comm, stream);
}

EXPORT ncclResult_t ncclSend(const void *send, size_t count, ncclDataType_t type, int peer,
                             ncclComm_t comm, CUstream stream)
{
    return add_move(SIMNCCL_SEND, send, NULL, count, type, peer, comm, stream);
}

EXPORT ncclResult_t ncclRecv(void *recv, size_t count, ncclDataType_t type, int peer,
                             ncclComm_t comm, CUstream stream)
{
    return add_move(SIMNCCL_RECV, NULL, recv, count, type, peer, comm, stream);
}

EXPORT ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t *op, void *scalar, ncclDataType_t type,
                                             ncclScalarResidence_t residence, ncclComm_t comm)
{
    /* A scalar on the device is read at once, while NCCL reads it when the operation runs. The
     * value is the same unless queued work of the caller writes it. */
    (void)residence;
    pthread_mutex_lock(&comm->lock);
    int index = 0;
    while (index < SIMNCCL_MAX_SCALARS && comm->scalar_used[index]) {
        index++;
    }
    if (index < SIMNCCL_MAX_SCALARS) {
        comm->scalar_used[index] = true;
        comm->scalar[index] = simnccl_read_scalar(scalar, type);
        *op = (ncclRedOp_t)(ncclNumOps + index);
    }
    pthread_mutex_unlock(&comm->lock);
    return index < SIMNCCL_MAX_SCALARS
               ? ncclSuccess
               : fail(ncclInvalidUsage, "more than 64 reduction operations exist at once");
}

EXPORT ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm)
{
    int index = (int)op - ncclNumOps;
    if (index < 0 || index >= SIMNCCL_MAX_SCALARS) {
        return fail(ncclInvalidArgument, "no such reduction operation");
    }
    pthread_mutex_lock(&comm->lock);
    comm->scalar_used[index] = false;
    pthread_mutex_unlock(&comm->lock);
    return ncclSuccess;
}

/* ---- memory and information ---- */

EXPORT ncclResult_t ncclMemAlloc(void **at, size_t bytes)
{
    CUdevice device = 0;
    CUdeviceptr address = 0;
    ncclResult_t outcome = from_driver(simnccl_current_device(&device), "cuCtxGetDevice");
    if (outcome == ncclSuccess) {
        outcome = from_driver(simnccl_device_alloc(&address, bytes, device), "ncclMemAlloc");
    }
    *at = (void *)(uintptr_t)address;
    return outcome;
}

EXPORT ncclResult_t ncclMemFree(void *at)
{
    return from_driver(simnccl_device_free((CUdeviceptr)(uintptr_t)at), "ncclMemFree");
}

/* The handle of a registration, and a window, is the registered address itself. */
EXPORT ncclResult_t ncclCommRegister(ncclComm_t comm, void *at, size_t bytes, void **handle)
{
    (void)comm;
    (void)bytes;
    *handle = at;
    return ncclSuccess;
}

EXPORT ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void *at, size_t bytes,
                                           ncclWindow_t *window, int flags)
{
    (void)comm;
    (void)bytes;
    (void)flags;
    *window = at;
    return ncclSuccess;
}

EXPORT ncclResult_t ncclWinGetUserPtr(ncclComm_t comm, ncclWindow_t window, void **at)
{
    (void)comm;
    *at = window;
    return ncclSuccess;
}

EXPORT ncclResult_t ncclGetVersion(int *version)
{
    const char *told = getenv("SIMGPU_NCCL_VERSION");
    *version = told != NULL ? atoi(told) : simnccl_version;
    return ncclSuccess;
}

/* Whether NCCL would register buffers during a graph's capture, by the variable that the real one
 * reads. */
EXPORT int simgpu_nccl_graph_register(void)
{
    const char *told = getenv("NCCL_GRAPH_REGISTER");
    return told == NULL || atoi(told) != 0;
}

EXPORT const char *ncclGetErrorString(ncclResult_t result)
{
    static const char *const texts[] = {
        "no error",
        "unhandled cuda error",
        "unhandled system error",
        "internal error",
        "invalid argument",
        "invalid usage",
        "remote process exited or there was a network error",
        "NCCL operation in progress",
    };
    return (unsigned)result < sizeof(texts) / sizeof(texts[0]) ? texts[result]
                                                               : "unknown result code";
}

EXPORT const char *ncclGetLastError(ncclComm_t comm)
{
    (void)comm;
    return group.last_error;
}

/* Functions that this double cannot do return an error: device-side communicators, one-sided
 * writes, and growing a communicator. */
#define DEFINE_REFUSED(name)                                      \
    EXPORT ncclResult_t name(void);                               \
    EXPORT ncclResult_t name(void)                                \
    {                                                             \
        return fail(ncclInvalidUsage, #name " is not simulated"); \
    }

DEFINE_REFUSED(ncclCommGrow)
DEFINE_REFUSED(ncclCommGetUniqueId)
DEFINE_REFUSED(ncclDevCommCreate)
DEFINE_REFUSED(ncclGetLsaMultimemDevicePointer)
DEFINE_REFUSED(ncclGetPeerDevicePointer)
DEFINE_REFUSED(ncclPutSignal)
DEFINE_REFUSED(ncclSignal)
DEFINE_REFUSED(ncclWaitSignal)
