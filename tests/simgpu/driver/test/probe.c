/* SPDX-License-Identifier: Apache-2.0 */
/* What the suites start in another process, or with other settings: driver_probe WHAT [ARGUMENT].
 * It prints its findings on stdout, and exits with 1 if a driver call fails that should not. */
#include <cuda.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "simgpu.h"

#define MUST(call)                                                               \
    do {                                                                         \
        CUresult status_ = (call);                                               \
        if (status_ != CUDA_SUCCESS) {                                           \
            fprintf(stderr, "driver_probe: %s gives %d\n", #call, (int)status_); \
            exit(1);                                                             \
        }                                                                        \
    } while (0)

static void begin(void)
{
    CUcontext context;
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
}

static void print_settings(void)
{
    int devices, version, major, minor, vmm, host;
    size_t bytes;
    MUST(cuInit(0));
    MUST(cuDeviceGetCount(&devices));
    MUST(cuDriverGetVersion(&version));
    MUST(cuDeviceTotalMem(&bytes, 0));
    MUST(cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0));
    MUST(cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0));
    MUST(cuDeviceGetAttribute(&vmm, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0));
    MUST(cuDeviceGetAttribute(&host, (CUdevice_attribute)141, 0));
    begin();
    printf("devices %d version %d memory %zu capability %d.%d vmm %d host %d context %llu\n",
           devices, version, bytes, major, minor, vmm, host,
           (unsigned long long)simgpu_used_bytes(0));
}

/* Allocates, prints what is free then, waits for a line on stdin, and exits, or dies. */
static void take(size_t bytes, int die)
{
    CUdeviceptr block;
    size_t free, total;
    begin();
    CUresult status = cuMemAlloc(&block, bytes);
    MUST(cuMemGetInfo(&free, &total));
    printf("status %d free %zu\n", (int)status, free);
    fflush(stdout);
    (void)getchar();
    if (die) {
        _exit(0); /* without handlers, like a killed process */
    }
}

static size_t read_bytes(void *to, size_t bytes)
{
    return fread(to, 1, bytes, stdin);
}

/* Gets a memory and an event handle on stdin; waits for the event; checks and changes the bytes. */
static void open_handles(void)
{
    CUipcMemHandle memory;
    CUipcEventHandle event_handle;
    CUdeviceptr block, again;
    CUevent event;
    unsigned char bytes[4096];
    begin();
    if (read_bytes(&memory, sizeof memory) != sizeof memory ||
        read_bytes(&event_handle, sizeof event_handle) != sizeof event_handle) {
        exit(1);
    }
    MUST(cuIpcOpenMemHandle(&block, memory, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    MUST(cuIpcOpenMemHandle(&again, memory, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    MUST(cuIpcOpenEventHandle(&event, event_handle));
    printf("same %d query %d\n", block == again, (int)cuEventQuery(event));
    fflush(stdout);
    MUST(cuStreamWaitEvent(NULL, event, 0));
    MUST(cuMemcpyDtoH(bytes, block, sizeof bytes));
    int wrong = 0;
    for (size_t i = 0; i < sizeof bytes; i++) {
        wrong += bytes[i] != 33;
    }
    MUST(cuMemsetD8(block, 44, sizeof bytes));
    MUST(cuCtxSynchronize());
    MUST(cuIpcCloseMemHandle(block));
    MUST(cuIpcCloseMemHandle(again));
    printf("wrong %d\n", wrong);
}

/* Gets a pool, as a descriptor of its parent's, and a block of it on stdin; checks and changes the
 * bytes. */
static void open_pool(void)
{
    struct {
        CUmemPoolPtrExportData block;
        int fd;
    } given;
    char path[64];
    CUmemoryPool pool;
    CUdeviceptr block;
    unsigned char bytes[4096];
    begin();
    if (read_bytes(&given, sizeof given) != sizeof given) {
        exit(1);
    }
    (void)snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)getppid(), given.fd);
    int fd = open(path, O_RDONLY);
    MUST(cuMemPoolImportFromShareableHandle(&pool, (void *)(intptr_t)fd,
                                            CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    close(fd);
    CUresult refused = cuMemAllocFromPoolAsync(&block, sizeof bytes, pool, NULL);
    MUST(cuMemPoolImportPointer(&block, pool, &given.block));
    MUST(cuMemcpyDtoH(bytes, block, sizeof bytes));
    int wrong = 0;
    for (size_t i = 0; i < sizeof bytes; i++) {
        wrong += bytes[i] != 33;
    }
    MUST(cuMemsetD8(block, 44, sizeof bytes));
    MUST(cuMemFreeAsync(block, NULL));
    MUST(cuCtxSynchronize());
    MUST(cuMemPoolDestroy(pool));
    printf("alloc %d wrong %d pools %llu\n", (int)refused, wrong,
           (unsigned long long)simgpu_live("pool"));
}

/* A block of 40 GiB, filled and copied: without contents it must cost the host nothing. */
static void large(void)
{
    CUdeviceptr block;
    begin();
    MUST(cuMemAlloc(&block, 40ull << 30));
    MUST(cuMemsetD8(block, 1, 20ull << 30));
    MUST(cuMemcpyDtoD(block + (20ull << 30), block, 20ull << 30));
    MUST(cuMemsetD8(block + 4096, 5, 4096));
    unsigned char byte;
    MUST(cuMemcpyDtoH(&byte, block + 4096, 1));
    printf("host %llu byte %d\n", (unsigned long long)(simgpu_host_bytes(0) >> 20), byte);
}

/* The result of a call in a forked child, after or before cuInit. */
static void forked(int initialised)
{
    if (initialised) {
        begin();
    }
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        int count;
        CUresult init = cuInit(0), get = cuDeviceGetCount(&count);
        printf("child %d %d\n", (int)init, (int)get);
        fflush(stdout);
        _exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    printf("parent used %llu\n", initialised ? (unsigned long long)simgpu_used_bytes(0) : 0ull);
}

static void fail(void)
{
    CUdeviceptr block;
    begin();
    for (int i = 0; i < 3; i++) {
        printf("%d ", (int)cuMemAlloc(&block, 1));
    }
    printf("\n");
}

/* Two functions whose names appear in a backtrace. */
__attribute__((noinline, visibility("default"))) void destroy_stream(CUstream stream);
__attribute__((noinline, visibility("default"))) void use_stream(CUstream stream);

void destroy_stream(CUstream stream)
{
    MUST(cuStreamDestroy(stream));
}

void use_stream(CUstream stream)
{
    MUST(cuStreamQuery(stream));
}

static void use_destroyed(void)
{
    CUstream stream;
    begin();
    MUST(cuStreamCreate(&stream, 0));
    destroy_stream(stream);
    use_stream(stream);
}

static void *destroy_in_thread(void *stream)
{
    MUST(cuStreamDestroy(stream));
    printf("destroyed\n");
    fflush(stdout);
    return NULL;
}

/* Uses a stream until that is an error, while another thread destroys it. */
static void use_meanwhile(void)
{
    CUstream stream;
    pthread_t thread;
    begin();
    MUST(cuStreamCreate(&stream, 0));
    pthread_create(&thread, NULL, destroy_in_thread, stream);
    while (cuStreamQuery(stream) == CUDA_SUCCESS) {
        usleep(1000);
    }
}

/* The errors, if the use of destroyed handles is allowed. */
static void destroy_twice(void)
{
    CUstream stream;
    CUevent event;
    CUmodule module;
    CUgraph graph;
    begin();
    MUST(cuStreamCreate(&stream, 0));
    MUST(cuEventCreate(&event, 0));
    MUST(cuModuleLoadData(&module, "\177ELF anything"));
    MUST(cuGraphCreate(&graph, 0));
    for (int i = 0; i < 2; i++) {
        printf("%d ", (int)cuStreamDestroy(stream));
        printf("%d ", (int)cuEventDestroy(event));
        printf("%d ", (int)cuModuleUnload(module));
        printf("%d ", (int)cuGraphDestroy(graph));
    }
    printf("\n");
}

/* Prints a line for each function on which dlsym and the version disagree, and their number. */
static void check_exports(int version)
{
    static const struct {
        const char *symbol;
        int version;
    } functions[] = {
#define SIM_DRIVER(base, symbol, version, flavour) {#symbol, version},
#include "../driver_table.h"
#undef SIM_DRIVER
    };
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    int newer = 0;
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
        bool wanted = functions[i].version <= version;
        newer += !wanted;
        if (wanted != (dlsym(library, functions[i].symbol) != NULL) ||
            wanted != (dlsym(RTLD_DEFAULT, functions[i].symbol) != NULL)) {
            printf("%s of %d\n", functions[i].symbol, functions[i].version);
        }
    }
    printf("%s\n", newer ? "some are newer" : "none is newer");
}

/* Prints the free MiB at four moments, and what this process uses. */
static void watch(void)
{
    begin();
    for (int i = 0; i < 4; i++) {
        size_t free, total;
        MUST(cuMemGetInfo(&free, &total));
        printf("%zu ", free >> 20);
    }
    printf("here %llu\n", (unsigned long long)simgpu_used_bytes(0));
}

int main(int count, char **arguments)
{
    const char *what = count > 1 ? arguments[1] : "";
    const char *argument = count > 2 ? arguments[2] : "0";
    if (strcmp(what, "settings") == 0) {
        print_settings();
    } else if (strcmp(what, "take") == 0 || strcmp(what, "take-and-die") == 0) {
        take(strtoull(argument, NULL, 10), strcmp(what, "take-and-die") == 0);
    } else if (strcmp(what, "open") == 0) {
        open_handles();
    } else if (strcmp(what, "pool") == 0) {
        open_pool();
    } else if (strcmp(what, "large") == 0) {
        large();
    } else if (strcmp(what, "fork") == 0) {
        forked(atoi(argument));
    } else if (strcmp(what, "stale") == 0) {
        use_destroyed();
    } else if (strcmp(what, "stale-meanwhile") == 0) {
        use_meanwhile();
    } else if (strcmp(what, "exports") == 0) {
        check_exports(atoi(argument));
    } else if (strcmp(what, "watch") == 0) {
        watch();
    } else if (strcmp(what, "twice") == 0) {
        destroy_twice();
    } else if (strcmp(what, "fail") == 0) {
        fail();
    } else {
        fprintf(stderr, "driver_probe: unknown task \"%s\"\n", what);
        return 2;
    }
    return 0;
}
