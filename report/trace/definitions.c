/* SPDX-License-Identifier: Apache-2.0 */
/* The table of definitions: modules, code, frames, tags and call sites by their ids. */
#include <string.h>

#include "allocator/base/buffer.h"
#include "allocator/base/containers/pages.h"
#include "report/trace/sites.h"

#define MOST_IDS    (1u << 24) /* of one kind: no process interns more */
#define SLAB_BYTES  (1u << 20)
#define ALIGN_BYTES 8u

/* Memory for definitions, which never move. */
struct slab {
    struct slab *next;
    size_t used;
};

struct ms_definitions {
    struct ms_buffer by_id[MS_DEFINE_KIND_COUNT]; /* pointers; null for an unknown id */
    struct slab *slabs;
    uint64_t sampling_bytes, damaged;
};

/* Zeroed; null: memory ran out. bytes: at most the size of a definition with its strings. */
static void *take(struct ms_definitions *definitions, size_t bytes)
{
    struct slab *slab = definitions->slabs;
    const size_t rounded = (bytes + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;

    if (!slab || slab->used + rounded > SLAB_BYTES) {
        slab = ms_pages_map(SLAB_BYTES);
        if (!slab) {
            return NULL;
        }
        slab->next = definitions->slabs;
        slab->used = sizeof(*slab);
        definitions->slabs = slab;
    }

    void *taken = (char *)slab + slab->used;

    slab->used += rounded;
    return taken;
}

ms_definitions_t *ms_definitions_new(void)
{
    return ms_pages_map(sizeof(struct ms_definitions));
}

void ms_definitions_delete(ms_definitions_t *definitions)
{
    if (!definitions) {
        return;
    }
    while (definitions->slabs) {
        struct slab *next = definitions->slabs->next;

        ms_pages_unmap(definitions->slabs, SLAB_BYTES);
        definitions->slabs = next;
    }
    for (int kind = 0; kind < MS_DEFINE_KIND_COUNT; kind++) {
        ms_buffer_free(&definitions->by_id[kind]);
    }
    ms_pages_unmap(definitions, sizeof(*definitions));
}

static const void *find(const ms_definitions_t *definitions, uint32_t kind, uint32_t id)
{
    const struct ms_buffer *known = &definitions->by_id[kind];

    return id < known->bytes / sizeof(void *) ? ((void *const *)known->at)[id] : NULL;
}

/* The place of an id's pointer; null: the id is out of range, or defined already. */
static void **place_of(struct ms_definitions *definitions, uint32_t kind, uint32_t id)
{
    struct ms_buffer *known = &definitions->by_id[kind];
    const size_t count = known->bytes / sizeof(void *);

    if (id == 0 || id >= MOST_IDS || find(definitions, kind, id)) {
        return NULL;
    }
    if (id >= count && !ms_buffer_extend(known, (id + 1 - count) * sizeof(void *))) {
        return NULL;
    }
    return &((void **)known->at)[id];
}

/* The place of a definition, with its texts behind it. */
struct definition_text {
    char *to;         /* in the table's memory */
    const char *from; /* in the payload */
};

/* The memory is zeroed, so a zero byte ends the text. */
static char *take_text(struct definition_text *text, size_t bytes)
{
    char *taken = text->to;

    memcpy(taken, text->from, bytes);
    text->to += bytes + 1;
    text->from += bytes;
    return taken;
}

/* Adds a definition that is only a struct. */
static bool add_plain(struct ms_definitions *definitions, uint32_t kind, uint32_t id,
                      const void *payload, size_t bytes)
{
    void **place = place_of(definitions, kind, id);

    if (place) {
        *place = take(definitions, bytes);
    }
    if (!place || !*place) {
        return false;
    }
    memcpy(*place, payload, bytes);
    return true;
}

static bool add_module(struct ms_definitions *definitions, const char *payload, size_t bytes)
{
    struct ms_module_definition is;

    if (bytes < sizeof(is)) {
        return false;
    }
    memcpy(&is, payload, sizeof(is));

    const size_t path_bytes = bytes - sizeof(is);
    void **place = is.build_id_bytes <= MS_BUILD_ID_BYTES
                       ? place_of(definitions, MS_DEFINE_MODULE, is.id)
                       : NULL;
    struct ms_module_read *read = place ? take(definitions, sizeof(*read) + path_bytes + 1) : NULL;

    if (!read) {
        return false;
    }

    struct definition_text text = {(char *)(read + 1), payload + sizeof(is)};

    read->is = is;
    read->path = take_text(&text, path_bytes);
    *place = read;
    return true;
}

static bool add_code(struct ms_definitions *definitions, const char *payload, size_t bytes)
{
    struct ms_code_definition is;

    if (bytes < sizeof(is)) {
        return false;
    }
    memcpy(&is, payload, sizeof(is));

    const uint64_t texts = (uint64_t)is.file_bytes + is.function_bytes + is.table_bytes;
    void **place =
        texts == bytes - sizeof(is) ? place_of(definitions, MS_DEFINE_CODE, is.id) : NULL;
    struct ms_code_read *read = place ? take(definitions, sizeof(*read) + texts + 3) : NULL;

    if (!read) {
        return false;
    }

    struct definition_text text = {(char *)(read + 1), payload + sizeof(is)};

    read->is = is;
    read->file = take_text(&text, is.file_bytes);
    read->function = take_text(&text, is.function_bytes);
    read->table = (const uint8_t *)take_text(&text, is.table_bytes);
    *place = read;
    return true;
}

static bool add_tag(struct ms_definitions *definitions, const char *payload, size_t bytes)
{
    struct ms_tag_definition is;

    if (bytes < sizeof(is)) {
        return false;
    }
    memcpy(&is, payload, sizeof(is));

    void **place = is.outer < is.id && is.name_bytes == bytes - sizeof(is)
                       ? place_of(definitions, MS_DEFINE_TAG, is.id)
                       : NULL;
    struct ms_tag_read *read = place ? take(definitions, sizeof(*read) + is.name_bytes + 1) : NULL;

    if (!read) {
        return false;
    }

    struct definition_text text = {(char *)(read + 1), payload + sizeof(is)};

    read->is = is;
    read->name = take_text(&text, is.name_bytes);
    *place = read;
    return true;
}

/* A node's caller must be defined before it: that makes the nodes a tree. */
static bool add_native(struct ms_definitions *definitions, const void *payload, size_t bytes)
{
    struct ms_native_definition is;

    if (bytes != sizeof(is)) {
        return false;
    }
    memcpy(&is, payload, sizeof(is));
    return is.caller < is.id && add_plain(definitions, MS_DEFINE_NATIVE, is.id, &is, sizeof(is));
}

static bool add_python(struct ms_definitions *definitions, const void *payload, size_t bytes)
{
    struct ms_python_definition is;

    if (bytes != sizeof(is)) {
        return false;
    }
    memcpy(&is, payload, sizeof(is));
    return is.caller < is.id && add_plain(definitions, MS_DEFINE_PYTHON, is.id, &is, sizeof(is));
}

static bool add_site(struct ms_definitions *definitions, const void *payload, size_t bytes)
{
    struct ms_site_definition is;

    if (bytes != sizeof(is)) {
        return false;
    }
    memcpy(&is, payload, sizeof(is));
    return add_plain(definitions, MS_DEFINE_SITE, is.id, &is, sizeof(is));
}

static bool set_sampling(struct ms_definitions *definitions, const void *payload, size_t bytes)
{
    struct ms_sampling_definition is;

    if (bytes != sizeof(is)) {
        return false;
    }
    memcpy(&is, payload, sizeof(is));
    definitions->sampling_bytes = is.mean_bytes;
    return true;
}

static bool add(struct ms_definitions *definitions, uint32_t kind, const void *payload,
                size_t bytes)
{
    if (bytes > MS_DEFINITION_MAX_BYTES) {
        return false;
    }
    switch (kind) {
    case MS_DEFINE_MODULE:
        return add_module(definitions, payload, bytes);
    case MS_DEFINE_NATIVE:
        return add_native(definitions, payload, bytes);
    case MS_DEFINE_CODE:
        return add_code(definitions, payload, bytes);
    case MS_DEFINE_PYTHON:
        return add_python(definitions, payload, bytes);
    case MS_DEFINE_TAG:
        return add_tag(definitions, payload, bytes);
    case MS_DEFINE_SITE:
        return add_site(definitions, payload, bytes);
    case MS_DEFINE_SAMPLING:
        return set_sampling(definitions, payload, bytes);
    default:
        return false;
    }
}

void ms_definitions_add(ms_definitions_t *definitions, uint32_t kind, const void *payload,
                        size_t bytes)
{
    definitions->damaged += !add(definitions, kind, payload, bytes);
}

const struct ms_module_read *ms_definitions_module(const ms_definitions_t *definitions, uint32_t id)
{
    return find(definitions, MS_DEFINE_MODULE, id);
}

const struct ms_native_definition *ms_definitions_native(const ms_definitions_t *definitions,
                                                         uint32_t id)
{
    return find(definitions, MS_DEFINE_NATIVE, id);
}

const struct ms_code_read *ms_definitions_code(const ms_definitions_t *definitions, uint32_t id)
{
    return find(definitions, MS_DEFINE_CODE, id);
}

const struct ms_python_definition *ms_definitions_python(const ms_definitions_t *definitions,
                                                         uint32_t id)
{
    return find(definitions, MS_DEFINE_PYTHON, id);
}

const struct ms_tag_read *ms_definitions_tag(const ms_definitions_t *definitions, uint32_t id)
{
    return find(definitions, MS_DEFINE_TAG, id);
}

const struct ms_site_definition *ms_definitions_site(const ms_definitions_t *definitions,
                                                     uint32_t id)
{
    return find(definitions, MS_DEFINE_SITE, id);
}

bool ms_definitions_same_python(const ms_definitions_t *definitions, uint32_t site, uint32_t other)
{
    const struct ms_site_definition *a = ms_definitions_site(definitions, site);
    const struct ms_site_definition *b = ms_definitions_site(definitions, other);

    return site == other || (a && b && a->python != 0 && a->python == b->python);
}

uint32_t ms_definitions_site_count(const ms_definitions_t *definitions)
{
    const size_t places = definitions->by_id[MS_DEFINE_SITE].bytes / sizeof(void *);

    return places > 0 ? (uint32_t)places - 1 : 0;
}

uint64_t ms_definitions_sampling_bytes(const ms_definitions_t *definitions)
{
    return definitions->sampling_bytes;
}

uint64_t ms_definitions_damaged(const ms_definitions_t *definitions)
{
    return definitions->damaged;
}
