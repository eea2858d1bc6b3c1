/* SPDX-License-Identifier: Apache-2.0 */
/* Records, against bytes that were worked out by hand from the description in encoding.h. */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <string.h>

#include "allocator/base/checksum.h"
#include "report/trace/encoding.h"
#include "synthetic.h"

static struct ms_codec encoder, decoder;

static bool is_equal(const struct ms_event *a, const struct ms_event *b)
{
    return a->kind == b->kind && a->device == b->device && a->owner == b->owner &&
           a->site == b->site && a->id == b->id && a->addr == b->addr && a->bytes == b->bytes &&
           a->stream == b->stream && a->aux == b->aux;
}

static void expect(const struct ms_event *event, uint64_t time_ns, const uint8_t *bytes,
                   size_t count)
{
    uint8_t out[MS_RECORD_MAX_BYTES];
    struct ms_event back;
    uint64_t back_ns;
    const size_t length = ms_encode(&encoder, event, time_ns, out);

    cr_assert_eq(length, count, "kind %d: %zu bytes", event->kind, length);
    cr_assert_arr_eq(out, bytes, count);
    cr_assert_eq(ms_decode(&decoder, out, length, &back, &back_ns), length);
    cr_assert_eq(back_ns, time_ns);
    cr_assert(is_equal(&back, event));
}

#define EXPECT(event, time_ns, ...) \
    expect(&(event), time_ns, (const uint8_t[]){__VA_ARGS__}, sizeof((uint8_t[]){__VA_ARGS__}))

Test(encoding, bytes_worked_out_by_hand)
{
    ms_codec_reset(&encoder, 1024);
    ms_codec_reset(&decoder, 1024);

    /* Tag: kind 31 (another arena) + KNOWN (id is 0 + 1) + SAME (site 0 is predicted). Time 160 /
     * 32 = 5. addr 0x200000 / 512 = 4096, zigzag 8192: six low bits 0, flag 1, more follows: 0x81;
     * 8192 >> 6 = 128: 0x80 0x01. bytes 1024 / 512 = 2: 2 << 1 | 1 = 5. aux zigzag(9) = 18. */
    const struct ms_event allocation = {
        .kind = MS_EVENT_TENSOR_ALLOC, .id = 1, .addr = 0x200000, .bytes = 1024, .aux = 9};
    EXPECT(allocation, 1184, 0xdf, 0x05, 0x81, 0x80, 0x01, 0x05, 0x12);

    /* Site 300 is not predicted: kind 4 without SAME. addr -512: zigzag(-1) = 1: 1 << 1 | 1 = 3.
     * bytes 100 is no multiple of 512: 100 & 63 = 36: 36 << 1 = 72, more: 0xc8; 100 >> 6 = 1.
     * site 300 = 0xac 0x02. The same arena. Time 6400 / 32 = 200 = 0xc8 0x01. */
    const struct ms_event second = {.kind = MS_EVENT_TENSOR_ALLOC,
                                    .id = 2,
                                    .addr = 0x200000 - 512,
                                    .bytes = 100,
                                    .site = 300,
                                    .aux = 9};
    EXPECT(second, 7584, 0x44, 0xc8, 0x01, 0x03, 0xc8, 0x01, 0xac, 0x02);

    /* A death of an allocation in this window: KNOWN; id: zigzag(2 - 1) = 2. */
    const struct ms_event death = {
        .kind = MS_EVENT_TENSOR_FREE, .id = 1, .addr = 0x200000, .bytes = 1024};
    EXPECT(death, 7616, 0x45, 0x01, 0x02);

    /* Another device and owner: CONTEXT, 3 | 1 << 6 = 0x43. id zigzag(5) = 10, bytes 2 MiB / 512 =
     * 4096: 0x81, 4096 >> 6 = 64; no site, as is expected after the last one: SAME; aux 0. */
    const struct ms_event chunk = {.kind = MS_EVENT_CHUNK_CREATE,
                                   .device = 3,
                                   .owner = MS_OWNER_APPLICATION,
                                   .id = 5,
                                   .bytes = 2 * MIB};
    EXPECT(chunk, 7616, 0xa6, 0x43, 0x00, 0x0a, 0x81, 0x40, 0x00);
}

Test(encoding, a_death_without_its_birth_carries_place_and_size)
{
    ms_codec_reset(&encoder, 0);
    ms_codec_reset(&decoder, 0);

    /* id: zigzag(0 - 7) = 13. addr 1024 / 512 = 2, zigzag 4: 4 << 1 | 1 = 9. bytes 512: 3.
     * BLOCK_FREE of stream 0, aux 0: SAME. */
    const struct ms_event death = {
        .kind = MS_EVENT_BLOCK_FREE, .id = 7, .addr = 1024, .bytes = 512};
    EXPECT(death, 0, 0x82, 0x00, 0x0d, 0x09, 0x03);
}

static uint64_t any_number(uint64_t *random)
{
    const uint64_t bits = synthetic_random(random) % 65;
    const uint64_t value = synthetic_random(random);

    return bits == 0 ? 0 : value >> (64 - bits);
}

/* Only what events.def names for a kind, so that nothing else may come back. */
static struct ms_event any_event(uint64_t *random)
{
    struct ms_event event = {
        .kind = (uint8_t)(1 + synthetic_random(random) % (MS_EVENT_KIND_COUNT - 1)),
        .device = (uint8_t)(synthetic_random(random) % 64),
        .owner = (uint8_t)(synthetic_random(random) % MS_OWNER_COUNT)};

    const uint8_t fields = ms_event_fields[event.kind];

    cr_assert_neq(fields, 0, "%s has no fields", ms_event_names[event.kind]);
    event.id = fields & MS_HAS_ID ? any_number(random) : 0;
    event.addr = fields & MS_HAS_ADDR ? any_number(random) : 0;
    event.bytes = fields & MS_HAS_BYTES ? any_number(random) : 0;
    event.stream = fields & MS_HAS_STREAM ? any_number(random) : 0;
    event.site = fields & MS_HAS_SITE ? (uint32_t)any_number(random) : 0;
    event.aux = fields & MS_HAS_AUX ? any_number(random) : 0;
    return event;
}

Test(encoding, random_events_come_back)
{
    uint64_t random = 42, time_ns = 0;

    ms_codec_reset(&encoder, 0);
    ms_codec_reset(&decoder, 0);
    for (int i = 0; i < 300000; i++) {
        const struct ms_event event = any_event(&random);
        uint8_t out[MS_RECORD_MAX_BYTES];
        struct ms_event back;
        uint64_t back_ns;

        time_ns += any_number(&random) >> 20 << 5;

        const size_t length = ms_encode(&encoder, &event, time_ns, out);

        cr_assert_leq(length, sizeof(out));
        cr_assert_eq(ms_decode(&decoder, out, length, &back, &back_ns), length);
        cr_assert(is_equal(&back, &event), "event %d, a %s", i, ms_event_names[event.kind]);
        cr_assert_eq(back_ns, time_ns);
    }
}

Test(encoding, a_record_that_is_cut_is_none)
{
    const struct ms_event event = {.kind = MS_EVENT_BLOCK_ALLOC,
                                   .id = 900,
                                   .addr = 0x7f1234567890,
                                   .bytes = 12345,
                                   .stream = 3,
                                   .site = 77,
                                   .aux = 12800};
    uint8_t out[MS_RECORD_MAX_BYTES];
    struct ms_event back;
    uint64_t time_ns;

    ms_codec_reset(&encoder, 0);

    const size_t length = ms_encode(&encoder, &event, 123456, out);

    for (size_t cut = 0; cut < length; cut++) {
        ms_codec_reset(&decoder, 0);
        cr_assert_eq(ms_decode(&decoder, out, cut, &back, &time_ns), 0);
    }
}

/* The figure that the format was made for, on a loop as PyTorch's are: sizes over many orders of
 * magnitude, an allocation or a death every ten microseconds, most tensors dying soon. */
Test(encoding, a_training_loop_takes_at_most_eight_bytes_an_event)
{
    enum { TENSORS = 2000, STEPS = 8 };
    static struct ms_event live[TENSORS];
    uint64_t random = 7, id = 1, time_ns = 0;
    size_t bytes = 0, events = 0;

    ms_codec_reset(&encoder, 0);
    for (int step = 0; step < STEPS; step++) {
        for (int i = 0; i < 2 * TENSORS; i++) {
            uint8_t out[MS_RECORD_MAX_BYTES];
            struct ms_event event;

            if (i < TENSORS) {
                live[i] = (struct ms_event){
                    .kind = MS_EVENT_TENSOR_ALLOC,
                    .id = ++id,
                    .addr = 0x7f0000000000 + synthetic_random(&random) % (16 * GIB) / 512 * 512,
                    .bytes = (UINT64_C(512) << (i * 7919 % 16)) * (1 + (uint64_t)i % 3),
                    .site = (uint32_t)(i + 100),
                    .aux = 1 + (uint64_t)i / 200};
                event = live[i];
            } else {
                event = live[2 * TENSORS - 1 - i];
                event.kind = MS_EVENT_TENSOR_FREE;
                event.site = 0;
                event.aux = 0;
            }
            time_ns += (1000 + synthetic_random(&random) % 18000) / 32 * 32;
            bytes += ms_encode(&encoder, &event, time_ns, out);
            events++;
        }
    }
    cr_assert_leq(bytes, 8 * events, "%zu bytes for %zu events", bytes, events);
}

/* A row tells what its events tell one by one, and stops where the next might not fit. */
Test(encoding, a_row_is_its_events_one_by_one)
{
    enum { EVENTS = 64, ROOM = 1000 };
    static struct ms_timed_event row[EVENTS];
    uint8_t by_row[ROOM], one_by_one[EVENTS * MS_RECORD_MAX_BYTES];
    uint64_t random = 17, time_ns = 0;
    size_t bytes = 0, length = 0;

    for (int i = 0; i < EVENTS; i++) {
        time_ns += any_number(&random) >> 40 << 5;
        row[i] = (struct ms_timed_event){time_ns, any_event(&random)};
    }
    ms_codec_reset(&encoder, 0);

    const size_t told = ms_encode_row(&encoder, row, EVENTS, by_row, sizeof(by_row), &bytes);

    ms_codec_reset(&encoder, 0);
    for (size_t i = 0; i < told; i++) {
        length += ms_encode(&encoder, &row[i].event, row[i].time_ns, one_by_one + length);
    }
    cr_assert_gt(told, 5);
    cr_assert_lt(told, EVENTS);
    cr_assert_eq(bytes, length);
    cr_assert_arr_eq(by_row, one_by_one, bytes);
    cr_assert_leq(bytes, ROOM);
    cr_assert_gt(bytes, ROOM - 2 * MS_RECORD_MAX_BYTES);
}

/* Version 3.3 of the format has kinds 1 to 30. Whatever kinds come, those are written as they were,
 * so that traces of before are read. */
Test(encoding, the_kinds_of_before_are_written_as_they_were)
{
    enum { KINDS = 30, ROUNDS = 64 };
    static uint8_t all[KINDS * ROUNDS * MS_RECORD_MAX_BYTES];
    uint64_t random = 7, time_ns = 0;
    size_t bytes = 0;

    ms_codec_reset(&encoder, 0);
    for (int i = 0; i < KINDS * ROUNDS; i++) {
        struct ms_event event = {.kind = (uint8_t)(1 + i % KINDS)};

        event.device = (uint8_t)(synthetic_random(&random) % 3);
        event.owner = (uint8_t)(synthetic_random(&random) % 2);
        event.id = any_number(&random);
        event.addr = any_number(&random);
        event.bytes = any_number(&random);
        event.stream = any_number(&random) % 3;
        event.site = (uint32_t)any_number(&random);
        event.aux = any_number(&random);
        time_ns += (any_number(&random) >> 20) * MS_TIME_UNIT_NS;
        bytes += ms_encode(&encoder, &event, time_ns, all + bytes);
    }
    cr_assert_eq(bytes, 38984, "%zu", bytes);
    cr_assert_eq(ms_checksum(all, bytes), UINT64_C(0xb3665dc36c41f5a9), "%" PRIx64,
                 ms_checksum(all, bytes));
}
