/* SPDX-License-Identifier: Apache-2.0 */
/* Codes events as compact records, and back. Writer and reader share it. Pure; one encoder or
 * decoder a window.
 *
 * A record
 *   tag byte   bits 0-4  kind (enum ms_event_kind), where that is 1 to 30; 31: a TENSOR_ALLOC in
 *                        another arena than the last one; 0: a kind from 31 on, which follows
 *              bit 5     CONTEXT: device and owner differ from the record before
 *              bit 6     KNOWN: of an allocation (BLOCK_ALLOC, TENSOR_ALLOC): id is the last
 *                        allocation's + 1; of a free (BLOCK_FREE, BLOCK_ARENA, TENSOR_FREE): addr
 *                        and bytes are those of that id's allocation, which lies in this window
 *              bit 7     SAME: the site is the predicted one and the stream the last one; for
 *                        BLOCK_FREE also aux = 0
 *   kind       if bits 0-4 are 0: one byte
 *   context    if CONTEXT: one byte, device | owner << 6
 *   time       varint: units of MS_TIME_UNIT_NS since the record before (the first: since the
 *              window's start)
 *   id         unless a KNOWN allocation. Allocations: zigzag of (id - last allocation's id - 1);
 *              frees: zigzag of (last allocation's id - id); other kinds: zigzag of (id - id of
 *              the last other record)
 *   addr       unless a KNOWN free: signed short of (addr - last addr)
 *   bytes      unless a KNOWN free: short
 *   stream     unless SAME: varint
 *   site       unless SAME: varint
 *   aux        BLOCK_ALLOC: signed short of (aux - bytes); TENSOR_ALLOC: none, kind 31: zigzag of
 *              (aux - aux of the last tensor's allocation); BLOCK_FREE: varint, unless SAME; else
 *              varint
 * A record has only the fields that allocator/base/events.def names for its kind. "last addr" is
 * that of the last record with one; stream and site likewise. The predicted site is the one that
 * followed the last site when that was seen before (MS_SITE_SLOTS slots by site, of this window).
 *
 * varint: seven bits a byte, lowest first, bit 7 set on all but the last byte. zigzag: 0, -1, 1,
 * -2, ... become 0, 1, 2, 3, ...
 * short: like a varint, but bit 0 of the first byte is a flag, which leaves it six bits: 0: the
 * value follows as it is; 1: divided by 512. signed short: the same, after zigzag (and after the
 * division). */
#ifndef MEMSHIM_REPORT_TRACE_ENCODING_H
#define MEMSHIM_REPORT_TRACE_ENCODING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "report/trace/timed_event.h"

#define MS_RECORD_MAX_BYTES 96u /* the longest record, even a damaged one */
#define MS_ALLOCATION_SLOTS 4096u
#define MS_SITE_SLOTS       1024u

struct ms_allocation {
    uint64_t id, addr, bytes;
};

/* Times are multiples of it: so the time of half of all records takes one byte. */
#define MS_TIME_UNIT_NS 32u

/* The state that both sides have after each record. */
struct ms_codec {
    uint64_t time_ns;
    uint64_t allocation_id, other_id, addr, stream, arena;
    uint32_t site;
    uint8_t context;
    struct ms_allocation allocations[MS_ALLOCATION_SLOTS]; /* by id */
    uint32_t next_site[MS_SITE_SLOTS];                     /* by site */
};

/* Resets it at the start of a window; start_time_ns as for ms_encode. */
void ms_codec_reset(struct ms_codec *codec, uint64_t start_time_ns);

/* Writes one record to `out` (MS_RECORD_MAX_BYTES of room) and returns its length. time_ns: a
 * multiple of MS_TIME_UNIT_NS, not before the last one's. The event's kind, device and owner are in
 * range. */
size_t ms_encode(struct ms_codec *codec, const struct ms_event *event, uint64_t time_ns,
                 uint8_t *out);

/* The same for a row of events, until all are written or fewer than MS_RECORD_MAX_BYTES of the
 * room_bytes are left. Returns how many it wrote, in *bytes bytes. */
size_t ms_encode_row(struct ms_codec *codec, const struct ms_timed_event *row, size_t count,
                     uint8_t *out, size_t room_bytes, size_t *bytes);

/* Reads one record from the `bytes` bytes at `in`. Returns its length; 0: they are not a record.
 * The caller makes MS_RECORD_MAX_BYTES from `in` on readable, whatever they hold, because bounds
 * are checked only afterwards. */
size_t ms_decode(struct ms_codec *codec, const uint8_t *in, size_t bytes, struct ms_event *event,
                 uint64_t *time_ns);

#endif
