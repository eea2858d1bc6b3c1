/* SPDX-License-Identifier: Apache-2.0 */
/* PyTorch keeps a block that was used on other streams (record_stream) from its free until the host
 * sees that these streams have passed it: its allocator records an event on each, and queries them
 * when it allocates. But it reports the free at once. If the host sees the end of work late
 * (SIMGPU_SCHEDULE=late), this holds the report back until then, so that such a block counts as
 * held.
 *
 * The allocator is recognized as the caller in libc10_cuda.so. It records its events between two
 * reports of the thread, and the second one is that of the free. */
#include "kept.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT     __attribute__((visibility("default")))
#define EVENTS_MAX 32
#define DEVICES    64

typedef int event_call_t(void *event);
typedef int record_call_t(void *event, void *stream);

EXPORT record_call_t cudaEventRecord;
EXPORT event_call_t cudaEventQuery;
EXPORT event_call_t cudaEventSynchronize;

/* A block whose free is held back. */
struct kept {
    struct kept *next;
    void *at;
    int64_t bytes;
    uint16_t device;
    unsigned count;
    void *events[EVENTS_MAX]; /* events not known to have ended */
};

static _Thread_local struct {
    unsigned count;
    void *events[EVENTS_MAX];
} recorded; /* by the allocator, since this thread's last report */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct kept *first;             /* under lock, as all below */
static int64_t kept_bytes[DEVICES];    /* PyTorch has subtracted these already */
static size_t allocated[DEVICES];      /* from its last report */
static size_t reserved_bytes[DEVICES]; /* from its last report */

static bool is_late(void)
{
    static int late = -1;
    if (late < 0) {
        const char *text = getenv("SIMGPU_SCHEDULE");
        late = text && strcmp(text, "late") == 0;
    }
    return late > 0;
}

static unsigned index_of(uint16_t device)
{
    return (device >> 8) % DEVICES;
}

void kept_report(usage_t *next, void *at, int64_t bytes, size_t total, size_t reserved,
                 uint16_t device)
{
    struct kept *kept = NULL;
    if (!is_late()) {
        next(at, bytes, total, reserved, device);
        return;
    }
    if (bytes < 0 && recorded.count > 0) {
        kept = malloc(sizeof *kept);
    }
    pthread_mutex_lock(&lock);
    allocated[index_of(device)] = total;
    reserved_bytes[index_of(device)] = reserved;
    if (kept) {
        *kept = (struct kept){first, at, bytes, device, recorded.count, {NULL}};
        memcpy(kept->events, recorded.events, sizeof kept->events);
        first = kept;
        kept_bytes[index_of(device)] -= bytes;
    }
    size_t held = (size_t)kept_bytes[index_of(device)];
    pthread_mutex_unlock(&lock);
    recorded.count = 0;
    if (!kept) {
        next(at, bytes, total + held, reserved, device);
    }
}

/* Removes one block that waited for that event only. */
static struct kept *take_ended(void *event, size_t *total, size_t *reserved)
{
    for (struct kept **link = &first; *link; link = &(*link)->next) {
        struct kept *kept = *link;
        for (unsigned i = 0; i < kept->count; i++) {
            if (kept->events[i] == event) {
                kept->events[i] = kept->events[--kept->count];
                break;
            }
        }
        if (kept->count == 0) {
            unsigned device = index_of(kept->device);
            *link = kept->next;
            kept_bytes[device] += kept->bytes;
            *total = allocated[device] + (size_t)kept_bytes[device];
            *reserved = reserved_bytes[device];
            return kept;
        }
    }
    return NULL;
}

static void ended(void *event)
{
    for (;;) {
        size_t total = 0, reserved = 0;
        pthread_mutex_lock(&lock);
        struct kept *kept = first ? take_ended(event, &total, &reserved) : NULL;
        pthread_mutex_unlock(&lock);
        if (!kept) {
            return;
        }
        usage_t *next = usage_next();
        if (next) {
            next(kept->at, kept->bytes, total, reserved, kept->device);
        }
        free(kept);
    }
}

static bool is_allocator(const void *caller)
{
    Dl_info about;
    return dladdr(caller, &about) && about.dli_fname && strstr(about.dli_fname, "libc10_cuda.so");
}

static int32_t no_runtime(void)
{
    return 3; /* cudaErrorInitializationError */
}

int cudaEventRecord(void *event, void *stream)
{
    static record_call_t *next;
    next = next ? next : (record_call_t *)dlsym(RTLD_NEXT, "cudaEventRecord");
    if (is_late() && recorded.count < EVENTS_MAX && is_allocator(__builtin_return_address(0))) {
        recorded.events[recorded.count++] = event;
    }
    return next ? next(event, stream) : no_runtime();
}

int cudaEventQuery(void *event)
{
    static event_call_t *next;
    next = next ? next : (event_call_t *)dlsym(RTLD_NEXT, "cudaEventQuery");
    int status = next ? next(event) : no_runtime();
    if (status == 0 && is_late()) {
        ended(event);
    }
    return status;
}

int cudaEventSynchronize(void *event)
{
    static event_call_t *next;
    next = next ? next : (event_call_t *)dlsym(RTLD_NEXT, "cudaEventSynchronize");
    int status = next ? next(event) : no_runtime();
    if (status == 0 && is_late()) {
        ended(event);
    }
    return status;
}
