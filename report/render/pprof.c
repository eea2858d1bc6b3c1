/* SPDX-License-Identifier: Apache-2.0 */
/* The profile of google/pprof: call sites as samples, frames as locations. */
#include <string.h>
#include <zlib.h>

#include "allocator/base/varint.h"
#include "report/model/site_rows.h"
#include "report/render/encodings/protobuf.h"
#include "report/render/formats.h"
#include "report/render/forms.h"
#include "report/render/pprof.h"

#define GZIP_WINDOW (15 + 16) /* zlib: the largest window, in gzip's framing */
#define MOST_TAGS   64

/* Numbers of the fields. */
enum profile_field {
    PROFILE_SAMPLE_TYPE = 1,
    PROFILE_SAMPLE = 2,
    PROFILE_MAPPING = 3,
    PROFILE_LOCATION = 4,
    PROFILE_FUNCTION = 5,
    PROFILE_STRING_TABLE = 6,
    PROFILE_TIME_NANOS = 9,
    PROFILE_DURATION_NANOS = 10,
    PROFILE_COMMENT = 13,
    PROFILE_DEFAULT_SAMPLE_TYPE = 14
};
enum value_type_field { VALUE_TYPE = 1, VALUE_UNIT = 2 };
enum sample_field { SAMPLE_LOCATION_ID = 1, SAMPLE_VALUE = 2, SAMPLE_LABEL = 3 };
enum label_field { LABEL_KEY = 1, LABEL_STR = 2, LABEL_NUM = 3 };
enum mapping_field {
    MAPPING_ID = 1,
    MAPPING_START = 2,
    MAPPING_LIMIT = 3,
    MAPPING_FILENAME = 5,
    MAPPING_BUILD_ID = 6,
    MAPPING_HAS_FUNCTIONS = 7,
    MAPPING_HAS_FILENAMES = 8,
    MAPPING_HAS_LINES = 9,
    MAPPING_HAS_INLINES = 10
};
enum location_field { LOCATION_ID = 1, LOCATION_MAPPING = 2, LOCATION_LINE = 4 };
enum line_field { LINE_FUNCTION = 1, LINE_LINE = 2 };
enum function_field { FUNCTION_ID = 1, FUNCTION_NAME = 2, FUNCTION_SYSTEM = 3, FUNCTION_FILE = 4 };

/* ---- strings ---- */

/* A fixed name. */
static uint64_t word(struct ms_pprof *pprof, const char *text)
{
    return ms_strings_add(&pprof->strings, text, strlen(text), NULL);
}

/* A stranger's name: one line of printable UTF-8. */
static uint64_t name(struct ms_pprof *pprof, const char *text)
{
    pprof->text.bytes = 0;
    ms_buffer_add_plain(&pprof->text, text ? text : "");
    return ms_strings_add(&pprof->strings, pprof->text.at ? pprof->text.at : "", pprof->text.bytes,
                          NULL);
}

/* Moves pprof->message into the tables. */
static void put_message(struct ms_pprof *pprof, uint32_t field)
{
    ms_protobuf_bytes(&pprof->tables, field, pprof->message.at, pprof->message.bytes);
    pprof->message.bytes = 0;
}

/* ---- functions, mappings, locations: each is encoded when it first occurs ---- */

static uint64_t function_id(struct ms_pprof *pprof, const struct ms_frame *frame)
{
    const uint64_t key[2] = {name(pprof, frame->function), name(pprof, frame->file)};
    bool added;
    const uint64_t id =
        ms_strings_add(&pprof->functions, (const char *)key, sizeof(key), &added) + UINT64_C(1);

    if (added) {
        ms_protobuf_number(&pprof->message, FUNCTION_ID, id);
        ms_protobuf_number(&pprof->message, FUNCTION_NAME, key[0]);
        /* If both were the same, pprof would shorten the name as a C++ one: `<module>` to
         * nothing. */
        if (frame->language == MS_FRAME_NATIVE) {
            ms_protobuf_number(&pprof->message, FUNCTION_SYSTEM, key[0]);
        }
        ms_protobuf_number(&pprof->message, FUNCTION_FILE, key[1]);
        put_message(pprof, PROFILE_FUNCTION);
    }
    return id;
}

static uint64_t build_id(struct ms_pprof *pprof, const struct ms_module_definition *module)
{
    const uint32_t bytes =
        module->build_id_bytes < MS_BUILD_ID_BYTES ? module->build_id_bytes : MS_BUILD_ID_BYTES;

    pprof->text.bytes = 0;
    for (uint32_t i = 0; i < bytes; i++) {
        ms_buffer_format(&pprof->text, "%02x", module->build_id[i]);
    }
    return ms_strings_add(&pprof->strings, bytes ? pprof->text.at : "", pprof->text.bytes, NULL);
}

/* The module of that path; null: its definition is damaged. */
static const struct ms_module_definition *find_module(const struct ms_model *model,
                                                      const char *path)
{
    for (uint32_t id = 1;; id++) {
        const struct ms_module_read *module = ms_definitions_module(model->definitions, id);

        if (!module || strcmp(module->path, path) == 0) {
            return module ? &module->is : NULL;
        }
    }
}

/* 0: the frame has no module. */
static uint64_t mapping_id(struct ms_pprof *pprof, const struct ms_model *model,
                           const struct ms_frame *frame)
{
    bool added;
    uint64_t id;

    if (!frame->module) {
        return 0;
    }
    id = ms_strings_add(&pprof->mappings, frame->module, strlen(frame->module), &added) +
         UINT64_C(1);
    if (added) {
        const struct ms_module_definition *module = find_module(model, frame->module);

        ms_protobuf_number(&pprof->message, MAPPING_ID, id);
        if (module) {
            ms_protobuf_number(&pprof->message, MAPPING_START, module->base);
            ms_protobuf_number(&pprof->message, MAPPING_LIMIT, module->base + module->bytes);
            ms_protobuf_number(&pprof->message, MAPPING_BUILD_ID, build_id(pprof, module));
        }
        ms_protobuf_number(&pprof->message, MAPPING_FILENAME, name(pprof, frame->module));
        for (uint32_t field = MAPPING_HAS_FUNCTIONS; field <= MAPPING_HAS_INLINES; field++) {
            ms_protobuf_number(&pprof->message, field, 1); /* nothing is left to symbolize */
        }
        put_message(pprof, PROFILE_MAPPING);
    }
    return id;
}

static uint64_t location_id(struct ms_pprof *pprof, const struct ms_model *model,
                            const struct ms_frame *frame)
{
    const uint64_t key[3] = {function_id(pprof, frame), frame->line,
                             mapping_id(pprof, model, frame)};
    bool added;
    const uint64_t id =
        ms_strings_add(&pprof->locations, (const char *)key, sizeof(key), &added) + UINT64_C(1);

    if (added) {
        pprof->line.bytes = 0;
        ms_protobuf_number(&pprof->line, LINE_FUNCTION, key[0]);
        ms_protobuf_number(&pprof->line, LINE_LINE, key[1]);
        ms_protobuf_number(&pprof->message, LOCATION_ID, id);
        ms_protobuf_number(&pprof->message, LOCATION_MAPPING, key[2]);
        ms_protobuf_bytes(&pprof->message, LOCATION_LINE, pprof->line.at, pprof->line.bytes);
        put_message(pprof, PROFILE_LOCATION);
    }
    return id;
}

/* ---- samples ---- */

static void add_locations(struct ms_pprof *pprof, const struct ms_model *model, uint32_t site)
{
    size_t count = 0;
    const struct ms_frame *frames =
        model->stacks ? ms_stacks_frames(model->stacks, site, &count) : NULL;
    const struct ms_frame unknown = {.function = ms_site_without_stack(model, site)};

    pprof->part.bytes = 0;
    for (size_t i = 0; i < count; i++) {
        ms_varint_append(&pprof->part, location_id(pprof, model, &frames[i]));
    }
    if (count == 0) {
        ms_varint_append(&pprof->part, location_id(pprof, model, &unknown));
    }
    ms_protobuf_bytes(&pprof->message, SAMPLE_LOCATION_ID, pprof->part.at, pprof->part.bytes);
}

static void add_label(struct ms_pprof *pprof, const char *key, enum label_field field,
                      uint64_t value)
{
    pprof->part.bytes = 0;
    ms_protobuf_number(&pprof->part, LABEL_KEY, word(pprof, key));
    ms_protobuf_number(&pprof->part, field, value);
    ms_protobuf_bytes(&pprof->message, SAMPLE_LABEL, pprof->part.at, pprof->part.bytes);
}

/* "outer/inner". */
static void add_tag(struct ms_pprof *pprof, const struct ms_model *model, uint32_t site)
{
    const struct ms_site_definition *definition = ms_definitions_site(model->definitions, site);
    const char *names[MOST_TAGS];
    const size_t count =
        definition ? ms_tag_path(model, definition->tag, names, MOST_TAGS) : (size_t)0;

    pprof->text.bytes = 0;
    for (size_t i = 0; i < count; i++) {
        ms_buffer_add(&pprof->text, i > 0 ? "/" : "");
        ms_buffer_add_plain(&pprof->text, names[i]);
    }
    if (pprof->text.bytes > 0) {
        add_label(pprof, "tag", LABEL_STR,
                  ms_strings_add(&pprof->strings, pprof->text.at, pprof->text.bytes, NULL));
    }
}

/* Builds the tables' messages in the same buffer, so locations come first. */
static void add_sample(struct ms_pprof *pprof, const struct ms_model *model, int device,
                       const struct ms_site_row *row)
{
    const uint64_t values[] = {row->sums.allocations, row->sums.bytes, row->sums.at_peak_count,
                               row->sums.at_peak_bytes};
    struct ms_site_kinds kinds;

    if (!(values[0] | values[1] | values[2] | values[3])) {
        return; /* only pinned host memory */
    }
    add_locations(pprof, model, row->site);
    pprof->part.bytes = 0;
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        ms_varint_append(&pprof->part, values[i]);
    }
    ms_protobuf_bytes(&pprof->message, SAMPLE_VALUE, pprof->part.at, pprof->part.bytes);
    ms_site_kinds(model, device, row->site, &kinds);
    add_label(pprof, "kind", LABEL_STR, word(pprof, ms_site_called(row, &kinds).kind));
    add_label(pprof, "device", LABEL_NUM, (uint64_t)device);
    if (model->header.rank >= 0) {
        add_label(pprof, "rank", LABEL_NUM, (uint64_t)model->header.rank);
    } else {
        add_label(pprof, "pid", LABEL_NUM, (uint64_t)(uint32_t)model->header.pid);
    }
    add_tag(pprof, model, row->site);
    ms_protobuf_bytes(&pprof->samples, PROFILE_SAMPLE, pprof->message.at, pprof->message.bytes);
    pprof->message.bytes = 0;
}

/* ---- the whole ---- */

static void add_comment(struct ms_pprof *pprof, uint64_t text)
{
    ms_protobuf_number(&pprof->tables, PROFILE_COMMENT, text);
}

static void add_type(struct ms_pprof *pprof, const char *type, const char *unit)
{
    pprof->part.bytes = 0;
    ms_protobuf_number(&pprof->part, VALUE_TYPE, word(pprof, type));
    ms_protobuf_number(&pprof->part, VALUE_UNIT, word(pprof, unit));
    ms_protobuf_bytes(&pprof->tables, PROFILE_SAMPLE_TYPE, pprof->part.at, pprof->part.bytes);
}

void ms_pprof_begin(struct ms_pprof *pprof)
{
    memset(pprof, 0, sizeof(*pprof));
    (void)word(pprof, ""); /* the first string must be empty, by the format */
    add_type(pprof, "alloc_objects", "count");
    add_type(pprof, "alloc_space", "bytes");
    add_type(pprof, "inuse_objects", "count");
    add_type(pprof, "inuse_space", "bytes");
    ms_protobuf_number(&pprof->tables, PROFILE_DEFAULT_SAMPLE_TYPE, word(pprof, "inuse_space"));
    add_comment(pprof, word(pprof, "memshim: inuse is what was live when live bytes peaked"));
}

static void add_process(struct ms_pprof *pprof, const struct ms_model *model)
{
    const struct ms_file_header *header = &model->header;

    if (pprof->processes == 0 || header->start_unix_ns < pprof->start_unix_ns) {
        pprof->start_unix_ns = header->start_unix_ns;
    }
    if (model->duration_ns > pprof->duration_ns) {
        pprof->duration_ns = model->duration_ns;
    }
    if (ms_definitions_sampling_bytes(model->definitions) > 0) {
        add_comment(pprof, word(pprof, "sampled: most allocations have no stack"));
    }
    pprof->processes++;
    add_comment(pprof, name(pprof, header->command));
    for (int device = 0; device < MS_DEVICE_COUNT; device++) {
        struct ms_buffer rows = {0};

        if (model->devices[device].used) {
            ms_site_rows(model, device, &rows);
        }
        for (size_t i = 0; i < ms_site_row_count(&rows); i++) {
            add_sample(pprof, model, device, ms_site_row_at(&rows, i));
        }
        ms_buffer_free(&rows);
    }
}

static void add_strings(struct ms_pprof *pprof)
{
    for (size_t i = 0; i < ms_strings_count(&pprof->strings); i++) {
        size_t bytes;
        const char *text = ms_strings_at(&pprof->strings, i, &bytes);

        ms_protobuf_bytes(&pprof->tables, PROFILE_STRING_TABLE, text, bytes);
    }
}

static bool pack(const struct ms_buffer *from, struct ms_buffer *out)
{
    z_stream stream = {0};
    bool packed = false;

    if (deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, GZIP_WINDOW, MAX_MEM_LEVEL,
                     Z_DEFAULT_STRATEGY) != Z_OK) {
        return false;
    }

    const uLong most = deflateBound(&stream, from->bytes);
    char *to = from->bytes <= UINT32_MAX ? ms_buffer_extend(out, most) : NULL;

    if (to) {
        stream.next_in = (Bytef *)from->at;
        stream.avail_in = (uInt)from->bytes;
        stream.next_out = (Bytef *)to;
        stream.avail_out = (uInt)most;
        packed = deflate(&stream, Z_FINISH) == Z_STREAM_END;
        out->bytes -= stream.avail_out;
    }
    (void)deflateEnd(&stream);
    return packed;
}

/* False: memory ran out. */
static bool end_profile(struct ms_pprof *pprof, struct ms_buffer *out)
{
    bool whole;

    ms_protobuf_number(&pprof->tables, PROFILE_TIME_NANOS, pprof->start_unix_ns);
    ms_protobuf_number(&pprof->tables, PROFILE_DURATION_NANOS, pprof->duration_ns);
    add_strings(pprof);
    ms_buffer_append(&pprof->tables, pprof->samples.at, pprof->samples.bytes);
    whole = !pprof->tables.failed && !pprof->samples.failed && !pprof->strings.text.failed &&
            !pprof->functions.text.failed && !pprof->mappings.text.failed &&
            !pprof->locations.text.failed && pack(&pprof->tables, out);
    return whole;
}

void ms_pprof_free(struct ms_pprof *pprof)
{
    ms_buffer_free(&pprof->samples);
    ms_buffer_free(&pprof->message);
    ms_buffer_free(&pprof->part);
    ms_buffer_free(&pprof->line);
    ms_buffer_free(&pprof->text);
    ms_buffer_free(&pprof->tables);
    ms_strings_free(&pprof->strings);
    ms_strings_free(&pprof->functions);
    ms_strings_free(&pprof->mappings);
    ms_strings_free(&pprof->locations);
}

void ms_form_pprof(struct ms_forms *forms, const struct ms_model *model,
                   const struct ms_merged *merged)
{
    (void)merged;
    if (model) {
        add_process(&forms->pprof, model);
    } else if (!end_profile(&forms->pprof, &forms->out)) {
        ms_forms_complain(forms, "no memory to write the profile");
        forms->failed = true;
    }
}
