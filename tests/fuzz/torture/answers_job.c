/* SPDX-License-Identifier: Apache-2.0 */
/* A program that calls the driver at random, rightly and wrongly, and says what each call answered:
 * results, addresses by the block that they lie in, attributes, and what memory holds. One thread,
 * and no two streams at one block at once, so that all of it follows from the seed. What it says
 * must be the same with and without memshim (torture.py compares).
 *
 *   answers_job SEED CALLS [no-peers]   no-peers: the devices have no access to each other; what
 *                                       names a stream stays with its device (docs/coverage.md)
 *
 * Kept away from: handles that were destroyed (undefined in cuda.h), and what docs/coverage.md says
 * differs. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "answers_job.h"
#include "say.h"

uint64_t random_state;
unsigned call_number;
bool peers = true;
size_t live_bytes;
CUcontext contexts[CONTEXTS];
struct stream streams[STREAMS];
struct event events[EVENTS];
struct block blocks[BLOCKS];
CUmemoryPool pools[POOLS], default_pools[DEVICES];
struct host hosts[HOSTS];
struct chunk chunks[CHUNKS];
CUarray array;
int array_context;

unsigned draw(unsigned below)
{
    return (unsigned)(next_random(&random_state) % below);
}

bool one_in(unsigned many)
{
    return draw(many) == 0;
}

void say(CUresult result, const char *form, ...)
{
    va_list arguments;
    va_start(arguments, form);
    (void)printf("%u ", call_number);
    (void)vprintf(form, arguments);
    (void)printf(" -> %d\n", (int)result);
    va_end(arguments);
}

/* ---- names of things, the same in every process -----------------------------------------------
 */

int context_number(CUcontext context)
{
    for (int i = 0; i < CONTEXTS; i++) {
        if (context != NULL && contexts[i] == context) {
            return i;
        }
    }
    return context == NULL ? -1 : -2;
}

int device_of(int context)
{
    return context < DEVICES ? context : context % DEVICES;
}

int current(void)
{
    CUcontext context = NULL;
    MUST(cuCtxGetCurrent(&context));
    return context_number(context);
}

const char *place(CUdeviceptr at)
{
    static char texts[8][40];
    static unsigned next;
    char *text = texts[next++ % 8];
    (void)snprintf(text, sizeof texts[0], at == 0 ? "null" : "elsewhere");
    for (int i = 0; i < BLOCKS; i++) {
        if (blocks[i].at != 0 && at >= blocks[i].at && at <= blocks[i].at + blocks[i].bytes) {
            (void)snprintf(text, sizeof texts[0], "block%d+%zu", i, (size_t)(at - blocks[i].at));
            if (at < blocks[i].at + blocks[i].bytes) {
                return text;
            }
        }
    }
    for (int i = 0; i < HOSTS; i++) {
        const uintptr_t from = (uintptr_t)hosts[i].at;
        if (from != 0 && at >= from && at < from + hosts[i].bytes) {
            (void)snprintf(text, sizeof texts[0], "host%d+%zu", i, (size_t)(at - from));
        }
    }
    for (int i = 0; i < CHUNKS; i++) {
        if (chunks[i].at != 0 && at >= chunks[i].at && at < chunks[i].at + chunks[i].bytes) {
            (void)snprintf(text, sizeof texts[0], "chunk%d+%zu", i, (size_t)(at - chunks[i].at));
        }
    }
    return text;
}

int pool_number(CUmemoryPool pool)
{
    for (int i = 0; i < POOLS; i++) {
        if (pool != NULL && pools[i] == pool) {
            return i;
        }
    }
    for (int i = 0; i < DEVICES; i++) {
        if (pool == default_pools[i]) {
            return POOLS + i;
        }
    }
    return pool == NULL ? -1 : -2;
}

/* ---- choices ----------------------------------------------------------------------------------
 */

size_t draw_bytes(void)
{
    static const size_t sizes[] = {1,       3,       256,         511,         512,     4096,
                                   65536,   65537,   MIB - 1,     MIB,         MIB + 1, 2 * MIB,
                                   2 * MIB, 3 * MIB, 2 * MIB + 1, 5 * MIB + 8, 33 * MIB};
    static const size_t wrong[] = {0, (size_t)1 << 40, SIZE_MAX, SIZE_MAX - 1, SIZE_MAX / 2 + 1};
    if (one_in(25)) {
        return wrong[draw(sizeof wrong / sizeof wrong[0])];
    }
    return sizes[draw(sizeof sizes / sizeof sizes[0])];
}

int free_block(void)
{
    if (live_bytes > LIVE_BYTES) {
        return -1;
    }
    for (int i = 0; i < BLOCKS; i++) {
        if (blocks[i].at == 0) {
            return i;
        }
    }
    return -1;
}

int live_block(void)
{
    const int from = (int)draw(BLOCKS);
    for (int i = 0; i < BLOCKS; i++) {
        const int at = (from + i) % BLOCKS;
        if (blocks[at].at != 0) {
            return at;
        }
    }
    return -1;
}

int live_stream(void)
{
    const int here = current(), from = (int)draw(STREAMS);
    for (int i = 0; i < STREAMS && !one_in(4); i++) {
        const int at = (from + i) % STREAMS;
        if (streams[at].handle != NULL && streams[at].context == here) {
            return at;
        }
    }
    return -1;
}

CUstream handle_of(int stream)
{
    return stream < 0 ? NULL : streams[stream].handle;
}

void settle(void)
{
    for (int i = 0; i < CONTEXTS; i++) {
        if (contexts[i] == NULL) {
            continue;
        }
        MUST(cuCtxPushCurrent(contexts[i]));
        MUST(cuCtxSynchronize());
        CUcontext popped;
        MUST(cuCtxPopCurrent(&popped));
    }
    for (int i = 0; i < BLOCKS; i++) {
        blocks[i].stream = -1;
    }
}

void use(int block, int stream)
{
    if (blocks[block].stream != -1 && blocks[block].stream != stream) {
        settle();
    }
    blocks[block].stream = stream;
}

void forget(int block)
{
    live_bytes -= blocks[block].bytes;
    blocks[block] = (struct block){0};
}

void forget_context(int context)
{
    for (int i = 0; i < BLOCKS; i++) {
        if (blocks[i].at != 0 && blocks[i].context == context) {
            forget(i);
        }
    }
    for (int i = 0; i < STREAMS; i++) {
        if (streams[i].context == context) {
            streams[i].handle = NULL;
        }
    }
    for (int i = 0; i < EVENTS; i++) {
        if (events[i].context == context) {
            events[i].handle = NULL;
        }
    }
    for (int i = 0; i < HOSTS; i++) {
        if (hosts[i].context == context) {
            hosts[i].at = NULL;
        }
    }
    if (array_context == context) {
        array = NULL;
    }
}

/* ---- the walk ---------------------------------------------------------------------------------
 */

static const struct {
    void (*call)(void);
    unsigned weight;
} calls[] = {{call_alloc, 12},
             {call_alloc_pitch, 4},
             {call_alloc_managed, 3},
             {call_alloc_async, 10},
             {call_alloc_from_pool, 6},
             {call_free, 16},
             {call_free_async, 12},
             {call_set, 8},
             {call_read, 12},
             {call_write, 8},
             {call_copy, 10},
             {call_copy_2d, 4},
             {call_attribute, 14},
             {call_range, 6},
             {call_info, 1},
             {call_retain_handle, 3},
             {call_context_create, 3},
             {call_context_destroy, 2},
             {call_context_change, 8},
             {call_stream_create, 4},
             {call_stream_destroy, 2},
             {call_stream_question, 2},
             {call_event, 4},
             {call_pool, 6},
             {call_host, 4},
             {call_chunk, 8},
             {call_array, 2},
             {call_context_reset, 1}};

int main(int count, char **arguments)
{
    if (count != 3 && !(count == 4 && strcmp(arguments[3], "no-peers") == 0)) {
        (void)fputs("usage: answers_job SEED CALLS [no-peers]\n", stderr);
        return 2;
    }
    peers = count == 3;
    MUST(setvbuf(stdout, NULL, _IOLBF, 0)); /* what memshim says comes between lines */
    random_state = strtoull(arguments[1], NULL, 0);
    const unsigned last = (unsigned)strtoul(arguments[2], NULL, 0);
    unsigned weights = 0;
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        weights += calls[i].weight;
    }
    MUST(cuInit(0));
    for (int i = 0; i < DEVICES; i++) {
        MUST(cuDevicePrimaryCtxRetain(&contexts[i], i));
        MUST(cuDeviceGetDefaultMemPool(&default_pools[i], i));
    }
    MUST(cuCtxSetCurrent(contexts[0]));
    for (call_number = 1; call_number <= last; call_number++) {
        unsigned chosen = draw(weights);
        size_t at = 0;
        while (chosen >= calls[at].weight) {
            chosen -= calls[at++].weight;
        }
        calls[at].call();
    }
    (void)puts("end");
    return 0;
}
