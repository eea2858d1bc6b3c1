/* Blocks that lie on the host from their birth: for devices that cannot have host memory under the
 * addresses of what lives already. Only memory that cuMemAlloc is asked for; never charged. */
#ifndef MEMSHIM_SHIM_SERVE_BIRTH_H
#define MEMSHIM_SHIM_SERVE_BIRTH_H

#include "shim/serve/context.h"
#include "shim/serve/device.h"
#include "shim/serve/ledger.h"

/* Managed memory that prefers the host, else pinned host memory, in the current context. False:
 * the device has neither, or MEMSHIM_SPILL_LIMIT is reached. site: that asks for it. */
bool ms_birth_on_host(struct ms_device *device, uint64_t bytes, uint32_t site, CUdeviceptr_v2 *out);

/* Whether the grant names such a block. */
bool ms_birth_is(const struct ms_grant *grant);

/* The driver is asked to free it; it has been taken from the ledger. */
CUresult ms_birth_free(const struct ms_grant *grant);

/* It is gone: so is what it counted for. */
void ms_birth_gone(const struct ms_grant *grant);

#endif
