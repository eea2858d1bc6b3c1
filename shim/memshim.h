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

/* Between push and pop, what this thread allocates counts as `name`'s, and the timeline shows the
 * phase. Tags nest: a name pushed within another is a tag of its own, told from the same name
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

/* "0.1.0". Never null. */
MEMSHIM_API const char *memshim_version(void);

#undef MEMSHIM_API

#ifdef __cplusplus
}
#endif

#endif
