/* SPDX-License-Identifier: Apache-2.0 */
/* Objects of the application that graphs keep alive. All under sim_lock. */
#ifndef SIMGPU_GRAPH_USER_H
#define SIMGPU_GRAPH_USER_H

#include "driver_api.h"
#include "object.h"

struct CUuserObject_st {
    struct sim_object object;
    uint64_t count; /* references of the application and of graphs */
    CUhostFn destroy;
    void *pointer;
};

#endif
