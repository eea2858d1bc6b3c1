/* Whether the call that is served was made by NCCL itself: what it allocates may be registered with
 * the network, so it is the driver's to give. */
#ifndef MEMSHIM_SHIM_SERVE_NCCL_H
#define MEMSHIM_SHIM_SERVE_NCCL_H

#include <stdbool.h>

bool ms_called_by_nccl(void);

#endif
