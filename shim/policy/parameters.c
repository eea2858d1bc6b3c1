/* SPDX-License-Identifier: Apache-2.0 */
/* A cache of parameter layouts: buckets of a few slots. Each slot is a sequence lock, whose
 * sequence number is odd while the slot is written. The atomic operations carry the memory order
 * themselves, because the thread sanitizer does not know fences. */
#include "shim/policy/parameters.h"

#include <stdatomic.h>
#include <string.h>

#include "allocator/base/locks/lock.h"
#include "shim/device/capture.h"
#include "shim/driver/driver.h"

#define BUCKET_BITS 8u
#define WAYS        4u
#define PARTS_MAX   40u /* of one function; further parts are ignored */

/* A parameter that may hold pointers: its index, its offset, and its number of whole aligned
 * words. */
#define PART(index, offset, words) \
    ((uint64_t)(index) | (uint64_t)(offset) << 16 | (uint64_t)(words) << 32)
#define PART_INDEX(part)  ((part)&0xffff)
#define PART_OFFSET(part) ((part) >> 16 & 0xffff)
#define PART_WORDS(part)  ((part) >> 32)
#define PART_FIELD_MAX    0xffffu

struct layout {
    uint32_t count;
    uint64_t parts[PARTS_MAX];
};

struct slot {
    _Atomic uint32_t sequence;
    _Atomic uint32_t generation;
    _Atomic uintptr_t function; /* 0: free */
    _Atomic uint32_t count;
    _Atomic uint64_t parts[PARTS_MAX];
};

static struct slot slots[1u << BUCKET_BITS][WAYS] MS_GUARDED_BY(*MS_LOCK(PARAMETERS));
static _Atomic uint32_t generation; /* slots of another generation are void */
static _Atomic bool known_any;      /* pointers are known for at least one function */

/* Handles of kernels, by open addressing. The driver may not distinguish a kernel from a function
 * by itself. So once this table is full, it is asked about no new handle. */
#define KERNEL_BITS   15u
#define KERNEL_PROBES 64u
#define KERNEL_LEFT   ((uintptr_t)1) /* deleted: probing goes on past it */
static _Atomic uintptr_t kernels[1u << KERNEL_BITS];
static _Atomic bool kernels_full;

static uint32_t hash(const void *handle, unsigned bits)
{
    return (uint32_t)((uint64_t)(uintptr_t)handle * UINT64_C(0x9e3779b97f4a7c15) >> (64 - bits));
}

/* ---- kernels */

void ms_parameters_note_kernel(const void *kernel)
{
    uint32_t home = hash(kernel, KERNEL_BITS);
    for (uint32_t i = 0; i < KERNEL_PROBES; i++) {
        uintptr_t found = 0;
        _Atomic uintptr_t *entry = &kernels[(home + i) % (1u << KERNEL_BITS)];
        if (atomic_compare_exchange_strong(entry, &found, (uintptr_t)kernel) ||
            found == (uintptr_t)kernel) {
            return;
        }
    }
    atomic_store(&kernels_full, true);
}

/* Null if the handle is no kernel. */
static _Atomic uintptr_t *find_kernel(const void *handle)
{
    uint32_t home = hash(handle, KERNEL_BITS);
    for (uint32_t i = 0; i < KERNEL_PROBES; i++) {
        _Atomic uintptr_t *entry = &kernels[(home + i) % (1u << KERNEL_BITS)];
        uintptr_t found = atomic_load_explicit(entry, memory_order_relaxed);
        if (found == (uintptr_t)handle || found == 0) {
            return found != 0 ? entry : NULL;
        }
    }
    return NULL;
}

void ms_parameters_note_function(const void *function)
{
    _Atomic uintptr_t *entry = find_kernel(function);
    if (entry != NULL) {
        atomic_store(entry, KERNEL_LEFT);
    }
}

/* ---- questions to the driver */

static CUresult ask_for(const void *function, bool kernel, size_t index, size_t *offset,
                        size_t *bytes)
{
    const struct ms_driver_functions *driver = ms_driver();
    return kernel ? driver->cuKernelGetParamInfo((CUkernel)function, index, offset, bytes)
                  : driver->cuFuncGetParamInfo((CUfunction)function, index, offset, bytes);
}

/* Pointers are aligned in the parameter buffer, and so are the parameters that hold them. */
static void ask(const void *function, struct layout *layout)
{
    bool kernel = find_kernel(function) != NULL;
    bool known = kernel || !atomic_load(&kernels_full);
    layout->count = 0;
    if (!known || ms_driver()->cuFuncGetParamInfo == NULL ||
        ms_driver()->cuKernelGetParamInfo == NULL) {
        return;
    }
    size_t offset = 0;
    size_t bytes = 0;
    for (size_t i = 0; i < PART_FIELD_MAX && layout->count < PARTS_MAX &&
                       ask_for(function, kernel, i, &offset, &bytes) == CUDA_SUCCESS;
         i++) {
        if (bytes >= 8 && offset % 8 == 0 && offset <= PART_FIELD_MAX && bytes <= PART_FIELD_MAX) {
            layout->parts[layout->count++] = PART(i, offset, bytes / 8);
        }
    }
}

/* ---- the cache */

static bool read_slot(struct slot *slot, const void *function, struct layout *layout)
{
    uint32_t sequence = atomic_load_explicit(&slot->sequence, memory_order_acquire);
    if (atomic_load_explicit(&slot->function, memory_order_acquire) != (uintptr_t)function ||
        atomic_load_explicit(&slot->generation, memory_order_acquire) !=
            atomic_load_explicit(&generation, memory_order_relaxed) ||
        sequence % 2 != 0) {
        return false;
    }
    layout->count = atomic_load_explicit(&slot->count, memory_order_acquire);
    for (uint32_t i = 0; i < layout->count; i++) {
        layout->parts[i] = atomic_load_explicit(&slot->parts[i], memory_order_acquire);
    }
    return atomic_load_explicit(&slot->sequence, memory_order_relaxed) == sequence;
}

static bool find(const void *function, struct layout *layout)
{
    struct slot *bucket = slots[hash(function, BUCKET_BITS)];
    for (uint32_t way = 0; way < WAYS; way++) {
        if (read_slot(&bucket[way], function, layout)) {
            return true;
        }
    }
    return false;
}

/* The slot to write: the function's own; otherwise a free one or one of an earlier generation;
 * otherwise the slots of the bucket in turn. */
static struct slot *slot_for(const void *function, uint32_t now)
{
    static uint32_t turn;
    struct slot *bucket = slots[hash(function, BUCKET_BITS)];
    struct slot *slot = NULL;
    for (uint32_t way = 0; way < WAYS; way++) {
        uintptr_t held = atomic_load(&bucket[way].function);
        if (held == (uintptr_t)function) {
            return &bucket[way];
        }
        if (held == 0 || atomic_load(&bucket[way].generation) != now) {
            slot = &bucket[way];
        }
    }
    return slot != NULL ? slot : &bucket[turn++ % WAYS];
}

static void keep(const void *function, uint32_t now, const struct layout *layout)
{
    ms_lock_acquire(MS_LOCK(PARAMETERS));
    struct slot *slot = slot_for(function, now);
    uint32_t sequence = atomic_load_explicit(&slot->sequence, memory_order_relaxed);
    atomic_store_explicit(&slot->sequence, sequence + 1, memory_order_relaxed);
    atomic_store_explicit(&slot->function, (uintptr_t)function, memory_order_release);
    atomic_store_explicit(&slot->generation, now, memory_order_release);
    atomic_store_explicit(&slot->count, layout->count, memory_order_release);
    for (uint32_t i = 0; i < layout->count; i++) {
        atomic_store_explicit(&slot->parts[i], layout->parts[i], memory_order_release);
    }
    atomic_store_explicit(&slot->sequence, sequence + 2, memory_order_release);
    ms_lock_release(MS_LOCK(PARAMETERS));
}

void ms_parameters_forget(void)
{
    atomic_fetch_add(&generation, 1);
}

/* Asking may load code, which a captured launch would not do. So nothing is asked during a
 * capture. */
static bool layout_of(const void *function, struct layout *layout)
{
    if (find(function, layout)) {
        return true;
    }
    if (ms_captures_running()) {
        return false;
    }
    uint32_t now = atomic_load(&generation);
    ask(function, layout);
    keep(function, now, layout);
    if (layout->count > 0) {
        atomic_store_explicit(&known_any, true, memory_order_relaxed);
    }
    return true;
}

bool ms_parameters_known(void)
{
    return atomic_load_explicit(&known_any, memory_order_relaxed);
}

/* ---- words */

/* The parameter buffer that `extra` names, and its length (CU_LAUNCH_PARAM_BUFFER_POINTER and
 * _SIZE, cuda.h). Null if it names none. */
static const char *buffer_of(void **extra, size_t *bytes)
{
    const char *buffer = NULL;
    *bytes = 0;
    for (; extra != NULL && extra[0] != CU_LAUNCH_PARAM_END; extra += 2) {
        if (extra[0] == CU_LAUNCH_PARAM_BUFFER_POINTER) {
            buffer = extra[1];
        } else if (extra[0] == CU_LAUNCH_PARAM_BUFFER_SIZE && extra[1] != NULL) {
            memcpy(bytes, extra[1], sizeof *bytes);
        }
    }
    return buffer;
}

void ms_parameters_each(const void *function, void **parameters, void **extra,
                        void (*word)(void *ctx, uint64_t value), void *ctx)
{
    size_t bytes = 0;
    const char *buffer = parameters == NULL ? buffer_of(extra, &bytes) : NULL;
    struct layout layout;
    if ((parameters == NULL && buffer == NULL) || !layout_of(function, &layout)) {
        return;
    }
    for (uint32_t i = 0; i < layout.count; i++) {
        uint64_t part = layout.parts[i];
        const char *at =
            parameters != NULL ? parameters[PART_INDEX(part)] : buffer + PART_OFFSET(part);
        uint64_t words = PART_WORDS(part);
        if (at == NULL || (parameters == NULL && PART_OFFSET(part) + 8 * words > bytes)) {
            continue;
        }
        for (uint64_t w = 0; w < words; w++) {
            uint64_t value;
            memcpy(&value, at + 8 * w, sizeof value);
            word(ctx, value);
        }
    }
}
