/* memshim's public interface, for allocators that hand out parts of larger device allocations (as
 * RMM, XLA and CuPy do): what they report appears in trace and report as tensors.
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
 * Every function may be called from any thread; none fails, blocks for the device, or throws. */
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

/* "0.1.0". Never null. */
MEMSHIM_API const char *memshim_version(void);

#undef MEMSHIM_API

#ifdef __cplusplus
}
#endif

#endif
