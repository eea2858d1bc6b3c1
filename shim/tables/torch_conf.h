/* SPDX-License-Identifier: Apache-2.0 */
/* PyTorch's settings for its allocator, and what memshim adds to them.
 *
 * PyTorch reads the first of these variables that is set (c10/core/AllocatorConfig, 2.15): a list
 * `key:value,key:value`. Older versions know only PYTORCH_CUDA_ALLOC_CONF. */
#ifndef MEMSHIM_SHIM_TABLES_TORCH_CONF_H
#define MEMSHIM_SHIM_TABLES_TORCH_CONF_H

#include <stdbool.h>
#include <stddef.h>

#include "shim/tables/options.h"

#define MS_TORCH_CONF_NAMES 3
extern const char *const ms_torch_conf_names[MS_TORCH_CONF_NAMES];

/* The index of a name; -1 for any other name. */
int ms_torch_conf_of(const char *name);

/* What memshim adds in this mode; null if nothing. */
const char *ms_torch_conf_added(enum ms_torch_mode mode);

/* Reads the user's settings: values[i] is set under name i; null: not set. False if they leave
 * memshim nothing to add: in native mode, if they set expandable_segments or the backend; in tensor
 * mode, if they set the backend. */
bool ms_torch_conf_open(enum ms_torch_mode mode, const char *const values[MS_TORCH_CONF_NAMES]);

/* The value of a key in such a list, up to the next comma; null if the key is missing. */
const char *ms_torch_conf_value(const char *list, const char *key);

/* Whether a switch of PyTorch's is on (c10d's getCvarBool): 1, y, yes, t, true. Null means off. */
bool ms_torch_switch(const char *value);

#endif
