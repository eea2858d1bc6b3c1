/* SPDX-License-Identifier: Apache-2.0 */
/* Injected failures. See fail.h. */
#include "fail.h"

#include "../simgpu.h"
#include "device.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_RULES 64
#define NOT_YET   UINT64_MAX

/* Calls first to last fail, counted from the rule's origin. */
struct rule {
    struct sim_function_name function;
    uint64_t first, last;
    CUresult error;
    bool follows;    /* its origin is the first failure of the rule before it */
    uint64_t origin; /* number of calls before call 1; NOT_YET: not started */
};

/* A lock of its own, taken last, because rules are cleared and added while other threads call. */
static pthread_mutex_t rules_lock = PTHREAD_MUTEX_INITIALIZER;
static struct rule rules[MAX_RULES];
static _Atomic int rule_count; /* changes under the lock; while it is 0 nobody takes the lock */

uint64_t sim_number_for(struct sim_function_name name, struct sim_call_number number)
{
    switch (name.kind) {
    case SIM_NAME_BASE:
        return number.of_base;
    case SIM_NAME_SYMBOL:
        return number.of_symbol;
    default:
        return number.of_anything;
    }
}

/* A rule that follows another counts from the first call that the other one fails. */
static void start_follower(struct rule *rule, struct sim_call_number number)
{
    if (rule->origin == NOT_YET) {
        rule->origin =
            rule->function.kind == SIM_NAME_ANY ? number.of_anything : sim_calls_of(rule->function);
    }
}

static bool applies(const struct rule *rule, enum sim_function function,
                    struct sim_call_number number)
{
    if (rule->origin == NOT_YET || !sim_is_named(function, rule->function)) {
        return false;
    }
    uint64_t at = sim_number_for(rule->function, number);
    return at > rule->origin && at - rule->origin >= rule->first && at - rule->origin <= rule->last;
}

CUresult sim_fail_check(enum sim_function function, struct sim_call_number number)
{
    CUresult error = CUDA_SUCCESS;
    if (atomic_load_explicit(&rule_count, memory_order_acquire) == 0) {
        return CUDA_SUCCESS;
    }
    pthread_mutex_lock(&rules_lock);
    int count = atomic_load(&rule_count);
    int index = 0;
    while (index < count && !applies(&rules[index], function, number)) {
        index++;
    }
    if (index < count) {
        error = rules[index].error;
    }
    if (index + 1 < count && rules[index + 1].follows) {
        start_follower(&rules[index + 1], number);
    }
    pthread_mutex_unlock(&rules_lock);
    return error;
}

static bool add_rule(const struct rule *rule)
{
    pthread_mutex_lock(&rules_lock);
    int count = atomic_load(&rule_count);
    bool fits = count < MAX_RULES && (count > 0 || !rule->follows);
    if (fits) {
        rules[count] = *rule;
        if (rule->follows) {
            rules[count].origin = NOT_YET;
        }
        atomic_store(&rule_count, count + 1);
    }
    pthread_mutex_unlock(&rules_lock);
    return fits;
}

/* ---- SIMGPU_FAIL --------------------------------------------------------------------------- */

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

/* Parses a call number, from 1, and moves *text behind it. */
static bool parse_call(const char **text, uint64_t *number)
{
    char *end;
    if (**text < '0' || **text > '9') {
        return false;
    }
    *number = strtoull(*text, &end, 10);
    *text = end;
    return *number != 0;
}

/* Parses what is between @ and =: [+]N, [+]N-M, or *. */
static bool parse_calls(const char *text, const char *end, struct rule *rule)
{
    if (*text == '*') {
        rule->first = 1;
        rule->last = UINT64_MAX;
        return text + 1 == end;
    }
    if (*text == '+') {
        rule->follows = true;
        text++;
    }
    if (!parse_call(&text, &rule->first)) {
        return false;
    }
    rule->last = rule->first;
    if (*text == '-') {
        text++;
        if (!parse_call(&text, &rule->last) || rule->last < rule->first) {
            return false;
        }
    }
    return text == end;
}

/* Parses FUNCTION@CALLS=ERROR; false for anything else. */
static bool parse_rule(const char *text, size_t length)
{
    const char *at = memchr(text, '@', length);
    const char *equals = memchr(text, '=', length);
    if (!at || !equals || equals < at) {
        return false;
    }
    struct rule rule = {0};
    return sim_find_function(text, (size_t)(at - text), &rule.function) &&
           parse_calls(at + 1, equals, &rule) &&
           parse_error(equals + 1, length - (size_t)(equals + 1 - text), &rule.error) &&
           add_rule(&rule);
}

void sim_fail_read(const char *text)
{
    while (*text) {
        size_t length = strcspn(text, ",");
        if (length && !parse_rule(text, length)) {
            fprintf(stderr,
                    "simgpu: SIMGPU_FAIL=%.*s is not understood; allowed: FUNCTION@CALLS=ERROR, "
                    "with a driver function or \"any\", the number of the call (N, N-M, +N or "
                    "+N-M counted from the failure of the rule before it, or *) and a CUresult "
                    "by name or number, at most %d of them. It is ignored.\n",
                    (int)length, text, MAX_RULES);
        }
        text += length + (text[length] == ',');
    }
}

/* ---- simgpu.h ------------------------------------------------------------------------------ */

static int add_calls(const char *function, uint64_t call_number, uint64_t count, int error,
                     bool follows)
{
    struct rule rule = {.error = (CUresult)error, .follows = follows};
    if (!sim_find_function(function, strlen(function), &rule.function) || count == 0 ||
        call_number == 0) {
        return -1;
    }
    rule.first = call_number;
    rule.last = count > UINT64_MAX - call_number ? UINT64_MAX : call_number + count - 1;
    rule.origin = sim_calls_of(rule.function);
    return add_rule(&rule) ? 0 : -1;
}

int simgpu_fail(const char *function, uint64_t call_number, int error)
{
    bool always = call_number == 0;
    return add_calls(function, always ? 1 : call_number, always ? UINT64_MAX : 1, error, false);
}

int simgpu_fail_calls(const char *function, uint64_t call_number, uint64_t count, int error)
{
    return add_calls(function, call_number, count, error, false);
}

int simgpu_fail_then(const char *function, uint64_t call_number, uint64_t count, int error)
{
    return add_calls(function, call_number, count, error, true);
}

void simgpu_fail_clear(void)
{
    pthread_mutex_lock(&rules_lock);
    atomic_store(&rule_count, 0);
    pthread_mutex_unlock(&rules_lock);
}
