/* SPDX-License-Identifier: Apache-2.0 */
/* A program that asks for memory at known places. One scenario a run: sites_job NAME [ARGUMENT...].
 * Results are used after the calls, so that no call is the last thing a function does. */
#include <dlfcn.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "driver.h"
#include "say.h"

#ifdef __clang__
#    define PLACE __attribute__((noinline))
#else
#    define PLACE __attribute__((noinline, noclone))
#endif

static struct driver cu;
static CUcontext context;

static PLACE CUdeviceptr allocate(size_t bytes)
{
    CUdeviceptr block;
    MUST(cu.cuMemAlloc(&block, bytes));
    return block;
}

/* --- Known places ----------------------------------------------------------------------------- */

static PLACE void alpha(void)
{
    for (int i = 0; i < 3; i++) {
        EXPECT(allocate(64 * KIB) != 0);
    }
}

static PLACE void beta(void)
{
    for (int i = 0; i < 5; i++) {
        EXPECT(allocate(128 * KIB) != 0);
    }
}

static PLACE void gamma_(void)
{
    for (int i = 0; i < 7; i++) {
        CUdeviceptr block = allocate(256 * KIB);
        MUST(cu.cuMemFree(block));
    }
}

static void *worker(void *unused)
{
    (void)unused;
    MUST(cu.cuCtxSetCurrent(context));
    alpha();
    return NULL;
}

static void known(void)
{
    pthread_t threads[2];
    cu = driver_use(&context);
    alpha();
    beta();
    gamma_();
    for (int i = 0; i < 2; i++) {
        MUST(pthread_create(&threads[i], NULL, worker, NULL));
    }
    for (int i = 0; i < 2; i++) {
        MUST(pthread_join(threads[i], NULL));
    }
}

/* --- Other kinds of memory -------------------------------------------------------------------- */

static PLACE void pitch(void)
{
    CUdeviceptr block;
    size_t bytes;
    MUST(cu.cuMemAllocPitch(&block, &bytes, 1000, 10, 4));
}

static PLACE void managed(void)
{
    CUdeviceptr block;
    MUST(cu.cuMemAllocManaged(&block, MIB, CU_MEM_ATTACH_GLOBAL));
}

static PLACE void pinned(void)
{
    void *block;
    MUST(cu.cuMemAllocHost(&block, MIB));
}

static PLACE void ordered(void)
{
    CUdeviceptr block;
    MUST(cu.cuMemAllocAsync(&block, MIB, NULL));
}

static PLACE void from_pool(void)
{
    CUmemoryPool pool;
    CUdeviceptr block;
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    MUST(cu.cuMemPoolCreate(&pool, &props));
    MUST(cu.cuMemAllocFromPoolAsync(&block, MIB, pool, NULL));
}

static PLACE void array(void)
{
    CUarray made;
    CUDA_ARRAY_DESCRIPTOR descriptor = {
        .Width = 1024, .Height = 1024, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
    MUST(cu.cuArrayCreate(&made, &descriptor));
}

static PLACE void chunk(void)
{
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp props = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    MUST(cu.cuMemCreate(&handle, 2 * MIB, &props, 0));
}

static PLACE void refused(void)
{
    CUdeviceptr block;
    EXPECT(cu.cuMemAlloc(&block, 1000 * GIB) == CUDA_ERROR_OUT_OF_MEMORY);
}

static void kinds(void)
{
    cu = driver_use(&context);
    pitch();
    managed();
    pinned();
    ordered();
    from_pool();
    array();
    chunk();
    refused();
}

/* --- Libraries -------------------------------------------------------------------------------- */

typedef CUresult (*plugin_t)(PFN_cuMemAlloc_v3020, CUdeviceptr *, size_t);

static PLACE void through(const char *path, size_t bytes)
{
    CUdeviceptr block;
    plugin_t plugin;
    void *library = dlopen(path, RTLD_NOW);
    EXPECT(library != NULL);
    void *address = dlsym(library, "plugin_allocate");
    EXPECT(address != NULL);
    memcpy(&plugin, &address, sizeof(plugin));
    MUST(plugin(cu.cuMemAlloc, &block, bytes));
    (void)printf("%p\n", address);
    MUST(dlclose(library));
}

/* Each is unloaded before the next is loaded, which the loader puts into the same place. */
static void libraries(char **paths)
{
    cu = driver_use(&context);
    for (size_t i = 0; paths[i] != NULL; i++) {
        through(paths[i], (i + 1) * MIB);
    }
}

/* The loader goes on to know it by the name that led there from another folder. */
static void moved(const char *path)
{
    cu = driver_use(&context);
    EXPECT(dlopen(path, RTLD_NOW) != NULL);
    MUST(chdir("/"));
    through(path, MIB);
}

/* --- Many stacks ------------------------------------------------------------------------------ */

static PLACE int left(unsigned bits, unsigned depth);

/* The road through these two says the number's bits. */
static PLACE int right(unsigned bits, unsigned depth)
{
    if (depth == 0) {
        CUdeviceptr block = allocate(4 * KIB);
        MUST(cu.cuMemFree(block));
        return 1;
    }
    return 1 + (bits & 1u ? right(bits >> 1, depth - 1) : left(bits >> 1, depth - 1));
}

static PLACE int left(unsigned bits, unsigned depth)
{
    if (depth == 0) {
        return 2 + right(bits, depth);
    }
    return 2 + (bits & 1u ? right(bits >> 1, depth - 1) : left(bits >> 1, depth - 1));
}

static unsigned long status_kib(const char *key)
{
    char line[256];
    unsigned long kib = 0;
    FILE *file = fopen("/proc/self/status", "re");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        if (strncmp(line, key, strlen(key)) == 0) {
            kib = strtoul(line + strlen(key), NULL, 10);
        }
    }
    (void)fclose(file);
    return kib;
}

/* As many stacks of so many frames; says by how much the memory of the process's own grew. */
static void distinct(unsigned count, unsigned depth)
{
    int sum = 0;
    cu = driver_use(&context);
    sum += right(0, depth);
    unsigned long before = status_kib("RssAnon:");
    for (unsigned i = 0; i < count; i++) {
        sum += right(i, depth);
    }
    (void)printf("%lu\n", status_kib("RssAnon:") - before);
    (void)fprintf(stderr, "%d\n", sum);
}

/* --- Many sizes ------------------------------------------------------------------------------- */

static PLACE void many_sizes(unsigned count)
{
    uint64_t random = 7, total = 0;
    cu = driver_use(&context);
    for (unsigned i = 0; i < count; i++) {
        size_t bytes = ((size_t)512 << next_random(&random) % 12) + next_random(&random) % 512;
        CUdeviceptr block = allocate(bytes);
        total += bytes;
        MUST(cu.cuMemFree(block));
    }
    (void)printf("%llu\n", (unsigned long long)total);
}

int main(int count, char **arguments)
{
    const char *name = count > 1 ? arguments[1] : "";
    const char *first = count > 2 ? arguments[2] : "0";
    if (strcmp(name, "known") == 0) {
        known();
    } else if (strcmp(name, "kinds") == 0) {
        kinds();
    } else if (strcmp(name, "libraries") == 0) {
        libraries(arguments + 2);
    } else if (strcmp(name, "moved") == 0) {
        moved(first);
    } else if (strcmp(name, "distinct") == 0 && count > 3) {
        distinct((unsigned)atoi(first), (unsigned)atoi(arguments[3]));
    } else if (strcmp(name, "sizes") == 0) {
        many_sizes((unsigned)atoi(first));
    } else {
        (void)fprintf(stderr, "usage: sites_job SCENARIO\n");
        return 2;
    }
    return 0;
}
