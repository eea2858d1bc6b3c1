/* SPDX-License-Identifier: Apache-2.0 */
/* The coding of records, as encoding.h describes it. */
#include "report/trace/encoding.h"

#include <string.h>

#include "allocator/base/varint.h"

#define TAG_KIND    0x1fu
#define TAG_CONTEXT 0x20u
#define TAG_KNOWN   0x40u
#define TAG_SAME    0x80u

/* Values of a tag's five bits that are not a kind's own number. */
#define KIND_FOLLOWS        0u
#define KIND_BORN_ELSEWHERE 31u

/* Keeps rare cases out of the path of nearly every record. */
#define RARE __attribute__((noinline, cold))

#define UNIT_SHIFT 9 /* blocks and PyTorch's tensors are multiples of 512 bytes */

/* The fields of each kind, for code that knows the kind at compile time. */
enum {
#define MS_EVENT(number, name, scope, fields, sums) FIELDS_OF_##name = (fields),
#include "allocator/base/events.def"
#undef MS_EVENT
};

void ms_codec_reset(struct ms_codec *codec, uint64_t start_time_ns)
{
    memset(codec, 0, sizeof(*codec));
    codec->time_ns = start_time_ns;
}

static inline uint64_t zigzag(uint64_t difference)
{
    return (difference << 1) ^ (uint64_t)((int64_t)difference >> 63);
}

static inline uint64_t unzigzag(uint64_t value)
{
    return (value >> 1) ^ (0 - (value & 1));
}

static RARE uint8_t *put_long_varint(uint8_t *out, uint64_t value)
{
    return ms_varint_put(out, value);
}

/* Lengths follow no pattern, so a branch on each byte would be mispredicted about once a record. A
 * short number takes one store; the next field overwrites the bytes that are not needed. */
static inline uint8_t *put_varint(uint8_t *out, uint64_t value)
{
    if (__builtin_expect(value >= 1u << 14, 0)) {
        return put_long_varint(out, value);
    }

    const uint32_t bits = (uint32_t)value, upper = bits & 0x3f80, more = upper != 0;
    const uint16_t both = (uint16_t)(bits + upper + (more << 7));

    memcpy(out, &both, sizeof(both));
    return out + 1 + more;
}

/* The same for fields that are often longer. */
static inline uint8_t *put_wide_varint(uint8_t *out, uint64_t value)
{
    if (__builtin_expect(value >= 1u << 28, 0)) {
        return put_long_varint(out, value);
    }

    const uint32_t bits = (uint32_t)value;
    const uint32_t halves = bits + 3 * (bits & 0xfffc000); /* groups of 14 bits, in 16 each */
    const uint32_t spread = halves + (halves & 0x3f803f80);
    const unsigned more = (31u - (unsigned)__builtin_clz(spread | 1)) / 8;
    const uint32_t all = spread | (0x808080u & ((1u << 8 * more) - 1));

    memcpy(out, &all, sizeof(all));
    return out + 1 + more;
}

static inline bool is_huge(uint64_t value)
{
    return __builtin_expect(value >> 63 != 0, 0);
}

/* Writes six bits and the flag, then the rest. Numbers that are not huge are one varint with the
 * flag as its lowest bit. */
static RARE uint8_t *put_huge_flagged(uint8_t *out, uint64_t value, bool divided)
{
    *out++ = (uint8_t)((value & 0x3f) << 1 | divided | 0x80);
    return put_long_varint(out, value >> 6);
}

static inline bool is_divisible(uint64_t value)
{
    return (value & ((1u << UNIT_SHIFT) - 1)) == 0;
}

static inline uint8_t *put_short(uint8_t *out, uint64_t value)
{
    const bool divided = is_divisible(value);

    value >>= divided ? UNIT_SHIFT : 0;
    return is_huge(value) ? put_huge_flagged(out, value, divided)
                          : put_varint(out, value << 1 | divided);
}

/* usually_long chooses between two ways to write the varint; the bytes are the same. */
static inline uint8_t *put_signed_short(uint8_t *out, uint64_t difference, bool usually_long)
{
    const bool divided = is_divisible(difference);
    const uint64_t value = zigzag((uint64_t)((int64_t)difference >> (divided ? UNIT_SHIFT : 0)));

    if (is_huge(value)) {
        return put_huge_flagged(out, value, divided);
    }
    return usually_long ? put_wide_varint(out, value << 1 | divided)
                        : put_varint(out, value << 1 | divided);
}

static inline struct ms_allocation *allocation_slot(struct ms_codec *codec, uint64_t id)
{
    return &codec->allocations[id & (MS_ALLOCATION_SLOTS - 1)];
}

static inline uint32_t predicted_site(const struct ms_codec *codec)
{
    return codec->next_site[codec->site & (MS_SITE_SLOTS - 1)];
}

static inline void learn_site(struct ms_codec *codec, uint32_t site)
{
    codec->next_site[codec->site & (MS_SITE_SLOTS - 1)] = site;
    codec->site = site;
}

/* Whether bit 7 may be set: all fields that it stands for are as predicted. */
static inline bool is_same(const struct ms_codec *codec, const struct ms_event *event, uint8_t kind,
                           uint8_t fields)
{
    if (!(fields & (MS_HAS_STREAM | MS_HAS_SITE))) {
        return false;
    }
    if ((fields & MS_HAS_STREAM) && event->stream != codec->stream) {
        return false;
    }
    if ((fields & MS_HAS_SITE) && event->site != predicted_site(codec)) {
        return false;
    }
    return kind != MS_EVENT_BLOCK_FREE || event->aux == 0;
}

static inline bool is_known(struct ms_codec *codec, const struct ms_event *event, uint8_t fields)
{
    if (fields & MS_BEGINS) {
        return event->id == codec->allocation_id + 1;
    }
    if (fields & MS_ENDS) {
        const struct ms_allocation *allocation = allocation_slot(codec, event->id);
        return allocation->id == event->id && allocation->addr == event->addr &&
               allocation->bytes == event->bytes;
    }
    return false;
}

static inline __attribute__((always_inline)) uint8_t *put_id(struct ms_codec *codec,
                                                             const struct ms_event *event,
                                                             uint8_t fields, bool known,
                                                             uint8_t *at)
{
    if (fields & MS_BEGINS) {
        if (!known) {
            at = put_varint(at, zigzag(event->id - codec->allocation_id - 1));
        }
        codec->allocation_id = event->id;
        return at;
    }
    if (fields & MS_ENDS) {
        return put_varint(at, zigzag(codec->allocation_id - event->id));
    }
    at = put_varint(at, zigzag(event->id - codec->other_id));
    codec->other_id = event->id;
    return at;
}

static inline __attribute__((always_inline)) uint8_t *
put_aux(struct ms_codec *codec, const struct ms_event *event, uint8_t kind, bool same, uint8_t *at)
{
    switch (kind) {
    case MS_EVENT_BLOCK_ALLOC:
        return put_signed_short(at, event->aux - event->bytes, false);
    case MS_EVENT_TENSOR_ALLOC:
        if (event->aux != codec->arena) {
            at = put_varint(at, zigzag(event->aux - codec->arena));
            codec->arena = event->aux;
        }
        return at;
    case MS_EVENT_BLOCK_FREE:
        return same ? at : put_varint(at, event->aux);
    default:
        return put_varint(at, event->aux);
    }
}

/* Inlined with a kind known at compile time, and so with known fields: straight code remains. */
static inline __attribute__((always_inline)) uint8_t *put_record(struct ms_codec *codec,
                                                                 const struct ms_event *event,
                                                                 uint64_t time_ns, uint8_t kind,
                                                                 uint8_t fields, uint8_t *out)
{
    const uint8_t context = (uint8_t)(event->device | event->owner << 6);
    const bool known = is_known(codec, event, fields);
    const bool same = is_same(codec, event, kind, fields);
    const bool elsewhere = kind == MS_EVENT_TENSOR_ALLOC && event->aux != codec->arena;
    const bool follows = kind >= KIND_BORN_ELSEWHERE;
    uint8_t *at = out;

    *at++ = (uint8_t)((elsewhere ? KIND_BORN_ELSEWHERE
                       : follows ? KIND_FOLLOWS
                                 : kind) |
                      (known ? TAG_KNOWN : 0) | (same ? TAG_SAME : 0) |
                      (context != codec->context ? TAG_CONTEXT : 0));
    if (follows) {
        *at++ = kind;
    }
    if (context != codec->context) {
        *at++ = context;
        codec->context = context;
    }
    at = put_varint(at, (time_ns - codec->time_ns) / MS_TIME_UNIT_NS);
    codec->time_ns = time_ns;
    if (fields & MS_HAS_ID) {
        at = put_id(codec, event, fields, known, at);
    }
    if ((fields & MS_HAS_ADDR) && !(known && (fields & MS_ENDS))) {
        at = put_signed_short(at, event->addr - codec->addr, true);
        codec->addr = event->addr;
    }
    if ((fields & MS_HAS_BYTES) && !(known && (fields & MS_ENDS))) {
        at = put_short(at, event->bytes);
    }
    if (fields & MS_HAS_STREAM) {
        at = same ? at : put_varint(at, event->stream);
        codec->stream = event->stream;
    }
    if (fields & MS_HAS_SITE) {
        at = same ? at : put_varint(at, event->site);
        learn_site(codec, event->site);
    }
    if (fields & MS_HAS_AUX) {
        at = put_aux(codec, event, kind, same, at);
    }
    if (fields & MS_BEGINS) {
        *allocation_slot(codec, event->id) =
            (struct ms_allocation){event->id, event->addr, event->bytes};
    }
    return at;
}

static inline __attribute__((always_inline)) uint8_t *
put_event(struct ms_codec *codec, const struct ms_event *event, uint64_t time_ns, uint8_t *out)
{
    switch (event->kind) {
    case MS_EVENT_TENSOR_ALLOC:
        return put_record(codec, event, time_ns, MS_EVENT_TENSOR_ALLOC, FIELDS_OF_TENSOR_ALLOC,
                          out);
    case MS_EVENT_TENSOR_FREE:
        return put_record(codec, event, time_ns, MS_EVENT_TENSOR_FREE, FIELDS_OF_TENSOR_FREE, out);
    case MS_EVENT_BLOCK_ALLOC:
        return put_record(codec, event, time_ns, MS_EVENT_BLOCK_ALLOC, FIELDS_OF_BLOCK_ALLOC, out);
    case MS_EVENT_BLOCK_FREE:
        return put_record(codec, event, time_ns, MS_EVENT_BLOCK_FREE, FIELDS_OF_BLOCK_FREE, out);
    default:
        return put_record(codec, event, time_ns, event->kind, ms_event_fields[event->kind], out);
    }
}

size_t ms_encode_row(struct ms_codec *codec, const struct ms_timed_event *row, size_t count,
                     uint8_t *out, size_t room_bytes, size_t *bytes)
{
    const struct ms_timed_event *one = row, *end = row + count;
    uint8_t *at = out;

    *bytes = 0;
    if (room_bytes < MS_RECORD_MAX_BYTES) {
        return 0;
    }

    const uint8_t *last = out + (room_bytes - MS_RECORD_MAX_BYTES); /* where a record may begin */

    for (; one < end && at <= last; one++) {
        at = put_event(codec, &one->event, one->time_ns, at);
    }
    *bytes = (size_t)(at - out);
    return (size_t)(one - row);
}

/* A row of one, so that only that loop has the coder, inlined. */
size_t ms_encode(struct ms_codec *codec, const struct ms_event *event, uint64_t time_ns,
                 uint8_t *out)
{
    const struct ms_timed_event one = {time_ns, *event};
    size_t bytes;

    (void)ms_encode_row(codec, &one, 1, out, MS_RECORD_MAX_BYTES, &bytes);
    return bytes;
}

struct input {
    const uint8_t *at;
    bool bad;
};

/* Some bytes behind the record are readable: its end shows whether they belonged to it. */
static uint64_t get_long_varint(struct input *input)
{
    uint64_t value;
    const uint8_t *behind = ms_varint_get(input->at, input->at + MS_VARINT_BYTES, &value);

    input->bad |= !behind;
    input->at = behind ? behind : input->at + MS_VARINT_BYTES;
    return value;
}

static inline uint64_t get_varint(struct input *input)
{
    if (*input->at < 0x80) {
        return *input->at++;
    }
    return get_long_varint(input);
}

static uint64_t get_flagged(struct input *input, bool *divided)
{
    const uint8_t first = *input->at++;
    uint64_t value = (first >> 1) & 0x3f;

    *divided = first & 1;
    if (first & 0x80) {
        value |= get_varint(input) << 6;
    }
    return value;
}

static uint64_t get_short(struct input *input)
{
    bool divided;
    const uint64_t value = get_flagged(input, &divided);

    return divided ? value << UNIT_SHIFT : value;
}

static uint64_t get_signed_short(struct input *input)
{
    bool divided;
    const uint64_t value = unzigzag(get_flagged(input, &divided));

    return divided ? value << UNIT_SHIFT : value;
}

static void get_id(struct ms_codec *codec, struct input *input, uint8_t fields, bool known,
                   struct ms_event *event)
{
    if (fields & MS_BEGINS) {
        event->id = codec->allocation_id + 1 + (known ? 0 : unzigzag(get_varint(input)));
        codec->allocation_id = event->id;
    } else if (fields & MS_ENDS) {
        event->id = codec->allocation_id - unzigzag(get_varint(input));
    } else {
        event->id = codec->other_id + unzigzag(get_varint(input));
        codec->other_id = event->id;
    }
}

static void get_aux(struct ms_codec *codec, struct input *input, bool same, bool elsewhere,
                    struct ms_event *event)
{
    switch (event->kind) {
    case MS_EVENT_BLOCK_ALLOC:
        event->aux = event->bytes + get_signed_short(input);
        break;
    case MS_EVENT_TENSOR_ALLOC:
        codec->arena += elsewhere ? unzigzag(get_varint(input)) : 0;
        event->aux = codec->arena;
        break;
    case MS_EVENT_BLOCK_FREE:
        event->aux = same ? 0 : get_varint(input);
        break;
    default:
        event->aux = get_varint(input);
        break;
    }
}

static void get_place(struct ms_codec *codec, struct input *input, uint8_t fields, bool known,
                      struct ms_event *event)
{
    if (known && (fields & MS_ENDS)) {
        const struct ms_allocation *allocation = allocation_slot(codec, event->id);

        input->bad |= allocation->id != event->id;
        event->addr = allocation->addr;
        event->bytes = allocation->bytes;
        return;
    }
    if (fields & MS_HAS_ADDR) {
        event->addr = codec->addr + get_signed_short(input);
        codec->addr = event->addr;
    }
    if (fields & MS_HAS_BYTES) {
        event->bytes = get_short(input);
    }
}

size_t ms_decode(struct ms_codec *codec, const uint8_t *in, size_t bytes, struct ms_event *event,
                 uint64_t *time_ns)
{
    struct input input = {in, false};
    const uint8_t tag = *input.at++;
    const bool elsewhere = (tag & TAG_KIND) == KIND_BORN_ELSEWHERE;
    const bool follows = (tag & TAG_KIND) == KIND_FOLLOWS;
    const uint8_t kind = elsewhere ? MS_EVENT_TENSOR_ALLOC : follows ? *input.at++ : tag & TAG_KIND;
    const bool known = tag & TAG_KNOWN;
    const bool same = tag & TAG_SAME;

    if (bytes == 0 || kind >= MS_EVENT_KIND_COUNT || (follows && kind < KIND_BORN_ELSEWHERE)) {
        return 0;
    }

    const uint8_t fields = ms_event_fields[kind];

    memset(event, 0, sizeof(*event));
    event->kind = kind;
    if (tag & TAG_CONTEXT) {
        codec->context = *input.at++;
    }
    event->device = codec->context & 0x3f;
    event->owner = codec->context >> 6;
    codec->time_ns += get_varint(&input) * MS_TIME_UNIT_NS;
    *time_ns = codec->time_ns;
    if (fields & MS_HAS_ID) {
        get_id(codec, &input, fields, known, event);
    }
    get_place(codec, &input, fields, known, event);
    if (fields & MS_HAS_STREAM) {
        event->stream = same ? codec->stream : get_varint(&input);
        codec->stream = event->stream;
    }
    if (fields & MS_HAS_SITE) {
        event->site = same ? predicted_site(codec) : (uint32_t)get_varint(&input);
        learn_site(codec, event->site);
    }
    if (fields & MS_HAS_AUX) {
        get_aux(codec, &input, same, elsewhere, event);
    }
    if (fields & MS_BEGINS) {
        *allocation_slot(codec, event->id) =
            (struct ms_allocation){event->id, event->addr, event->bytes};
    }

    const size_t length = (size_t)(input.at - in);

    return input.bad || length > bytes ? 0 : length;
}
