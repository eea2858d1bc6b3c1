/* SPDX-License-Identifier: Apache-2.0 */
/* TensorFlow's BFC allocator takes nearly all of the device at the start, and carves its tensors
 * out of it unseen. Its allocator cuda_malloc_async asks the driver for every tensor. TensorFlow
 * reads the choice by getenv (tsl::ReadStringFromEnvVar): it alone gets an answer, and the
 * environment stays as it is. */
#include "shim/frameworks/tensorflow.h"

#include <stdatomic.h>
#include <stddef.h>

#include "shim/driver/caller.h"
#include "shim/process/log.h"
#include "shim/process/process.h"
#include "shim/process/session.h"
#include "shim/tables/options.h"

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
