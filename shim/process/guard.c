/* SPDX-License-Identifier: Apache-2.0 */
/* The guard of each thread. */
#include "shim/process/guard.h"

_Thread_local struct ms_guard ms_guard;

const void *ms_caller(void)
{
    return ms_guard.caller;
}
