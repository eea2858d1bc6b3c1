/* SPDX-License-Identifier: Apache-2.0 */
/* A library with a copy of NVTX in it. */
#include <nvtx3/nvToolsExt.h>

__attribute__((visibility("default"))) int mark_phase(void);

/* The level of a range pushed here, or that no tool listens. */
int mark_phase(void)
{
    int level = nvtxRangePushA("library");
    (void)nvtxRangePop();
    return level;
}
