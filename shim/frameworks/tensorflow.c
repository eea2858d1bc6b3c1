/* SPDX-License-Identifier: Apache-2.0 */
/* TensorFlow's allocator, and call sites for the work of its threads.
 *
 * The BFC allocator takes nearly all of the device at the start, and carves its tensors out of it
 * unseen. TensorFlow's allocator cuda_malloc_async asks the driver for every tensor. TensorFlow
 * reads the choice by getenv (tsl::ReadStringFromEnvVar). Only TensorFlow gets our answer; the
 * environment stays as it is.
 *
 * A tf.function, which Keras makes of each training step, runs on threads of TensorFlow's without
 * Python, while its caller waits in TFE_Execute. libtensorflow_cc calls that through its PLT, so it
 * reaches the function of that name here (tensorflow/c/eager/c_api.h). */
#include "shim/frameworks/tensorflow.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "shim/driver/caller.h"
#include "shim/driver/elf.h"
#include "shim/driver/next_dlsym.h"
#include "shim/process/guard.h"
#include "shim/process/log.h"
#include "shim/process/process.h"
#include "shim/process/session.h"
#include "shim/sites/site.h"
#include "shim/tables/options.h"

#define EXECUTE "TFE_Execute"

char *ms_tensorflow_setting(const void *caller)
{
    static char chosen[] = "cuda_malloc_async";
    static const char text[] = "TensorFlow's allocator cuda_malloc_async was chosen by memshim; "
                               "what " MS_TENSORFLOW_VARIABLE " says wins";
    static atomic_flag said = ATOMIC_FLAG_INIT;
    if (ms_process_inert() || ms_library_at(caller) != MS_LIBRARY_TENSORFLOW ||
        !ms_options_framework(MS_FRAMEWORK_TENSORFLOW) || !ms_options()->pool) {
        return NULL;
    }
    if (!atomic_flag_test_and_set(&said)) {
        ms_session_note(text);
        ms_log(MS_LOG_INFO, "%s", text);
    }
    return chosen;
}

/* ---- functions ---- */

struct tf_op;
struct tf_tensor;
struct tf_status;

typedef void (*execute_t)(struct tf_op *op, struct tf_tensor **results, int *count,
                          struct tf_status *status);
typedef const char *(*op_name_t)(const struct tf_op *op, struct tf_status *status);

__attribute__((visibility("default"))) void
TFE_Execute(struct tf_op *op, struct tf_tensor **results, int *count, struct tf_status *status);

static _Atomic(execute_t) real_execute;
static _Atomic(op_name_t) real_op_name;

/* Before 2.13 TensorFlow was one library, that of the caller. */
static execute_t find_real(const void *caller)
{
    struct ms_loaded_elf elf;
    uintptr_t begin = 0;
    uintptr_t end = 0;
    void *execute = NULL;
    if (ms_elf_loaded("libtensorflow_cc.so.2", &elf) ||
        ms_elf_around((uintptr_t)caller, &elf, &begin, &end)) {
        execute = ms_elf_function(&elf, EXECUTE);
        atomic_store(&real_op_name, (op_name_t)ms_elf_function(&elf, "TFE_OpGetName"));
    }
    if (execute == NULL) {
        execute = ms_real_dlsym(RTLD_NEXT, EXECUTE);
    }
    atomic_store(&real_execute, (execute_t)execute);
    return (execute_t)execute;
}

/* Names of traced functions begin like this; names of operations begin with a letter. */
static bool is_function(const struct tf_op *op, struct tf_status *status)
{
    op_name_t op_name = atomic_load(&real_op_name);
    const char *name = op_name != NULL ? op_name(op, status) : NULL;
    return name != NULL && strncmp(name, "__", 2) == 0;
}

static bool lend(const struct tf_op *op, struct tf_status *status)
{
    bool lent = false;
    if (!ms_process_inert() && ms_options_framework(MS_FRAMEWORK_TENSORFLOW) &&
        is_function(op, status) && ms_guard_enter_here()) {
        lent = ms_site_lend();
        ms_guard_leave();
    }
    return lent;
}

void TFE_Execute(struct tf_op *op, struct tf_tensor **results, int *count, struct tf_status *status)
{
    execute_t real = atomic_load(&real_execute);
    if (real == NULL) {
        real = find_real(__builtin_return_address(0));
    }
    const bool lent = lend(op, status);
    real(op, results, count, status);
    if (lent) {
        ms_site_lend_end();
    }
}
