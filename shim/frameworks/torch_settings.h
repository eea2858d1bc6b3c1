/* SPDX-License-Identifier: Apache-2.0 */
/* PyTorch's settings as memshim changes them under an unchanged program. This exports getenv. */
#ifndef MEMSHIM_SHIM_FRAMEWORKS_TORCH_SETTINGS_H
#define MEMSHIM_SHIM_FRAMEWORKS_TORCH_SETTINGS_H

#include <stdbool.h>

/* Whether memshim, not the user, switched PyTorch's expandable segments on. */
bool ms_torch_settings_expandable(void);

/* PyTorch's settings as they are, but with expandable segments off; null where memshim did not
 * switch them on, or the program has set them since. Stays valid. */
const char *ms_torch_settings_without_segments(void);

/* The program has set PyTorch's settings at run time. To PyTorch these replace all earlier ones,
 * but for expandable segments. */
void ms_torch_settings_made(const char *settings);

/* The NAME=value that a Python interpreter must find in its environment when it starts; null if
 * there is none. PyTorch's default NCCL process group aborts with the cudaMallocAsync backend. */
char *ms_torch_settings_variable(void);

#endif
