/* SPDX-License-Identifier: Apache-2.0 */
/* Makes JAX's arrays visible. XLA's own allocator takes three quarters of the device in one piece
 * at the start, and carves its arrays out of it unseen: no array has a call site, none can be
 * moved, and nothing is left for others. Its allocator cuda_async asks the driver for every array
 * instead (XLA_PYTHON_CLIENT_ALLOCATOR).
 *
 * JAX reads its settings in Python, from a copy of the environment, and passes them to the plugin
 * as options of a new client. memshim changes them there, so the environment stays as it is for
 * this program and its children. Entry and interface of a plugin: xla/pjrt/c/pjrt_c_api.h. */
#include "shim/frameworks/jax.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shim/frameworks/pjrt_api.h"
#include "shim/process/log.h"
#include "shim/process/process.h"
#include "shim/process/session.h"
#include "shim/tables/identity.h"
#include "shim/tables/options.h"

#define ALLOCATOR   "allocator"
#define PREALLOCATE "preallocate"
#define FRACTION    "memory_fraction"
#define CHOSEN      "cuda_async"

/* The variables by which a user chooses. For one that is not set, JAX passes "default" to the
 * plugin. */
#define ALLOCATOR_VARIABLE "XLA_PYTHON_CLIENT_ALLOCATOR"

static _Atomic(pjrt_get_t) real_entry;
static const struct pjrt_api *_Atomic real_api;
static struct pjrt_api *_Atomic own_api; /* written last */

static const struct pjrt_option *option_of(const struct pjrt_client_create *args, const char *name)
{
    for (size_t i = 0; i < args->option_count; i++) {
        const struct pjrt_option *option = &args->options[i];
        if (option->struct_bytes != sizeof(*option)) {
            return NULL; /* the options behind it cannot be found */
        }
        if (option->name_bytes == strlen(name) &&
            memcmp(option->name, name, option->name_bytes) == 0) {
            return option;
        }
    }
    return NULL;
}

static bool is_default(const struct pjrt_option *option)
{
    static const char text[] = "default";
    return option != NULL && option->type == PJRT_STRING && option->count == strlen(text) &&
           memcmp(option->value.string, text, strlen(text)) == 0;
}

/* JAX's own allocator obeys this limit, cuda_async does not. */
static bool is_limited(const struct pjrt_client_create *args)
{
    if (option_of(args, FRACTION) == NULL) {
        return false;
    }
    static const char text[] = "memshim left JAX's allocator as it is, and does not see its "
                               "arrays: XLA_CLIENT_MEM_FRACTION limits it. With MEMSHIM_FRACTION "
                               "instead, memshim caps everything and sees every array";
    ms_session_note(text);
    ms_log(MS_LOG_INFO, "%s", text);
    return true;
}

/* Only a client for CUDA devices gets an option for the allocator. */
static bool is_open(const struct pjrt_client_create *args)
{
    return is_default(option_of(args, ALLOCATOR)) && ms_options()->pool &&
           ms_environment(environ, ALLOCATOR_VARIABLE) == NULL && !is_limited(args);
}

static struct pjrt_option named(const char *name, enum pjrt_type type)
{
    return (struct pjrt_option){.struct_bytes = sizeof(struct pjrt_option),
                                .name = name,
                                .name_bytes = strlen(name),
                                .type = type,
                                .count = 1};
}

/* The program's options, with ours; `options` has room for one more. */
static size_t change(const struct pjrt_client_create *args, struct pjrt_option *options)
{
    size_t count = args->option_count;
    memcpy(options, args->options, count * sizeof(*options));
    struct pjrt_option *allocator = &options[option_of(args, ALLOCATOR) - args->options];
    allocator->value.string = CHOSEN;
    allocator->count = strlen(CHOSEN);
    if (option_of(args, PREALLOCATE) == NULL) {
        options[count] = named(PREALLOCATE, PJRT_BOOL);
        options[count].value.boolean = false;
        count++;
    }
    return count;
}

static void forget(struct pjrt_error *error)
{
    struct pjrt_error_destroy args = {.struct_bytes = sizeof(args), .error = error};
    atomic_load(&real_api)->error_destroy(&args);
}

/* False: this device does not support it, or there is no host memory. */
static bool create_with_ours(struct pjrt_client_create *args)
{
    const struct pjrt_option *theirs = args->options;
    const size_t count = args->option_count;
    struct pjrt_option *ours = malloc((count + 1) * sizeof(*ours));
    if (ours == NULL) {
        return false;
    }
    args->option_count = change(args, ours);
    args->options = ours;
    struct pjrt_error *error = atomic_load(&real_api)->client_create(args);
    args->options = theirs;
    args->option_count = count;
    free(ours);
    if (error != NULL) {
        forget(error);
    }
    return error == NULL;
}

#define CHOICE "JAX's allocator cuda_async was chosen by memshim, "
#define WINS   "; what " ALLOCATOR_VARIABLE " says wins"

static const char *note_of(const struct pjrt_client_create *args)
{
    const struct pjrt_option *ahead = option_of(args, PREALLOCATE);
    return ahead != NULL && ahead->type == PJRT_BOOL && ahead->value.boolean
               ? CHOICE "with preallocation, as XLA_PYTHON_CLIENT_PREALLOCATE says" WINS
               : CHOICE "without preallocation" WINS;
}

static struct pjrt_error *client_create(struct pjrt_client_create *args)
{
    if (ms_process_inert() || !is_open(args) || !create_with_ours(args)) {
        return atomic_load(&real_api)->client_create(args);
    }
    const char *text = note_of(args);
    ms_session_note(text);
    ms_log(MS_LOG_INFO, "%s", text);
    return NULL;
}

/* A copy with one function replaced by ours; null without host memory. */
static const struct pjrt_api *copy_of(const struct pjrt_api *found)
{
    struct pjrt_api *none = NULL;
    struct pjrt_api *copy = malloc(found->struct_bytes);
    if (copy == NULL) {
        return NULL;
    }
    memcpy(copy, found, found->struct_bytes);
    copy->client_create = client_create;
    atomic_store(&real_api, found);
    if (!atomic_compare_exchange_strong(&own_api, &none, copy)) {
        free(copy);
        return none;
    }
    return copy;
}

/* The plugin's interface is one object for the whole process, and so is ours. */
static const struct pjrt_api *entry(void)
{
    const struct pjrt_api *own = atomic_load(&own_api);
    if (own != NULL) {
        return own;
    }
    const struct pjrt_api *found = atomic_load(&real_entry)();
    if (found == NULL || found->version.major != PJRT_MAJOR ||
        found->struct_bytes < sizeof(*found)) {
        return found;
    }
    own = copy_of(found);
    return own != NULL ? own : found;
}

void *ms_jax_entry(void *found)
{
    pjrt_get_t none = NULL;
    if (found == NULL || !ms_options_framework(MS_FRAMEWORK_JAX)) {
        return found;
    }
    bool first = atomic_compare_exchange_strong(&real_entry, &none, (pjrt_get_t)found);
    return first || none == (pjrt_get_t)found ? (void *)entry : found;
}
