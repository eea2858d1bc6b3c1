/* SPDX-License-Identifier: Apache-2.0 */
/* What the serving half promises, seen from the outside: each scenario is a program of its own,
 * chosen by the first argument, that compares what memshim says (cuMemGetInfo, results) with what
 * the simulated GPU counts. They expect memshim in front of them. */
#include "serve_job.h"

#include "scenario.h"

CUdevice device;
CUcontext context;

size_t free_bytes(void)
{
    size_t free = 0;
    size_t total = 0;
    MUST(cuMemGetInfo(&free, &total));
    EXPECT(free <= total);
    return free;
}

void settle(void)
{
    CUmemoryPool pool;
    MUST(cuCtxSynchronize());
    MUST(cuDeviceGetDefaultMemPool(&pool, device));
    MUST(cuMemPoolTrimTo(pool, 0));
}

CUmemAllocationProp chunk_properties(void)
{
    return (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
}

static const struct scenario scenarios[] = {{"vmm", vmm},
                                            {"vmm_cap", vmm_cap},
                                            {"told_free", told_free},
                                            {"loaded_late", loaded_late},
                                            {"reset", reset},
                                            {"destroyed_context", destroyed_context},
                                            {"many_contexts", many_contexts},
                                            {"contexts_at_once", contexts_at_once},
                                            {"primary_at_once", primary_at_once},
                                            {"reused_handle", reused_handle},
                                            {"pools", pools},
                                            {"given_back", given_back},
                                            {"pool_destroyed_first", pool_destroyed_first},
                                            {"many_pools", many_pools},
                                            {"pools_at_once", pools_at_once},
                                            {"reuse_flags", reuse_flags},
                                            {"identity", identity},
                                            {"not_mapped", not_mapped},
                                            {"spilled", spilled},
                                            {"arena", arena},
                                            {"peers_stream", peers_stream},
                                            {"peers_captured", peers_captured},
                                            {"peers_refused", peers_refused},
                                            {"peers", peers},
                                            {"gpudirect", gpudirect},
                                            {"no_gpudirect", no_gpudirect},
                                            {"capture", capture},
                                            {"graph_memory", graph_memory},
                                            {"injected", injected},
                                            {"race", race}};

int main(int argc, char **argv)
{
    MUST(cuInit(0));
    MUST(cuDeviceGet(&device, 0));
    MUST(cuDevicePrimaryCtxRetain(&context, device));
    MUST(cuCtxSetCurrent(context));
    return run_scenario(scenarios, sizeof scenarios / sizeof *scenarios, argc, argv);
}
