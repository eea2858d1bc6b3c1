/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the simulated GPU offers tests beyond the CUDA driver API. Its libcuda.so.1 exports these
 * functions; a test finds them with dlsym, or links the library.
 *
 * Settings come from the environment. They are read when the library is loaded, and again (except
 * SIMGPU_FAIL) by cuInit in a child that was forked since:
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
 *   SIMGPU_DRIVER_VERSION=13020 the answer of cuDriverGetVersion. cuGetProcAddress and dlsym do not
 *                               find later functions; a program that is linked with libcuda is
 *                               bound before that, and still finds them
 *   SIMGPU_DELAY_US=0           each kernel, copy, memset and host function of a stream takes at
 *                               least this long; "a-b" draws from a seeded uniform distribution
 *   SIMGPU_SEED=1               the seed of those draws
 *   SIMGPU_PEER_US=0            a copy between two devices takes this much longer, and excludes
 *                               other such copies from or to one of them, which wait
 *   SIMGPU_QUEUE=0              this many operations fit into the queue of a stream; a call that
 *                               adds one more waits until there is room. 0: no limit
 *   SIMGPU_STRICT=1             the use of a destroyed handle, which the driver API leaves
 *                               undefined, aborts, and prints where it was used and destroyed.
 *                               0: the call returns an error
 *   SIMGPU_DESTROY_US=0         a call that destroys a handle or frees memory takes this much
 *                               longer; a use of the handle meanwhile counts as one of a destroyed
 *                               handle
 *   SIMGPU_CONTENTS=full        "none" drops copies, memsets and fills of more than 1 MiB
 *   SIMGPU_NCCL=                "24,16,32": a communicator takes the memory that the real NCCL
 *                               takes with this many channels, NVLS channels, and channels to one
 *                               peer; ",host" at the end: for cards without access to each other.
 *                               Unset: 16 MiB
 *   SIMGPU_NCCL_VERSION=        the answer of ncclGetVersion, such as 23102; by default the version
 *                               of the header with which the double was built
 *   SIMGPU_SCHEDULE=early       "late": queries deny that work has ended until the host has waited
 *                               for it, or for work behind it. A thread that does nothing but
 *                               query, a thousand times or for 20 ms, learns that it has ended
 *   SIMGPU_VALUES=              what the host gets when it reads memory that neither a host nor
 *                               another rank wrote, but kernels would have: "zeros" or "random".
 *                               If it is set, memshim gets a report of these reads. Unset: the
 *                               memory's contents
 *   SIMGPU_FAIL=                rules, separated by commas: see below
 *   SIMGPU_OTHER=               what another process holds of device 0, separated by commas:
 *                               FUNCTION@N=SIZE, from the Nth call of FUNCTION on SIZE, or what is
 *                               left
 *   SIMGPU_LATENCY=0            1: memory calls and copies over the bus take the real time of an
 *                               H200 and its driver; more: a multiple of that, which can be
 *                               measured on a busy machine, too
 *   SIMGPU_SHARED=              a file through which processes share the memory of the devices
 *   SIMGPU_NO_VMM=0             1: a device without virtual memory management
 *   SIMGPU_HOST_NUMA=1          0: a device that cannot map host-located chunks
 *   SIMGPU_RDMA=0               1: network cards can access device memory (GPUDirect RDMA)
 *   SIMGPU_DMA_BUF=0            1: device memory has DMA-BUF descriptors
 *   SIMGPU_PEERS=1              0: no device can access another's memory
 *   SIMGPU_MULTICAST=0          1: devices that a switch joins (cuMulticastCreate)
 *
 * Injected failures. A rule of SIMGPU_FAIL is FUNCTION@CALLS=ERROR. A call that a rule applies to
 * returns ERROR, a CUresult by name or number, and does nothing. FUNCTION is a base name (all its
 * ABIs and flavours), an exported name, or "any". CALLS is one of
 *
 *   N      the Nth call of FUNCTION from the start of the process
 *   N-M    the Nth to the Mth call
 *   +N     the Nth call of FUNCTION after the first failure by the rule before this one
 *   +N-M   the Nth to the Mth call after it
 *   *      every call
 *
 * For example, "cuMemMap@3=2,any@+4-6=CUDA_ERROR_UNKNOWN" fails the third cuMemMap, and then the
 * fourth to the sixth call after it, whatever they are.
 *
 * Modules. Any image is accepted; by default it has a function of any name, without declared
 * parameters. An image that begins with the line `simgpu-module` is text:
 *
 *   simgpu-module
 *   kernel NAME OFFSET:SIZE OFFSET:SIZE ...
 *   global NAME BYTES
 *
 * It declares kernels, with the offset and size of each parameter as cuFuncGetParamInfo returns
 * them, and global variables; it has no other functions. A kernel launch occupies its stream and
 * does nothing, except for three kernels, which exist in every image:
 *
 *   simgpu_fill(CUdeviceptr at, uint64_t bytes, uint32_t byte)
 *       stores byte at each address
 *   simgpu_check(CUdeviceptr at, uint64_t bytes, uint32_t byte, CUdeviceptr mismatches)
 *       adds the number of bytes that differ from byte to the uint64_t at mismatches
 *   simgpu_spin(uint64_t nanoseconds)
 *       keeps its stream busy this long
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

/* Events that are reached from now on are so much later. Nothing waits: for work that only has to
 * seem slow. */
void simgpu_pass_ns(uint64_t ns);

/* Calls so far of a function, by base name (all its ABIs and flavours) or exported name, or of
 * "any"; failed and injected ones count. A name that does not exist: UINT64_MAX. */
uint64_t simgpu_calls(const char *function);

/* The call_number-th call of the function from now on (1: the next one) returns error, a CUresult,
 * once; 0: every call from now on. Nonzero result: no such function, or too many rules. */
int simgpu_fail(const char *function, uint64_t call_number, int error);

/* The same for `count` calls, of which the call_number-th from now on is the first; both from 1. */
int simgpu_fail_calls(const char *function, uint64_t call_number, uint64_t count, int error);

/* The same, but counted from the first failure by the rule that was added last (1: the next call of
 * `function` after it). The result is also nonzero if there is no rule. */
int simgpu_fail_then(const char *function, uint64_t call_number, uint64_t count, int error);

/* Withdraws all injected failures. */
void simgpu_fail_clear(void);

/* Bytes in use on a device: by this process, and by all that share it. */
uint64_t simgpu_used_bytes(int device);
uint64_t simgpu_used_bytes_all(int device);

/* Bytes of host memory behind a device's memory (what was touched and not given back). */
uint64_t simgpu_host_bytes(int device);

/* Live objects of this process, by kind: "context", "stream", "event", "module", "graph",
 * "graph_exec", "pool", "chunk", "block", "mapping", "reservation". Unknown kind: UINT64_MAX. */
uint64_t simgpu_live(const char *kind);

/* Blocks all streams: no operation starts until simgpu_resume (those under way finish). Host calls
 * that wait for a stream then wait for the resume, too. */
void simgpu_pause(void);
void simgpu_resume(void);

/* `watch` is called before each store that work on a device makes to memory of its process, on the
 * thread that makes it: for copies, memsets, written values and the kernels above, also in graphs.
 * It must not call the driver. NULL: no calls. */
void simgpu_watch_writes(void (*watch)(uint64_t at, uint64_t bytes));

/* Sets what the calling thread is about to read of a device, until it sets something else; returns
 * the previous value. */
enum { SIMGPU_READER_COPY, SIMGPU_READER_ITEM, SIMGPU_READER_SHAPE, SIMGPU_READER_FLAG };
enum { /* PyTorch's numbers (c10/core/ScalarType.h) plus one */
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
    uint64_t most; /* the largest possible whole number; 0: unknown */
};
struct simgpu_reader simgpu_read_as(struct simgpu_reader now);

/* From now on no host wrote what lies there: the memory was handed out anew, or would be stored
 * to. */
void simgpu_forget(uint64_t at, uint64_t bytes);

/* With SIMGPU_CONTENTS=none, copies and kernels up to this size are still carried out, whatever the
 * contents: it is small compared with weights. Larger ones are carried out if their contents are
 * known. A host's writes count as known if they are bytes, in which objects are sent, as long as
 * the process has copied no more than the second number to the device. */
#define SIMGPU_SMALL_CONTENTS_BYTES ((size_t)1 << 20)
#define SIMGPU_LARGE_CONTENTS_BYTES ((size_t)1 << 30)

/* Whether a host wrote all of it, or it was computed from such memory only. */
int simgpu_is_known(uint64_t at, uint64_t bytes);

/* A collective was queued that stores there what other ranks send, or, if `from` is not 0, what
 * follows from the values at `from`. */
void simgpu_note_carried(uint64_t at, uint64_t bytes, uint64_t from, uint64_t from_bytes);

/* A kernel would note there whether something went wrong: a reader gets the answer that nothing
 * did, which is 0 (isnan) or 1 (isfinite). */
enum simgpu_flag { SIMGPU_NO_FLAG, SIMGPU_FLAG_WRONG, SIMGPU_FLAG_FINE };
void simgpu_note_flag(uint64_t at, uint64_t bytes, enum simgpu_flag kind);
enum simgpu_flag simgpu_flag_of(uint64_t at, uint64_t bytes);

/* Doubles of other libraries (NCCL) call this before they store to memory themselves. */
void simgpu_note_write(uint64_t at, uint64_t bytes);

/* 1: host functions that the calling thread launches from now on stand for kernels, which run in
 * parallel with those of other streams; an application's own run one at a time. 0: they do not.
 * Returns the previous value. */
int simgpu_launch_as_kernel(int now);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
