/* SPDX-License-Identifier: Apache-2.0 */
/* The layout of trace.mshm, which writer and reader share.
 *
 * Little-endian, 64-bit; the structs lie in the file as they are here, and padding has no meaning.
 * The file is a row of extents of MS_EXTENT_BYTES each:
 *
 *   extent 0         struct ms_file_header; at MS_TAIL_OFFSET struct ms_tail, the newest events
 *   extents 1, ...   struct ms_extent_header, then contents by its kind; kinds in any order:
 *     WINDOW           bases (struct ms_base, base_count of them: every device's sums before the
 *                      first record), then records (encoding.h) from payload_offset on
 *     LOG              entries (struct ms_log_entry + its payload, padded to 8 bytes) that are
 *                      never dropped: out-of-memories, notes, threshold crossings
 *     DEVICE           struct ms_device_page: one device, its sums and its timeline
 *     SITES            definitions (struct ms_site_entry + its payload, definitions.h, padded to 8
 *                      bytes), never dropped either
 *     DIGEST           struct ms_digest_part and a part of a digest (digest.h), which sums up the
 *                      events in recycled windows. Two digests are written in turn
 *
 * An event is first a plain record in the tail. Later it is packed together with others: into the
 * window in use, its device's sums and its timeline. So a trace's contents are the packed events
 * and then the tail. Events are numbered from 0 in the order in which they were recorded. The
 * windows' own numbers (first_event, and their records' count) show which events of the tail they
 * already have. The number in struct ms_device_sums shows which events its sums include, and the
 * count in struct ms_series how many of the device's own.
 *
 * Windows, logs and definitions grow by a release store of `committed`, after the bytes that it
 * covers: a writer that is killed at any moment leaves a valid prefix. Each window can be read by
 * itself, so that old ones can be recycled when the trace has reached its limit: `sequence` gives
 * their order, and a gap in it or in `first_event` shows what is gone. Space is allocated an extent
 * at a time, ahead of use; unwritten space is zero. An extent whose trace_id differs from the
 * header's is not part of this trace.
 *
 * Versions: a reader cannot read another MAJOR. Another MINOR has other sums (struct ms_aggregate)
 * or kinds of event. A reader reads MINORs from MS_FORMAT_OLDEST_MINOR up to its own.
 *   2  MS_EVENT_WAITS
 *   3  the next three fields of struct ms_oom_state: before, struct ms_log_oom was shorter;
 *      MS_EVENT_LOST
 *   4  the fields of struct ms_oom_state from terms_known on
 *   5  MS_OOM_HOST
 *   6  MS_EVENT_VALUE_READ
 *   7  MS_EVENT_BLOCK_ALLOC of MS_OWNER_APPLICATION
 *   8  MS_EVENT_GIVEN_BACK
 *   9  the field `shared` of struct ms_oom_state
 *  10  the field driver_error of struct ms_oom_state
 *  11  MS_EVENT_CALL; the header's clock_ahead_ns, which is 0 in older traces
 *  12  the field grad_mode of struct ms_oom_state */
#ifndef MEMSHIM_REPORT_TRACE_FORMAT_H
#define MEMSHIM_REPORT_TRACE_FORMAT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "report/trace/aggregate.h"
#include "report/trace/definitions.h"
#include "report/trace/series.h"
#include "report/trace/verdict.h"

#define MS_TRACE_FILE          "trace.mshm"
#define MS_FORMAT_MAGIC        "\x8aMSHM\r\n\x1a" /* 8 bytes; a transfer in text mode damages it */
#define MS_FORMAT_MAJOR        3
#define MS_FORMAT_MINOR        12
#define MS_FORMAT_OLDEST_MINOR 1             /* oldest that is read: its sums are the same */
#define MS_FORMAT_LAST_KIND    MS_EVENT_CALL /* the last kind of this MINOR */
#define MS_BYTE_ORDER          0x01020304u
#define MS_EXTENT_BYTES        262144u
#define MS_EXTENT_MAGIC        0x5848534du /* "MSHX" */
#define MS_TAIL_OFFSET         131072u
#define MS_TAIL_EVENTS         128u /* a power of two */

#define MS_RUN_ID_BYTES  256
#define MS_HOST_BYTES    256
#define MS_PROGRAM_BYTES 256
#define MS_VERSION_BYTES 128
#define MS_COMMAND_BYTES 4096
#define MS_OPTIONS_BYTES 16384
#define MS_NAME_BYTES    256
#define MS_UUID_BYTES    16

enum ms_version_slot { MS_VERSION_DRIVER, MS_VERSION_CUDA, MS_VERSION_TORCH, MS_VERSION_COUNT };

_Static_assert(MS_EVENT_KIND_COUNT == MS_FORMAT_LAST_KIND + 1,
               "a kind was added: name it as the last one here, and raise MS_FORMAT_MINOR, so that "
               "older readers refuse the trace");

/* Readers that do not know LEFT take the process for a killed one. */
enum ms_trace_state {
    MS_TRACE_OPEN,   /* being written, or its process was killed */
    MS_TRACE_CLOSED, /* closed in order */
    MS_TRACE_LEFT    /* as the open one of a killed process, but its exit status is known */
};

/* Strings are terminated by a zero byte within their field. */
struct ms_file_header {
    char magic[8];
    uint32_t byte_order;
    uint16_t version_major, version_minor;
    uint32_t extent_bytes;
    int32_t pid, rank, local_rank; /* ranks: -1 unknown */
    uint64_t trace_id;             /* not 0; marks the extents that belong to this trace */
    uint64_t start_unix_ns;        /* wall clock at time 0 of the records */
    uint64_t start_monotonic_ns;   /* CLOCK_MONOTONIC at the same moment */
    int32_t world_size;            /* 0 unknown */
    int32_t supervisor_pid; /* of the `memshim run` that completes reports; 0: none or unknown */
    char run_id[MS_RUN_ID_BYTES];
    char host[MS_HOST_BYTES];
    char program[MS_PROGRAM_BYTES];
    char torch_mode[MS_VERSION_BYTES];
    char memshim_version[MS_VERSION_BYTES];
    char command[MS_COMMAND_BYTES];
    char options[MS_OPTIONS_BYTES];
    uint64_t checksum; /* of all bytes before it */

    /* The fields from here on change while the process runs. */
    char versions[MS_VERSION_COUNT][MS_VERSION_BYTES];
    _Atomic uint32_t state; /* enum ms_trace_state */
    uint32_t exit_known;
    int32_t exit_status;
    uint32_t unused_too;
    uint64_t end_time_ns;             /* valid unless state is OPEN */
    _Atomic uint64_t events;          /* all recorded events, kept or not, packed or not */
    _Atomic uint64_t lost_events;     /* no room in the file: only the sums have them */
    _Atomic uint64_t recycled_events; /* their windows made room for newer ones */
    _Atomic uint64_t lost_entries;    /* log entries that found no room */
    _Atomic uint64_t disk_full;       /* 1 once the file could not grow */
    _Atomic uint64_t lost_definitions;
    int64_t clock_ahead_ns; /* of the host's clock to that of the output folder's file system; 0:
                               they were not seen to differ */
};

/* Event i lies at events[i % MS_TAIL_EVENTS]. It is complete before the header's `events` counts
 * it, and stays until event i + MS_TAIL_EVENTS is written, which happens only after event i was
 * packed. */
struct ms_tail {
    struct ms_timed_event events[MS_TAIL_EVENTS];
};

enum ms_extent_kind {
    MS_EXTENT_WINDOW = 1,
    MS_EXTENT_LOG = 2,
    MS_EXTENT_DEVICE = 3,
    MS_EXTENT_SITES = 4,
    MS_EXTENT_DIGEST = 5
};

struct ms_extent_header {
    uint32_t magic;
    uint32_t kind; /* enum ms_extent_kind */
    uint64_t trace_id;
    uint64_t start_time_ns;     /* windows: the first record's time is relative to it */
    uint64_t first_event;       /* windows: number of the first record's event */
    uint32_t base_count;        /* windows */
    uint32_t payload_offset;    /* from the start of the extent */
    uint64_t checksum;          /* ms_extent_checksum */
    _Atomic uint64_t sequence;  /* from 1, by kind; 0: no content (yet, or while recycled) */
    _Atomic uint64_t committed; /* payload bytes, and the number of records or entries << 32 */
    _Atomic uint64_t payload_checksum; /* of the committed bytes; 0 while they may still grow */
};

struct ms_base {
    uint64_t device;
    struct ms_aggregate sums;
};

struct ms_device_sums {
    uint64_t end_event; /* of all events before this number */
    struct ms_aggregate sums;
};

struct ms_device_page {
    uint32_t device; /* ordinal */
    uint32_t has_uuid;
    char name[MS_NAME_BYTES];
    uint8_t uuid[MS_UUID_BYTES];
    _Atomic uint64_t current; /* copy[current & 1] is valid; changes are made in the other one */
    struct ms_device_sums copy[2];
    struct ms_series_pair series;
};

enum ms_log_kind { MS_LOG_OOM = 1, MS_LOG_NOTE = 2, MS_LOG_THRESHOLD = 3 };

struct ms_log_entry {
    uint32_t kind;  /* enum ms_log_kind */
    uint32_t bytes; /* of the payload, without padding */
    uint64_t time_ns;
    uint64_t event;  /* number of events recorded before it */
    uint64_t device; /* OOM, THRESHOLD */
};

/* Payload of MS_LOG_OOM. */
struct ms_log_oom {
    struct ms_oom_state state;
    struct ms_counters counters; /* at that moment */
    uint64_t allocations;        /* the device's allocations before it, of blocks and of tensors */
    struct ms_moment peak_live;  /* so far */
};

/* struct ms_oom_state grew in the middle of this entry. Returns its bytes in an entry of so many
 * payload bytes, of any version that is read; 0: no version has such an entry. */
static inline uint64_t ms_log_oom_state_bytes(uint64_t entry_bytes)
{
    const uint64_t beside = sizeof(struct ms_log_oom) - sizeof(struct ms_oom_state);
    const uint64_t bytes = entry_bytes > beside ? entry_bytes - beside : 0;
    const bool known = bytes == sizeof(struct ms_oom_state) ||
                       bytes == offsetof(struct ms_oom_state, grad_mode) ||
                       bytes == offsetof(struct ms_oom_state, driver_error) ||
                       bytes == offsetof(struct ms_oom_state, shared) ||
                       bytes == offsetof(struct ms_oom_state, terms_known) ||
                       bytes == offsetof(struct ms_oom_state, limit_bytes);

    return known ? bytes : 0;
}

/* Payload of MS_LOG_THRESHOLD. */
struct ms_log_threshold {
    uint64_t state; /* the one entered */
    uint64_t charged_bytes;
};

struct ms_site_entry {
    uint32_t kind;  /* enum ms_definition_kind */
    uint32_t bytes; /* of the payload, without padding */
};

/* The checksum of the fields before `checksum`, of the sequence, and of all bytes from the header's
 * end to the payload (none if payload_offset is out of range). The whole extent lies at
 * `header`. */
uint64_t ms_extent_checksum(const struct ms_extent_header *header, uint64_t sequence);

#define MS_UUID_TEXT_BYTES 41

/* A device's UUID as nvidia-smi writes it: "GPU-" and five groups of digits. Returns text. */
char *ms_uuid_text(const uint8_t uuid[MS_UUID_BYTES], char text[MS_UUID_TEXT_BYTES]);

_Static_assert(offsetof(struct ms_device_page, copy) ==
                   offsetof(struct ms_device_page, current) + sizeof(uint64_t),
               "both are read at once");
_Static_assert(sizeof(struct ms_timed_event) == 56, "events lie in the file as they are");
_Static_assert(sizeof(struct ms_file_header) <= MS_TAIL_OFFSET &&
                   MS_TAIL_OFFSET + sizeof(struct ms_tail) <= MS_EXTENT_BYTES,
               "the header and the tail fit their extent");
_Static_assert(sizeof(struct ms_extent_header) + sizeof(struct ms_device_page) <= MS_EXTENT_BYTES,
               "a device fits its extent");
_Static_assert(sizeof(struct ms_extent_header) + sizeof(struct ms_site_entry) +
                       MS_DEFINITION_MAX_BYTES <=
                   MS_EXTENT_BYTES,
               "a definition fits an extent");
_Static_assert(sizeof(struct ms_extent_header) + MS_DEVICE_COUNT * sizeof(struct ms_base) <=
                   MS_EXTENT_BYTES / 2,
               "windows have room for records");

#endif
