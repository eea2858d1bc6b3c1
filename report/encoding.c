#include "report/encoding.h"

#include <string.h>

#define TAG_KIND    0x1fu
#define TAG_CONTEXT 0x20u
#define TAG_KNOWN   0x40u
#define TAG_SAME    0x80u

#define KIND_BORN_ELSEWHERE 31u

#define UNIT_SHIFT 9 /* blocks and PyTorch's tensors are multiples of 512 bytes */

enum field {
    FIELD_ID = 1,
    FIELD_ADDR = 2,
    FIELD_BYTES = 4,
    FIELD_STREAM = 8,
    FIELD_SITE = 16,
    FIELD_AUX = 32,
    BIRTH = 64,
    DEATH = 128
};

static const uint8_t fields_of[MS_EVENT_KIND_COUNT] = {
    [MS_EVENT_BLOCK_ALLOC] =
        BIRTH | FIELD_ID | FIELD_ADDR | FIELD_BYTES | FIELD_STREAM | FIELD_SITE | FIELD_AUX,
    [MS_EVENT_BLOCK_FREE] = DEATH | FIELD_ID | FIELD_ADDR | FIELD_BYTES | FIELD_STREAM | FIELD_AUX,
    [MS_EVENT_BLOCK_ARENA] = DEATH | FIELD_ID | FIELD_ADDR | FIELD_BYTES,
    [MS_EVENT_TENSOR_BORN] = BIRTH | FIELD_ID | FIELD_ADDR | FIELD_BYTES | FIELD_SITE | FIELD_AUX,
    [MS_EVENT_TENSOR_DIED] = DEATH | FIELD_ID | FIELD_ADDR | FIELD_BYTES,
    [MS_EVENT_CHUNK_CREATE] = FIELD_ID | FIELD_BYTES | FIELD_AUX,
    [MS_EVENT_CHUNK_RELEASE] = FIELD_ID | FIELD_BYTES | FIELD_AUX,
    [MS_EVENT_MAP] = FIELD_ID | FIELD_ADDR | FIELD_BYTES,
    [MS_EVENT_UNMAP] = FIELD_ID | FIELD_ADDR | FIELD_BYTES,
    [MS_EVENT_SET_ACCESS] = FIELD_ADDR | FIELD_BYTES,
    [MS_EVENT_RANGE_RESERVE] = FIELD_ADDR | FIELD_BYTES,
    [MS_EVENT_RANGE_FREE] = FIELD_ADDR | FIELD_BYTES,
    [MS_EVENT_CHARGE] = FIELD_ADDR | FIELD_BYTES | FIELD_SITE | FIELD_AUX,
    [MS_EVENT_DISCHARGE] = FIELD_ADDR | FIELD_BYTES | FIELD_SITE | FIELD_AUX,
    [MS_EVENT_HOST_ALLOC] = FIELD_ADDR | FIELD_BYTES | FIELD_SITE,
    [MS_EVENT_HOST_FREE] = FIELD_ADDR | FIELD_BYTES,
    [MS_EVENT_CAP] = FIELD_BYTES | FIELD_AUX,
    [MS_EVENT_THRESHOLD] = FIELD_BYTES | FIELD_AUX,
};

void ms_codec_reset(struct ms_codec *codec, uint64_t start_time_ns)
{
    memset(codec, 0, sizeof(*codec));
    codec->time_ns = start_time_ns;
}

static uint64_t zigzag(uint64_t difference)
{
    return (difference << 1) ^ (uint64_t)((int64_t)difference >> 63);
}

static uint64_t unzigzag(uint64_t value)
{
    return (value >> 1) ^ (0 - (value & 1));
}

static uint8_t *put_varint(uint8_t *out, uint64_t value)
{
    while (value >= 0x80) {
        *out++ = (uint8_t)(value | 0x80);
        value >>= 7;
    }
    *out++ = (uint8_t)value;
    return out;
}

static uint8_t *put_flagged(uint8_t *out, uint64_t value, bool divided)
{
    const uint8_t first = (uint8_t)((value & 0x3f) << 1 | divided);

    if (value < 0x40) {
        *out++ = first;
        return out;
    }
    *out++ = first | 0x80;
    return put_varint(out, value >> 6);
}

static bool is_divisible(uint64_t value)
{
    return (value & ((1u << UNIT_SHIFT) - 1)) == 0;
}

static uint8_t *put_short(uint8_t *out, uint64_t value)
{
    const bool divided = is_divisible(value);

    return put_flagged(out, divided ? value >> UNIT_SHIFT : value, divided);
}

static uint8_t *put_signed_short(uint8_t *out, uint64_t difference)
{
    const bool divided = is_divisible(difference);

    if (divided) {
        difference = (uint64_t)((int64_t)difference >> UNIT_SHIFT);
    }
    return put_flagged(out, zigzag(difference), divided);
}

static struct ms_birth *birth_slot(struct ms_codec *codec, uint64_t id)
{
    return &codec->births[id & (MS_BIRTH_SLOTS - 1)];
}

static uint32_t predicted_site(const struct ms_codec *codec)
{
    return codec->next_site[codec->site & (MS_SITE_SLOTS - 1)];
}

static void learn_site(struct ms_codec *codec, uint32_t site)
{
    codec->next_site[codec->site & (MS_SITE_SLOTS - 1)] = site;
    codec->site = site;
}

/* Whether bit 7 may be set: nothing that it stands for differs. */
static bool is_same(const struct ms_codec *codec, const struct ms_event *event, uint8_t fields)
{
    if (!(fields & (FIELD_STREAM | FIELD_SITE))) {
        return false;
    }
    if ((fields & FIELD_STREAM) && event->stream != codec->stream) {
        return false;
    }
    if ((fields & FIELD_SITE) && event->site != predicted_site(codec)) {
        return false;
    }
    return event->kind != MS_EVENT_BLOCK_FREE || event->aux == 0;
}

static bool is_known(struct ms_codec *codec, const struct ms_event *event, uint8_t fields)
{
    if (fields & BIRTH) {
        return event->id == codec->birth_id + 1;
    }
    if (fields & DEATH) {
        const struct ms_birth *birth = birth_slot(codec, event->id);
        return birth->id == event->id && birth->addr == event->addr && birth->bytes == event->bytes;
    }
    return false;
}

static uint8_t *put_id(struct ms_codec *codec, const struct ms_event *event, uint8_t fields,
                       bool known, uint8_t *at)
{
    if (fields & BIRTH) {
        if (!known) {
            at = put_varint(at, zigzag(event->id - codec->birth_id - 1));
        }
        codec->birth_id = event->id;
        return at;
    }
    if (fields & DEATH) {
        return put_varint(at, zigzag(codec->birth_id - event->id));
    }
    at = put_varint(at, zigzag(event->id - codec->other_id));
    codec->other_id = event->id;
    return at;
}

static uint8_t *put_aux(struct ms_codec *codec, const struct ms_event *event, bool same,
                        uint8_t *at)
{
    switch (event->kind) {
    case MS_EVENT_BLOCK_ALLOC:
        return put_signed_short(at, event->aux - event->bytes);
    case MS_EVENT_TENSOR_BORN:
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

size_t ms_encode(struct ms_codec *codec, const struct ms_event *event, uint64_t time_ns,
                 uint8_t *out)
{
    const uint8_t fields = fields_of[event->kind];
    const uint8_t context = (uint8_t)(event->device | event->owner << 6);
    const bool known = is_known(codec, event, fields);
    const bool same = is_same(codec, event, fields);
    uint8_t *at = out;

    const bool elsewhere = event->kind == MS_EVENT_TENSOR_BORN && event->aux != codec->arena;

    *at++ = (uint8_t)((elsewhere ? KIND_BORN_ELSEWHERE : event->kind) | (known ? TAG_KNOWN : 0) |
                      (same ? TAG_SAME : 0) | (context != codec->context ? TAG_CONTEXT : 0));
    if (context != codec->context) {
        *at++ = context;
        codec->context = context;
    }
    at = put_varint(at, (time_ns - codec->time_ns) / MS_TIME_UNIT_NS);
    codec->time_ns = time_ns;
    if (fields & FIELD_ID) {
        at = put_id(codec, event, fields, known, at);
    }
    if ((fields & FIELD_ADDR) && !(known && (fields & DEATH))) {
        at = put_signed_short(at, event->addr - codec->addr);
        codec->addr = event->addr;
    }
    if ((fields & FIELD_BYTES) && !(known && (fields & DEATH))) {
        at = put_short(at, event->bytes);
    }
    if (fields & FIELD_STREAM) {
        at = same ? at : put_varint(at, event->stream);
        codec->stream = event->stream;
    }
    if (fields & FIELD_SITE) {
        at = same ? at : put_varint(at, event->site);
        learn_site(codec, event->site);
    }
    if (fields & FIELD_AUX) {
        at = put_aux(codec, event, same, at);
    }
    if (fields & BIRTH) {
        *birth_slot(codec, event->id) = (struct ms_birth){event->id, event->addr, event->bytes};
    }
    return (size_t)(at - out);
}

struct input {
    const uint8_t *at;
    bool bad;
};

static uint64_t get_long_varint(struct input *input)
{
    uint64_t value = 0;

    for (unsigned shift = 0; shift < 64; shift += 7) {
        const uint8_t byte = *input->at++;

        value |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80)) {
            return value;
        }
    }
    input->bad = true;
    return 0;
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
    if (fields & BIRTH) {
        event->id = codec->birth_id + 1 + (known ? 0 : unzigzag(get_varint(input)));
        codec->birth_id = event->id;
    } else if (fields & DEATH) {
        event->id = codec->birth_id - unzigzag(get_varint(input));
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
    case MS_EVENT_TENSOR_BORN:
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
    if (known && (fields & DEATH)) {
        const struct ms_birth *birth = birth_slot(codec, event->id);

        input->bad |= birth->id != event->id;
        event->addr = birth->addr;
        event->bytes = birth->bytes;
        return;
    }
    if (fields & FIELD_ADDR) {
        event->addr = codec->addr + get_signed_short(input);
        codec->addr = event->addr;
    }
    if (fields & FIELD_BYTES) {
        event->bytes = get_short(input);
    }
}

size_t ms_decode(struct ms_codec *codec, const uint8_t *in, size_t bytes, struct ms_event *event,
                 uint64_t *time_ns)
{
    struct input input = {in, false};
    const uint8_t tag = *input.at++;
    const bool elsewhere = (tag & TAG_KIND) == KIND_BORN_ELSEWHERE;
    const uint8_t kind = elsewhere ? MS_EVENT_TENSOR_BORN : tag & TAG_KIND;
    const bool known = tag & TAG_KNOWN;
    const bool same = tag & TAG_SAME;

    if (bytes == 0 || kind == MS_EVENT_NONE || kind >= MS_EVENT_KIND_COUNT) {
        return 0;
    }

    const uint8_t fields = fields_of[kind];

    memset(event, 0, sizeof(*event));
    event->kind = kind;
    if (tag & TAG_CONTEXT) {
        codec->context = *input.at++;
    }
    event->device = codec->context & 0x3f;
    event->owner = codec->context >> 6;
    codec->time_ns += get_varint(&input) * MS_TIME_UNIT_NS;
    *time_ns = codec->time_ns;
    if (fields & FIELD_ID) {
        get_id(codec, &input, fields, known, event);
    }
    get_place(codec, &input, fields, known, event);
    if (fields & FIELD_STREAM) {
        event->stream = same ? codec->stream : get_varint(&input);
        codec->stream = event->stream;
    }
    if (fields & FIELD_SITE) {
        event->site = same ? predicted_site(codec) : (uint32_t)get_varint(&input);
        learn_site(codec, event->site);
    }
    if (fields & FIELD_AUX) {
        get_aux(codec, &input, same, elsewhere, event);
    }
    if (fields & BIRTH) {
        *birth_slot(codec, event->id) = (struct ms_birth){event->id, event->addr, event->bytes};
    }

    const size_t length = (size_t)(input.at - in);

    return input.bad || length > bytes ? 0 : length;
}
