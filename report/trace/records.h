/* SPDX-License-Identifier: Apache-2.0 */
/* Walks over the records of one window. The reader uses it for the window that it loaded last, the
 * writer for its own. Pure. */
#ifndef MEMSHIM_REPORT_TRACE_RECORDS_H
#define MEMSHIM_REPORT_TRACE_RECORDS_H

#include <stdbool.h>
#include <stdint.h>

#include "report/trace/encoding.h"
#include "report/trace/format.h"

struct ms_records {
    struct ms_codec *codec;
    const uint8_t *at;
    uint64_t left_bytes; /* after the last one read: bytes that are no records */
    uint32_t count;      /* records read */
};

/* Begins a walk. header: of a whole window, whose payload_offset is in range; committed_bytes: of
 * its records, which lie in it. MS_RECORD_MAX_BYTES behind them must be readable. */
static inline struct ms_records ms_records_begin(struct ms_codec *codec,
                                                 const struct ms_extent_header *header,
                                                 uint64_t committed_bytes)
{
    ms_codec_reset(codec, header->start_time_ns);
    return (struct ms_records){.codec = codec,
                               .at = (const uint8_t *)header + header->payload_offset,
                               .left_bytes = committed_bytes};
}

/* False: there are no more. */
static inline bool ms_records_next(struct ms_records *records, struct ms_event *event,
                                   uint64_t *time_ns)
{
    const size_t bytes = records->left_bytes > 0 ? ms_decode(records->codec, records->at,
                                                             records->left_bytes, event, time_ns)
                                                 : 0;

    records->at += bytes;
    records->left_bytes -= bytes;
    records->count += bytes > 0;
    return bytes > 0;
}

#endif
