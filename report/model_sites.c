#include "report/model_sites.h"

#include <inttypes.h>
#include <string.h>

/* ---- definitions ---- */

/* False where the extent is damaged, or ends in the midst of a definition. */
static bool read_extent(ms_definitions_t *definitions, const struct ms_reader *reader,
                        const struct ms_extent_place *place)
{
    const struct ms_extent_header *header = (const struct ms_extent_header *)reader->extent;
    const char *at = reader->extent + header->payload_offset;
    uint64_t left = place->committed_bytes;

    while (left > 0) {
        struct ms_site_entry entry;

        if (left < sizeof(entry)) {
            return false;
        }
        memcpy(&entry, at, sizeof(entry));

        const uint64_t bytes = sizeof(entry) + ((entry.bytes + UINT64_C(7)) & ~UINT64_C(7));

        if (bytes > left) {
            return false;
        }
        ms_definitions_add(definitions, entry.kind, at + sizeof(entry), entry.bytes);
        at += bytes;
        left -= bytes;
    }
    return true;
}

void ms_model_read_definitions(struct ms_model *model, struct ms_reader *reader)
{
    uint64_t damaged = 0;

    model->definitions = ms_definitions_new();
    if (!model->definitions) {
        ms_model_warn(model, "there was no memory to read the call sites");
        return;
    }
    for (size_t i = 0; i < ms_reader_count(&reader->sites); i++) {
        struct ms_extent_place *place = ms_reader_place(&reader->sites, i);

        damaged +=
            !ms_reader_load(reader, place) || !read_extent(model->definitions, reader, place);
    }
    damaged += ms_definitions_damaged(model->definitions);
    if (damaged > 0) {
        ms_model_warn(model,
                      "%" PRIu64 " definitions of call sites are damaged: stacks may be "
                      "missing or cut",
                      damaged);
    }
}
