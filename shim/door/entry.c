/* SPDX-License-Identifier: Apache-2.0 */
/* The ways to the trampolines: which one replaces an address of the driver's. */
#include "shim/door/entry.h"

#include <stddef.h>

#include "shim/door/life.h"
#include "shim/door/stubs.h"
#include "shim/driver/gate.h"
#include "shim/hooks/serve.h"
#include "shim/policy/policy.h"

const struct ms_real_functions *ms_entry_open(void)
{
    ms_life_begin();
    ms_policy_install();
    return ms_resolve();
}

void *ms_hook_for(void *address, const struct ms_query *query)
{
    int row = ms_row_at(address, query);
    return row >= 0 ? ms_hook_entry[row] : address;
}

/* What the driver's resolver returns is replaced by a hook or a stub. */
static void *hook_or_stub(void *address, const struct ms_query *query)
{
    void *hook = ms_hook_for(address, query);
    return hook == address && !ms_gate_is_harmless(query->name) ? ms_stub_for(query->name, address)
                                                                : hook;
}

CUresult ms_serve_cuGetProcAddress(const char *symbol, void **pfn, int driverVersion,
                                   cuuint64_t flags)
{
    CUresult result = MS_REAL(cuGetProcAddress)(symbol, pfn, driverVersion, flags);
    ms_resolve_note_asked();
    if (result == CUDA_SUCCESS && pfn != NULL && *pfn != NULL) {
        *pfn = hook_or_stub(*pfn, &(struct ms_query){symbol, driverVersion, flags});
    }
    return result;
}

CUresult ms_serve_cuGetProcAddress_v2(const char *symbol, void **pfn, int driverVersion,
                                      cuuint64_t flags, CUdriverProcAddressQueryResult *symbolFound)
{
    CUresult result = MS_REAL(cuGetProcAddress_v2)(symbol, pfn, driverVersion, flags, symbolFound);
    ms_resolve_note_asked();
    if (result == CUDA_SUCCESS && pfn != NULL && *pfn != NULL) {
        *pfn = hook_or_stub(*pfn, &(struct ms_query){symbol, driverVersion, flags});
    }
    return result;
}
