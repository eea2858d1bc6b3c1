/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that a program maps by itself, as JAX does, or opens of another process. Argument: the
 * scenario. What is said of it in the report, test_map.py asserts. */
#include <cuda.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "say.h"

#define MEMSHIM_WEAK
#include "shim/memshim.h"

#define PAGE  (4 * MIB)
#define PAGES 4u

static CUcontext context;

static void use_device(void)
{
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
}

static const CUmemAllocationProp on_device = {
    .type = CU_MEM_ALLOCATION_TYPE_PINNED,
    .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
};

static CUmemGenericAllocationHandle chunk_of(size_t bytes)
{
    CUmemGenericAllocationHandle chunk = 0;
    MUST(cuMemCreate(&chunk, bytes, &on_device, 0));
    return chunk;
}

static CUdeviceptr reserve(size_t bytes)
{
    CUdeviceptr at = 0;
    MUST(cuMemAddressReserve(&at, bytes, 0, 0, 0));
    return at;
}

/* The chunk is its mapping's from here on. */
__attribute__((noinline)) static void map_page(CUdeviceptr at, CUmemGenericAllocationHandle chunk)
{
    const CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    MUST(cuMemMap(at, PAGE, 0, chunk, 0));
    MUST(cuMemRelease(chunk));
    MUST(cuMemSetAccess(at, PAGE, &access, 1));
    MUST(cuMemsetD8(at, 7, PAGE));
}

static CUdeviceptr map_pages(void)
{
    CUdeviceptr at = reserve(PAGES * PAGE);
    for (unsigned i = 0; i < PAGES; i++) {
        map_page(at + i * PAGE, chunk_of(PAGE));
    }
    return at;
}

/* Pages live from map to unmap; the second place of a chunk adds nothing. */
static void own(void)
{
    CUdeviceptr first = map_pages();
    CUmemGenericAllocationHandle chunk = 0;
    MUST(cuMemRetainAllocationHandle(&chunk, (void *)(uintptr_t)first));
    map_page(reserve(PAGE), chunk);
    MUST(cuMemUnmap(first + PAGE, (PAGES - 1) * PAGE));
    map_page(first + PAGE, chunk_of(PAGE));
}

/* Of the pages of a framework, also of those that are mapped later, its pieces are live. */
static void framework(void)
{
    CUdeviceptr first = reserve((PAGES + 1) * PAGE);
    for (unsigned i = 0; i < PAGES; i++) {
        map_page(first + i * PAGE, chunk_of(PAGE));
    }
    memshim_range_born(0, (void *)(uintptr_t)(first + PAGE), PAGE / 2);
    map_page(first + PAGES * PAGE, chunk_of(PAGE));
    map_page(reserve(PAGE), chunk_of(PAGE)); /* beside it, the program's own */
}

/* --- two processes ---------------------------------------------------------------------------- */

static void send_chunk(int to, CUmemGenericAllocationHandle chunk)
{
    int fd = -1;
    char bytes[CMSG_SPACE(sizeof fd)] = {0};
    struct iovec vector = {.iov_base = "c", .iov_len = 1};
    struct msghdr message = {
        .msg_iov = &vector, .msg_iovlen = 1, .msg_control = bytes, .msg_controllen = sizeof bytes};
    MUST(cuMemExportToShareableHandle(&fd, chunk, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    *CMSG_FIRSTHDR(&message) = (struct cmsghdr){
        .cmsg_len = CMSG_LEN(sizeof fd), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(CMSG_FIRSTHDR(&message)), &fd, sizeof fd);
    EXPECT(sendmsg(to, &message, 0) == 1);
    (void)close(fd);
}

static CUmemGenericAllocationHandle receive_chunk(int from)
{
    int fd = -1;
    char byte = 0;
    char bytes[CMSG_SPACE(sizeof fd)];
    struct iovec vector = {.iov_base = &byte, .iov_len = 1};
    struct msghdr message = {
        .msg_iov = &vector, .msg_iovlen = 1, .msg_control = bytes, .msg_controllen = sizeof bytes};
    CUmemGenericAllocationHandle chunk = 0;
    EXPECT(recvmsg(from, &message, 0) == 1);
    const struct cmsghdr *sent = CMSG_FIRSTHDR(&message);
    EXPECT(sent != NULL);
    memcpy(&fd, CMSG_DATA(sent), sizeof fd);
    MUST(cuMemImportFromShareableHandle(&chunk, (void *)(uintptr_t)fd,
                                        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    (void)close(fd);
    return chunk;
}

static void must_hold(CUdeviceptr at)
{
    unsigned char byte = 0;
    MUST(cuMemcpyDtoH(&byte, at + PAGE - 1, 1));
    EXPECT(byte == 7);
}

/* The opener is a program of its own: each of the two has a report. */
static pid_t start_opener(const char *scenario, int *to)
{
    int ends[2];
    EXPECT(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    pid_t opener = fork();
    EXPECT(opener >= 0);
    if (opener == 0) {
        EXPECT(dup2(ends[1], STDIN_FILENO) == STDIN_FILENO);
        (void)execl("/proc/self/exe", "map_job", scenario, NULL);
        _exit(127);
    }
    (void)close(ends[1]);
    *to = ends[0];
    return opener;
}

static void await(pid_t opener)
{
    int status = 0;
    EXPECT(waitpid(opener, &status, 0) == opener && status == 0);
}

static void imported(void)
{
    int to = -1;
    pid_t opener = start_opener("import", &to);
    CUmemGenericAllocationHandle chunk = chunk_of(PAGE);
    send_chunk(to, chunk);
    map_page(reserve(PAGE), chunk);
    EXPECT(write(to, "m", 1) == 1);
    await(opener);
}

static void import(void)
{
    char mapped = 0;
    CUdeviceptr at = reserve(PAGE);
    CUmemGenericAllocationHandle chunk = receive_chunk(STDIN_FILENO);
    EXPECT(read(STDIN_FILENO, &mapped, 1) == 1);
    map_page(at, chunk);
    must_hold(at);
    MUST(cuMemUnmap(at, PAGE));
    MUST(cuMemAddressFree(at, PAGE));
}

static void shared(void)
{
    int to = -1;
    CUdeviceptr at = 0;
    CUipcMemHandle handle;
    pid_t opener = start_opener("open", &to);
    MUST(cuMemAlloc(&at, PAGE));
    MUST(cuMemsetD8(at, 7, PAGE));
    MUST(cuIpcGetMemHandle(&handle, at));
    EXPECT(write(to, &handle, sizeof handle) == (ssize_t)sizeof handle);
    await(opener);
}

static void open_shared(void)
{
    CUdeviceptr at = 0;
    CUdeviceptr again = 0;
    CUipcMemHandle handle;
    EXPECT(read(STDIN_FILENO, &handle, sizeof handle) == (ssize_t)sizeof handle);
    MUST(cuIpcOpenMemHandle(&at, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    MUST(cuIpcOpenMemHandle(&again, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    EXPECT(at == again);
    must_hold(at);
    MUST(cuIpcCloseMemHandle(at));
    must_hold(at);
    MUST(cuIpcCloseMemHandle(at));
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } scenarios[] = {{"own", own},       {"framework", framework}, {"imported", imported},
                     {"import", import}, {"shared", shared},       {"open", open_shared}};
    EXPECT(argc == 2);
    for (size_t i = 0; i < sizeof scenarios / sizeof scenarios[0]; i++) {
        if (strcmp(argv[1], scenarios[i].name) == 0) {
            use_device();
            scenarios[i].run();
            return 0;
        }
    }
    return 2;
}
