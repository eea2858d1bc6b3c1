/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations that the files of NCCL's double share.
 *
 * A communicator is one shared memory file that every rank maps (nccl_region.c). An operation is
 * queued on the caller's stream as a host function. When the stream reaches it, all ranks meet in
 * the shared file, and the bytes are really moved (nccl_move.c). Ranks are processes, threads, or
 * several communicators of one thread. The simulated GPU's device memory is memory of this process,
 * so a host function may read and write it. */
#ifndef SIMGPU_NCCL_DOUBLE_H
#define SIMGPU_NCCL_DOUBLE_H

#include "../simgpu.h"
#include "nccl_abi.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

enum {
    SIMNCCL_MAX_RANKS = 64,
    /* In a world of which only one rank exists (SIMGPU_NCCL_ALONE=1). */
    SIMNCCL_MAX_RANKS_ALONE = 65536,
    SIMNCCL_REGION_NAME_BYTES = 40,
    SIMNCCL_MAX_SCALARS = 64,
    /* With device contents off (SIMGPU_CONTENTS=none): the largest operation whose bytes are moved
     * in any case. Shapes and small messages arrive, gradients do not. */
    SIMNCCL_SMALL_BYTES = SIMGPU_SMALL_CONTENTS_BYTES,
    /* One rank's window in the shared file: what it shows the others in one round. */
    SIMNCCL_SLOT_BYTES = 1024 * 1024,
    /* One message window for each ordered pair of ranks, for send and recv. */
    SIMNCCL_MAIL_BYTES = 64 * 1024,
};

/* A barrier: the last rank that arrives opens it for all. */
typedef struct {
    _Atomic uint32_t arrived;    /* ranks that wait in this round */
    _Atomic uint32_t generation; /* completed rounds; futex word */
} simnccl_barrier_t;

/* A window from one rank to another. `filled - drained` is 0 or 1. */
typedef struct {
    _Atomic uint32_t filled;  /* messages written so far */
    _Atomic uint32_t drained; /* messages read so far */
    _Atomic uint32_t lost;    /* the window's present message stands for its whole operation, whose
                                 bytes are dropped */
} simnccl_mail_t;

/* Head of the shared file. All zero is a valid initial state, so no rank has to create it first. */
typedef struct {
    _Atomic uint32_t nranks;          /* 0 until the first rank has come */
    _Atomic uint32_t attached;        /* ranks that have mapped the file; futex word */
    _Atomic uint32_t mail_events;     /* windows filled or drained so far; futex word */
    simnccl_barrier_t stream_barrier; /* barrier inside an operation of a stream */
    simnccl_barrier_t host_barrier;   /* barrier inside ncclCommSplit */
    int32_t color[SIMNCCL_MAX_RANKS]; /* what each rank passed to ncclCommSplit */
    int32_t key[SIMNCCL_MAX_RANKS];
    _Atomic uint32_t knows[SIMNCCL_MAX_RANKS]; /* whether each rank knows the contents that it sends
                                                  in this operation */
    simnccl_mail_t mail[SIMNCCL_MAX_RANKS][SIMNCCL_MAX_RANKS]; /* [from][to] */
} simnccl_head_t;

typedef struct {
    simnccl_head_t *head; /* NULL: not attached */
    size_t bytes;
    char path[256];
} simnccl_region_t;

/* What the library takes of a device for itself, by purpose. */
enum {
    SIMNCCL_MEMORY_OWN,
    SIMNCCL_MEMORY_RING,
    SIMNCCL_MEMORY_TREE,
    SIMNCCL_MEMORY_NVLS,
    SIMNCCL_MEMORY_PEERS, /* and the following: to send to that rank, and receive from it */
    SIMNCCL_MEMORY_SLOTS = SIMNCCL_MEMORY_PEERS + SIMNCCL_MAX_RANKS,
};

typedef struct {
    CUdeviceptr at; /* 0: none */
    size_t bytes;
} simnccl_memory_t;

struct ncclComm {
    _Atomic uint32_t references; /* the user's, and one for each operation in a stream */
    _Atomic uint32_t aborted;    /* 1: operations stop waiting for other ranks */
    int rank;
    int nranks;
    bool alone; /* no other rank exists: its data is made from this rank's */
    CUdevice device;
    CUcontext context; /* of the device: what stream 0 means for this communicator */
    uint32_t children; /* number of splits and shrinks, part of the next child's name */
    char name[SIMNCCL_REGION_NAME_BYTES];
    simnccl_region_t region;
    simnccl_memory_t memory[SIMNCCL_MEMORY_SLOTS]; /* memory that the library takes for itself */
    pthread_mutex_t lock;
    pthread_cond_t turn;                   /* now_serving changed */
    uint64_t next_ticket;                  /* under lock: numbers operations in the order in which
                                              they were queued */
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
    const char *send; /* device memory; NULL if this rank sends nothing */
    char *recv;       /* device memory; NULL if this rank receives nothing */
    size_t count;     /* elements: of one rank's part in operations with parts, otherwise in
                         total */
    ncclDataType_t type;
    size_t element_bytes; /* of `type` */
    int op;               /* ncclSum .. ncclAvg; premultiplied sums are ncclSum with `scale` */
    double scale;         /* each contribution is multiplied by this before the reduction */
    int peer;             /* root, or the other rank of a send or recv */
    bool scaled;
    bool knows; /* this rank knows the contents of what it sends */
} simnccl_op_t;

/* nccl.c: 23007 is 2.30.7 */
extern const int simnccl_version;

/* nccl_region.c */

/* Maps the shared file `name` for `nranks` ranks, and counts this rank as present; does not wait.
 * ncclInvalidArgument: other ranks passed another number of ranks. ncclSystemError: no file. */
ncclResult_t simnccl_region_attach(simnccl_region_t *region, const char *name, int nranks);
/* Waits until all ranks have attached, and then removes the file's name. */
ncclResult_t simnccl_region_wait_all(simnccl_region_t *region, int nranks);
void simnccl_region_detach(simnccl_region_t *region);
char *simnccl_region_slot(const simnccl_region_t *region, int rank);
char *simnccl_region_mailbox(const simnccl_region_t *region, int nranks, int from, int to);
/* Waits for all ranks. False: *aborted was set meanwhile, and not all ranks came. */
bool simnccl_barrier(simnccl_barrier_t *barrier, int nranks, const _Atomic uint32_t *aborted);
/* Sleeps until *word differs from `seen`, or some milliseconds have passed. */
void simnccl_wait_word(const _Atomic uint32_t *word, uint32_t seen);
void simnccl_wake_word(const _Atomic uint32_t *word);

/* nccl_memory.c: device memory by the card's table (SIMGPU_NCCL) */

/* Called when the communicator is made. */
CUresult simnccl_memory_begin(ncclComm_t comm);
/* Called before its first operation of that kind. */
CUresult simnccl_memory_connect(ncclComm_t comm, const simnccl_op_t *op);
void simnccl_memory_end(ncclComm_t comm);
uint64_t simnccl_memory_bytes(const struct ncclComm *comm);

/* nccl_move.c */

/* Whether its bytes are moved whatever they are. Every rank gets the same answer. */
bool simnccl_is_moved(const simnccl_op_t *op);
/* For one that is too large for that: whether its bytes are moved if a sender knows them, which may
 * be an object that is sent as bytes. Every rank gets the same answer. */
bool simnccl_may_be_object(const simnccl_op_t *op);

size_t simnccl_type_bytes(ncclDataType_t type); /* 0: no such type */
bool simnccl_can_reduce(ncclDataType_t type);
double simnccl_read_scalar(const void *at, ncclDataType_t type);
/* Writes the reduction of `nranks` contributions to `out`. */
void simnccl_reduce(void *out, const void *const *in, int nranks, size_t count,
                    const simnccl_op_t *op);
/* Runs a group's operations of one communicator: collectives in order, then all sends and recvs
 * together. Called from a stream; stops early when the communicator is aborted. */
void simnccl_run(ncclComm_t comm, const simnccl_op_t *ops, size_t count);

/* nccl_alone.c: the only rank that exists */

bool simnccl_is_alone(void);
/* Whether all ranks do the same in such a collective. */
bool simnccl_can_run_alone(simnccl_kind_t kind);
/* Runs such a collective and moves `count` of its elements; what other ranks send is what this one
 * sends. */
void simnccl_run_alone(const struct ncclComm *comm, const simnccl_op_t *op, size_t count);

/* nccl_device.c: the driver, reached by dlopen as NCCL reaches it */

/* As in NCCL's own runtime: a thread without a context gets the primary one of device 0. */
CUresult simnccl_current_device(CUdevice *device);
/* The context for a communicator of the device: the current one if it is of this device, otherwise
 * the primary one. */
CUresult simnccl_device_context(CUcontext *context, CUdevice device);
/* Makes it current for the thread; *before (may be NULL): the previous one. */
CUresult simnccl_enter(CUcontext context, CUcontext *before);
/* Device memory from cuMemCreate and cuMemMap if the device has these, otherwise from
 * cuMemAlloc. */
CUresult simnccl_device_alloc(CUdeviceptr *at, size_t bytes, CUdevice device);
CUresult simnccl_device_free(CUdeviceptr at);
/* The host function stands for a kernel, so those of other streams run at the same time. */
CUresult simnccl_launch_host(CUstream stream, CUhostFn function, void *argument);
/* Tells the simulated GPU that the double is about to store to [at, at + bytes). */
void simnccl_note_write(const void *at, size_t bytes);
/* Tells it that an operation was queued that stores there what other ranks send (from: NULL), or
 * what follows from the values at `from`. Does nothing if `at` is NULL. */
void simnccl_note_carried(const void *at, size_t bytes, const void *from, size_t from_bytes);
/* Tells it that an operation was queued that would store there, but moves nothing. */
void simnccl_note_lost(const void *at, size_t bytes);
/* False also if the driver cannot say. */
/* Whether a host wrote what lies there. */
bool simnccl_is_known(const void *at, size_t bytes);
bool simnccl_is_capturing(CUstream stream);

#endif
