/* SPDX-License-Identifier: Apache-2.0 */
/* Answers PyTorch's question for a fabric, where NVML has only an error for it. */
#include "shim/frameworks/torch_fabric.h"

#include <stdatomic.h>
#include <stddef.h>

#include "shim/driver/caller.h"
#include "shim/frameworks/torch_settings.h"

/* nvmlGpuFabricInfo_v2_t of NVML's header. Later versions add members at the end. */
struct fabric_info {
    unsigned version;
    unsigned char cluster[16];
    int status;
    unsigned clique;
    unsigned char state; /* 0: not supported */
    unsigned health;
};

typedef int (*fabric_t)(void *device, struct fabric_info *info); /* 0: success */

static _Atomic(fabric_t) next; /* set before the replacement is handed out */

static int fabric(void *device, struct fabric_info *info)
{
    int result = atomic_load(&next)(device, info);
    if (result != 0 && info != NULL && ms_torch_settings_expandable() &&
        ms_library_at(__builtin_return_address(0)) == MS_LIBRARY_C10_CUDA) {
        info->state = 0;
        result = 0;
    }
    return result;
}

void *ms_torch_fabric(void *found)
{
    if (found == NULL) {
        return NULL;
    }
    fabric_t known = NULL;
    (void)atomic_compare_exchange_strong(&next, &known, (fabric_t)found);
    return known == NULL || known == (fabric_t)found ? (void *)fabric : found;
}
