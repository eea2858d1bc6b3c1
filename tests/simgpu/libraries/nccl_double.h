/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of NCCL's double share.
 *
 * A communicator is one shared memory file that every rank maps (nccl_region.c). An operation is
 * queued on the caller's stream as a host function; when the stream reaches it, all ranks meet in
 * the shared file and the bytes are really moved (nccl_move.c). Ranks are processes, threads, or
 * several communicators of one thread. Device memory of the simulated GPU is memory of this
 * process, so a host function may read and write it.
 */
#ifndef SIMGPU_NCCL_DOUBLE_H
#define SIMGPU_NCCL_DOUBLE_H

#include "../simgpu.h"
#include "nccl_abi.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

enum {
    SIMNCCL_MAX_RANKS = 64,
    /* Of a world of which one rank is there alone (SIMGPU_NCCL_ALONE=1). */
    SIMNCCL_MAX_RANKS_ALONE = 65536,
    SIMNCCL_REGION_NAME_BYTES = 40,
    SIMNCCL_MAX_SCALARS = 64,
    /* Largest operation that moves its bytes when device contents are off (SIMGPU_CONTENTS=none),
     * whatever they are: shapes and small messages arrive, gradients do not. */
    SIMNCCL_SMALL_BYTES = SIMGPU_SMALL_CONTENTS_BYTES,
    /* One rank's window in the shared file: what a rank shows the others in one round. */
    SIMNCCL_SLOT_BYTES = 1024 * 1024,
    /* One message window for each ordered pair of ranks, for send and recv. */
    SIMNCCL_MAIL_BYTES = 64 * 1024,
};

/* A meeting point: the last rank that arrives opens it for all. */
typedef struct {
    _Atomic uint32_t arrived;    /* ranks that wait in this round */
    _Atomic uint32_t generation; /* rounds done; futex word */
} simnccl_barrier_t;

/* A window from one rank to another. `filled - drained` is 0 or 1. */
typedef struct {
    _Atomic uint32_t filled;  /* messages written so far */
    _Atomic uint32_t drained; /* messages read so far */
    _Atomic uint32_t lost;    /* the one that fills it stands for all of its operation: dropped */
} simnccl_mail_t;

/* Head of the shared file. All zero is its valid first state, so no rank has to create it first. */
typedef struct {
    _Atomic uint32_t nranks;          /* 0 until the first rank has come */
    _Atomic uint32_t attached;        /* ranks that have mapped the file; futex word */
    _Atomic uint32_t mail_events;     /* windows filled or drained so far; futex word */
    simnccl_barrier_t stream_barrier; /* ranks meet here inside an operation of a stream */
    simnccl_barrier_t host_barrier;   /* ranks meet here inside ncclCommSplit */
    int32_t color[SIMNCCL_MAX_RANKS]; /* what each rank passed to ncclCommSplit */
    int32_t key[SIMNCCL_MAX_RANKS];
    _Atomic uint32_t knows[SIMNCCL_MAX_RANKS]; /* the contents that it sends in this operation */
    simnccl_mail_t mail[SIMNCCL_MAX_RANKS][SIMNCCL_MAX_RANKS]; /* [from][to] */
} simnccl_head_t;

typedef struct {
    simnccl_head_t *head; /* NULL: not attached */
    size_t bytes;
    char path[256];
} simnccl_region_t;

/* What the library takes of a device for itself, and why. */
enum {
    SIMNCCL_MEMORY_OWN,
    SIMNCCL_MEMORY_RING,
    SIMNCCL_MEMORY_TREE,
    SIMNCCL_MEMORY_NVLS,
    SIMNCCL_MEMORY_PEERS, /* and on: to send to that rank, and receive from it */
    SIMNCCL_MEMORY_SLOTS = SIMNCCL_MEMORY_PEERS + SIMNCCL_MAX_RANKS,
};

typedef struct {
    CUdeviceptr at; /* 0: none */
    size_t bytes;
} simnccl_memory_t;

struct ncclComm {
    _Atomic uint32_t references; /* the user's one, and one for each operation in a stream */
    _Atomic uint32_t aborted;    /* 1: operations stop waiting for other ranks */
    int rank;
    int nranks;
    bool alone; /* no other rank comes: what they bring is made of what this one brings */
    CUdevice device;
    CUcontext context; /* of the device: what stream 0 means to this communicator */
    uint32_t children; /* splits and shrinks so far, part of the next child's name */
    char name[SIMNCCL_REGION_NAME_BYTES];
    simnccl_region_t region;
    simnccl_memory_t memory[SIMNCCL_MEMORY_SLOTS]; /* what the library takes for itself */
    pthread_mutex_t lock;
    pthread_cond_t turn;                   /* now_serving changed */
    uint64_t next_ticket;                  /* under lock: order in which operations were queued */
    uint64_t now_serving;                  /* under lock */
    bool executing;                        /* under lock: an operation is in progress */
    bool scalar_used[SIMNCCL_MAX_SCALARS]; /* under lock: ncclRedOpCreatePreMulSum */
    double scalar[SIMNCCL_MAX_SCALARS];
};

typedef enum {
    SIMNCCL_ALL_REDUCE,
    SIMNCCL_BROADCAST,
    SIMNCCL_REDUCE,
    SIMNCCL_ALL_GATHER,
    SIMNCCL_REDUCE_SCATTER,
    SIMNCCL_ALL_TO_ALL,
    SIMNCCL_GATHER,
    SIMNCCL_SCATTER,
    SIMNCCL_SEND,
    SIMNCCL_RECV,
} simnccl_kind_t;

typedef struct {
    simnccl_kind_t kind;
    const char *send; /* device memory; NULL where the kind or this rank sends nothing */
    char *recv;       /* device memory; NULL where the kind or this rank receives nothing */
    size_t count;     /* elements: of one rank's part for kinds with parts, else of the whole */
    ncclDataType_t type;
    size_t element_bytes; /* of `type` */
    int op;               /* ncclSum .. ncclAvg; premultiplied sums are ncclSum with `scale` */
    double scale;         /* each contribution is multiplied by it before the reduction */
    int peer;             /* root, or the other rank of a send or recv */
    bool scaled;
    bool knows; /* this rank the contents of what it sends */
} simnccl_op_t;

/* nccl.c: 23007 is 2.30.7 */
extern const int simnccl_version;

/* nccl_region.c */

/* Maps the shared file `name` for `nranks` ranks and counts this rank as present; does not wait.
 * ncclInvalidArgument: other ranks passed another number of ranks. ncclSystemError: no file. */
ncclResult_t simnccl_region_attach(simnccl_region_t *region, const char *name, int nranks);
/* Waits until all ranks have attached; the file's name is gone afterwards. */
ncclResult_t simnccl_region_wait_all(simnccl_region_t *region, int nranks);
void simnccl_region_detach(simnccl_region_t *region);
char *simnccl_region_slot(const simnccl_region_t *region, int rank);
char *simnccl_region_mailbox(const simnccl_region_t *region, int nranks, int from, int to);
/* Waits for all ranks. False: *aborted was set meanwhile, the meeting did not happen. */
bool simnccl_barrier(simnccl_barrier_t *barrier, int nranks, const _Atomic uint32_t *aborted);
/* Sleeps until *word differs from `seen`, or some milliseconds have passed. */
void simnccl_wait_word(const _Atomic uint32_t *word, uint32_t seen);
void simnccl_wake_word(const _Atomic uint32_t *word);

/* nccl_memory.c: of the device, by the card's table (SIMGPU_NCCL) */

/* With the communicator. */
CUresult simnccl_memory_begin(ncclComm_t comm);
/* Before its first operation of that kind. */
CUresult simnccl_memory_connect(ncclComm_t comm, const simnccl_op_t *op);
void simnccl_memory_end(ncclComm_t comm);
uint64_t simnccl_memory_bytes(const struct ncclComm *comm);

/* nccl_move.c */

/* Whether its bytes really travel, whatever they are. Every rank comes to the same answer. */
bool simnccl_is_moved(const simnccl_op_t *op);
/* Of one that is too large for that: whether they do where a sender knows them, as it does those of
 * an object, which is sent as bytes. Every rank comes to the same answer. */
bool simnccl_may_be_object(const simnccl_op_t *op);

size_t simnccl_type_bytes(ncclDataType_t type); /* 0: no such type */
bool simnccl_can_reduce(ncclDataType_t type);
double simnccl_read_scalar(const void *at, ncclDataType_t type);
/* Into `out`, of `nranks` contributions. */
void simnccl_reduce(void *out, const void *const *in, int nranks, size_t count,
                    const simnccl_op_t *op);
/* Runs a group's operations of one communicator: collectives in order, then all sends and recvs
 * at once. Called from a stream; stops early when the communicator is aborted. */
void simnccl_run(ncclComm_t comm, const simnccl_op_t *ops, size_t count);

/* nccl_alone.c: the only rank that is there */

bool simnccl_is_alone(void);
/* Collectives in which all ranks do the same. */
bool simnccl_can_run_alone(simnccl_kind_t kind);
/* One of them, with `count` elements of it moved; what others bring is what this rank brings. */
void simnccl_run_alone(const struct ncclComm *comm, const simnccl_op_t *op, size_t count);

/* nccl_device.c: the driver, reached by dlopen as NCCL reaches it */

/* As NCCL's own runtime has it: a thread without a context gets the primary one of device 0. */
CUresult simnccl_current_device(CUdevice *device);
/* The context in which a communicator of the device works: the current one if it is the device's,
 * else the primary one. */
CUresult simnccl_device_context(CUcontext *context, CUdevice device);
/* Makes it the thread's current one; *before (may be NULL): what was. */
CUresult simnccl_enter(CUcontext context, CUcontext *before);
/* Device memory from cuMemCreate and cuMemMap, where the device has that; else from cuMemAlloc. */
CUresult simnccl_device_alloc(CUdeviceptr *at, size_t bytes, CUdevice device);
CUresult simnccl_device_free(CUdeviceptr at);
/* It stands for a kernel: beside it those of other streams run. */
CUresult simnccl_launch_host(CUstream stream, CUhostFn function, void *argument);
/* Tells the simulated GPU that [at, at + bytes) is about to be stored to. */
void simnccl_note_write(const void *at, size_t bytes);
/* And that an operation has been queued whose values there are other ranks' (from: NULL), or follow
 * from those there. Nothing where `at` is NULL. */
void simnccl_note_carried(const void *at, size_t bytes, const void *from, size_t from_bytes);
/* And that one has been queued that would store there, and moves nothing. */
void simnccl_note_lost(const void *at, size_t bytes);
/* False also where the driver cannot tell. */
/* Whether what lies there is what a host wrote. */
bool simnccl_is_known(const void *at, size_t bytes);
bool simnccl_is_capturing(CUstream stream);

#endif
