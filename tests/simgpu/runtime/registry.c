/* SPDX-License-Identifier: Apache-2.0 */
/* What compiled CUDA code registers at start-up, and kernels by host function. Images (fat
 * binaries) become driver libraries when something in them is first used.
 *
 * The entry points' prototypes are those of crt/host_runtime.h and crt/device_functions.h. */
#include "runtime.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <vector_types.h>

struct managed {
    void **host_pointer;
    const char *name;
    struct managed *next;
};

struct image {
    const void *data;
    CUlibrary library;       /* NULL until something in the image is used */
    struct managed *managed; /* variables whose host-side pointers are set at loading */
};

enum entry_kind { ENTRY_EMPTY, ENTRY_GONE, ENTRY_FUNCTION, ENTRY_KERNEL, ENTRY_VARIABLE };

struct entry {
    const void *key; /* host function, returned kernel handle, or host variable */
    enum entry_kind kind;
    struct image *image; /* NULL for a returned kernel handle */
    const char *name;    /* the caller's string: compiled code passes literals */
    CUkernel kernel;     /* NULL until first use */
    CUdeviceptr address; /* of a variable; 0 until first use */
    size_t size_bytes;   /* of a variable */
};

/* Open addressing, a power of two of slots, at most half of them in use. PyTorch registers tens of
 * thousands of functions. */
static struct {
    pthread_mutex_t lock;
    struct entry *slots;
    size_t capacity, used;
} registry = {.lock = PTHREAD_MUTEX_INITIALIZER};

static size_t slot_of(const void *key, size_t capacity)
{
    uint64_t mixed = (uint64_t)(uintptr_t)key * 0x9E3779B97F4A7C15u;
    return (size_t)(mixed >> 20) & (capacity - 1);
}

static struct entry *find(const void *key)
{
    if (registry.capacity == 0) {
        return NULL;
    }
    for (size_t i = slot_of(key, registry.capacity);; i = (i + 1) & (registry.capacity - 1)) {
        struct entry *entry = &registry.slots[i];
        if (entry->kind == ENTRY_EMPTY) {
            return NULL;
        }
        if (entry->kind != ENTRY_GONE && entry->key == key) {
            return entry;
        }
    }
}

static void place(struct entry *slots, size_t capacity, const struct entry *entry)
{
    size_t i = slot_of(entry->key, capacity);
    while (slots[i].kind != ENTRY_EMPTY) {
        i = (i + 1) & (capacity - 1);
    }
    slots[i] = *entry;
}

static int grow(void)
{
    size_t capacity = registry.capacity ? registry.capacity * 2 : 1024;
    struct entry *slots = calloc(capacity, sizeof(*slots));
    if (!slots) {
        return -1;
    }
    registry.used = 0;
    for (size_t i = 0; i < registry.capacity; i++) {
        if (registry.slots[i].kind > ENTRY_GONE) {
            place(slots, capacity, &registry.slots[i]);
            registry.used++;
        }
    }
    free(registry.slots);
    registry.slots = slots;
    registry.capacity = capacity;
    return 0;
}

/* Registration cannot report errors (its functions return nothing). So what could not be stored
 * shows as cudaErrorInvalidDeviceFunction at its use. The caller holds the lock. */
static int insert(const struct entry *entry)
{
    struct entry *present = find(entry->key);
    if (present) {
        *present = *entry;
        return 0;
    }
    if ((registry.used + 1) * 2 > registry.capacity && grow() != 0) {
        return -1;
    }
    place(registry.slots, registry.capacity, entry);
    registry.used++;
    return 0;
}

/* The caller holds the lock. */
static cudaError_t load_image(const struct rt_driver *driver, struct image *image)
{
    if (image->library) {
        return cudaSuccess;
    }
    cudaError_t error = RT_TRY(driver, cuLibraryLoadData, &image->library, image->data, NULL, NULL,
                               0, NULL, NULL, 0);
    for (struct managed *m = image->managed; m && error == cudaSuccess; m = m->next) {
        CUdeviceptr address = 0;
        size_t size_bytes = 0;
        error = RT_TRY(driver, cuLibraryGetManaged, &address, &size_bytes, image->library, m->name);
        *m->host_pointer = (void *)address;
    }
    return error;
}

cudaError_t rt_kernel_of(const struct rt_driver *driver, const void *function, CUkernel *kernel)
{
    pthread_mutex_lock(&registry.lock);
    struct entry *entry = function ? find(function) : NULL;
    cudaError_t error = cudaErrorInvalidDeviceFunction;
    if (entry && entry->kind != ENTRY_VARIABLE) {
        error = cudaSuccess;
        if (!entry->kernel) {
            error = load_image(driver, entry->image);
            if (error == cudaSuccess) {
                error = RT_TRY(driver, cuLibraryGetKernel, &entry->kernel, entry->image->library,
                               entry->name);
            }
        }
        *kernel = entry->kernel;
    }
    pthread_mutex_unlock(&registry.lock);
    return error == cudaErrorSymbolNotFound ? cudaErrorInvalidDeviceFunction : error;
}

cudaError_t rt_kernel_give(CUkernel kernel)
{
    struct entry entry = {.key = kernel, .kind = ENTRY_KERNEL, .kernel = kernel};
    pthread_mutex_lock(&registry.lock);
    int failed = insert(&entry);
    pthread_mutex_unlock(&registry.lock);
    return failed ? cudaErrorMemoryAllocation : cudaSuccess;
}

cudaError_t rt_symbol_of(const struct rt_driver *driver, const void *symbol, CUdeviceptr *address,
                         size_t *size_bytes)
{
    pthread_mutex_lock(&registry.lock);
    struct entry *entry = symbol ? find(symbol) : NULL;
    cudaError_t error = cudaErrorInvalidSymbol;
    if (entry && entry->kind == ENTRY_VARIABLE) {
        error = cudaSuccess;
        if (address && !entry->address) {
            error = load_image(driver, entry->image);
            if (error == cudaSuccess) {
                error = RT_TRY(driver, cuLibraryGetGlobal, &entry->address, NULL,
                               entry->image->library, entry->name);
            }
        }
        if (address) {
            *address = entry->address;
        }
        if (size_bytes) {
            *size_bytes = entry->size_bytes;
        }
    }
    pthread_mutex_unlock(&registry.lock);
    return error == cudaErrorSymbolNotFound ? cudaErrorInvalidSymbol : error;
}

cudaError_t rt_symbol_range(const struct rt_driver *driver, const void *symbol, size_t offset,
                            size_t count, CUdeviceptr *address)
{
    size_t size_bytes = 0;
    cudaError_t error = rt_symbol_of(driver, symbol, address, &size_bytes);
    if (error == cudaSuccess && (offset > size_bytes || count > size_bytes - offset)) {
        error = cudaErrorInvalidValue;
    }
    *address += offset;
    return error;
}

RT_EXPORT(void **, __cudaRegisterFatBinary, (void *data))
{
    struct image *image = calloc(1, sizeof(*image));
    if (image) {
        image->data = data;
    }
    return (void **)image;
}

RT_EXPORT(void, __cudaRegisterFatBinaryEnd, (void **handle))
{
    (void)handle;
}

RT_EXPORT(char, __cudaInitModule, (void **handle))
{
    const struct rt_driver *driver = NULL;
    if (!handle || rt_enter(RT_LEGACY_STREAM, &driver) != cudaSuccess) {
        return 0;
    }
    pthread_mutex_lock(&registry.lock);
    cudaError_t error = load_image(driver, (struct image *)handle);
    pthread_mutex_unlock(&registry.lock);
    return error == cudaSuccess ? 1 : 0;
}

/* Runs from exit handlers, when the driver may be gone, so the library is left to the end of the
 * process. */
RT_EXPORT(void, __cudaUnregisterFatBinary, (void **handle))
{
    struct image *image = (struct image *)handle;
    if (!image) {
        return;
    }
    pthread_mutex_lock(&registry.lock);
    for (size_t i = 0; i < registry.capacity; i++) {
        if (registry.slots[i].kind > ENTRY_GONE && registry.slots[i].image == image) {
            registry.slots[i] = (struct entry){.kind = ENTRY_GONE};
        }
    }
    pthread_mutex_unlock(&registry.lock);
    while (image->managed) {
        struct managed *gone = image->managed;
        image->managed = gone->next;
        free(gone);
    }
    free(image);
}

static void add(const struct entry *entry)
{
    if (!entry->image) {
        return;
    }
    pthread_mutex_lock(&registry.lock);
    insert(entry);
    pthread_mutex_unlock(&registry.lock);
}

RT_EXPORT(void, __cudaRegisterFunction,
          (void **handle, const char *host_function, char *device_function, const char *device_name,
           int thread_limit, uint3 *thread, uint3 *block, dim3 *block_dim, dim3 *grid_dim,
           int *warp_size))
{
    (void)device_function, (void)thread_limit, (void)thread, (void)block, (void)block_dim;
    (void)grid_dim, (void)warp_size;
    add(&(struct entry){.key = host_function,
                        .kind = ENTRY_FUNCTION,
                        .image = (struct image *)handle,
                        .name = device_name});
}

RT_EXPORT(void, __cudaRegisterVar,
          (void **handle, char *host_variable, char *device_address, const char *device_name,
           int external, size_t size_bytes, int constant, int global))
{
    (void)device_address, (void)external, (void)constant, (void)global;
    add(&(struct entry){.key = host_variable,
                        .kind = ENTRY_VARIABLE,
                        .image = (struct image *)handle,
                        .name = device_name,
                        .size_bytes = size_bytes});
}

RT_EXPORT(void, __cudaRegisterManagedVar,
          (void **handle, void **host_pointer, char *device_address, const char *device_name,
           int external, size_t size_bytes, int constant, int global))
{
    (void)device_address, (void)external, (void)constant, (void)global;
    struct image *image = (struct image *)handle;
    struct managed *managed = image ? calloc(1, sizeof(*managed)) : NULL;
    if (!managed) {
        return;
    }
    *managed = (struct managed){host_pointer, device_name, image->managed};
    image->managed = managed;
    add(&(struct entry){.key = (const void *)host_pointer,
                        .kind = ENTRY_VARIABLE,
                        .image = image,
                        .name = device_name,
                        .size_bytes = size_bytes});
}

/* The configuration of `kernel<<<...>>>`, between the two halves that the compiler generates. */
struct configuration {
    dim3 grid, block;
    size_t shared_bytes;
    struct CUstream_st *stream;
};
#define MAX_CONFIGURATIONS 16
static _Thread_local struct configuration configurations[MAX_CONFIGURATIONS];
static _Thread_local unsigned configuration_depth;

RT_EXPORT(unsigned, __cudaPushCallConfiguration,
          (dim3 grid, dim3 block, size_t shared_bytes, struct CUstream_st *stream))
{
    if (configuration_depth == MAX_CONFIGURATIONS) {
        return (unsigned)rt_note(cudaErrorInvalidConfiguration);
    }
    configurations[configuration_depth++] =
        (struct configuration){grid, block, shared_bytes, stream};
    return 0;
}

RT_EXPORT(cudaError_t, __cudaPopCallConfiguration,
          (dim3 * grid, dim3 *block, size_t *shared_bytes, void *stream))
{
    if (configuration_depth == 0) {
        return rt_note(cudaErrorMissingConfiguration);
    }
    struct configuration *top = &configurations[--configuration_depth];
    *grid = top->grid;
    *block = top->block;
    *shared_bytes = top->shared_bytes;
    *(struct CUstream_st **)stream = top->stream;
    return cudaSuccess;
}
