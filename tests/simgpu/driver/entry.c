/* SPDX-License-Identifier: Apache-2.0 */
/* The entry into every driver function. See entry.h. */
#include "entry.h"

#include "../simgpu.h"
#include "call_site.h"
#include "device.h"
#include "fail.h"
#include "other.h"
#include "settings.h"
#include "stream.h"
#include "symbols.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

const struct sim_function_info sim_functions[SIM_FUNCTIONS] = {
#define LEGACY     false
#define PER_THREAD true
#define SIM_DRIVER(base, symbol, version, flavour) \
    {#base, #symbol, version, flavour, (void *)(symbol)},
#include "driver_table.h"
#undef SIM_DRIVER
#undef LEGACY
#undef PER_THREAD
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t progress = PTHREAD_COND_INITIALIZER;
static unsigned progress_waiters;
static pthread_mutex_t host_functions = PTHREAD_MUTEX_INITIALIZER; /* one runs at a time */
static _Atomic uint64_t calls[SIM_FUNCTIONS];
static _Atomic uint64_t base_calls[SIM_FUNCTIONS]; /* at the index of the base's first function */
static _Atomic uint64_t all_calls;
static int first_of_base[SIM_FUNCTIONS];
static atomic_bool initialised;
static atomic_bool forked_child;
static _Thread_local bool in_host_function;
static _Thread_local uint64_t entered_ns; /* of the present call, with SIMGPU_LATENCY */

uint64_t sim_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void sim_sleep_us(uint64_t duration_us)
{
    struct timespec left = {(time_t)(duration_us / 1000000), (long)(duration_us % 1000000) * 1000};
    while (duration_us && nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
}

void sim_pass_time_us(uint64_t duration_us)
{
    if (duration_us) {
        sim_unlock();
        sim_sleep_us(duration_us);
        sim_lock();
    }
}

void sim_lock(void)
{
    pthread_mutex_lock(&lock);
}

void sim_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

pthread_mutex_t *sim_mutex(void)
{
    return &lock;
}

void sim_wait_progress(void)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 10000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_nsec -= 1000000000;
        until.tv_sec++;
    }
    progress_waiters++;
    pthread_cond_timedwait(&progress, &lock, &until);
    progress_waiters--;
}

void sim_announce_progress(void)
{
    if (progress_waiters) {
        pthread_cond_broadcast(&progress);
    }
}

/* "Host functions without a mandated order (such as in independent streams) execute in undefined
 * order and may be serialized" (cuda.h, cuLaunchHostFunc). The driver does serialize them (seen: an
 * H200, driver 580). */
static void begin_host_function(bool alone)
{
    if (alone) {
        pthread_mutex_lock(&host_functions);
    }
    in_host_function = true;
}

static void end_host_function(bool alone)
{
    in_host_function = false;
    if (alone) {
        pthread_mutex_unlock(&host_functions);
    }
}

void sim_call_host_function(CUhostFn function, void *argument, bool as_kernel)
{
    begin_host_function(!as_kernel);
    function(argument);
    end_host_function(!as_kernel);
}

void sim_call_stream_callback(CUstreamCallback function, CUstream stream, void *argument)
{
    begin_host_function(true);
    function(stream, CUDA_SUCCESS, argument);
    end_host_function(true);
}

/* The last part of a wait spins: a sleep ends some 50 us late, many times the cost of a map. */
#define SPIN_NS 100000u

void sim_wait_until_ns(uint64_t end_ns)
{
    uint64_t now = sim_now_ns();
    if (end_ns > now + SPIN_NS) {
        uint64_t sleep_ns = end_ns - now - SPIN_NS;
        nanosleep(&(struct timespec){.tv_sec = (time_t)(sleep_ns / 1000000000),
                                     .tv_nsec = (long)(sleep_ns % 1000000000)},
                  NULL);
    }
    while (sim_now_ns() < end_ns) {
    }
}

void sim_charge_latency(uint64_t duration_ns)
{
    if (!sim_settings.latency) {
        return;
    }
    sim_unlock();
    /* The time includes what the double itself has taken. */
    sim_wait_until_ns(entered_ns + duration_ns * sim_settings.latency);
    sim_lock();
}

static void after_fork_in_child(void)
{
    if (atomic_load(&initialised)) {
        atomic_store(&forked_child, true);
    }
}

bool sim_is_forked_child(void)
{
    return atomic_load(&forked_child);
}

static CUresult count_call(enum sim_function function)
{
    struct sim_call_number number = {
        atomic_fetch_add_explicit(&calls[function], 1, memory_order_relaxed) + 1,
        atomic_fetch_add_explicit(&base_calls[first_of_base[function]], 1, memory_order_relaxed) +
            1,
        atomic_fetch_add_explicit(&all_calls, 1, memory_order_relaxed) + 1,
    };
    sim_other_check(function, number);
    return sim_fail_check(function, number);
}

struct sim_guard sim_enter_early(enum sim_function function)
{
    if (atomic_load_explicit(&forked_child, memory_order_relaxed)) {
        return (struct sim_guard){.status = CUDA_ERROR_NOT_INITIALIZED};
    }
    return (struct sim_guard){.status = count_call(function)};
}

struct sim_guard sim_enter(enum sim_function function)
{
    if (!atomic_load_explicit(&initialised, memory_order_acquire) ||
        atomic_load_explicit(&forked_child, memory_order_relaxed)) {
        return (struct sim_guard){.status = CUDA_ERROR_NOT_INITIALIZED};
    }
    CUresult status = count_call(function);
    if (status != CUDA_SUCCESS) {
        return (struct sim_guard){.status = status};
    }
    if (in_host_function) {
        return (struct sim_guard){.status = CUDA_ERROR_NOT_PERMITTED};
    }
    entered_ns = sim_settings.latency ? sim_now_ns() : 0;
    struct sim_guard guard = {.status = CUDA_SUCCESS, .locked = true};
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &guard.cancellation);
    sim_lock();
    sim_call_site_enter(sim_functions[function].symbol);
    return guard;
}

void sim_leave(struct sim_guard *guard)
{
    if (!guard->locked) {
        return;
    }
    bool destroyed = sim_call_site_leave();
    sim_unlock();
    if (destroyed) {
        sim_sleep_us(sim_settings.destroy_us);
    }
    pthread_setcancelstate(guard->cancellation, NULL);
}

CUresult sim_initialise(void)
{
    int cancellation;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancellation);
    sim_lock();
    CUresult status = CUDA_SUCCESS;
    if (!atomic_load(&initialised)) {
        status = sim_devices_create();
        if (status == CUDA_SUCCESS) {
            atomic_store(&initialised, true);
        }
    }
    sim_unlock();
    pthread_setcancelstate(cancellation, NULL);
    return status;
}

/* ---- functions by name -------------------------------------------------------------------- */

bool sim_find_function(const char *name, size_t length, struct sim_function_name *found)
{
    if (length == 3 && strncmp(name, "any", 3) == 0) {
        *found = (struct sim_function_name){SIM_NAME_ANY, 0};
        return true;
    }
    for (int i = 0; i < SIM_FUNCTIONS; i++) {
        if (strlen(sim_functions[i].base) == length &&
            strncmp(sim_functions[i].base, name, length) == 0) {
            *found = (struct sim_function_name){SIM_NAME_BASE, first_of_base[i]};
            return true;
        }
    }
    for (int i = 0; i < SIM_FUNCTIONS; i++) {
        if (strlen(sim_functions[i].symbol) == length &&
            strncmp(sim_functions[i].symbol, name, length) == 0) {
            *found = (struct sim_function_name){SIM_NAME_SYMBOL, i};
            return true;
        }
    }
    return false;
}

bool sim_is_named(enum sim_function function, struct sim_function_name name)
{
    return name.kind == SIM_NAME_ANY ||
           name.index == (name.kind == SIM_NAME_BASE ? first_of_base[function] : (int)function);
}

uint64_t sim_calls_of(struct sim_function_name name)
{
    if (name.kind == SIM_NAME_ANY) {
        return atomic_load(&all_calls);
    }
    return atomic_load(name.kind == SIM_NAME_BASE ? &base_calls[name.index] : &calls[name.index]);
}

uint64_t simgpu_calls(const char *function)
{
    struct sim_function_name name;
    return sim_find_function(function, strlen(function), &name) ? sim_calls_of(name) : UINT64_MAX;
}

__attribute__((constructor)) static void library_loaded(void)
{
    for (int i = 0; i < SIM_FUNCTIONS; i++) {
        bool again = i > 0 && strcmp(sim_functions[i].base, sim_functions[i - 1].base) == 0;
        first_of_base[i] = again ? first_of_base[i - 1] : i;
    }
    sim_call_site_prepare();
    sim_settings_read();
    sim_hide_newer_functions();
    sim_fail_read(sim_settings.fail);
    sim_other_read(sim_settings.other);
    pthread_atfork(NULL, NULL, after_fork_in_child);
}
