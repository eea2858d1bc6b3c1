/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors in PyTorch's expandable segments that a program shares by cuIpcGetMemHandle, as the
 * custom all-reduces of inference servers do: they ask where the tensor's allocation begins, name
 * that, and add the offset in the process that opens it. Pages are mapped as PyTorch maps them.
 *
 * Argument: the scenario. Says that it holds. */
#include <cuda.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "pair.h"
#include "simgpu.h"
#include "torch_double.h"

#define PAGE (20 * MIB)

/* Begins in the first page and ends in the third. */
#define TENSOR_AT    (15 * MIB + 512)
#define TENSOR_BYTES (30 * MIB + 4096)

enum { PAGES = 4, MOST = 8 };

struct segment {
    CUdeviceptr at;
    CUmemGenericAllocationHandle pages[MOST];
};

static CUdeviceptr page_at(const struct segment *segment, unsigned i)
{
    return segment->at + i * PAGE;
}

static void add_page_at(CUdeviceptr at, size_t bytes, CUmemGenericAllocationHandle *page)
{
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .requestedHandleTypes =
                                          CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    MUST(torch_create(page, bytes, &prop));
    MUST(torch_map(at, bytes, 0, *page));
    MUST(torch_access(at, bytes, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
}

static void add_page(struct segment *segment, unsigned i)
{
    add_page_at(page_at(segment, i), PAGE, &segment->pages[i]);
}

static void drop_page(const struct segment *segment, unsigned i)
{
    MUST(cuCtxSynchronize());
    MUST(torch_unmap(page_at(segment, i), PAGE));
    MUST(torch_release(segment->pages[i]));
}

/* Not at the beginning of its reservation: no page lies there. */
static struct segment open_segment(void)
{
    struct segment segment;
    CUdeviceptr reserved = 0;
    (void)torch_settings();
    use_device();
    MUST(cuMemAddressReserve(&reserved, (MOST + 2) * PAGE, 0, 0, 0));
    segment.at = reserved + PAGE;
    for (unsigned i = 0; i < PAGES; i++) {
        add_page(&segment, i);
    }
    return segment;
}

static CUdeviceptr tensor_of(CUdeviceptr at, size_t bytes, unsigned char value)
{
    torch_born(0, at, bytes);
    fill(at, bytes, value);
    return at;
}

static CUdeviceptr base_of(CUdeviceptr at)
{
    CUdeviceptr base = 0;
    MUST(cuPointerGetAttribute(&base, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, at));
    return base;
}

static CUipcMemHandle name_of(CUdeviceptr at)
{
    CUipcMemHandle name;
    MUST(cuIpcGetMemHandle(&name, at));
    return name;
}

static int same(CUipcMemHandle a, CUipcMemHandle b)
{
    return memcmp(&a, &b, sizeof a) == 0;
}

static struct offer offer_of(CUdeviceptr at, size_t bytes, unsigned char value)
{
    const CUdeviceptr base = base_of(at);
    struct offer made = {
        .handle = name_of(base), .bytes = bytes, .offset = at - base, .value = value};
    return made;
}

static void offer_tensor(CUdeviceptr at, size_t bytes, unsigned char value)
{
    const struct offer made = offer_of(at, bytes, value);
    tell(&made, sizeof made);
}

static void close_taken(CUdeviceptr at, const struct offer *taken)
{
    MUST(cuIpcCloseMemHandle(at - taken->offset));
}

static size_t used_bytes(void)
{
    return simgpu_used_bytes(0);
}

/* Waits until what another process had open is given back, which the next question does. */
static void await_use(size_t used)
{
    const double begin = seconds();
    while ((void)free_bytes(), used_bytes() > used) {
        EXPECT(seconds() < begin + 60);
        (void)usleep(1000);
    }
}

/* ---- plain */

static void plain_owner(void)
{
    const struct segment segment = open_segment();
    CUipcMemHandle name;
    CUdeviceptr base = 0;
    CUdeviceptr own = 0;
    size_t bytes = 0;
    const CUdeviceptr at = tensor_of(segment.at + TENSOR_AT, TENSOR_BYTES, 20);
    const CUdeviceptr next = tensor_of(at + TENSOR_BYTES + 512, MIB, 60);
    offer_tensor(at, TENSOR_BYTES, 20);
    offer_tensor(next, MIB, 60);
    /* All calls tell of one place where the allocation begins. */
    MUST(cuMemGetAddressRange(&base, &bytes, at));
    EXPECT(base == base_of(at) && base_of(base) == base);
    MUST(cuPointerGetAttribute(&bytes, CU_POINTER_ATTRIBUTE_RANGE_SIZE, at));
    EXPECT(at >= base && at + TENSOR_BYTES <= base + bytes);
    EXPECT(same(name_of(base), name_of(at)) && same(name_of(base), name_of(base + 1)));
    name = name_of(at);
    EXPECT(cuIpcOpenMemHandle(&own, name, FLAGS) == CUDA_ERROR_INVALID_CONTEXT);
    EXPECT(cuIpcGetMemHandle(&name, segment.at - 1) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuIpcGetMemHandle(&name, page_at(&segment, PAGES)) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuIpcCloseMemHandle(at) == CUDA_ERROR_INVALID_VALUE);
    await_go();
    EXPECT(holds(at, TENSOR_BYTES, 90)); /* the opener's */
    EXPECT(holds(next, MIB, 60));
    fill(at, TENSOR_BYTES, 120);
    say_go();
    await_go();
}

static void plain_opener(void)
{
    struct offer taken;
    struct offer beside;
    CUdeviceptr second = 0;
    CUdeviceptr base = 0;
    size_t bytes = 0;
    use_device();
    const CUdeviceptr at = take(&taken);
    const CUdeviceptr next = take(&beside);
    EXPECT(holds(at, taken.bytes, taken.value));
    EXPECT(holds(next, beside.bytes, beside.value));
    MUST(cuIpcOpenMemHandle(&second, taken.handle, FLAGS));
    EXPECT(second + taken.offset == at);
    MUST(cuMemGetAddressRange(&base, &bytes, at));
    EXPECT(base == second && at + taken.bytes <= base + bytes);
    fill(at, taken.bytes, 90);
    close_taken(at, &taken);
    say_go();
    await_go();
    EXPECT(holds(at, taken.bytes, 120));
    close_taken(at, &taken);
    EXPECT(cuIpcCloseMemHandle(at - taken.offset) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(holds(next, beside.bytes, beside.value));
    close_taken(next, &beside);
    say_go();
}

/* ---- grown: a name is of what was mapped when it was made */

static void grown_owner(void)
{
    struct segment segment = open_segment();
    const CUdeviceptr at = tensor_of(segment.at + TENSOR_AT, TENSOR_BYTES, 20);
    const struct offer before = offer_of(at, TENSOR_BYTES, 20);
    tell(&before, sizeof before);
    add_page(&segment, PAGES);
    const CUdeviceptr next = tensor_of(page_at(&segment, PAGES) - MIB, 2 * MIB, 60);
    EXPECT(!same(before.handle, name_of(base_of(at))));
    offer_tensor(next, 2 * MIB, 60);
    offer_tensor(at, TENSOR_BYTES, 20);
    await_go();
    EXPECT(holds(at, TENSOR_BYTES, 30) && holds(next, 2 * MIB, 60));
}

static void grown_opener(void)
{
    struct offer before;
    struct offer beside;
    struct offer after;
    use_device();
    const CUdeviceptr at = take(&before);
    const CUdeviceptr next = take(&beside);
    const CUdeviceptr again = take(&after);
    EXPECT(holds(at, before.bytes, before.value) && holds(next, beside.bytes, beside.value));
    fill(again, after.bytes, 30);
    EXPECT(holds(at, before.bytes, 30)); /* the same memory by both names */
    close_taken(at, &before);
    close_taken(next, &beside);
    EXPECT(holds(again, after.bytes, 30));
    close_taken(again, &after);
    say_go();
}

/* ---- shrunk: an opener gets what is still mapped of a name; the rest is given back */

static void shrunk_owner(void)
{
    struct segment segment = open_segment();
    const CUdeviceptr at = tensor_of(segment.at + TENSOR_AT, TENSOR_BYTES, 20);
    offer_tensor(at, TENSOR_BYTES, 20);
    const CUipcMemHandle before = name_of(at);
    const size_t used = used_bytes();
    drop_page(&segment, PAGES - 1);
    EXPECT(used_bytes() == used - PAGE); /* nobody has it open */
    say_go();
    await_go();
    EXPECT(holds(at, TENSOR_BYTES, 30));
    add_page(&segment, PAGES - 1);
    EXPECT(!same(before, name_of(at))); /* it would be another page */
    torch_died(0, at, TENSOR_BYTES);
    for (unsigned i = 0; i < PAGES; i++) {
        drop_page(&segment, i);
    }
    say_go();
    await_go();
}

static void shrunk_opener(void)
{
    struct offer taken;
    char byte = 0;
    CUdeviceptr gone = 0;
    use_device();
    hear(&taken, sizeof taken);
    await_go();
    MUST(cuIpcOpenMemHandle(&gone, taken.handle, FLAGS));
    const CUdeviceptr at = gone + taken.offset;
    EXPECT(holds(at, taken.bytes, taken.value));
    EXPECT(cuMemcpyDtoH(&byte, gone + (PAGES - 1) * PAGE, 1) != CUDA_SUCCESS);
    fill(at, taken.bytes, 30);
    close_taken(at, &taken);
    say_go();
    await_go();
    EXPECT(cuIpcOpenMemHandle(&gone, taken.handle, FLAGS) == CUDA_ERROR_INVALID_VALUE);
    say_go();
}

/* ---- kept: what another process has open outlives its unmapping here */

static void kept_owner(void)
{
    struct segment segment = open_segment();
    const CUdeviceptr at = tensor_of(segment.at + TENSOR_AT, TENSOR_BYTES, 20);
    offer_tensor(at, TENSOR_BYTES, 20);
    await_go();
    const size_t used = used_bytes();
    torch_died(0, at, TENSOR_BYTES);
    for (unsigned i = 0; i < PAGES; i++) {
        drop_page(&segment, i);
    }
    EXPECT(used_bytes() == used);
    for (unsigned i = 0; i < PAGES; i++) {
        add_page(&segment, i);
    }
    (void)tensor_of(at, TENSOR_BYTES, 200);
    offer_tensor(at, TENSOR_BYTES, 200);
    await_go();
    EXPECT(holds(at, TENSOR_BYTES, 200));
    say_go();
    await_go();
    await_use(used);
}

static void kept_opener(void)
{
    struct offer before;
    struct offer after;
    CUdeviceptr again = 0;
    use_device();
    const CUdeviceptr at = take(&before);
    say_go();
    const CUdeviceptr other_at = take(&after);
    EXPECT(holds(at, before.bytes, before.value));
    fill(at, before.bytes, 33);
    EXPECT(holds(at, before.bytes, 33) && holds(other_at, after.bytes, after.value));
    say_go();
    await_go();
    EXPECT(cuIpcOpenMemHandle(&again, before.handle, FLAGS) == CUDA_SUCCESS && /* it is open */
           again + before.offset == at);
    close_taken(at, &before);
    close_taken(at, &before);
    EXPECT(cuIpcOpenMemHandle(&again, before.handle, FLAGS) == CUDA_ERROR_INVALID_VALUE);
    close_taken(other_at, &after);
    say_go();
}

/* ---- changing: another thread maps pages behind the tensor and unmaps them all the time */

enum { TIMES = 40 };

struct changer {
    struct segment segment;
    volatile int stop;
};

static void *change_all(void *argument)
{
    struct changer *changer = argument;
    use_device();
    while (!changer->stop) {
        add_page(&changer->segment, PAGES);
        add_page(&changer->segment, PAGES + 1);
        drop_page(&changer->segment, PAGES);
        drop_page(&changer->segment, PAGES + 1);
    }
    return NULL;
}

static void changing_owner(void)
{
    pthread_t thread;
    struct changer changer = {.segment = open_segment()};
    const size_t used = used_bytes();
    const CUdeviceptr at = tensor_of(changer.segment.at + TENSOR_AT, TENSOR_BYTES, 20);
    MUST(pthread_create(&thread, NULL, change_all, &changer));
    for (int i = 0; i < TIMES; i++) {
        offer_tensor(at, TENSOR_BYTES, 20);
        await_go();
    }
    changer.stop = 1;
    MUST(pthread_join(thread, NULL));
    EXPECT(holds(at, TENSOR_BYTES, 20));
    await_use(used);
}

static void changing_opener(void)
{
    struct offer taken;
    use_device();
    for (int i = 0; i < TIMES; i++) {
        const CUdeviceptr at = take(&taken);
        EXPECT(holds(at, taken.bytes, taken.value));
        close_taken(at, &taken);
        say_go();
    }
}

/* ---- moving: pages were in parts and on the host, and more than the cap is used all the time */

enum { ROUNDS = 6 };
#define COLD_BYTES (9 * MIB + 512)

static void moving(unsigned char first, unsigned char theirs)
{
    struct mover mover = {.bytes = COLD_BYTES};
    pthread_t thread;
    const struct segment segment = open_segment();
    const CUdeviceptr at = tensor_of(segment.at + TENSOR_AT, TENSOR_BYTES, first);
    const CUdeviceptr last = tensor_of(page_at(&segment, PAGES) - MIB, MIB, 77);
    MUST(pthread_create(&thread, NULL, move_all, &mover));
    while (mover.rounds < COLD) {
        (void)usleep(1000);
    }
    EXPECT(holds(last, MIB, 77));
    for (unsigned round = 0; round < ROUNDS; round++) {
        struct offer taken;
        offer_tensor(at, TENSOR_BYTES, (unsigned char)(first + round));
        const CUdeviceptr open = take(&taken);
        EXPECT(taken.value == (unsigned char)(theirs + round));
        EXPECT(holds(open, taken.bytes, taken.value));
        fill(open, taken.bytes, (unsigned char)(taken.value + 1));
        close_taken(open, &taken);
        say_go();
        await_go();
        EXPECT(holds(at, TENSOR_BYTES, (unsigned char)(first + round + 1)));
    }
    EXPECT(holds(last, MIB, 77));
    mover.stop = 1;
    MUST(pthread_join(thread, NULL));
}

static void moving_owner(void)
{
    moving(3, 100);
}

static void moving_opener(void)
{
    moving(100, 3);
}

/* ---- long: each page of a segment has a tensor, and each tensor a name. IPC_PAGES says how many
 * there are, IPC_OPENED how many of the names are opened; says what each part took. */

#define SMALL_PAGE (2 * MIB)

static unsigned long_pages(void)
{
    const char *pages = getenv("IPC_PAGES");
    return pages ? (unsigned)strtoul(pages, NULL, 10) : 1000;
}

static size_t resident_bytes(void)
{
    unsigned long whole = 0;
    unsigned long resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    EXPECT(file != NULL && fscanf(file, "%lu %lu", &whole, &resident) == 2);
    (void)fclose(file);
    return resident * (size_t)sysconf(_SC_PAGESIZE);
}

static void say_cost(const char *of, double begin, size_t resident)
{
    (void)fprintf(stderr, "%s: %.2f s, %ld MiB\n", of, seconds() - begin,
                  ((long)resident_bytes() - (long)resident) / (long)MIB);
}

static CUdeviceptr open_long(unsigned count, CUmemGenericAllocationHandle *pages)
{
    CUdeviceptr at = 0;
    (void)torch_settings();
    use_device();
    MUST(cuMemAddressReserve(&at, (count + 1) * SMALL_PAGE, 0, 0, 0));
    for (unsigned i = 0; i < count; i++) {
        add_page_at(at + i * SMALL_PAGE, SMALL_PAGE, &pages[i]);
        torch_born(0, at + i * SMALL_PAGE, MIB);
        MUST(cuMemsetD8(at + i * SMALL_PAGE, (unsigned char)i, 4096));
    }
    return at;
}

static void long_owner(void)
{
    const unsigned count = long_pages();
    CUmemGenericAllocationHandle *pages = calloc(count + 1, sizeof *pages);
    EXPECT(pages != NULL);
    const CUdeviceptr at = open_long(count, pages);
    size_t resident = resident_bytes();
    double begin = seconds();
    for (unsigned i = 0; i < count; i++) {
        const CUipcMemHandle name = name_of(at + i * SMALL_PAGE);
        EXPECT(i % 64 != 0 || same(name, name_of(at + i * SMALL_PAGE + 512)));
    }
    say_cost("naming", begin, resident);
    EXPECT(resident_bytes() < resident + 8 * MIB); /* not a list of all pages in each name */
    begin = seconds();
    for (unsigned i = 0; i < count; i++) {
        const struct offer made = {
            .handle = name_of(at + i * SMALL_PAGE), .bytes = 4096, .value = (unsigned char)i};
        tell(&made, sizeof made);
    }
    say_cost("naming again", begin, resident);
    await_go();
    begin = seconds();
    add_page_at(at + count * SMALL_PAGE, SMALL_PAGE, &pages[count]);
    say_cost("growing", begin, resident);
    begin = seconds();
    MUST(cuCtxSynchronize());
    for (unsigned i = 0; i <= count; i++) {
        MUST(torch_unmap(at + i * SMALL_PAGE, SMALL_PAGE));
        MUST(torch_release(pages[i]));
    }
    say_cost("unmapping", begin, resident);
    free(pages);
}

static void long_opener(void)
{
    const unsigned count = long_pages();
    const char *most = getenv("IPC_OPENED");
    const unsigned opened = most ? (unsigned)strtoul(most, NULL, 10) : count;
    CUdeviceptr *open = calloc(count, sizeof *open);
    struct offer taken;
    unsigned char first = 0;
    EXPECT(open != NULL);
    use_device();
    const size_t resident = resident_bytes();
    const double begin = seconds();
    for (unsigned i = 0; i < count; i++) {
        hear(&taken, sizeof taken);
        if (i < opened) {
            MUST(cuIpcOpenMemHandle(&open[i], taken.handle, FLAGS));
            MUST(cuMemcpyDtoH(&first, open[i], 1));
            EXPECT(first == taken.value);
        }
    }
    say_cost("opening", begin, resident);
    for (unsigned i = 0; i < opened; i++) {
        MUST(cuIpcCloseMemHandle(open[i]));
    }
    say_cost("opening and closing", begin, resident);
    free(open);
    say_go();
}

/* ---- chosen: the user switched expandable segments on, and the driver's own answer stands */

static void chosen_owner(void)
{
    CUipcMemHandle name;
    const struct segment segment = open_segment();
    const CUdeviceptr at = tensor_of(segment.at + TENSOR_AT, TENSOR_BYTES, 20);
    EXPECT(cuIpcGetMemHandle(&name, at) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuIpcGetMemHandle(&name, segment.at) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(base_of(at) == segment.at - PAGE); /* that of the reservation */
}

static void chosen_opener(void)
{
}

/* ---- lent: as PyTorch shares pages, where the system calls for that are barred, or are not there
 */

enum { SYS_PIDFD_OPEN = 434, SYS_PIDFD_GETFD = 438 };

struct lent {
    pid_t process;
    int fd;
};

static void lent_owner(void)
{
    const struct segment segment = open_segment();
    struct lent page = {.process = getpid()};
    const struct lent strange = {.process = getpid(), .fd = talk};
    const CUdeviceptr at = tensor_of(segment.at, PAGE, 20);
    (void)tensor_of(page_at(&segment, 1), PAGE, 60);
    MUST(torch_export(&page.fd, segment.pages[1]));
    tell(&page, sizeof page);
    MUST(torch_export(&page.fd, segment.pages[0]));
    tell(&page, sizeof page);
    tell(&strange, sizeof strange);
    await_go();
    EXPECT(holds(at, PAGE, 90)); /* the opener's */
    MUST(close(page.fd));
    EXPECT(open("/dev/null", O_RDONLY | O_CLOEXEC) == page.fd);
    say_go();
    await_go();
}

/* The system call fails with that error from here on. */
static void bar(unsigned number, unsigned error)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {sizeof code / sizeof code[0], code};
    MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    MUST(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program));
}

static CUdeviceptr take_page(const struct lent *page)
{
    const CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handle = 0;
    CUdeviceptr at = 0;
    const int fd = torch_take(page->process, page->fd);
    EXPECT(fd >= 0);
    EXPECT(fcntl(fd, F_GETFD) == FD_CLOEXEC);
    MUST(cuMemImportFromShareableHandle(&handle, (void *)(uintptr_t)fd,
                                        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    MUST(close(fd));
    MUST(cuMemAddressReserve(&at, PAGE, 0, 0, 0));
    MUST(cuMemMap(at, PAGE, 0, handle, 0));
    MUST(cuMemSetAccess(at, PAGE, &access, 1));
    return at;
}

static void lent_opener(void)
{
    struct lent page;
    struct lent strange;
    use_device();
    (void)torch_settings();
    bar(SYS_PIDFD_GETFD, EPERM);
    hear(&page, sizeof page);
    EXPECT(holds(take_page(&page), PAGE, 60));
    bar(SYS_PIDFD_OPEN, ENOSYS); /* as before Linux 5.3 */
    hear(&page, sizeof page);
    const CUdeviceptr at = take_page(&page);
    EXPECT(holds(at, PAGE, 20));
    fill(at, PAGE, 90);
    hear(&strange, sizeof strange);
    EXPECT(torch_take(strange.process, strange.fd) == -1 && errno == EPERM);
    EXPECT(torch_take(strange.process, 1 << 20) == -1 && errno == EPERM);
    EXPECT(torch_take(1 << 30, page.fd) == -1 && errno == ENOSYS); /* no such process */
    say_go();
    await_go();
    EXPECT(torch_take(page.process, page.fd) == -1 && errno == EPERM); /* the program's own file */
    say_go();
}

static const struct pair scenarios[] = {{"plain", plain_owner, plain_opener},
                                        {"grown", grown_owner, grown_opener},
                                        {"shrunk", shrunk_owner, shrunk_opener},
                                        {"kept", kept_owner, kept_opener},
                                        {"changing", changing_owner, changing_opener},
                                        {"moving", moving_owner, moving_opener},
                                        {"long", long_owner, long_opener},
                                        {"chosen", chosen_owner, chosen_opener},
                                        {"lent", lent_owner, lent_opener}};

int main(int argc, char **argv)
{
    return run_pair(scenarios, sizeof scenarios / sizeof scenarios[0], argc, argv);
}
