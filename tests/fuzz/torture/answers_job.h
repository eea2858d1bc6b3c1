/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of answers_job share: what the program has made so far, names for it that are the
 * same in every process, and the choices that follow from the seed. */
#ifndef MEMSHIM_TESTS_FUZZ_TORTURE_ANSWERS_JOB_H
#define MEMSHIM_TESTS_FUZZ_TORTURE_ANSWERS_JOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cuda.h>

enum {
    DEVICES = 2,
    CONTEXTS = 5, /* the first DEVICES are the primary ones */
    STREAMS = 6,
    EVENTS = 4,
    BLOCKS = 20,
    POOLS = 3,
    HOSTS = 4,
    CHUNKS = 4,
    LIVE_BYTES = 256 * 1024 * 1024
};

enum road { ALLOCATED, PITCHED, MANAGED, ORDERED, FROM_POOL };

struct block {
    CUdeviceptr at; /* 0: an empty place */
    size_t bytes;
    enum road road;
    int context; /* that was current when it was made */
    int stream;  /* the last whose work used it; -1: none */
    int pool;
};

struct stream {
    CUstream handle;
    int context;
};

struct event {
    CUevent handle;
    int context;
};

struct host {
    unsigned char *at;
    size_t bytes;
    int context;
    bool registered; /* malloc'd and registered, not allocated by the driver */
};

/* Physical memory that the program maps itself, each in a reservation of its own. */
struct chunk {
    CUmemGenericAllocationHandle handle;
    CUdeviceptr at; /* of the reservation */
    size_t bytes;
    bool held, mapped;
};

/* What there is. A null handle, or address 0: an empty place. */
extern uint64_t random_state;
extern unsigned call_number;
extern bool peers;
extern size_t live_bytes;
extern CUcontext contexts[CONTEXTS];
extern struct stream streams[STREAMS];
extern struct event events[EVENTS];
extern struct block blocks[BLOCKS];
extern CUmemoryPool pools[POOLS], default_pools[DEVICES];
extern struct host hosts[HOSTS];
extern struct chunk chunks[CHUNKS];
extern CUarray array;
extern int array_context;

unsigned draw(unsigned below);
bool one_in(unsigned many);
size_t draw_bytes(void);

/* Of a place that is empty, or is not; -1: of none. */
int free_block(void);
int live_block(void);

/* A stream of the current context; -1 stands for the null stream. */
int live_stream(void);
CUstream handle_of(int stream);

/* Says what a call answered. */
__attribute__((format(printf, 2, 3))) void say(CUresult result, const char *form, ...);

int context_number(CUcontext context);
int device_of(int context);
int current(void);
int pool_number(CUmemoryPool pool);

/* Of a block, a chunk's reservation or host memory; a string that the next eight calls leave. */
const char *place(CUdeviceptr at);

/* All work of all contexts is done: what follows may use any block. */
void settle(void);

/* Work of this stream may use this block: that of others is over. */
void use(int block, int stream);

/* A block is gone; and what a context had, with it. */
void forget(int block);
void forget_context(int context);

/* The calls, each of which says what it does. answers_memory.c. */
void call_alloc(void);
void call_alloc_pitch(void);
void call_alloc_managed(void);
void call_alloc_async(void);
void call_alloc_from_pool(void);
void call_free(void);
void call_free_async(void);
void call_set(void);
void call_read(void);
void call_write(void);
void call_copy(void);
void call_copy_2d(void);
void call_attribute(void);
void call_range(void);
void call_info(void);
void call_retain_handle(void);

/* answers_objects.c. */
void call_context_create(void);
void call_context_destroy(void);
void call_context_reset(void);
void call_context_change(void);
void call_stream_create(void);
void call_stream_destroy(void);
void call_stream_question(void);
void call_event(void);
void call_pool(void);
void call_host(void);
void call_chunk(void);
void call_array(void);

#endif
