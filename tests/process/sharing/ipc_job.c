/* SPDX-License-Identifier: Apache-2.0 */
/* Two processes that share device memory by cuIpcGetMemHandle: the one that allocates, and the one
 * that opens what it is given. Contents are checked on both sides.
 *
 * Argument: the scenario. Says that it holds. `plain` is also what the driver itself does. */
#include <cuda.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "held_work.h"
#include "pair.h"

/* ---- plain: what the header promises */

#define ODD_BYTES (5 * MIB + 4096 + 512)

static void plain_owner(void)
{
    CUipcMemHandle again;
    CUipcMemHandle inside;
    CUdeviceptr own = 0;
    use_device();
    CUdeviceptr before = block_of(700 * KIB, 1); /* the block begins within a chunk */
    CUdeviceptr at = block_of(ODD_BYTES, 20);
    CUdeviceptr after = block_of(700 * KIB, 2);
    offer(at, ODD_BYTES, 20);
    MUST(cuIpcGetMemHandle(&again, at));
    MUST(cuIpcGetMemHandle(&inside, at + 3 * MIB));
    EXPECT(memcmp(&again, &inside, sizeof again) == 0);
    EXPECT(cuIpcOpenMemHandle(&own, again, FLAGS) == CUDA_ERROR_INVALID_CONTEXT);
    EXPECT(cuIpcGetMemHandle(&again, 4096) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuIpcGetMemHandle(NULL, at) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuIpcCloseMemHandle(at) == CUDA_ERROR_INVALID_VALUE);
    await_go();
    EXPECT(holds(at, ODD_BYTES, 90)); /* the opener's */
    EXPECT(holds(before, 700 * KIB, 1) && holds(after, 700 * KIB, 2));
    fill(at, ODD_BYTES, 120);
    say_go();
    await_go();
    MUST(cuMemFree(at));
    MUST(cuMemFree(before));
    MUST(cuMemFree(after));
}

static void plain_opener(void)
{
    struct offer taken;
    CUdeviceptr second = 0;
    CUdeviceptr base = 0;
    size_t bytes = 0;
    use_device();
    CUdeviceptr at = take(&taken);
    EXPECT(holds(at, taken.bytes, taken.value));
    MUST(cuIpcOpenMemHandle(&second, taken.handle, FLAGS));
    EXPECT(second == at);
    MUST(cuMemGetAddressRange(&base, &bytes, at + 4 * MIB));
    EXPECT(base == at && bytes == taken.bytes);
    unsigned int type = 0;
    MUST(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at + 4 * MIB));
    EXPECT(type == CU_MEMORYTYPE_DEVICE);
    fill(at, taken.bytes, 90);
    MUST(cuIpcCloseMemHandle(at));
    say_go();
    await_go();
    EXPECT(holds(at, taken.bytes, 120));
    MUST(cuIpcCloseMemHandle(at));
    EXPECT(cuIpcCloseMemHandle(at) == CUDA_ERROR_INVALID_VALUE);
    memset(&taken.handle, 0x5a, sizeof taken.handle);
    EXPECT(cuIpcOpenMemHandle(&at, taken.handle, FLAGS) == CUDA_ERROR_INVALID_VALUE);
    say_go();
}

/* ---- apart: the two have no network in common, as in two containers */

#define NOT_ALLOWED 77

static void write_to(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    EXPECT(file != NULL && fputs(text, file) >= 0);
    EXPECT(fclose(file) == 0);
}

static void leave_network(void)
{
    char map[64];
    const unsigned user = getuid();
    if (unshare(CLONE_NEWNET) == 0) {
        return;
    }
    if (unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) {
        MUST(kill(getppid(), SIGTERM)); /* which says so */
        exit(NOT_ALLOWED);
    }
    (void)snprintf(map, sizeof map, "%u %u 1", user, user);
    write_to("/proc/self/uid_map", map);
}

static void say_not_allowed(int signal)
{
    (void)signal;
    _exit(NOT_ALLOWED);
}

static void apart_owner(void)
{
    EXPECT(signal(SIGTERM, say_not_allowed) != SIG_ERR);
    plain_owner();
}

static void apart_opener(void)
{
    leave_network();
    plain_opener();
}

/* ---- freed: while another process has it open */

/* To this process. */
static void nothing_at(CUdeviceptr at)
{
    CUipcMemHandle handle;
    CUdeviceptr base = 0;
    size_t bytes = 0;
    unsigned int type = 0;
    EXPECT(cuIpcGetMemHandle(&handle, at) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuMemGetAddressRange(&base, &bytes, at) == CUDA_ERROR_NOT_FOUND);
    EXPECT(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at) ==
           CUDA_ERROR_INVALID_VALUE);
}

static void freed_owner(void)
{
    CUdeviceptr blocks[64];
    size_t count = 0;
    use_device();
    CUdeviceptr at = block_of(32 * MIB, 20);
    const size_t room = free_bytes();
    offer(at, 32 * MIB, 20);
    await_go();
    MUST(cuMemFree(at));
    EXPECT(cuMemFree(at) != CUDA_SUCCESS);
    nothing_at(at);
    while (count < 64 && cuMemAlloc(&blocks[count], 16 * MIB) == CUDA_SUCCESS) {
        fill(blocks[count], 16 * MIB, 200);
        count++;
    }
    EXPECT(count >= 2 && count < 64);
    while (count > 0) {
        MUST(cuMemFree(blocks[--count]));
    }
    say_go();
    await_go();
    const double begin = seconds();
    while (free_bytes() < room + 32 * MIB) {
        EXPECT(seconds() < begin + 60);
        (void)usleep(1000);
    }
    MUST(cuMemAlloc(&at, 128 * MIB));
}

static void freed_opener(void)
{
    struct offer taken;
    CUdeviceptr again = 0;
    use_device();
    CUdeviceptr at = take(&taken);
    say_go();
    await_go();
    EXPECT(holds(at, taken.bytes, taken.value));
    fill(at, taken.bytes, 30);
    EXPECT(holds(at, taken.bytes, 30));
    MUST(cuIpcCloseMemHandle(at));
    EXPECT(cuIpcOpenMemHandle(&again, taken.handle, FLAGS) == CUDA_ERROR_INVALID_VALUE);
    say_go();
}

/* ---- killed: the opener ends by a signal, and what it had open comes back */

static void killed_owner(void)
{
    pid_t child = 0;
    use_device();
    CUdeviceptr at = block_of(32 * MIB, 20);
    const size_t room = free_bytes();
    offer(at, 32 * MIB, 20);
    hear(&child, sizeof child);
    MUST(cuMemFree(at));
    EXPECT(free_bytes() < room + 32 * MIB);
    MUST(kill(other, SIGKILL));
    const double begin = seconds();
    while (free_bytes() < room + 32 * MIB) {
        EXPECT(seconds() < begin + 60);
        (void)usleep(1000);
    }
    MUST(kill(child, SIGKILL));
}

static void killed_opener(void)
{
    struct offer taken;
    use_device();
    CUdeviceptr at = take(&taken);
    EXPECT(holds(at, taken.bytes, taken.value));
    pid_t child = fork();
    if (child == 0) { /* has the sockets no longer, and so does not keep the memory */
        (void)sleep(100);
        _exit(0);
    }
    tell(&child, sizeof child);
    (void)pause();
}

/* ---- gone: the owner stops, goes on, and ends by a signal */

static void gone_owner(void)
{
    use_device();
    CUdeviceptr at = block_of(32 * MIB, 20);
    CUdeviceptr more = block_of(4 * MIB, 60);
    offer(at, 32 * MIB, 20);
    offer(more, 4 * MIB, 60);
    pid_t child = fork();
    if (child == 0) { /* has the listening socket no longer */
        (void)sleep(100);
        _exit(0);
    }
    tell(&child, sizeof child);
    (void)pause();
}

static int is_stopped(pid_t process, const char *thread)
{
    char path[320];
    char state = 0;
    (void)snprintf(path, sizeof path, "/proc/%d/task/%s/stat", (int)process, thread);
    FILE *stat = fopen(path, "r");
    int found = stat && fscanf(stat, "%*d (%*[^)]) %c", &state) == 1;
    if (stat) {
        (void)fclose(stat);
    }
    return found && state == 'T';
}

/* Each of its threads stands when this returns: the signal reaches them one after the other. */
static void stop(pid_t process)
{
    char path[64];
    int running = 1;
    MUST(kill(process, SIGSTOP));
    (void)snprintf(path, sizeof path, "/proc/%d/task", (int)process);
    while (running) {
        DIR *threads = opendir(path);
        EXPECT(threads != NULL);
        running = 0;
        for (const struct dirent *entry; (entry = readdir(threads)) != NULL;) {
            running |= entry->d_name[0] != '.' && !is_stopped(process, entry->d_name);
        }
        (void)closedir(threads);
    }
}

static void gone_opener(void)
{
    struct offer first;
    struct offer second;
    CUdeviceptr at = 0;
    CUdeviceptr more = 0;
    pid_t child = 0;
    const pid_t owner = getppid();
    use_device();
    hear(&first, sizeof first);
    hear(&second, sizeof second);
    hear(&child, sizeof child);
    stop(owner);
    const double begin = seconds();
    EXPECT(cuIpcOpenMemHandle(&at, first.handle, FLAGS) == CUDA_ERROR_MAP_FAILED);
    (void)fprintf(stderr, "stopped: answered in %.2f s\n", seconds() - begin);
    MUST(kill(owner, SIGCONT));
    MUST(cuIpcOpenMemHandle(&at, first.handle, FLAGS));
    stop(owner); /* the link stands, and nobody answers */
    EXPECT(cuIpcOpenMemHandle(&more, second.handle, FLAGS) == CUDA_ERROR_MAP_FAILED);
    MUST(kill(owner, SIGCONT));
    MUST(cuIpcOpenMemHandle(&more, second.handle, FLAGS));
    EXPECT(holds(more, second.bytes, second.value));
    MUST(cuIpcCloseMemHandle(more));
    MUST(kill(owner, SIGKILL));
    while (getppid() == owner) {
        (void)usleep(1000);
    }
    EXPECT(holds(at, first.bytes, first.value));
    EXPECT(cuIpcOpenMemHandle(&more, second.handle, FLAGS) == CUDA_ERROR_MAP_FAILED);
    MUST(kill(child, SIGKILL));
    fill(at, first.bytes, 77);
    EXPECT(holds(at, first.bytes, 77));
    MUST(cuIpcCloseMemHandle(at));
    (void)printf("gone holds\n");
}

/* ---- many: more chunks than descriptors */

static void few_files(void)
{
    const struct rlimit limit = {.rlim_cur = 160, .rlim_max = 160};
    MUST(setrlimit(RLIMIT_NOFILE, &limit));
}

static void many_owner(void)
{
    CUdeviceptr at = 0;
    use_device();
    CUdeviceptr most = 0;
    MUST(cuMemAlloc(&most, 600 * MIB)); /* memory is short: chunks are of a granule each */
    MUST(cuMemAlloc(&at, 400 * MIB));
    fill(at, 400 * MIB, 20);
    offer(at, 400 * MIB, 20);
    few_files();
    await_go();
    EXPECT(holds(at, 400 * MIB, 33));
}

static void many_opener(void)
{
    struct offer taken;
    use_device();
    few_files();
    CUdeviceptr at = take(&taken);
    EXPECT(holds(at, taken.bytes, taken.value));
    fill(at, taken.bytes, 33);
    MUST(cuIpcCloseMemHandle(at));
    say_go();
}

/* ---- moving: both own, both open, and both spill all the time */

enum { ROUNDS = 6, OFFERED = 6 };
#define COLD_BYTES (6 * MIB + 512)

static void moving(unsigned char first)
{
    struct mover mover = {.bytes = COLD_BYTES};
    pthread_t thread;
    use_device();
    CUdeviceptr own[OFFERED];
    struct offer taken[OFFERED];
    CUdeviceptr open[OFFERED];
    for (int i = 0; i < OFFERED; i++) {
        own[i] = block_of(COLD_BYTES, (unsigned char)(first + i));
    }
    MUST(pthread_create(&thread, NULL, move_all, &mover));
    for (unsigned round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < OFFERED; i++) {
            offer(own[i], COLD_BYTES, (unsigned char)(first + round + (unsigned)i));
        }
        for (int i = 0; i < OFFERED; i++) {
            open[i] = take(&taken[i]);
        }
        for (int i = 0; i < OFFERED; i++) {
            EXPECT(holds(open[i], taken[i].bytes, taken[i].value));
            fill(open[i], taken[i].bytes, (unsigned char)(taken[i].value + 1));
            MUST(cuIpcCloseMemHandle(open[i]));
        }
        say_go();
        await_go();
        for (int i = 0; i < OFFERED; i++) {
            EXPECT(holds(own[i], COLD_BYTES, (unsigned char)(first + round + (unsigned)i + 1)));
        }
    }
    mover.stop = 1;
    MUST(pthread_join(thread, NULL));
    EXPECT(mover.rounds > 0);
}

static void moving_owner(void)
{
    moving(3);
}

static void moving_opener(void)
{
    moving(100);
}

/* ---- quiet: nothing is shared, nothing is started */

static void threads_are(unsigned expected)
{
    char line[128];
    unsigned threads = 0;
    FILE *status = fopen("/proc/self/status", "r");
    EXPECT(status != NULL);
    while (fgets(line, sizeof line, status)) {
        (void)sscanf(line, "Threads: %u", &threads);
    }
    (void)fclose(status);
    EXPECT(threads == expected);
}

static unsigned threads_now(void)
{
    unsigned count = 0;
    char line[128];
    FILE *status = fopen("/proc/self/status", "r");
    EXPECT(status != NULL);
    while (fgets(line, sizeof line, status)) {
        (void)sscanf(line, "Threads: %u", &count);
    }
    (void)fclose(status);
    return count;
}

static void quiet_owner(void)
{
    CUipcMemHandle handle;
    use_device();
    CUdeviceptr at = block_of(4 * MIB, 1);
    const unsigned before = threads_now();
    MUST(cuMemFree(at));
    at = block_of(4 * MIB, 1);
    threads_are(before);
    MUST(cuIpcGetMemHandle(&handle, at));
    threads_are(before + 1);
    MUST(cuIpcGetMemHandle(&handle, at));
    threads_are(before + 1);
}

static void quiet_opener(void)
{
}

/* ---- closed: both close every socket that they do not know, as daemons do, and open their own
 * under the same numbers, while a block is open */

enum { NUMBERS = 1024, MESSAGE_BYTES = 64 };

static int own[NUMBERS]; /* the other end of what lies at this number; 0: nothing of ours */

static int is_socket(int number)
{
    struct stat status;
    return fstat(number, &status) == 0 && S_ISSOCK(status.st_mode);
}

static void replace_sockets(void)
{
    unsigned replaced = 0;
    int known[NUMBERS] = {0};
    for (int number = 3; number < NUMBERS; number++) {
        known[number] = number == talk || !is_socket(number);
    }
    for (int number = 3; number < NUMBERS; number++) {
        int ends[2];
        if (known[number]) {
            continue;
        }
        MUST(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends));
        EXPECT(dup2(ends[0], number) == number);
        (void)close(ends[0]);
        own[number] = fcntl(ends[1], F_DUPFD_CLOEXEC, NUMBERS);
        EXPECT(own[number] >= NUMBERS);
        (void)close(ends[1]);
        replaced++;
    }
    EXPECT(replaced > 0);
}

/* Sends a message to each of these sockets, which the program itself has not read yet. */
static void send_to_own(void)
{
    const char message[MESSAGE_BYTES] = "mine";
    for (int number = 3; number < NUMBERS; number++) {
        EXPECT(!own[number] || write(own[number], message, sizeof message) == sizeof message);
    }
}

/* Nobody has read that message, written another, or closed the socket. */
static void own_are_whole(int sent)
{
    char message[MESSAGE_BYTES];
    for (int number = 3; number < NUMBERS; number++) {
        if (own[number]) {
            const ssize_t bytes = recv(number, message, sizeof message, MSG_DONTWAIT | MSG_PEEK);
            EXPECT(sent ? bytes == sizeof message : bytes < 0 && errno == EAGAIN);
            EXPECT(recv(own[number], message, sizeof message, MSG_DONTWAIT) < 0 && errno == EAGAIN);
        }
    }
}

static void closed_owner(void)
{
    const struct timespec soon = {.tv_nsec = 200000000};
    int status = -1;
    use_device();
    CUdeviceptr at = block_of(5 * MIB, 20);
    offer(at, 5 * MIB, 20);
    await_go();
    replace_sockets();
    send_to_own();
    say_go();
    await_go();
    (void)nanosleep(&soon, NULL); /* the thread that answers has seen the end of the connection */
    own_are_whole(1);
    const pid_t child = fork();
    if (child == 0) {
        own_are_whole(1);
        _exit(0);
    }
    EXPECT(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    EXPECT(holds(at, 5 * MIB, 20));
    MUST(cuMemFree(at));
}

static void closed_opener(void)
{
    struct offer taken;
    use_device();
    CUdeviceptr at = take(&taken);
    say_go();
    await_go();
    replace_sockets();
    EXPECT(holds(at, taken.bytes, taken.value));
    MUST(cuIpcCloseMemHandle(at));
    own_are_whole(0);
    say_go();
}

/* ---- busy: a block is opened while another one's close waits for work, which waits for that */

enum { MOST_S = 60 };

static void busy_owner(void)
{
    use_device();
    for (unsigned char i = 0; i < 2; i++) {
        offer(block_of(MIB, i), MIB, i);
    }
    await_go();
}

static void *close_it(void *block)
{
    use_device();
    MUST(cuIpcCloseMemHandle(*(CUdeviceptr *)block));
    return NULL;
}

static void busy_opener(void)
{
    struct offer taken;
    CUstream stream = NULL;
    pthread_t thread;
    (void)alarm(MOST_S);
    use_device();
    CUdeviceptr first = take(&taken);
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    MUST(cuLaunchHostFunc(stream, until_released, NULL));
    MUST(pthread_create(&thread, NULL, close_it, &first));
    nap_ms(hold_ms);
    CUdeviceptr second = take(&taken);
    (void)release(NULL);
    MUST(pthread_join(thread, NULL));
    EXPECT(holds(second, taken.bytes, taken.value));
    MUST(cuIpcCloseMemHandle(second));
    EXPECT(cuIpcCloseMemHandle(first) == CUDA_ERROR_INVALID_VALUE);
    say_go();
}

static const struct pair scenarios[] = {
    {"plain", plain_owner, plain_opener},    {"apart", apart_owner, apart_opener},
    {"freed", freed_owner, freed_opener},    {"killed", killed_owner, killed_opener},
    {"gone", gone_owner, gone_opener},       {"many", many_owner, many_opener},
    {"moving", moving_owner, moving_opener}, {"quiet", quiet_owner, quiet_opener},
    {"closed", closed_owner, closed_opener}, {"busy", busy_owner, busy_opener}};

int main(int argc, char **argv)
{
    return run_pair(scenarios, sizeof scenarios / sizeof scenarios[0], argc, argv);
}
