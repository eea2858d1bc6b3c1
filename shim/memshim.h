/* SPDX-License-Identifier: Apache-2.0 */
/* memshim's public interface. It is for allocators that hand out parts of larger device allocations
 * (as RMM, XLA and CuPy do): what they report appears as tensors in trace and report. And it is for
 * programs that name their phases and mark their training steps.
 *
 * Nothing needs to be linked. If they are declared weak, the functions are null unless
 * libmemshim.so is preloaded:
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
 * Every function may be called from any thread, but not from a signal handler. None fails, waits
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

/* The range that was born at ptr is given back; bytes as at its birth. */
MEMSHIM_API void memshim_range_died(int device, const void *ptr, size_t bytes);

/* Between push and pop, what this thread allocates counts for `name`, and the timeline shows the
 * phase. Tags nest: a name pushed within another is a tag of its own, distinct from the same name
 * pushed elsewhere.
 *
 * Tags belong to the thread that pushes them, and end with it. If exactly one thread of the process
 * has tags, threads without tags count in its innermost tag. PyTorch, for example, runs backward on
 * worker threads while the calling thread waits, and what they allocate belongs to its phase. If
 * several threads have tags, it is unknown for whom a worker works.
 *
 * name: any bytes up to the zero byte, kept as they are (every format of the report escapes them);
 * UTF-8 if people are to read them. It is copied, and cut to 256 bytes. A null or empty name makes
 * a level without a name: pop ends it, and nothing counts for it. So does every push inside 64
 * others. After 65,536 different tags, new ones count as the tag around them, which is logged
 * once. */
MEMSHIM_API void memshim_tag_push(const char *name);

/* Ends the tag that this thread pushed last; does nothing without one. */
MEMSHIM_API void memshim_tag_pop(void);

/* A training step begins here. From the first call on, memshim takes the program's steps and no
 * longer finds steps by itself. An NVTX range named `step` does the same. */
MEMSHIM_API void memshim_step(void);

/* For a device that computes nothing, such as the simulated GPU of `memshim dry-run`: the host is
 * about to read [ptr, ptr + bytes) of device memory that no host wrote. reader: 0 a copy, 1 one
 * value (PyTorch's item), 2 a number that becomes a shape (nonzero), 3 a flag that something went
 * wrong (GradScaler's, isnan's). type: of the values, PyTorch's number (c10::ScalarType) plus one,
 * 0 if unknown. The trace records the call site. */
MEMSHIM_API void memshim_value_read(int device, const void *ptr, size_t bytes, unsigned reader,
                                    unsigned type);

/* The state of a device, as far as this process uses it. New members are only ever added at the
 * end. docs/top.md has what only `memshim top` and the report show, and this struct for Python's
 * ctypes. */
struct memshim_stats {
    size_t size;          /* set by the caller: sizeof(struct memshim_stats) */
    uint64_t total_bytes; /* of the device */
    uint64_t cap_bytes;   /* the most that the process may be charged for */
    uint64_t
        used_bytes; /* charged against the cap: reserved, what the driver serves, the context */
    uint64_t peak_used_bytes; /* the most that has been charged so far */
    uint64_t free_bytes;      /* below the cap and charged to nobody */
    uint64_t live_bytes;      /* requested and not freed; in a framework's segments, its tensors */
    uint64_t reserved_bytes;  /* device memory that the pool holds for it */
    uint64_t host_bytes; /* host memory in its place: for spilled memory, behind holes, or set aside
                            for them */
    uint64_t spilled_bytes, promoted_bytes; /* moved to host memory and back, in total */
    uint64_t spill_wait_ns;                 /* how long the device was held for these moves */
    uint64_t refusals;                      /* allocation calls refused for want of memory */
    uint64_t status;      /* 0 normal, 1 warning, 2 critical, 3 emergency (MEMSHIM_THRESHOLDS) */
    double fragmentation; /* 1 - live / reserved when reserved was highest, from 0 to 1; 0 without a
                             trace */
    uint64_t others_bytes; /* what other processes use of a cap that they share with this one; 0:
                              it is this process's own */
};

/* Reads the device of this CUDA ordinal, with or without a trace; takes some microseconds and calls
 * no driver. Returns 0; or -1, with *stats unchanged, if the process has not used that device yet,
 * in a fork child, or if stats is null or stats->size is not set. Members that this memshim does
 * not know are set to 0. */
MEMSHIM_API int memshim_stats(int device, struct memshim_stats *stats);

/* "0.1.0". Never null. */
MEMSHIM_API const char *memshim_version(void);

#undef MEMSHIM_API

#ifdef __cplusplus
}
#endif

#endif
