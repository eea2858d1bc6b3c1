/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL's double, with threads as ranks and a driver that runs each host function in a thread of its
 * own. The tests compare what arrives with the definition of the operation. */
#include "nccl_double.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The public functions that are called here; the double itself has no header. */
ncclResult_t ncclGetUniqueId(ncclUniqueId *id);
ncclResult_t ncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank);
ncclResult_t ncclCommInitAll(ncclComm_t *comms, int count, const int *devices);
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *result,
                           const void *config);
ncclResult_t ncclCommShrink(ncclComm_t comm, const int *excluded, int excluded_count,
                            ncclComm_t *result, const void *config, int flags);
ncclResult_t ncclCommDestroy(ncclComm_t comm);
ncclResult_t ncclCommAbort(ncclComm_t comm);
ncclResult_t ncclCommCount(ncclComm_t comm, int *count);
ncclResult_t ncclCommUserRank(ncclComm_t comm, int *rank);
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);
ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, CUstream stream);
ncclResult_t ncclReduce(const void *send, void *recv, size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, CUstream stream);
ncclResult_t ncclReduceScatter(const void *send, void *recv, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, CUstream stream);
ncclResult_t ncclBroadcast(const void *send, void *recv, size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, CUstream stream);
ncclResult_t ncclAllGather(const void *send, void *recv, size_t count, ncclDataType_t type,
                           ncclComm_t comm, CUstream stream);
ncclResult_t ncclAlltoAll(const void *send, void *recv, size_t count, ncclDataType_t type,
                          ncclComm_t comm, CUstream stream);
ncclResult_t ncclGather(const void *send, void *recv, size_t count, ncclDataType_t type, int root,
                        ncclComm_t comm, CUstream stream);
ncclResult_t ncclScatter(const void *send, void *recv, size_t count, ncclDataType_t type, int root,
                         ncclComm_t comm, CUstream stream);
ncclResult_t ncclSend(const void *send, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, CUstream stream);
ncclResult_t ncclRecv(void *recv, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      CUstream stream);
ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t *op, void *scalar, ncclDataType_t type,
                                      ncclScalarResidence_t residence, ncclComm_t comm);
ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm);

/* ---- a driver for the double: each rank's thread has a list of its queued functions ---- */

enum { MAX_QUEUED = 256 };

typedef struct {
    CUhostFn function;
    void *argument;
} queued_t;

static _Thread_local pthread_t queued_threads[MAX_QUEUED];
static _Thread_local int queued_count;

static void *run_queued(void *argument)
{
    queued_t queued = *(queued_t *)argument;
    free(argument);
    queued.function(queued.argument);
    return NULL;
}

CUresult simnccl_launch_host(CUstream stream, CUhostFn function, void *argument)
{
    (void)stream;
    queued_t *queued = malloc(sizeof(*queued));
    cr_assert(queued && queued_count < MAX_QUEUED);
    *queued = (queued_t){function, argument};
    pthread_create(&queued_threads[queued_count++], NULL, run_queued, queued);
    return CUDA_SUCCESS;
}

CUresult simnccl_current_device(CUdevice *device)
{
    *device = 0;
    return CUDA_SUCCESS;
}

CUresult simnccl_device_context(CUcontext *context, CUdevice device)
{
    (void)device;
    *context = NULL;
    return CUDA_SUCCESS;
}

CUresult simnccl_enter(CUcontext context, CUcontext *before)
{
    (void)context;
    if (before) {
        *before = NULL;
    }
    return CUDA_SUCCESS;
}

static _Thread_local size_t taken_bytes; /* of the device, by this rank */

CUresult simnccl_device_alloc(CUdeviceptr *at, size_t bytes, CUdevice device)
{
    (void)device;
    taken_bytes += bytes;
    *at = 4096;
    return CUDA_SUCCESS;
}

CUresult simnccl_device_free(CUdeviceptr at)
{
    (void)at;
    return CUDA_SUCCESS;
}

bool simnccl_is_capturing(CUstream stream)
{
    (void)stream;
    return false;
}

void simnccl_note_write(const void *at, size_t bytes)
{
    (void)at;
    (void)bytes;
}

void simnccl_note_carried(const void *at, size_t bytes, const void *from, size_t from_bytes)
{
    (void)at, (void)bytes, (void)from, (void)from_bytes;
}

void simnccl_note_lost(const void *at, size_t bytes)
{
    (void)at, (void)bytes;
}

static bool knows_what_it_sends = true;

bool simnccl_is_known(const void *at, size_t bytes)
{
    (void)at, (void)bytes;
    return knows_what_it_sends;
}

static void synchronize(void)
{
    for (int i = 0; i < queued_count; i++) {
        pthread_join(queued_threads[i], NULL);
    }
    queued_count = 0;
}

/* ---- ranks as threads ---- */

enum { RANKS = 3 };

typedef struct {
    ncclUniqueId id;
    int rank;
    void (*body)(ncclComm_t comm, int rank);
} rank_t;

static void *rank_main(void *argument)
{
    const rank_t *rank = argument;
    ncclComm_t comm = NULL;
    cr_assert_eq(ncclCommInitRank(&comm, RANKS, rank->id, rank->rank), ncclSuccess);
    rank->body(comm, rank->rank);
    synchronize();
    ncclCommDestroy(comm);
    return NULL;
}

static void on_all_ranks(void (*body)(ncclComm_t comm, int rank))
{
    rank_t ranks[RANKS];
    pthread_t threads[RANKS];
    ncclUniqueId id;
    cr_assert_eq(ncclGetUniqueId(&id), ncclSuccess);
    for (int i = 0; i < RANKS; i++) {
        ranks[i] = (rank_t){id, i, body};
        pthread_create(&threads[i], NULL, rank_main, &ranks[i]);
    }
    for (int i = 0; i < RANKS; i++) {
        pthread_join(threads[i], NULL);
    }
}

static void clear_settings(void)
{
    unsetenv("SIMGPU_SHARED");
    unsetenv("SIMGPU_CONTENTS");
    unsetenv("SIMGPU_NCCL");
    /* So that a rank that waits forever fails the test instead of stopping all others. */
    alarm(60);
}

TestSuite(nccl, .init = clear_settings);

/* ---- collectives ---- */

static void reduce_whole_numbers(ncclComm_t comm, int rank)
{
    /* Ranks bring 2, 3, 4; enough elements for several rounds. */
    enum { COUNT = 700000 };
    static const struct {
        ncclRedOp_t op;
        int expected;
    } cases[] = {{ncclSum, 9}, {ncclProd, 24}, {ncclMax, 4}, {ncclMin, 2}, {ncclAvg, 3}};
    int *values = malloc(COUNT * sizeof(*values));
    for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
        for (int i = 0; i < COUNT; i++) {
            values[i] = rank + 2;
        }
        cr_assert_eq(ncclAllReduce(values, values, COUNT, ncclInt32, cases[c].op, comm, NULL),
                     ncclSuccess);
        synchronize();
        for (int i = 0; i < COUNT; i++) {
            cr_assert_eq(values[i], cases[c].expected, "operation %d, element %d: %d",
                         (int)cases[c].op, i, values[i]);
        }
    }
    free(values);
}

Test(nccl, all_reduce_in_place)
{
    on_all_ranks(reduce_whole_numbers);
}

static void reduce_all_types(ncclComm_t comm, int rank)
{
    (void)rank;
    /* 1.5 on each rank, or 1 for whole numbers; the sum of three as the type stores it. */
    static const struct {
        ncclDataType_t type;
        unsigned char one[8], sum[8];
    } cases[] = {
        {ncclInt8, {1}, {3}},
        {ncclUint8, {200}, {88}}, /* 600 modulo 256 */
        {ncclInt32, {1}, {3}},
        {ncclUint32, {1}, {3}},
        {ncclInt64, {0, 1}, {0, 3}},
        {ncclUint64, {0, 1}, {0, 3}},
        {ncclFloat16, {0x00, 0x3e}, {0x80, 0x44}},
        {ncclBfloat16, {0xc0, 0x3f}, {0x90, 0x40}},
        {ncclFloat32, {0, 0, 0xc0, 0x3f}, {0, 0, 0x90, 0x40}},
        {ncclFloat64, {0, 0, 0, 0, 0, 0, 0xf8, 0x3f}, {0, 0, 0, 0, 0, 0, 0x12, 0x40}},
    };
    for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
        unsigned char out[8] = {0};
        cr_assert_eq(ncclAllReduce(cases[c].one, out, 1, cases[c].type, ncclSum, comm, NULL),
                     ncclSuccess);
        synchronize();
        cr_assert_arr_eq(out, cases[c].sum, 8, "type %d", (int)cases[c].type);
    }
    unsigned char byte = 0;
    cr_assert_eq(ncclAllReduce(&byte, &byte, 1, ncclFloat8e4m3, ncclSum, comm, NULL),
                 ncclInvalidArgument);
}

Test(nccl, all_types_are_reduced)
{
    on_all_ranks(reduce_all_types);
}

static void round_halves(ncclComm_t comm, int rank)
{
    /* Only rank 0 contributes, times one, so that what was stored must come back. Smallest
     * subnormal, largest subnormal, smallest normal, one, largest, infinity. */
    static const uint16_t halves[] = {0x0001, 0x03ff, 0x0400, 0x3c00, 0x7bff, 0x7c00, 0x8001};
    enum { COUNT = sizeof(halves) / sizeof(halves[0]) };
    uint16_t values[COUNT] = {0};
    if (rank == 0) {
        memcpy(values, halves, sizeof(halves));
    }
    cr_assert_eq(ncclAllReduce(values, values, COUNT, ncclFloat16, ncclSum, comm, NULL),
                 ncclSuccess);
    synchronize();
    cr_assert_arr_eq(values, halves, sizeof(halves));

    /* 2049 lies between the halves 2048 and 2050 and rounds to the even one; 2051 rounds to
     * 2052. */
    static const uint16_t parts[RANKS][2] = {{0x6800, 0x6801}, {0x3c00, 0x3c00}, {0, 0}};
    uint16_t sums[2];
    cr_assert_eq(ncclAllReduce(parts[rank], sums, 2, ncclFloat16, ncclSum, comm, NULL),
                 ncclSuccess);
    synchronize();
    cr_assert_eq(sums[0], 0x6800);
    cr_assert_eq(sums[1], 0x6802);
}

Test(nccl, halves_round_to_even)
{
    on_all_ranks(round_halves);
}

static void scaled_sum(ncclComm_t comm, int rank)
{
    float factor = 0.5F;
    float value = (float)(rank + 1);
    ncclRedOp_t op = ncclSum;
    cr_assert_eq(ncclRedOpCreatePreMulSum(&op, &factor, ncclFloat32, ncclScalarHostImmediate, comm),
                 ncclSuccess);
    cr_assert_eq(ncclAllReduce(&value, &value, 1, ncclFloat32, op, comm, NULL), ncclSuccess);
    /* PyTorch drops the operation as soon as it has been queued. */
    cr_assert_eq(ncclRedOpDestroy(op, comm), ncclSuccess);
    synchronize();
    cr_assert_float_eq(value, 3.0F, 1e-6);
    cr_assert_eq(ncclAllReduce(&value, &value, 1, ncclFloat32, op, comm, NULL),
                 ncclInvalidArgument);
}

Test(nccl, premultiplied_sum)
{
    on_all_ranks(scaled_sum);
}

static void move_parts(ncclComm_t comm, int rank)
{
    enum { PART = 400000, ROOT = 1 };
    int *whole = calloc((size_t)RANKS * PART, sizeof(*whole));
    int *part = calloc(PART, sizeof(*part));

    for (int i = 0; i < PART; i++) {
        whole[rank * PART + i] = 10 * rank + i;
    }
    ncclAllGather(whole + (size_t)rank * PART, whole, PART, ncclInt32, comm, NULL);
    synchronize();
    for (int i = 0; i < RANKS * PART; i++) {
        cr_assert_eq(whole[i], 10 * (i / PART) + i % PART, "all_gather in place, element %d", i);
    }

    ncclReduceScatter(whole, part, PART, ncclInt32, ncclSum, comm, NULL);
    synchronize();
    for (int i = 0; i < PART; i++) {
        cr_assert_eq(part[i], RANKS * (10 * rank + i), "reduce_scatter, element %d", i);
    }

    int *other = calloc((size_t)RANKS * PART, sizeof(*other));
    for (int i = 0; i < RANKS * PART; i++) {
        whole[i] = 1000 * rank + i / PART;
    }
    ncclAlltoAll(whole, other, PART, ncclInt32, comm, NULL);
    synchronize();
    for (int i = 0; i < RANKS * PART; i++) {
        cr_assert_eq(other[i], 1000 * (i / PART) + rank, "all_to_all, element %d", i);
    }

    ncclScatter(whole, part, PART, ncclInt32, ROOT, comm, NULL);
    synchronize();
    cr_assert_eq(part[0], 1000 * ROOT + rank);
    cr_assert_eq(part[PART - 1], 1000 * ROOT + rank);

    ncclGather(part, other, PART, ncclInt32, ROOT, comm, NULL);
    synchronize();
    for (int i = 0; rank == ROOT && i < RANKS * PART; i++) {
        cr_assert_eq(other[i], 1000 * ROOT + i / PART, "gather, element %d", i);
    }

    part[0] = 7 + rank;
    ncclBroadcast(part, part, PART, ncclInt32, 2, comm, NULL);
    ncclReduce(part, other, 1, ncclInt32, ncclSum, ROOT, comm, NULL);
    synchronize();
    cr_assert_eq(part[0], 9);
    cr_assert(rank != ROOT || other[0] == 27);
    free(other);
    free(part);
    free(whole);
}

Test(nccl, parts_arrive_where_they_belong)
{
    on_all_ranks(move_parts);
}

static void order_of_operations(ncclComm_t comm, int rank)
{
    /* Each host function has a thread of its own here, as if on as many streams. */
    enum { COUNT = 100 };
    int values[COUNT];
    for (int i = 0; i < COUNT; i++) {
        values[i] = i * (rank + 1);
        ncclAllReduce(&values[i], &values[i], 1, ncclInt32, ncclSum, comm, NULL);
    }
    synchronize();
    for (int i = 0; i < COUNT; i++) {
        cr_assert_eq(values[i], 6 * i);
    }
}

Test(nccl, operations_run_in_the_order_queued)
{
    on_all_ranks(order_of_operations);
}

/* ---- sends, receives and groups ---- */

static void exchange(ncclComm_t comm, int rank)
{
    /* Everybody sends two messages to everybody, including itself; the first takes several
     * windows. */
    enum { LONG = 50000 };
    int *out = malloc(LONG * sizeof(*out));
    int(*in)[LONG] = malloc(RANKS * sizeof(*in));
    int shorts[RANKS];
    int mine = rank;
    for (int i = 0; i < LONG; i++) {
        out[i] = 100000 * rank + i;
    }
    ncclGroupStart();
    for (int peer = 0; peer < RANKS; peer++) {
        ncclSend(out, LONG, ncclInt32, peer, comm, NULL);
        ncclSend(&mine, 1, ncclInt32, peer, comm, NULL);
        ncclRecv(in[peer], LONG, ncclInt32, peer, comm, NULL);
        ncclRecv(&shorts[peer], 1, ncclInt32, peer, comm, NULL);
    }
    cr_assert_eq(ncclGroupEnd(), ncclSuccess);
    synchronize();
    for (int peer = 0; peer < RANKS; peer++) {
        cr_assert_eq(shorts[peer], peer);
        for (int i = 0; i < LONG; i++) {
            cr_assert_eq(in[peer][i], 100000 * peer + i);
        }
    }
    free(in);
    free(out);
}

Test(nccl, sends_and_receives_of_a_group_run_at_once)
{
    on_all_ranks(exchange);
}

static void one_way(ncclComm_t comm, int rank)
{
    long value = 41 + rank;
    if (rank > 0) {
        ncclRecv(&value, 1, ncclInt64, rank - 1, comm, NULL);
        synchronize();
        value++;
    }
    if (rank + 1 < RANKS) {
        ncclSend(&value, 1, ncclInt64, rank + 1, comm, NULL);
    }
    synchronize();
    cr_assert_eq(value, 41 + rank);
}

Test(nccl, a_chain_of_sends_without_groups)
{
    on_all_ranks(one_way);
}

Test(nccl, one_thread_holds_all_ranks)
{
    ncclComm_t comms[RANKS];
    int values[RANKS] = {1, 2, 3};
    cr_assert_eq(ncclCommInitAll(comms, RANKS, NULL), ncclSuccess);
    ncclGroupStart();
    for (int i = 0; i < RANKS; i++) {
        ncclAllReduce(&values[i], &values[i], 1, ncclInt32, ncclSum, comms[i], NULL);
    }
    cr_assert_eq(ncclGroupEnd(), ncclSuccess);
    synchronize();
    for (int i = 0; i < RANKS; i++) {
        cr_assert_eq(values[i], 6);
        ncclCommDestroy(comms[i]);
    }
}

/* ---- children, aborts, contents ---- */

static void split(ncclComm_t comm, int rank)
{
    /* Ranks 0 and 2 together, in reverse order, without rank 1; twice, because the names must
     * differ. */
    for (int round = 0; round < 2; round++) {
        ncclComm_t child = NULL;
        cr_assert_eq(ncclCommSplit(comm, rank == 1 ? NCCL_SPLIT_NOCOLOR : 5, -rank, &child, NULL),
                     ncclSuccess);
        if (rank == 1) {
            cr_assert_null(child);
            continue;
        }
        int count = 0;
        int child_rank = -1;
        ncclCommCount(child, &count);
        ncclCommUserRank(child, &child_rank);
        cr_assert_eq(count, 2);
        cr_assert_eq(child_rank, rank == 0);
        int value = 10 + rank;
        ncclBroadcast(&value, &value, 1, ncclInt32, 0, child, NULL);
        synchronize();
        cr_assert_eq(value, 12);
        ncclCommDestroy(child);
    }
}

Test(nccl, split)
{
    on_all_ranks(split);
}

static void shrink(ncclComm_t comm, int rank)
{
    static const int excluded[] = {0};
    if (rank == 0) {
        return;
    }
    ncclComm_t child = NULL;
    cr_assert_eq(ncclCommShrink(comm, excluded, 1, &child, NULL, 0), ncclSuccess);
    int value = rank;
    ncclAllReduce(&value, &value, 1, ncclInt32, ncclSum, child, NULL);
    synchronize();
    cr_assert_eq(value, 3);
    ncclCommDestroy(child);
}

Test(nccl, shrink)
{
    on_all_ranks(shrink);
}

static void abort_alone(ncclComm_t comm, int rank)
{
    if (rank != 0) {
        return;
    }
    int value = 1;
    ncclAllReduce(&value, &value, 1, ncclInt32, ncclSum, comm, NULL);
    /* The others never come. on_all_ranks destroys this communicator, so the test can observe only
     * that the operation ends. */
    atomic_store(&comm->aborted, 1);
    synchronize();
    cr_assert_eq(value, 1);
}

Test(nccl, an_abort_ends_operations_that_wait)
{
    on_all_ranks(abort_alone);
}

static void without_contents(ncclComm_t comm, int rank)
{
    enum { SMALL = SIMNCCL_SMALL_BYTES / sizeof(int), LARGE = SMALL + 1 };
    static int values[RANKS][LARGE];
    values[rank][0] = rank + 1;
    ncclAllReduce(values[rank], values[rank], LARGE, ncclInt32, ncclSum, comm, NULL);
    synchronize();
    cr_assert_eq(values[rank][0], rank + 1, "a large operation moved its bytes");
    ncclAllReduce(values[rank], values[rank], SMALL, ncclInt32, ncclSum, comm, NULL);
    synchronize();
    cr_assert_eq(values[rank][0], 6, "a small operation did not move its bytes");
}

Test(nccl, contents_off_moves_small_messages_only)
{
    setenv("SIMGPU_CONTENTS", "none", 1);
    on_all_ranks(without_contents);
}

/* ---- memory of the device ---- */

#define EXPECT_MIB(mib) cr_assert_eq((int)(taken_bytes >> 20), mib, "%zu MiB", taken_bytes >> 20)

static void use_all_connections(ncclComm_t comm, int rank)
{
    static int parts[RANKS][RANKS];
    int value = rank;
    /* 24 channels are prepared as 32, with three pieces of 2 MiB each; 16 of NVLS; 3 more. */
    EXPECT_MIB(2 * (3 * 32 + 16 + 3));
    ncclBroadcast(&value, &value, 1, ncclInt32, 0, comm, NULL);
    EXPECT_MIB(230 + 24 * (10 + 2));
    ncclAllReduce(&value, &value, 1, ncclInt32, ncclSum, comm, NULL);
    /* A tree as large as the ring; NVLS: two buffers of 1 MiB for each channel and head. */
    EXPECT_MIB(230 + 2 * 288 + 2 * 16 * RANKS);
    ncclAllReduce(&value, &value, 1, ncclInt32, ncclSum, comm, NULL);
    EXPECT_MIB(902);
    ncclAlltoAll(parts[rank], parts[rank], 1, ncclInt32, comm, NULL);
    EXPECT_MIB(902 + 2 * 32 * (10 + 2));
}

Test(nccl, memory_is_the_cards)
{
    setenv("SIMGPU_NCCL", "24,16,32", 1);
    on_all_ranks(use_all_connections);
}

static void use_with_small_buffers(ncclComm_t comm, int rank)
{
    int value = rank;
    EXPECT_MIB(2 * (2 + 3 * 4));
    ncclAllReduce(&value, &value, 1, ncclInt32, ncclSum, comm, NULL);
    /* Simple with 1 MiB, LL and LL128 unchanged: 8 MiB of receive buffers. Ring and tree. */
    EXPECT_MIB(28 + 2 * 4 * (8 + 2));
}

Test(nccl, memory_follows_the_users_settings)
{
    setenv("SIMGPU_NCCL", "24,16,32", 1);
    setenv("NCCL_MAX_NCHANNELS", "4", 1);
    setenv("NCCL_NVLS_ENABLE", "0", 1);
    setenv("NCCL_BUFFSIZE", "1048576", 1);
    on_all_ranks(use_with_small_buffers);
}

static void use_the_host(ncclComm_t comm, int rank)
{
    int value = rank;
    ncclAllReduce(&value, &value, 1, ncclInt32, ncclSum, comm, NULL);
    EXPECT_MIB(2 * (2 + 3 * 2));
}

Test(nccl, cards_that_do_not_reach_each_other_have_buffers_on_the_host)
{
    setenv("SIMGPU_NCCL", "2,0,2,host", 1);
    on_all_ranks(use_the_host);
}

static void disagree(ncclComm_t comm, int rank)
{
    (void)comm;
    ncclComm_t other = NULL;
    ncclUniqueId forged = {"not an id"};
    cr_assert_eq(ncclCommInitRank(&other, RANKS, forged, rank), ncclInvalidArgument);
    cr_assert_eq(ncclCommInitRank(&other, RANKS, forged, RANKS), ncclInvalidArgument);
    int value = 0;
    cr_assert_eq(ncclSend(&value, 1, ncclInt32, RANKS, comm, NULL), ncclInvalidArgument);
    cr_assert_eq(ncclGroupEnd(), ncclInvalidUsage);
}

Test(nccl, bad_arguments_are_refused)
{
    on_all_ranks(disagree);
}
