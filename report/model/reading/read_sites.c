/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the definitions of call sites out of a trace. */
#include "report/model/reading/read_sites.h"

#include <inttypes.h>
#include <string.h>

/* False: the extent ends inside a definition. */
static bool read_extent(ms_definitions_t *definitions, const struct ms_reader *reader,
                        struct ms_extent_place *place)
{
    const struct ms_extent_header *header = (const struct ms_extent_header *)reader->extent;

    while (place->done_bytes < place->committed_bytes) {
        const char *at = reader->extent + header->payload_offset + place->done_bytes;
        const uint64_t left = place->committed_bytes - place->done_bytes;
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
        place->done_bytes += bytes;
    }
    return true;
}

void ms_model_read_definitions(struct ms_model *model, struct ms_reader *reader)
{
    for (size_t i = 0; i < ms_reader_count(&reader->sites); i++) {
        struct ms_extent_place *place = ms_reader_place(&reader->sites, i);

        if (!ms_reader_load(reader, place) || !read_extent(model->definitions, reader, place)) {
            model->damaged_definitions++;
        }
    }
    ms_site_table_sample(model->sites, ms_definitions_sampling_bytes(model->definitions));
}

void ms_model_check_definitions(struct ms_model *model)
{
    model->damaged_definitions += ms_definitions_damaged(model->definitions);
    if (model->damaged_definitions > 0) {
        ms_model_warn(model,
                      "%" PRIu64 " parts of the call sites are damaged: stacks may be missing or "
                      "cut",
                      model->damaged_definitions);
    }
}
