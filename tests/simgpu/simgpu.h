/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What tests may ask of the simulated GPU beyond the CUDA driver API: exported by its libcuda.so.1,
 * found with dlsym or by linking it.
 *
 * Settings come from the environment, read when the library is loaded, and
 * by cuInit of a child that was forked since (but for SIMGPU_FAIL):
 *
 *   SIMGPU_DEVICES=1            number of devices, 1 to 16
 *   SIMGPU_NAME=Simulated GPU   the name of each device
 *   SIMGPU_PROCESSORS=128       its multiprocessors
 *   SIMGPU_MEMORY=24GiB         memory of each device
 *   SIMGPU_CONTEXT=400MiB       charged on a device for each context on it
 *   SIMGPU_CONTEXT_US=0         making a context takes this long; it is charged after that
 *   SIMGPU_MODULE=0             charged on a device for each module loaded there
 *   SIMGPU_MODULE_US=0          loading a module takes this long; it is charged after that
 *   SIMGPU_FIRST_LAUNCH=0       charged on a device by the first launch of each function
 *   SIMGPU_FIRST_LAUNCH_US=0    that launch takes this long, after it was charged
 *   SIMGPU_GRAPH=0              charged on a device for each instantiated graph
 *   SIMGPU_CAPABILITY=8.9       compute capability
 *   SIMGPU_DRIVER_VERSION=13020 what cuDriverGetVersion says. Functions that came later are found
 *                               neither by cuGetProcAddress nor by dlsym; a program that is linked
 *                               with libcuda is bound before that and finds them still
 *   SIMGPU_DELAY_US=0           each kernel, copy, memset and host function of a stream takes this
 *                               long at least; "a-b" draws from a seeded uniform distribution
 *   SIMGPU_SEED=1               the seed of those draws
 *   SIMGPU_PEER_US=0            a copy between two devices takes so much longer, and has both for
 *                               itself: other such copies from or to one of them wait
 *   SIMGPU_QUEUE=0              so many operations fit into the queue of a stream; a call that adds
 *                               one more waits until there is room. 0: any number
 *   SIMGPU_STRICT=1             the use of a destroyed handle, which the driver API leaves
 *                               undefined, aborts, and says where it was used and destroyed.
 *                               0: it is refused
 *   SIMGPU_DESTROY_US=0         a call that destroys a handle or frees memory takes so much longer;
 *                               who uses the handle meanwhile uses a destroyed one
 *   SIMGPU_CONTENTS=full        "none" drops copies, memsets and fills of more than 1 MiB
 *   SIMGPU_NCCL=                "24,16,32": a communicator takes what the real NCCL takes with so
 *                               many channels, of NVLS, and to one peer; ",host" at the end: of
 *                               cards that do not reach each other. Without it 16 MiB
 *   SIMGPU_NCCL_VERSION=        what ncclGetVersion says, as in 23102; by default the version of
 *                               the header that the double was built with
 *   SIMGPU_SCHEDULE=early       "late": queries answer that work has not ended until the host has
 *                               waited for it, or for work behind it. A thread that does nothing
 *                               but ask, a thousand times or for 20 ms, is told that it has
 *   SIMGPU_VALUES=              what the host gets where it reads memory that neither a host nor
 *                               another rank wrote, but kernels would have: "zeros" or "random".
 *                               Where it is set, the reads are reported to memshim. Unset: what is
 *                               in the memory
 *   SIMGPU_FAIL=                rules, separated by commas: see below
 *   SIMGPU_OTHER=               what another process holds of device 0: FUNCTION@N=SIZE, separated
 *                               by commas: from the Nth call of FUNCTION on, SIZE or what is left
 *   SIMGPU_LATENCY=0            1: memory calls and copies over the bus take the real time that an
 *                               H200 and its driver take; more: so many times that, which a
 *                               machine that others use, too, can tell apart
 *   SIMGPU_SHARED=              a file through which processes share the memory of the devices
 *   SIMGPU_NO_VMM=0             1: a device without virtual memory management
 *   SIMGPU_HOST_NUMA=1          0: a device that cannot map host-located chunks
 *   SIMGPU_RDMA=0               1: network cards can reach device memory (GPUDirect RDMA)
 *   SIMGPU_DMA_BUF=0            1: device memory has DMA-BUF descriptors
 *   SIMGPU_PEERS=1              0: no device can access another's memory
 *
 * Injected failures. A rule of SIMGPU_FAIL is FUNCTION@CALLS=ERROR. A call that fails by a rule
 * returns ERROR, a CUresult by name or number, and does nothing. FUNCTION is a base name (all its
 * ABIs and flavours), an exported name, or "any". CALLS is one of
 *
 *   N      the Nth call of FUNCTION from the start of the process
 *   N-M    the Nth to the Mth call
 *   +N     the Nth call of FUNCTION after the first failure by the rule before this one
 *   +N-M   the Nth to the Mth call after it
 *   *      every call
 *
 * so "cuMemMap@3=2,any@+4-6=CUDA_ERROR_UNKNOWN" fails the third cuMemMap, and then the fourth to
 * the sixth call that follows it, whatever is called.
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
 * does nothing, except for three kernels, which exist in every image:
 *
 *   simgpu_fill(CUdeviceptr at, uint64_t bytes, uint32_t byte)
 *       stores byte at each address
 *   simgpu_check(CUdeviceptr at, uint64_t bytes, uint32_t byte, CUdeviceptr mismatches)
 *       adds the number of bytes that differ from byte to the uint64_t at mismatches
 *   simgpu_spin(uint64_t nanoseconds)
 *       keeps its stream busy so long
 *
 * and for those of PyTorch that fill and concatenate tensors, and by which its object collectives
 * compare and sum sizes, on operands of at most 1 MiB (driver/torch_kernel.h).
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

/* Calls so far of a function, by base name (all its ABIs and flavours) or exported name, or of
 * "any"; failed and injected ones count. A name that does not exist: UINT64_MAX. */
uint64_t simgpu_calls(const char *function);

/* The call_number-th call of function from now on (1: the next one) returns error, a CUresult,
 * once; 0 as call_number: every call from now on. Nonzero result: no such function, or too many
 * rules. */
int simgpu_fail(const char *function, uint64_t call_number, int error);

/* The same for `count` calls, of which the call_number-th from now on is the first; both from 1. */
int simgpu_fail_calls(const char *function, uint64_t call_number, uint64_t count, int error);

/* The same, but counted from the first failure by the rule that was added last (1: the next call of
 * `function` after it). Nonzero result, too, where there is no rule. */
int simgpu_fail_then(const char *function, uint64_t call_number, uint64_t count, int error);

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

/* What the calling thread is about to read of a device, until it says otherwise: returns what it
 * said before. */
enum { SIMGPU_READER_COPY, SIMGPU_READER_ITEM, SIMGPU_READER_SHAPE, SIMGPU_READER_FLAG };
enum { /* PyTorch's numbers (c10/core/ScalarType.h), and one more */
       SIMGPU_TYPE_UNKNOWN,
       SIMGPU_UINT8,
       SIMGPU_INT8,
       SIMGPU_INT16,
       SIMGPU_INT32,
       SIMGPU_INT64,
       SIMGPU_FLOAT16,
       SIMGPU_FLOAT32,
       SIMGPU_FLOAT64,
       SIMGPU_BOOL = 12,
       SIMGPU_BFLOAT16 = 16
};
struct simgpu_reader {
    unsigned reader, type;
    uint64_t most; /* that a whole number can be; 0: not known */
};
struct simgpu_reader simgpu_read_as(struct simgpu_reader now);

/* What lies there is not what a host wrote: it has been handed out anew, or would be stored to. */
void simgpu_forget(uint64_t at, uint64_t bytes);

/* What is still moved, and computed on, with SIMGPU_CONTENTS=none, whatever it is: small beside
 * weights. What is larger is moved where its contents are known; of what hosts write, bytes are,
 * which objects are sent as, as long as a process has copied up no more than the second number. */
#define SIMGPU_SMALL_CONTENTS_BYTES ((size_t)1 << 20)
#define SIMGPU_LARGE_CONTENTS_BYTES ((size_t)1 << 30)

/* Whether a host wrote all of it, or it was made of such alone. */
int simgpu_is_known(uint64_t at, uint64_t bytes);

/* A collective has been queued that stores there what other ranks send, or, where `from` is not 0,
 * what follows from the values there. */
void simgpu_note_carried(uint64_t at, uint64_t bytes, uint64_t from, uint64_t from_bytes);

/* A kernel would note there that something went wrong: it is answered that nothing did. */
void simgpu_note_flag(uint64_t at, uint64_t bytes);
int simgpu_is_flag(uint64_t at, uint64_t bytes);

/* Doubles of other libraries (NCCL) announce with this what they are about to store themselves. */
void simgpu_note_write(uint64_t at, uint64_t bytes);

/* 1: host functions that the calling thread launches from now on stand for kernels, which run
 * beside those of other streams; an application's run one at a time. 0: they are what they are.
 * Returns what it said before. */
int simgpu_launch_as_kernel(int now);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
