/* SPDX-License-Identifier: Apache-2.0 */
/* One unit of work of a stream or a graph: what it is, and how it runs.
 *
 * The maker of a sim_work owns what it points to until it hands it over (sim_submit, a graph node);
 * sim_work_release releases that, sim_work_copy makes a second owner. Pointers to memory of the
 * application or the device are not owned. */
#ifndef SIMGPU_WORK_H
#define SIMGPU_WORK_H

#include "bus.h"
#include "driver_api.h"

#include <stdbool.h>
#include <stdint.h>

struct sim_program;
struct sim_range;

enum sim_work_kind {
    SIM_WORK_EMPTY,
    SIM_WORK_KERNEL,
    SIM_WORK_COPY,
    SIM_WORK_SET,
    SIM_WORK_HOST,     /* a function of the application */
    SIM_WORK_CALLBACK, /* the same, by cuStreamAddCallback */
    SIM_WORK_RECORD,
    SIM_WORK_WAIT,
    SIM_WORK_ALLOC, /* memory that the graph or pool has allocated already: marks the place in
                       order */
    SIM_WORK_FREE,
    SIM_WORK_WRITE_VALUE,
    SIM_WORK_WAIT_VALUE,
    SIM_WORK_GRAPH, /* a launch of an executable graph */
    SIM_WORK_CHILD, /* a child graph; graphs only */
};

/* The host's result from memory that no host wrote (values.h). */
struct sim_answer {
    enum { SIM_ANSWER_MEMORY, SIM_ANSWER_ZEROS, SIM_ANSWER_TRUE, SIM_ANSWER_RANDOM } kind;
    unsigned type; /* SIMGPU_BOOL and the like; 0: unknown */
    uint64_t most; /* the largest whole number; 0: unknown */
    uint64_t seed;
};

/* width bytes at height rows of depth slices; pitches and slice sizes in bytes. */
struct sim_copy {
    char *to;
    const char *from;
    size_t width, height, depth;
    size_t to_pitch, to_slice, from_pitch, from_slice;
    uint32_t peers;   /* bit i: device i; for a copy between two devices, otherwise 0 */
    enum sim_bus bus; /* with SIMGPU_LATENCY */
    uint64_t over_ns; /* if that is set: when it has passed the bus; 0: it enters the bus when it
                         runs */
    char *staged;     /* owned copy of pageable source bytes, to which `from` then points */
    bool is_moved;    /* moved whatever its size, because its contents are known (values.h) */
    struct sim_answer answer;
};

/* width elements of element_bytes (1, 2 or 4) at height rows. */
struct sim_set {
    char *to;
    size_t width, height, pitch;
    uint32_t value;
    unsigned element_bytes;
};

struct sim_launch {
    CUfunction function;
    unsigned grid[3], block[3];
    unsigned shared_bytes;
    CUcontext context; /* of the stream; set when submitted */
    bool computes;     /* its symbol's `run` is called */
    size_t parameter_bytes;
    char *parameters;          /* owned copy of all declared parameters; NULL if none are known */
    void **parameter_pointers; /* owned; pointers into parameters, which GetParams returns */
};

struct sim_work {
    enum sim_work_kind kind;
    union {
        struct sim_launch launch;
        struct sim_copy copy;
        struct sim_set set;
        struct {
            CUhostFn function;
            void *argument;
            bool as_kernel; /* simgpu_launch_as_kernel */
        } host;
        struct {
            CUstreamCallback function;
            void *argument;
            CUstream stream;
        } callback;
        struct {
            CUevent event; /* one reference */
            uint64_t version;
        } event;
        struct {
            CUdeviceptr address;
            struct sim_range *range; /* of a graph's allocation; one reference */
        } memory;
        struct {
            CUdeviceptr address;
            uint64_t value;
            unsigned flags;
            unsigned bytes; /* 4 or 8 */
        } value;
        struct sim_program *program; /* one reference */
        CUgraph graph;               /* owned */
    };
    /* The application's arguments, for cuGraph*NodeGetParams. */
    union {
        CUDA_MEMCPY3D copy_parameters;
        CUDA_MEMSET_NODE_PARAMS set_parameters;
    };
};

/* True: it takes time in its stream (the configurable delay). */
bool sim_work_takes_time(const struct sim_work *work);

/* The devices that the work occupies besides its stream, with SIMGPU_PEER_US: bit i: device i. */
uint32_t sim_work_peer_devices(const struct sim_work *work);

/* True: on an idle stream without delay, the calling thread may run it. */
bool sim_work_runs_inline(const struct sim_work *work);

/* With SIMGPU_CONTENTS=none: it moves nothing. */
bool sim_copy_is_dropped(const struct sim_copy *copy);
/* When it will have passed the bus, which it enters now. */
uint64_t sim_copy_over_ns(const struct sim_copy *copy);
bool sim_set_is_dropped(const struct sim_set *set);

/* True: it touches bytes or calls the application, which happens without sim_lock. */
bool sim_work_has_unlocked_part(const struct sim_work *work);

/* Run the part outside sim_lock, and then the part under it. */
void sim_work_run_unlocked(const struct sim_work *work);
void sim_work_run_locked(const struct sim_work *work, CUstream stream);

/* False: it waits for memory, or for another process, and must wait longer. Nothing announces when
 * that changes. */
bool sim_work_is_ready(const struct sim_work *work);

void sim_work_release(struct sim_work *work);
CUresult sim_work_copy(struct sim_work *to, const struct sim_work *from);

/* Sleeps as long as one operation takes. Without sim_lock. */
void sim_delay(void);

#endif
