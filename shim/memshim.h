/* SPDX-License-Identifier: Apache-2.0 */
/* memshim's public interface: for allocators that hand out parts of larger device allocations (as
 * RMM, XLA and CuPy do), whose reports appear in trace and report as tensors; and for programs that
 * name their phases and mark their training steps.
 *
 * Nothing needs to be linked. Declared weak, the functions are null unless libmemshim.so is
 * preloaded:
 *
 *     #define MEMSHIM_WEAK
 *     #include <memshim.h>
 *     ...
 *     if (memshim_range_born != NULL) {
 *         memshim_range_born(device, pointer, bytes);
 *     }
 *
 * From Python, with ctypes:
 *
 *     memshim = ctypes.CDLL(None)
 *     if hasattr(memshim, "memshim_step"):
 *         memshim.memshim_tag_push(b"warm-up")
 *
 * Every function may be called from any thread, but not from a signal handler; none fails, blocks
 * for the device, or throws. */
#ifndef MEMSHIM_H
#define MEMSHIM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifdef MEMSHIM_WEAK
#    define MEMSHIM_API __attribute__((weak, visibility("default")))
#else
#    define MEMSHIM_API __attribute__((visibility("default")))
#endif

/* The allocator is about to return [ptr, ptr + bytes) of device memory that it holds itself.
 * device: CUDA ordinal in this process. bytes > 0. */
MEMSHIM_API void memshim_range_born(int device, const void *ptr, size_t bytes);

/* The range that was born at ptr is given back; bytes as at its allocation. */
MEMSHIM_API void memshim_range_died(int device, const void *ptr, size_t bytes);

/* Between push and pop, what this thread allocates counts as `name`'s, and the timeline shows the
 * phase. Tags nest: a name pushed within another is a tag of its own, distinct from the same name
 * pushed elsewhere.
 *
 * Tags belong to the thread that pushes them, and end with it. A thread that has none counts as in
 * the tag of another only while exactly one thread of the process has any: PyTorch runs backward on
 * worker threads of its own while the one that asked for it waits, and what they allocate belongs
 * to its phase; where several threads have tags nobody can say whose work a worker does.
 *
 * name: any bytes up to the zero byte, kept as they are (every format of the report escapes them),
 * UTF-8 if people are to read them. It is copied; what goes beyond 256 bytes is cut. A null or
 * empty name is a level without a name: pop ends it, and nothing counts as its. So does every push
 * within 64 others. After 65,536 different tags new ones count as the tag around them, said once.
 */
MEMSHIM_API void memshim_tag_push(const char *name);

/* Ends the tag pushed last by this thread; without one, nothing. */
MEMSHIM_API void memshim_tag_pop(void);

/* A training step begins here. A program that says so once is believed: steps are then no longer
 * found by memshim itself. An NVTX range named `step` says the same. */
MEMSHIM_API void memshim_step(void);

/* For a device that computes nothing, as the simulated GPU of `memshim dry-run` is one: the host is
 * about to read [ptr, ptr + bytes) of it, which no host wrote. reader: 0 a copy, 1 one value
 * (PyTorch's item), 2 a number that becomes a shape (nonzero), 3 a flag that
 * something went wrong (GradScaler's, isnan's). type: of the values, PyTorch's number
 * (c10::ScalarType) and one more, 0 where it is not known. The trace says from which line. */
MEMSHIM_API void memshim_value_read(int device, const void *ptr, size_t bytes, unsigned reader,
                                    unsigned type);

/* How a device stands, as far as this process uses it. Members are only ever added at the end. What
 * is only in `memshim top` and in the report is in docs/top.md; so is this as Python's ctypes
 * has it. */
struct memshim_stats {
    size_t size;          /* set by the caller: sizeof(struct memshim_stats) */
    uint64_t total_bytes; /* of the device */
    uint64_t cap_bytes;   /* most that the process may be charged for */
    uint64_t
        used_bytes; /* charged against the cap: reserved, what the driver served, the context */
    uint64_t peak_used_bytes; /* the most that was charged so far */
    uint64_t free_bytes;      /* below the cap and charged to nobody */
    uint64_t live_bytes; /* asked for and not given back; in a framework's segments, its tensors */
    uint64_t reserved_bytes; /* device memory that the pool holds for it */
    uint64_t host_bytes; /* host memory in its place: spilled, behind holes, or set aside for it */
    uint64_t spilled_bytes, promoted_bytes; /* moved to host memory, and back, all in all */
    uint64_t spill_wait_ns;                 /* that the device was held for these moves */
    uint64_t refusals;                      /* allocation calls refused as out of memory */
    uint64_t status;      /* 0 normal, 1 warning, 2 critical, 3 emergency (MEMSHIM_THRESHOLDS) */
    double fragmentation; /* 1 - live / reserved when reserved was highest, from 0 to 1; 0 without a
                             trace */
};

/* Reads the device of this CUDA ordinal, with and without a trace: some microseconds, no call into
 * the driver. 0; -1, and *stats as it was, where the process has not used that device yet, in a
 * fork child, and where stats is null or stats->size is not set. Members beyond what this memshim
 * knows are set to 0. */
MEMSHIM_API int memshim_stats(int device, struct memshim_stats *stats);

/* "0.1.0". Never null. */
MEMSHIM_API const char *memshim_version(void);

#undef MEMSHIM_API

#ifdef __cplusplus
}
#endif

#endif
