/*
 * What tests may ask of the simulated GPU beyond the CUDA driver API: exported by its libcuda.so.1,
 * found with dlsym or by linking it.
 *
 * Settings come from the environment, read when the library is loaded, and
 * by cuInit of a child that was forked since (but for SIMGPU_FAIL):
 *
 *   SIMGPU_DEVICES=1            number of devices, 1 to 16
 *   SIMGPU_MEMORY=24GiB         memory of each device
 *   SIMGPU_CONTEXT=400MiB       charged on a device for each context on it
 *   SIMGPU_MODULE=0             charged on a device for each module loaded there
 *   SIMGPU_GRAPH=0              charged on a device for each instantiated graph
 *   SIMGPU_CAPABILITY=8.9       compute capability
 *   SIMGPU_DRIVER_VERSION=13020 what cuDriverGetVersion says
 *   SIMGPU_DELAY_US=0           each kernel, copy, memset and host function of a stream takes this
 *                               long at least; "a-b" draws from a seeded uniform distribution
 *   SIMGPU_SEED=1               the seed of those draws
 *   SIMGPU_CONTENTS=full        "none" drops copies and memsets of more than 64 KiB
 *   SIMGPU_FAIL=                function@N=ERROR[,...]: the Nth call of a function, named by its
 * base or exported name, returns ERROR (name or number of a CUresult) and does nothing;
 * function@*=ERROR fails every call SIMGPU_LATENCY=0            1: memory calls take the real time
 * that real drivers take SIMGPU_SHARED=              a file through which processes share the
 * memory of the devices SIMGPU_NO_VMM=0             1: a device without virtual memory management
 *   SIMGPU_HOST_NUMA=1          0: a device that cannot map host-located chunks
 *   SIMGPU_PEERS=1              0: no device can access another's memory
 *
 * Modules. Any image is accepted; unless it says otherwise a function of any name exists in it and
 * takes no declared parameters. An image that begins with the line `simgpu-module` is text:
 *
 *   simgpu-module
 *   kernel NAME OFFSET:SIZE OFFSET:SIZE ...
 *   global NAME BYTES
 *
 * declares kernels, the offset and size of each parameter as cuFuncGetParamInfo gives them, and
 * global variables; then no other function exists in it. A kernel launch occupies its stream and
 * does nothing, except for two kernels, which exist in every image:
 *
 *   simgpu_fill(CUdeviceptr at, uint64_t bytes, uint32_t byte)
 *       stores byte at each address
 *   simgpu_check(CUdeviceptr at, uint64_t bytes, uint32_t byte, CUdeviceptr mismatches)
 *       adds the number of bytes that differ from byte to the uint64_t at mismatches
 */
#ifndef SIMGPU_H
#define SIMGPU_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* Delay of every later stream operation, microseconds, drawn from low to high inclusive. */
void simgpu_set_delay(uint64_t low_us, uint64_t high_us);

/* Calls so far of a function, by base name (all its ABIs and flavours) or exported name; failed and
 * injected ones count. A name that does not exist: UINT64_MAX. */
uint64_t simgpu_calls(const char *function);

/* The call_number-th call of function from now on (1: the next one) returns error, a CUresult,
 * once; 0 as call_number: every call from now on. Nonzero result: no such function, or too many
 * rules. */
int simgpu_fail(const char *function, uint64_t call_number, int error);

/* Withdraws all injected failures. */
void simgpu_fail_clear(void);

/* Bytes in use on a device: by this process, and by all that share it. */
uint64_t simgpu_used_bytes(int device);
uint64_t simgpu_used_bytes_all(int device);

/* Bytes of host memory that stand behind a device's memory (what was touched and not given back).
 */
uint64_t simgpu_host_bytes(int device);

/* Live objects of this process, by kind: "context", "stream", "event", "module", "graph",
 * "graph_exec", "pool", "chunk", "block", "mapping", "reservation". Unknown kind: UINT64_MAX. */
uint64_t simgpu_live(const char *kind);

/* Blocks all streams: no operation starts until simgpu_resume (those under way finish). Host calls
 * that wait for a stream then wait for the resume, too. */
void simgpu_pause(void);
void simgpu_resume(void);

/* watch is told of every store that work on a device makes to memory of its process, before it is
 * made and on the thread that makes it: copies, memsets, written values and the kernels above, of
 * graphs, too. It calls nothing of the driver. NULL: nobody is told. */
void simgpu_watch_writes(void (*watch)(uint64_t at, uint64_t bytes));

/* Doubles of other libraries (NCCL) announce with this what they are about to store themselves. */
void simgpu_note_write(uint64_t at, uint64_t bytes);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
