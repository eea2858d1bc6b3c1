/* Refusals: the state at that moment, to the trace and to the user. */
#ifndef MEMSHIM_SHIM_SERVE_OOM_H
#define MEMSHIM_SHIM_SERVE_OOM_H

#include "shim/serve/device.h"

/* Records that a request was refused; returns CUDA_ERROR_OUT_OF_MEMORY. */
CUresult ms_oom_refuse(struct ms_device *device, uint64_t requested_bytes);

#endif
