/* SPDX-License-Identifier: Apache-2.0 */
/* One unit of work of a stream or a graph. See work.h. */
#include "work.h"

#include "../simgpu.h"

#include "context.h"
#include "entry.h"
#include "event.h"
#include "graph.h"
#include "ipc.h"
#include "module.h"
#include "settings.h"
#include "stream.h"
#include "values.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* How much a set writes at once: it is read again while it is in the cache. */
#define FILL_BYTES ((size_t)32 << 10)

bool sim_work_takes_time(const struct sim_work *work)
{
    switch (work->kind) {
    case SIM_WORK_KERNEL:
    case SIM_WORK_COPY:
    case SIM_WORK_SET:
    case SIM_WORK_HOST:
    case SIM_WORK_CALLBACK:
    case SIM_WORK_GRAPH:
        return true;
    default:
        return false;
    }
}

uint32_t sim_work_peer_devices(const struct sim_work *work)
{
    return work->kind == SIM_WORK_COPY && sim_settings.peer_us ? work->copy.peers : 0;
}

bool sim_work_runs_inline(const struct sim_work *work)
{
    switch (work->kind) {
    case SIM_WORK_HOST:
    case SIM_WORK_CALLBACK:
    case SIM_WORK_GRAPH: /* may hold host functions */
        return false;
    case SIM_WORK_KERNEL:
        return !sim_kernel_lasts(&work->launch);
    case SIM_WORK_COPY:
        return work->copy.bus == SIM_BUS_NONE;
    default:
        return sim_work_is_ready(work);
    }
}

bool sim_work_has_unlocked_part(const struct sim_work *work)
{
    switch (work->kind) {
    case SIM_WORK_KERNEL:
        return sim_kernel_has_effect(&work->launch);
    case SIM_WORK_COPY:
    case SIM_WORK_SET:
    case SIM_WORK_HOST:
    case SIM_WORK_CALLBACK:
    case SIM_WORK_GRAPH:
        return true;
    default:
        return false;
    }
}

static void (*_Atomic write_watch)(uint64_t at, uint64_t bytes);

void simgpu_watch_writes(void (*watch)(uint64_t at, uint64_t bytes))
{
    atomic_store(&write_watch, watch);
}

void simgpu_note_write(uint64_t at, uint64_t bytes)
{
    void (*watch)(uint64_t, uint64_t) = atomic_load(&write_watch);
    if (watch && bytes) {
        watch(at, bytes);
    }
}

static bool is_dropped(size_t width, size_t height, size_t depth)
{
    return !sim_settings.contents && (width > SIMGPU_SMALL_CONTENTS_BYTES ||
                                      width * height * depth > SIMGPU_SMALL_CONTENTS_BYTES);
}

bool sim_copy_is_dropped(const struct sim_copy *copy)
{
    return !copy->is_moved && is_dropped(copy->width, copy->height, copy->depth);
}

bool sim_set_is_dropped(const struct sim_set *set)
{
    return is_dropped(set->width * set->element_bytes, set->height, 1);
}

/* A device's stores are not made by a host thread: the thread sanitizer need not check them, and
 * following every byte would take most of a run's time. */
#ifdef __SANITIZE_THREAD__
void AnnotateIgnoreReadsBegin(const char *file, int line);
void AnnotateIgnoreReadsEnd(const char *file, int line);
void AnnotateIgnoreWritesBegin(const char *file, int line);
void AnnotateIgnoreWritesEnd(const char *file, int line);

static void begin_unseen(void)
{
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
}

static void end_unseen(void)
{
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
}
#else
static void begin_unseen(void)
{
}

static void end_unseen(void)
{
}
#endif

uint64_t sim_copy_over_ns(const struct sim_copy *copy)
{
    return sim_bus_take(copy->bus, copy->width * copy->height * copy->depth);
}

static void run_copy(const struct sim_copy *copy)
{
    if (copy->bus != SIM_BUS_NONE) {
        sim_wait_until_ns(copy->over_ns != 0 ? copy->over_ns : sim_copy_over_ns(copy));
    }
    if (sim_copy_is_dropped(copy)) {
        return;
    }
    for (size_t z = 0; z < copy->depth; z++) {
        char *to = copy->to + z * copy->to_slice;
        const char *from = copy->from + z * copy->from_slice;
        for (size_t y = 0; y < copy->height; y++) {
            simgpu_note_write((uint64_t)(to + y * copy->to_pitch), copy->width);
        }
        begin_unseen();
        for (size_t y = 0; y < copy->height; y++) {
            char *row = to + y * copy->to_pitch;
            if (copy->answer.kind != SIM_ANSWER_MEMORY) {
                sim_values_answer(&copy->answer, z * copy->height + y, row, copy->width);
            } else {
                memmove(row, from + y * copy->from_pitch, copy->width);
            }
        }
        end_unseen();
    }
}

/* The first element becomes the row, by copying what is there already behind itself. */
static void fill_row(char *row, const struct sim_set *set)
{
    size_t bytes = set->width * set->element_bytes;
    memcpy(row, &set->value, set->element_bytes);
    for (size_t done = set->element_bytes; done < bytes;) {
        size_t part = done < bytes - done ? done : bytes - done;
        part = part < FILL_BYTES ? part : FILL_BYTES;
        memcpy(row + done, row, part);
        done += part;
    }
}

static void run_set(const struct sim_set *set)
{
    size_t bytes = set->width * set->element_bytes;
    if (bytes == 0 || sim_set_is_dropped(set)) {
        return;
    }
    for (size_t y = 0; y < set->height; y++) {
        char *row = set->to + y * set->pitch;
        simgpu_note_write((uint64_t)row, bytes);
        begin_unseen();
        if (set->element_bytes == 1) {
            memset(row, (int)set->value, bytes);
        } else {
            fill_row(row, set);
        }
        end_unseen();
    }
}

void sim_work_run_unlocked(const struct sim_work *work)
{
    switch (work->kind) {
    case SIM_WORK_KERNEL:
        sim_kernel_run(&work->launch);
        break;
    case SIM_WORK_COPY:
        run_copy(&work->copy);
        break;
    case SIM_WORK_SET:
        run_set(&work->set);
        break;
    case SIM_WORK_HOST:
        sim_call_host_function(work->host.function, work->host.argument, work->host.as_kernel);
        break;
    case SIM_WORK_CALLBACK:
        sim_call_stream_callback(work->callback.function, work->callback.stream,
                                 work->callback.argument);
        break;
    case SIM_WORK_GRAPH:
        sim_program_run(work->program);
        break;
    default:
        break;
    }
}

static void write_value(const struct sim_work *work)
{
    simgpu_note_write(work->value.address, work->value.bytes);
    if (work->value.bytes == 4) {
        atomic_store((_Atomic uint32_t *)work->value.address, (uint32_t)work->value.value);
    } else {
        atomic_store((_Atomic uint64_t *)work->value.address, work->value.value);
    }
    sim_announce_progress();
}

void sim_work_run_locked(const struct sim_work *work, CUstream stream)
{
    switch (work->kind) {
    case SIM_WORK_RECORD:
        sim_event_reached(work->event.event, work->event.version);
        break;
    case SIM_WORK_WRITE_VALUE:
        write_value(work);
        break;
    default:
        (void)stream;
        break;
    }
}

static bool value_reached(const struct sim_work *work)
{
    if (work->value.bytes == 4) {
        uint32_t now = atomic_load((_Atomic uint32_t *)work->value.address);
        uint32_t wanted = (uint32_t)work->value.value;
        switch (work->value.flags & 3u) {
        case CU_STREAM_WAIT_VALUE_GEQ:
            return (int32_t)(now - wanted) >= 0; /* cyclic, as in cuda.h */
        case CU_STREAM_WAIT_VALUE_EQ:
            return now == wanted;
        case CU_STREAM_WAIT_VALUE_AND:
            return (now & wanted) != 0;
        default:
            return ~(now | wanted) != 0;
        }
    }
    uint64_t now = atomic_load((_Atomic uint64_t *)work->value.address);
    uint64_t wanted = work->value.value;
    switch (work->value.flags & 3u) {
    case CU_STREAM_WAIT_VALUE_GEQ:
        return (int64_t)(now - wanted) >= 0;
    case CU_STREAM_WAIT_VALUE_EQ:
        return now == wanted;
    case CU_STREAM_WAIT_VALUE_AND:
        return (now & wanted) != 0;
    default:
        return ~(now | wanted) != 0;
    }
}

bool sim_work_is_ready(const struct sim_work *work)
{
    if (work->kind == SIM_WORK_WAIT_VALUE) {
        return value_reached(work);
    }
    if (work->kind == SIM_WORK_WAIT && work->event.event->shared) {
        return sim_ipc_event_reached_version(work->event.event->shared, work->event.version);
    }
    return true;
}

void sim_work_release(struct sim_work *work)
{
    switch (work->kind) {
    case SIM_WORK_KERNEL:
        free(work->launch.parameters);
        free(work->launch.parameter_pointers);
        break;
    case SIM_WORK_COPY:
        free(work->copy.staged);
        break;
    case SIM_WORK_RECORD:
    case SIM_WORK_WAIT:
        sim_event_release(work->event.event);
        break;
    case SIM_WORK_ALLOC:
        sim_graph_memory_release(work->memory.range);
        break;
    case SIM_WORK_GRAPH:
        sim_program_release(work->program);
        break;
    case SIM_WORK_CHILD:
        sim_graph_release(work->graph);
        break;
    default:
        break;
    }
    work->kind = SIM_WORK_EMPTY;
}

static CUresult copy_parameters(struct sim_launch *launch)
{
    if (!launch->parameters) {
        return CUDA_SUCCESS;
    }
    const char *from = launch->parameters;
    void **pointers = launch->parameter_pointers;
    launch->parameters = malloc(launch->parameter_bytes);
    launch->parameter_pointers = calloc(sim_kernel_parameter_count(launch->function) + 1,
                                        sizeof *launch->parameter_pointers);
    if (!launch->parameters || !launch->parameter_pointers) {
        free(launch->parameters);
        free(launch->parameter_pointers);
        launch->parameters = NULL;
        launch->parameter_pointers = NULL;
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    memcpy(launch->parameters, from, launch->parameter_bytes);
    for (size_t i = 0; i < sim_kernel_parameter_count(launch->function); i++) {
        launch->parameter_pointers[i] = launch->parameters + ((char *)pointers[i] - from);
    }
    return CUDA_SUCCESS;
}

CUresult sim_work_copy(struct sim_work *to, const struct sim_work *from)
{
    *to = *from;
    switch (to->kind) {
    case SIM_WORK_KERNEL:
        return copy_parameters(&to->launch);
    case SIM_WORK_COPY:
        to->copy.staged = NULL; /* graphs keep the application's own pointers */
        return CUDA_SUCCESS;
    case SIM_WORK_RECORD:
    case SIM_WORK_WAIT:
        sim_event_retain(to->event.event);
        return CUDA_SUCCESS;
    case SIM_WORK_ALLOC:
        sim_graph_memory_retain(to->memory.range);
        return CUDA_SUCCESS;
    case SIM_WORK_GRAPH:
        sim_program_retain(to->program);
        return CUDA_SUCCESS;
    case SIM_WORK_CHILD:
        to->graph = sim_graph_clone(from->graph);
        if (!to->graph) {
            to->kind = SIM_WORK_EMPTY;
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        return CUDA_SUCCESS;
    default:
        return CUDA_SUCCESS;
    }
}

/* ---- delays -------------------------------------------------------------------------------- */

static _Atomic uint64_t draws;

/* A splitmix64 of the draw's number: the same seed gives the same sequence of delays, whichever
 * threads use them. */
static uint64_t next_draw(void)
{
    uint64_t z = (sim_settings.seed << 32) + atomic_fetch_add(&draws, 1) * 0x9E3779B97F4A7C15ull;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
}

void sim_delay(void)
{
    uint64_t low = sim_settings.delay_low_us, high = sim_settings.delay_high_us;
    if (high == 0) {
        return;
    }
    uint64_t delay = low + next_draw() % (high - low + 1);
    struct timespec duration = {.tv_sec = (time_t)(delay / 1000000),
                                .tv_nsec = (long)(delay % 1000000) * 1000};
    nanosleep(&duration, NULL);
}

void simgpu_set_delay(uint64_t low_us, uint64_t high_us)
{
    sim_lock();
    sim_settings.delay_low_us = low_us;
    sim_settings.delay_high_us = high_us > low_us ? high_us : low_us;
    sim_unlock();
}
