/* SPDX-License-Identifier: Apache-2.0 */
/* Walks over the entries of one extent of the log. Pure. */
#ifndef MEMSHIM_REPORT_READ_LOG_ENTRIES_H
#define MEMSHIM_REPORT_READ_LOG_ENTRIES_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "report/read/reader.h"
#include "report/trace/format.h"

/* A program that ends after an out-of-memory makes no more allocations than this: after more, it
 * has recovered. */
#define MS_WENT_ON_ALLOCATIONS 64u

struct ms_log_entries {
    const char *at;
    uint64_t left_bytes; /* after the last one read: bytes that are no entries */
};

/* place: of the log, accepted by the last ms_reader_load. */
static inline struct ms_log_entries ms_log_entries_begin(const struct ms_reader *reader,
                                                         const struct ms_extent_place *place)
{
    const struct ms_extent_header *header = (const struct ms_extent_header *)reader->extent;

    return (struct ms_log_entries){.at = reader->extent + header->payload_offset,
                                   .left_bytes = place->committed_bytes};
}

static inline bool ms_log_entry_is_known(const struct ms_log_entry *entry)
{
    switch (entry->kind) {
    case MS_LOG_OOM:
        return ms_log_oom_state_bytes(entry->bytes) > 0;
    case MS_LOG_THRESHOLD:
        return entry->bytes == sizeof(struct ms_log_threshold);
    default:
        return entry->kind == MS_LOG_NOTE;
    }
}

/* *payload: entry->bytes of it, unaligned. False: there are no more. */
static inline bool ms_log_entries_next(struct ms_log_entries *entries, struct ms_log_entry *entry,
                                       const char **payload)
{
    uint64_t bytes;

    if (entries->left_bytes < sizeof(*entry)) {
        return false;
    }
    memcpy(entry, entries->at, sizeof(*entry));
    bytes = sizeof(*entry) + ((entry->bytes + UINT64_C(7)) & ~UINT64_C(7));
    if (bytes > entries->left_bytes || !ms_log_entry_is_known(entry)) {
        return false;
    }
    *payload = entries->at + sizeof(*entry);
    entries->at += bytes;
    entries->left_bytes -= bytes;
    return true;
}

#endif
