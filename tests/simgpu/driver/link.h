/* SPDX-License-Identifier: Apache-2.0 */
/* The linker's state. */
#ifndef SIMGPU_LINK_H
#define SIMGPU_LINK_H

#include "driver_api.h"
#include "object.h"

struct CUlinkState_st {
    struct sim_object object;
};

#endif
