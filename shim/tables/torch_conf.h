/* SPDX-License-Identifier: Apache-2.0 */
/* PyTorch's own words for its allocator, and what memshim adds to them.
 *
 * PyTorch reads the first of these variables that is set (c10/core/AllocatorConfig, 2.15): a list
 * `key:value,key:value`. Older ones know PYTORCH_CUDA_ALLOC_CONF alone. */
#ifndef MEMSHIM_SHIM_TABLES_TORCH_CONF_H
#define MEMSHIM_SHIM_TABLES_TORCH_CONF_H

#include <stdbool.h>
#include <stddef.h>

#include "shim/tables/options.h"

#define MS_TORCH_CONF_NAMES 3
extern const char *const ms_torch_conf_names[MS_TORCH_CONF_NAMES];

/* The index of a name, -1 for every other. */
int ms_torch_conf_of(const char *name);

/* What memshim adds in this mode; null where it adds nothing. */
const char *ms_torch_conf_added(enum ms_torch_mode mode);

/* Reads the user's words: values[i] is what is set under name i, null where nothing is. False where
 * they decide the matter already, so that nothing is to be added: native mode leaves a word on
 * expandable_segments or on the backend alone, tensor mode one on the backend. */
bool ms_torch_conf_open(enum ms_torch_mode mode, const char *const values[MS_TORCH_CONF_NAMES]);

/* What stands behind a key of such a list, up to the next comma; null where it is not there. */
const char *ms_torch_conf_value(const char *list, const char *key);

/* Whether a switch of PyTorch's is on (c10d's getCvarBool): 1, y, yes, t, true. Null is off. */
bool ms_torch_switch(const char *value);

#endif
