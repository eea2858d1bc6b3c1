/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and extends the settings of PyTorch's allocator. */
#include "shim/tables/torch_conf.h"

#include <string.h>
#include <strings.h>

const char *const ms_torch_conf_names[MS_TORCH_CONF_NAMES] = {
    "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_ALLOC_CONF"};

int ms_torch_conf_of(const char *name)
{
    for (int i = 0; i < MS_TORCH_CONF_NAMES; i++) {
        if (strcmp(name, ms_torch_conf_names[i]) == 0) {
            return i;
        }
    }
    return -1;
}

const char *ms_torch_conf_added(enum ms_torch_mode mode)
{
    switch (mode) {
    case MS_TORCH_NATIVE:
        return "expandable_segments:True";
    case MS_TORCH_TENSOR:
        return "backend:cudaMallocAsync";
    default:
        return NULL;
    }
}

/* Commas inside brackets only split off words that are no keys. */
const char *ms_torch_conf_value(const char *list, const char *key)
{
    size_t length = strlen(key);
    for (const char *at = list; *at != '\0';) {
        at += strspn(at, ", ");
        if (strncmp(at, key, length) == 0 && at[length + strspn(at + length, " ")] == ':') {
            return strchr(at + length, ':') + 1;
        }
        at += strcspn(at, ",");
    }
    return NULL;
}

bool ms_torch_conf_open(enum ms_torch_mode mode, const char *const values[MS_TORCH_CONF_NAMES])
{
    for (int i = 0; i < MS_TORCH_CONF_NAMES; i++) {
        if (values[i] != NULL &&
            (ms_torch_conf_value(values[i], "backend") ||
             (mode == MS_TORCH_NATIVE && ms_torch_conf_value(values[i], "expandable_segments")))) {
            return false;
        }
    }
    return ms_torch_conf_added(mode) != NULL;
}

bool ms_torch_switch(const char *value)
{
    static const char *const on[] = {"1", "y", "yes", "t", "true"};
    for (size_t i = 0; value != NULL && i < sizeof(on) / sizeof(on[0]); i++) {
        if (strcasecmp(value, on[i]) == 0) {
            return true;
        }
    }
    return false;
}
