/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that a program maps by itself, as JAX does, or opens of another process. Argument: the
 * scenario. What is said of it in the report, test_map.py asserts. */
#include <cuda.h>
#include <inttypes.h>
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
static int ordinal; /* of the device */

static void use_device(void)
{
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&context, ordinal));
    MUST(cuCtxSetCurrent(context));
}

static CUmemGenericAllocationHandle chunk_of(size_t bytes)
{
    const CUmemAllocationProp on_device = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = ordinal},
    };
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

__attribute__((noinline)) static void map_chunk(CUdeviceptr at, CUmemGenericAllocationHandle chunk)
{
    const CUmemAccessDesc access = {
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = ordinal},
        .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    MUST(cuMemMap(at, PAGE, 0, chunk, 0));
    MUST(cuMemSetAccess(at, PAGE, &access, 1));
}

/* The chunk is its mapping's from here on. */
static void map_page(CUdeviceptr at, CUmemGenericAllocationHandle chunk)
{
    map_chunk(at, chunk);
    MUST(cuMemRelease(chunk));
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

/* An allocator's own pages with gaps that nobody else gets, as vLLM's in its sleep mode. The block
 * that is refused would fit into them. */
static void gaps(void)
{
    CUdeviceptr block = 0;
    CUdeviceptr first = map_pages();
    memshim_range_born(0, (void *)(uintptr_t)first, PAGE / 2);
    MUST(cuMemAlloc(&block, PAGES * PAGE));
    EXPECT(cuMemAlloc(&block, 2 * PAGE) == CUDA_ERROR_OUT_OF_MEMORY);
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

/* --- symmetric memory ------------------------------------------------------------------------- */

/* Nobody is further than here before both are here. */
static void meet(int other)
{
    char byte = 'm';
    EXPECT(write(other, &byte, 1) == 1 && read(other, &byte, 1) == 1);
}

/* The second process's turn comes after the first one's. */
static void begin_turn(int other)
{
    if (ordinal == 1) {
        meet(other);
    }
}

static void end_turn(int other)
{
    MUST(cuCtxSynchronize());
    if (ordinal == 0) {
        meet(other);
    }
    meet(other);
}

/* What the driver says of such an address. */
static void tell(const char *name, CUdeviceptr at)
{
    unsigned int type = 0;
    int device = -1;
    uint64_t handles = 0;
    CUdeviceptr base = 0;
    size_t bytes = 0;
    const CUresult ranged = cuMemGetAddressRange(&base, &bytes, at);
    const CUresult typed = cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at);
    const CUresult placed = cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, at);
    const CUresult shown =
        cuPointerGetAttribute(&handles, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, at);
    (void)printf("%d %s: range %d %zu %d, type %d %u, device %d %d, handles %d %" PRIu64 ", ",
                 ordinal, name, ranged, bytes, base == at, typed, type, placed, device, shown,
                 handles);
    for (int d = 0; d < 2; d++) {
        const CUmemLocation location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = d};
        unsigned long long flags = 0;
        const CUresult allowed = cuMemGetAccess(&flags, &location, at);
        (void)printf("access %d %llu, ", allowed, flags);
    }
    (void)printf("set %d\n", cuMemsetD8(at, (unsigned char)(8 + ordinal), PAGE));
    (void)fflush(stdout);
}

/* The calls of PyTorch's symmetric memory, in its order: memory of each, mapped by both, and a
 * multicast object of the first, to which both bind what is theirs. */
static void symmetric_with(int other)
{
    const CUmulticastObjectProp prop = {
        .numDevices = 2, .size = PAGE, .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR};
    unsigned char byte = 0;
    int supported = 0;
    MUST(cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, ordinal));
    EXPECT(supported == 1);
    const CUmemGenericAllocationHandle own = chunk_of(PAGE);
    const CUdeviceptr at = reserve(PAGE), peer_at = reserve(PAGE), all_at = reserve(PAGE);
    map_chunk(at, own);
    send_chunk(other, own);
    const CUmemGenericAllocationHandle peer = receive_chunk(other);
    map_chunk(peer_at, peer);
    meet(other);
    CUmemGenericAllocationHandle all = 0;
    if (ordinal == 0) {
        MUST(cuMulticastCreate(&all, &prop));
        send_chunk(other, all);
    } else {
        all = receive_chunk(other);
    }
    MUST(cuMulticastAddDevice(all, ordinal));
    meet(other);
    MUST(cuMulticastBindMem(all, 0, own, 0, PAGE, 0));
    map_chunk(all_at, all);
    meet(other);
    begin_turn(other);
    tell("own", at);
    tell("multicast", all_at);
    end_turn(other);
    MUST(cuMemcpyDtoH(&byte, peer_at + PAGE - 1, 1));
    EXPECT(byte == 8 + 1 - ordinal);
    begin_turn(other);
    tell("peer", peer_at);
    end_turn(other);
    MUST(cuMulticastUnbind(all, ordinal, 0, PAGE));
    MUST(cuMemUnmap(all_at, PAGE));
    MUST(cuMemRelease(all));
    MUST(cuMemUnmap(peer_at, PAGE));
    MUST(cuMemRelease(peer));
    MUST(cuMemUnmap(at, PAGE));
    MUST(cuMemRelease(own));
}

static void symmetric(void)
{
    int to = -1;
    pid_t opener = start_opener("symmetric-peer", &to);
    symmetric_with(to);
    await(opener);
}

static void symmetric_peer(void)
{
    symmetric_with(STDIN_FILENO);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
        int ordinal;
    } scenarios[] = {{"own", own, 0},
                     {"framework", framework, 0},
                     {"gaps", gaps, 0},
                     {"imported", imported, 0},
                     {"import", import, 0},
                     {"shared", shared, 0},
                     {"open", open_shared, 0},
                     {"symmetric", symmetric, 0},
                     {"symmetric-peer", symmetric_peer, 1}};
    EXPECT(argc == 2);
    for (size_t i = 0; i < sizeof scenarios / sizeof scenarios[0]; i++) {
        if (strcmp(argv[1], scenarios[i].name) == 0) {
            ordinal = scenarios[i].ordinal;
            use_device();
            scenarios[i].run();
            return 0;
        }
    }
    return 2;
}
