/* SPDX-License-Identifier: Apache-2.0 */
/* Moving and reducing bytes between the ranks of a communicator. */
#include "nccl_double.h"

#include <stdlib.h>
#include <string.h>

typedef void (*reduce_fn)(void *out, const void *const *in, int nranks, size_t count,
                          const simnccl_op_t *op);

static float half_to_float(uint16_t bits)
{
    uint32_t sign = (uint32_t)(bits & 0x8000U) << 16;
    uint32_t exponent = (bits >> 10) & 0x1fU;
    uint32_t fraction = bits & 0x3ffU;
    uint32_t wide = 0;
    if (exponent == 0x1f) {
        wide = sign | 0x7f800000U | (fraction << 13);
    } else if (exponent != 0) {
        wide = sign | ((exponent + 112) << 23) | (fraction << 13);
    } else {
        float tiny = (float)fraction * 0x1p-24F;
        return sign ? -tiny : tiny;
    }
    float value = 0;
    memcpy(&value, &wide, sizeof(value));
    return value;
}

/* Rounds half to even, like the device's conversions. */
static uint16_t float_to_half(float value)
{
    uint32_t wide = 0;
    memcpy(&wide, &value, sizeof(wide));
    uint16_t sign = (uint16_t)((wide >> 16) & 0x8000U);
    uint32_t magnitude = wide & 0x7fffffffU;
    if (magnitude > 0x7f800000U) {
        return sign | 0x7e00U;
    }
    if (magnitude >= 0x47800000U) {
        return sign | 0x7c00U;
    }
    if (magnitude < 0x38800000U) {
        float shifted = 0;
        memcpy(&shifted, &magnitude, sizeof(shifted));
        /* Adding 0.5 leaves exactly the ten fraction bits of a subnormal half, rounded. */
        shifted += 0.5F;
        memcpy(&wide, &shifted, sizeof(wide));
        return sign | (uint16_t)(wide - 0x3f000000U);
    }
    magnitude += 0xfffU + ((magnitude >> 13) & 1U);
    return sign | (uint16_t)((magnitude - 0x38000000U) >> 13);
}

static float bfloat_to_float(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float value = 0;
    memcpy(&value, &wide, sizeof(value));
    return value;
}

static uint16_t float_to_bfloat(float value)
{
    uint32_t wide = 0;
    memcpy(&wide, &value, sizeof(wide));
    if ((wide & 0x7fffffffU) > 0x7f800000U) {
        return (uint16_t)((wide >> 16) | 0x40U);
    }
    return (uint16_t)((wide + 0x7fffU + ((wide >> 16) & 1U)) >> 16);
}

#define SAME(x) (x)

/* One reduction for an element type: `stored` in memory, `wide` during the computation. */
#define DEFINE_REDUCE(name, stored, wide, widen, narrow)                                     \
    static wide name##_contribution(const void *in, size_t i, const simnccl_op_t *op)        \
    {                                                                                        \
        wide value = widen(((const stored *)in)[i]);                                         \
        return op->scaled ? (wide)((double)value * op->scale) : value;                       \
    }                                                                                        \
    static wide name##_combine(wide a, wide b, int op)                                       \
    {                                                                                        \
        switch (op) {                                                                        \
        case ncclProd:                                                                       \
            return a * b;                                                                    \
        case ncclMax:                                                                        \
            return a > b ? a : b;                                                            \
        case ncclMin:                                                                        \
            return a < b ? a : b;                                                            \
        default:                                                                             \
            return a + b;                                                                    \
        }                                                                                    \
    }                                                                                        \
    static void name(void *out, const void *const *in, int nranks, size_t count,             \
                     const simnccl_op_t *op)                                                 \
    {                                                                                        \
        for (size_t i = 0; i < count; i++) {                                                 \
            wide total = name##_contribution(in[0], i, op);                                  \
            for (int rank = 1; rank < nranks; rank++) {                                      \
                total = name##_combine(total, name##_contribution(in[rank], i, op), op->op); \
            }                                                                                \
            if (op->op == ncclAvg) {                                                         \
                total = total / (wide)nranks;                                                \
            }                                                                                \
            ((stored *)out)[i] = narrow(total);                                              \
        }                                                                                    \
    }

/* NOLINTNEXTLINE(bugprone-signed-char-misuse): the sign is meant */
DEFINE_REDUCE(reduce_int8, int8_t, int32_t, SAME, (int8_t))
DEFINE_REDUCE(reduce_uint8, uint8_t, int32_t, SAME, (uint8_t))
DEFINE_REDUCE(reduce_int32, int32_t, int64_t, SAME, (int32_t))
DEFINE_REDUCE(reduce_uint32, uint32_t, uint64_t, SAME, (uint32_t))
DEFINE_REDUCE(reduce_int64, int64_t, int64_t, SAME, SAME)
DEFINE_REDUCE(reduce_uint64, uint64_t, uint64_t, SAME, SAME)
DEFINE_REDUCE(reduce_half, uint16_t, float, half_to_float, float_to_half)
DEFINE_REDUCE(reduce_float, float, float, SAME, SAME)
DEFINE_REDUCE(reduce_double, double, double, SAME, SAME)
DEFINE_REDUCE(reduce_bfloat, uint16_t, float, bfloat_to_float, float_to_bfloat)

/* The 8-bit floats can be sent, but not reduced: NCCL itself refuses that below compute capability
 * 9.0, and the simulated GPU has 8.9. */
static const struct {
    size_t bytes;
    reduce_fn reduce;
} types[ncclNumTypes] = {
    [ncclInt8] = {1, reduce_int8},      [ncclUint8] = {1, reduce_uint8},
    [ncclInt32] = {4, reduce_int32},    [ncclUint32] = {4, reduce_uint32},
    [ncclInt64] = {8, reduce_int64},    [ncclUint64] = {8, reduce_uint64},
    [ncclFloat16] = {2, reduce_half},   [ncclFloat32] = {4, reduce_float},
    [ncclFloat64] = {8, reduce_double}, [ncclBfloat16] = {2, reduce_bfloat},
    [ncclFloat8e4m3] = {1, NULL},       [ncclFloat8e5m2] = {1, NULL},
};

size_t simnccl_type_bytes(ncclDataType_t type)
{
    return (unsigned)type < ncclNumTypes ? types[type].bytes : 0;
}

bool simnccl_can_reduce(ncclDataType_t type)
{
    return (unsigned)type < ncclNumTypes && types[type].reduce;
}

double simnccl_read_scalar(const void *at, ncclDataType_t type)
{
    switch (type) {
    case ncclInt8:
        return *(const int8_t *)at;
    case ncclUint8:
        return *(const uint8_t *)at;
    case ncclInt32:
        return *(const int32_t *)at;
    case ncclUint32:
        return *(const uint32_t *)at;
    case ncclInt64:
        return (double)*(const int64_t *)at;
    case ncclUint64:
        return (double)*(const uint64_t *)at;
    case ncclFloat16:
        return half_to_float(*(const uint16_t *)at);
    case ncclFloat32:
        return *(const float *)at;
    case ncclFloat64:
        return *(const double *)at;
    case ncclBfloat16:
        return bfloat_to_float(*(const uint16_t *)at);
    default:
        return 1;
    }
}

void simnccl_reduce(void *out, const void *const *in, int nranks, size_t count,
                    const simnccl_op_t *op)
{
    simnccl_note_write(out, count * op->element_bytes);
    types[op->type].reduce(out, in, nranks, count, op);
}

static bool contents_are_off(void)
{
    const char *contents = getenv("SIMGPU_CONTENTS");
    return contents && strcmp(contents, "none") == 0;
}

bool simnccl_is_moved(const simnccl_op_t *op)
{
    return op->count * simnccl_type_bytes(op->type) <= SIMNCCL_SMALL_BYTES || !contents_are_off();
}

bool simnccl_may_be_object(const simnccl_op_t *op)
{
    return !simnccl_is_moved(op) && simnccl_type_bytes(op->type) == 1 &&
           op->kind != SIMNCCL_ALL_REDUCE && op->kind != SIMNCCL_REDUCE &&
           op->kind != SIMNCCL_REDUCE_SCATTER;
}

/* Whether one of the sending ranks knows what it sends. A rank sets that before it comes to the
 * barrier, and does not change it before the next one. */
static bool is_known_to_a_sender(ncclComm_t comm, const simnccl_op_t *op)
{
    const bool has_root = op->kind == SIMNCCL_BROADCAST || op->kind == SIMNCCL_SCATTER;
    simnccl_head_t *head = comm->region.head;
    atomic_store(&head->knows[comm->rank], op->knows);
    if (!simnccl_barrier(&head->stream_barrier, comm->nranks, &comm->aborted)) {
        return false;
    }
    for (int rank = 0; rank < comm->nranks; rank++) {
        if ((!has_root || rank == op->peer) && atomic_load(&head->knows[rank])) {
            return true;
        }
    }
    return false;
}

/* How many elements of a collective are moved. */
static size_t moved_count(ncclComm_t comm, const simnccl_op_t *op)
{
    bool moved = simnccl_is_moved(op);
    if (!moved && simnccl_may_be_object(op)) {
        moved = comm->alone ? op->knows : is_known_to_a_sender(comm, op);
        if (!moved && op->kind == SIMNCCL_BROADCAST) {
            simnccl_note_lost(op->recv, op->count); /* of bytes */
        }
    }
    return moved ? op->count : 0;
}

/* What one round of a collective moves: elements [first, first + count) of every part. */
typedef struct {
    const simnccl_op_t *op;
    size_t first;
    size_t count;
    size_t element_bytes;
    size_t stride_bytes; /* between parts in the caller's buffers */
} round_t;

static void publish(const struct ncclComm *comm, const round_t *round)
{
    const simnccl_op_t *op = round->op;
    char *slot = simnccl_region_slot(&comm->region, comm->rank);
    const char *from = op->send + round->first * round->element_bytes;
    size_t bytes = round->count * round->element_bytes;
    switch (op->kind) {
    case SIMNCCL_BROADCAST:
        if (comm->rank == op->peer) {
            memcpy(slot, from, bytes);
        }
        break;
    case SIMNCCL_SCATTER:
        if (comm->rank != op->peer) {
            break;
        }
        /* fallthrough */
    case SIMNCCL_REDUCE_SCATTER:
    case SIMNCCL_ALL_TO_ALL:
        for (int part = 0; part < comm->nranks; part++) {
            memcpy(slot + (size_t)part * bytes, from + (size_t)part * round->stride_bytes, bytes);
        }
        break;
    default:
        memcpy(slot, from, bytes);
        break;
    }
}

/* Reduces the part at `offset_bytes` of every rank's slot. */
static void reduce_slots(const struct ncclComm *comm, const round_t *round, size_t offset_bytes)
{
    const void *in[SIMNCCL_MAX_RANKS];
    for (int rank = 0; rank < comm->nranks; rank++) {
        in[rank] = simnccl_region_slot(&comm->region, rank) + offset_bytes;
    }
    char *to = round->op->recv + round->first * round->element_bytes;
    simnccl_reduce(to, in, comm->nranks, round->count, round->op);
}

static void receive(void *to, const void *from, size_t bytes)
{
    simnccl_note_write(to, bytes);
    memcpy(to, from, bytes);
}

static void collect(const struct ncclComm *comm, const round_t *round)
{
    const simnccl_op_t *op = round->op;
    size_t bytes = round->count * round->element_bytes;
    size_t my_part = (size_t)comm->rank * bytes;
    char *to = op->recv + round->first * round->element_bytes;
    bool root = comm->rank == op->peer;
    switch (op->kind) {
    case SIMNCCL_ALL_REDUCE:
        reduce_slots(comm, round, 0);
        break;
    case SIMNCCL_REDUCE:
        if (root) {
            reduce_slots(comm, round, 0);
        }
        break;
    case SIMNCCL_REDUCE_SCATTER:
        reduce_slots(comm, round, my_part);
        break;
    case SIMNCCL_BROADCAST:
        receive(to, simnccl_region_slot(&comm->region, op->peer), bytes);
        break;
    case SIMNCCL_SCATTER:
        receive(to, simnccl_region_slot(&comm->region, op->peer) + my_part, bytes);
        break;
    default: /* all_gather, gather and all_to_all take a part from every rank */
        if (op->kind == SIMNCCL_GATHER && !root) {
            break;
        }
        for (int rank = 0; rank < comm->nranks; rank++) {
            const char *slot = simnccl_region_slot(&comm->region, rank);
            receive(to + (size_t)rank * round->stride_bytes,
                    slot + (op->kind == SIMNCCL_ALL_TO_ALL ? my_part : 0), bytes);
        }
        break;
    }
}

static bool has_parts_in_slot(simnccl_kind_t kind)
{
    return kind == SIMNCCL_REDUCE_SCATTER || kind == SIMNCCL_ALL_TO_ALL || kind == SIMNCCL_SCATTER;
}

/* False: aborted. */
static bool run_collective(ncclComm_t comm, const simnccl_op_t *op)
{
    if (comm->alone) {
        simnccl_run_alone(comm, op, moved_count(comm, op));
        return true;
    }
    simnccl_barrier_t *barrier = &comm->region.head->stream_barrier;
    size_t count = moved_count(comm, op);
    round_t round = {.op = op, .element_bytes = op->element_bytes};
    round.stride_bytes = op->count * round.element_bytes;
    size_t most = SIMNCCL_SLOT_BYTES / round.element_bytes;
    if (has_parts_in_slot(op->kind)) {
        most /= (size_t)comm->nranks;
    }
    do {
        round.count = count - round.first < most ? count - round.first : most;
        if (round.count > 0) {
            publish(comm, &round);
        }
        if (!simnccl_barrier(barrier, comm->nranks, &comm->aborted)) {
            return false;
        }
        if (round.count > 0) {
            collect(comm, &round);
        }
        /* Nobody may write the next round's bytes before all ranks have read this round's. */
        if (!simnccl_barrier(barrier, comm->nranks, &comm->aborted)) {
            return false;
        }
        round.first += round.count;
    } while (round.first < count);
    return true;
}

/* A send or recv in progress. */
typedef struct {
    const simnccl_op_t *op;
    size_t bytes;
    size_t done_bytes;
    bool finished;
    bool lost; /* of a sender: it only signals that nothing comes */
} transfer_t;

/* Messages of a pair of ranks arrive in the order in which they were posted. */
static bool is_behind_another(const transfer_t *transfers, size_t index)
{
    for (size_t i = 0; i < index; i++) {
        if (!transfers[i].finished && transfers[i].op->kind == transfers[index].op->kind &&
            transfers[i].op->peer == transfers[index].op->peer) {
            return true;
        }
    }
    return false;
}

/* Moves one message if the window allows; true when it did. */
static bool step(const struct ncclComm *comm, transfer_t *transfer)
{
    bool sends = transfer->op->kind == SIMNCCL_SEND;
    int from = sends ? comm->rank : transfer->op->peer;
    int to = sends ? transfer->op->peer : comm->rank;
    simnccl_head_t *head = comm->region.head;
    simnccl_mail_t *mail = &head->mail[from][to];
    bool full = atomic_load(&mail->filled) != atomic_load(&mail->drained);
    if (full == sends) {
        return false;
    }
    if (sends) {
        atomic_store(&mail->lost, transfer->lost);
    } else if (atomic_load(&mail->lost)) {
        simnccl_note_lost(transfer->op->recv, transfer->bytes);
        transfer->lost = true;
    }
    if (transfer->lost) {
        transfer->bytes = 0;
    }
    char *window = simnccl_region_mailbox(&comm->region, comm->nranks, from, to);
    size_t bytes = transfer->bytes - transfer->done_bytes;
    bytes = bytes < SIMNCCL_MAIL_BYTES ? bytes : SIMNCCL_MAIL_BYTES;
    if (bytes > 0) {
        if (sends) {
            memcpy(window, transfer->op->send + transfer->done_bytes, bytes);
        } else {
            receive(transfer->op->recv + transfer->done_bytes, window, bytes);
        }
    }
    atomic_fetch_add(sends ? &mail->filled : &mail->drained, 1);
    atomic_fetch_add(&head->mail_events, 1);
    simnccl_wake_word(&head->mail_events);
    transfer->done_bytes += bytes;
    transfer->finished = transfer->done_bytes == transfer->bytes;
    return true;
}

static void run_transfers(ncclComm_t comm, transfer_t *transfers, size_t count)
{
    size_t open_count = count;
    while (open_count > 0 && !atomic_load(&comm->aborted)) {
        uint32_t seen = atomic_load(&comm->region.head->mail_events);
        bool moved = false;
        for (size_t i = 0; i < count; i++) {
            if (transfers[i].finished || is_behind_another(transfers, i) ||
                !step(comm, &transfers[i])) {
                continue;
            }
            moved = true;
            open_count -= transfers[i].finished;
        }
        if (!moved) {
            simnccl_wait_word(&comm->region.head->mail_events, seen);
        }
    }
}

void simnccl_run(ncclComm_t comm, const simnccl_op_t *ops, size_t count)
{
    transfer_t *transfers = calloc(count, sizeof(*transfers));
    if (!transfers) {
        atomic_store(&comm->aborted, 1);
        return;
    }
    size_t transfer_count = 0;
    for (size_t i = 0; i < count; i++) {
        if (ops[i].kind == SIMNCCL_SEND || ops[i].kind == SIMNCCL_RECV) {
            bool may_be_object = simnccl_may_be_object(&ops[i]);
            bool moved = simnccl_is_moved(&ops[i]) || may_be_object;
            transfers[transfer_count++] = (transfer_t){
                .op = &ops[i],
                .bytes = moved ? ops[i].count * ops[i].element_bytes : 0,
                .lost = may_be_object && ops[i].kind == SIMNCCL_SEND && !ops[i].knows,
            };
        } else if (!run_collective(comm, &ops[i])) {
            break;
        }
    }
    run_transfers(comm, transfers, transfer_count);
    free(transfers);
}
