#include "entry.h"

#include "../simgpu.h"
#include "device.h"
#include "settings.h"
#include "stream.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#define MAX_RULES 64

/* Fails calls of a function. `function` is the first of its base where the rule is for all of them.
 * Read while another is put in its place it may be some of both, for one call. */
struct fail_rule {
    _Atomic int function;
    _Atomic bool whole_base;
    _Atomic uint64_t call_number; /* counted from the start of the process; 0: every call */
    _Atomic CUresult error;
};

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
static _Atomic uint64_t calls[SIM_FUNCTIONS];
static _Atomic uint64_t base_calls[SIM_FUNCTIONS]; /* at the index of the base's first function */
static int first_of_base[SIM_FUNCTIONS];
static struct fail_rule rules[MAX_RULES];
static _Atomic int rule_count;
static atomic_bool initialised;
static atomic_bool forked_child;
static _Thread_local bool in_host_function;

uint64_t sim_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
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

void sim_call_host_function(CUhostFn function, void *argument)
{
    in_host_function = true;
    function(argument);
    in_host_function = false;
}

void sim_call_stream_callback(CUstreamCallback function, CUstream stream, void *argument)
{
    in_host_function = true;
    function(stream, CUDA_SUCCESS, argument);
    in_host_function = false;
}

void sim_charge_latency(uint64_t duration_ns)
{
    if (!sim_settings.latency) {
        return;
    }
    sim_unlock();
    uint64_t until = sim_now_ns() + duration_ns;
    while (sim_now_ns() < until) {
        /* A sleep would round up to the timer's slack, many times the cost of a map. */
    }
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

/* CUDA_SUCCESS where no rule applies. */
static CUresult injected_failure(enum sim_function function, uint64_t number, uint64_t base_number)
{
    int count = atomic_load_explicit(&rule_count, memory_order_acquire);
    for (int i = 0; i < count; i++) {
        const struct fail_rule *rule = &rules[i];
        bool same = rule->whole_base ? rule->function == first_of_base[function]
                                     : rule->function == (int)function;
        uint64_t at = rule->whole_base ? base_number : number;
        if (same && (rule->call_number == 0 || rule->call_number == at)) {
            return rule->error;
        }
    }
    return CUDA_SUCCESS;
}

static CUresult count_call(enum sim_function function)
{
    uint64_t number = atomic_fetch_add_explicit(&calls[function], 1, memory_order_relaxed) + 1;
    uint64_t base_number =
        atomic_fetch_add_explicit(&base_calls[first_of_base[function]], 1, memory_order_relaxed) +
        1;
    if (atomic_load_explicit(&rule_count, memory_order_relaxed) == 0) {
        return CUDA_SUCCESS;
    }
    return injected_failure(function, number, base_number);
}

struct sim_guard sim_enter_early(enum sim_function function)
{
    if (atomic_load_explicit(&forked_child, memory_order_relaxed)) {
        return (struct sim_guard){CUDA_ERROR_NOT_INITIALIZED, false};
    }
    return (struct sim_guard){count_call(function), false};
}

struct sim_guard sim_enter(enum sim_function function)
{
    if (!atomic_load_explicit(&initialised, memory_order_acquire) ||
        atomic_load_explicit(&forked_child, memory_order_relaxed)) {
        return (struct sim_guard){CUDA_ERROR_NOT_INITIALIZED, false};
    }
    CUresult status = count_call(function);
    if (status != CUDA_SUCCESS) {
        return (struct sim_guard){status, false};
    }
    if (in_host_function) {
        return (struct sim_guard){CUDA_ERROR_NOT_PERMITTED, false};
    }
    sim_lock();
    return (struct sim_guard){CUDA_SUCCESS, true};
}

void sim_leave(struct sim_guard *guard)
{
    if (guard->locked) {
        sim_unlock();
    }
}

CUresult sim_initialise(void)
{
    sim_lock();
    CUresult status = CUDA_SUCCESS;
    if (!atomic_load(&initialised)) {
        status = sim_devices_create();
        if (status == CUDA_SUCCESS) {
            atomic_store(&initialised, true);
        }
    }
    sim_unlock();
    return status;
}

/* ---- failure injection ------------------------------------------------------------------- */

static int find_function(const char *name, size_t length, bool *whole_base)
{
    for (int i = 0; i < SIM_FUNCTIONS; i++) {
        if (strlen(sim_functions[i].base) == length &&
            strncmp(sim_functions[i].base, name, length) == 0) {
            *whole_base = true;
            return first_of_base[i];
        }
    }
    for (int i = 0; i < SIM_FUNCTIONS; i++) {
        if (strlen(sim_functions[i].symbol) == length &&
            strncmp(sim_functions[i].symbol, name, length) == 0) {
            *whole_base = false;
            return i;
        }
    }
    return -1;
}

static bool add_rule(const struct fail_rule *rule)
{
    int count = atomic_load(&rule_count);
    if (count == MAX_RULES) {
        return false;
    }
    rules[count].function = rule->function;
    rules[count].whole_base = rule->whole_base;
    rules[count].call_number = rule->call_number;
    rules[count].error = rule->error;
    atomic_store_explicit(&rule_count, count + 1, memory_order_release);
    return true;
}

static bool parse_error(const char *text, size_t length, CUresult *error)
{
    char word[80];
    char *end;
    if (length == 0 || length >= sizeof word) {
        return false;
    }
    memcpy(word, text, length);
    word[length] = '\0';
    unsigned long number = strtoul(word, &end, 10);
    const char *name;
    if (*end == '\0') {
        *error = (CUresult)number;
        return true;
    }
    for (int code = 0; code < 1000; code++) {
        if (sim_error_text((CUresult)code, &name, NULL) && strcmp(name, word) == 0) {
            *error = (CUresult)code;
            return true;
        }
    }
    return false;
}

/* function@N=ERROR; false where it is not that. */
static bool parse_rule(const char *text, size_t length)
{
    const char *at = memchr(text, '@', length);
    const char *equals = memchr(text, '=', length);
    if (!at || !equals || equals < at) {
        return false;
    }
    struct fail_rule rule = {0};
    bool whole_base = false;
    CUresult error = CUDA_SUCCESS;
    rule.function = find_function(text, (size_t)(at - text), &whole_base);
    rule.whole_base = whole_base;
    if (rule.function < 0) {
        return false;
    }
    if (!(equals == at + 2 && at[1] == '*')) {
        char *end;
        rule.call_number = strtoull(at + 1, &end, 10);
        if (end != equals || rule.call_number == 0) {
            return false;
        }
    }
    if (!parse_error(equals + 1, length - (size_t)(equals + 1 - text), &error)) {
        return false;
    }
    rule.error = error;
    return add_rule(&rule);
}

static void parse_rules(const char *text)
{
    while (*text) {
        size_t length = strcspn(text, ",");
        if (length && !parse_rule(text, length)) {
            fprintf(stderr,
                    "simgpu: SIMGPU_FAIL=%.*s is not understood; allowed: FUNCTION@N=ERROR, with a "
                    "driver function, the number of the call (or *) and a CUresult by name or "
                    "number, at most %d of them. It is ignored.\n",
                    (int)length, text, MAX_RULES);
        }
        text += length + (text[length] == ',');
    }
}

int simgpu_fail(const char *function, uint64_t call_number, int error)
{
    struct fail_rule rule = {.error = (CUresult)error};
    bool whole_base = false;
    rule.function = find_function(function, strlen(function), &whole_base);
    rule.whole_base = whole_base;
    if (rule.function < 0) {
        return -1;
    }
    if (call_number) {
        rule.call_number = call_number + simgpu_calls(function);
    }
    sim_lock();
    bool added = add_rule(&rule);
    sim_unlock();
    return added ? 0 : -1;
}

void simgpu_fail_clear(void)
{
    sim_lock();
    atomic_store(&rule_count, 0);
    sim_unlock();
}

uint64_t simgpu_calls(const char *function)
{
    bool whole_base;
    int found = find_function(function, strlen(function), &whole_base);
    if (found < 0) {
        return UINT64_MAX;
    }
    return whole_base ? atomic_load(&base_calls[found]) : atomic_load(&calls[found]);
}

__attribute__((constructor)) static void library_loaded(void)
{
    for (int i = 0; i < SIM_FUNCTIONS; i++) {
        bool again = i > 0 && strcmp(sim_functions[i].base, sim_functions[i - 1].base) == 0;
        first_of_base[i] = again ? first_of_base[i - 1] : i;
    }
    sim_settings_read();
    parse_rules(sim_settings.fail);
    pthread_atfork(NULL, NULL, after_fork_in_child);
}
