/* SPDX-License-Identifier: Apache-2.0 */
/* Opens a trace, finds and checks its extents, and loads them one at a time. */
#include "report/read/reader.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "allocator/base/checksum.h"
#include "allocator/base/containers/pages.h"
#include "report/fold/digest.h"
#include "report/read/mapped.h"
#include "report/trace/encoding.h"

#define MOST_TRIES 10000 /* to read sums that change meanwhile */

/* A decoder may read past the end of a record that claims to go on. */
#define EXTENT_ROOM_BYTES (MS_EXTENT_BYTES + MS_RECORD_MAX_BYTES)

#define MOST_EXTENTS (1u << 20) /* 256 GiB: no writer's limit is near it */

static bool say(char *why, size_t why_bytes, const char *path, const char *what)
{
    snprintf(why, why_bytes, "%s: %s", path, what);
    return false;
}

/* Returns the bytes that could be read: fewer if the file ends, or cannot be read any further. */
static size_t read_some(int fd, void *to, size_t bytes, uint64_t offset)
{
    size_t done = 0;

    while (done < bytes) {
        const ssize_t got = pread(fd, (char *)to + done, bytes - done, (off_t)(offset + done));

        if (got == 0 || (got < 0 && errno != EINTR)) {
            break;
        }
        done += got > 0 ? (size_t)got : 0;
    }
    return done;
}

static bool read_at(int fd, void *to, size_t bytes, uint64_t offset)
{
    return read_some(fd, to, bytes, offset) == bytes;
}

static void terminate(struct ms_file_header *header)
{
    header->run_id[sizeof(header->run_id) - 1] = '\0';
    header->host[sizeof(header->host) - 1] = '\0';
    header->program[sizeof(header->program) - 1] = '\0';
    header->torch_mode[sizeof(header->torch_mode) - 1] = '\0';
    header->memshim_version[sizeof(header->memshim_version) - 1] = '\0';
    header->command[sizeof(header->command) - 1] = '\0';
    header->options[sizeof(header->options) - 1] = '\0';
    for (int slot = 0; slot < MS_VERSION_COUNT; slot++) {
        header->versions[slot][MS_VERSION_BYTES - 1] = '\0';
    }
}

static bool read_header(int fd, const char *path, struct ms_file_header *header, bool *damaged,
                        char *why, size_t why_bytes)
{
    char text[128];
    const size_t bytes = read_some(fd, header, sizeof(*header), 0);
    const size_t magic_bytes = bytes < sizeof(header->magic) ? bytes : sizeof(header->magic);

    if (memcmp(header->magic, MS_FORMAT_MAGIC, magic_bytes) != 0) {
        static const char nothing[sizeof(header->magic)];

        return say(why, why_bytes, path,
                   memcmp(header->magic, nothing, magic_bytes) == 0
                       ? "is empty: its process died while making it"
                       : "is not a memshim trace (or was damaged by a transfer in text mode)");
    }
    if (bytes < sizeof(*header)) {
        return say(why, why_bytes, path,
                   "is too short for a trace: it was cut, or its process died while making it");
    }
    if (header->byte_order != MS_BYTE_ORDER) {
        return say(why, why_bytes, path,
                   "was written on a machine of another byte order, or is damaged");
    }
    if (header->version_major != MS_FORMAT_MAJOR || header->version_minor > MS_FORMAT_MINOR ||
        header->version_minor < MS_FORMAT_OLDEST_MINOR) {
        snprintf(
            text, sizeof(text),
            "has format version %u.%u; this memshim reads %u.%u: use the memshim that wrote it",
            header->version_major, header->version_minor, MS_FORMAT_MAJOR, MS_FORMAT_MINOR);
        return say(why, why_bytes, path, text);
    }
    if (header->extent_bytes != MS_EXTENT_BYTES) {
        return say(why, why_bytes, path, "is damaged: its extents have no valid size");
    }
    *damaged = header->checksum != ms_checksum(header, offsetof(struct ms_file_header, checksum));
    terminate(header);
    return true;
}

/* Checks the header of an extent as far as possible without its payload. */
static bool is_plausible(const struct ms_reader *reader, const struct ms_extent_header *header)
{
    return header->magic == MS_EXTENT_MAGIC && header->trace_id == reader->header.trace_id &&
           header->kind >= MS_EXTENT_WINDOW && header->kind <= MS_EXTENT_DIGEST &&
           header->payload_offset >= sizeof(*header) && header->payload_offset <= MS_EXTENT_BYTES &&
           header->base_count <= MS_DEVICE_COUNT &&
           header->payload_offset ==
               sizeof(*header) + header->base_count * sizeof(struct ms_base) &&
           (header->committed & UINT32_MAX) <= MS_EXTENT_BYTES - header->payload_offset;
}

static bool is_blank(const struct ms_extent_header *header)
{
    return header->magic == 0 || header->sequence == 0;
}

static void note_place(struct ms_reader *reader, const struct ms_extent_header *header,
                       uint64_t offset)
{
    struct ms_buffer *const places[] = {
        [MS_EXTENT_WINDOW] = &reader->windows, [MS_EXTENT_LOG] = &reader->logs,
        [MS_EXTENT_DEVICE] = &reader->devices, [MS_EXTENT_SITES] = &reader->sites,
        [MS_EXTENT_DIGEST] = &reader->digests,
    };
    struct ms_extent_place *place = ms_buffer_extend(places[header->kind], sizeof(*place));

    if (place) {
        place->offset = offset;
        place->sequence = header->sequence;
        place->first_event = header->first_event;
        place->committed_bytes = header->committed & UINT32_MAX;
        place->count = (uint32_t)(header->committed >> 32);
    }
}

static int by_sequence(const void *a, const void *b)
{
    const struct ms_extent_place *left = a, *right = b;

    if (left->sequence != right->sequence) {
        return left->sequence < right->sequence ? -1 : 1;
    }
    return left->offset < right->offset ? -1 : left->offset > right->offset;
}

static void sort(struct ms_buffer *places)
{
    if (places->bytes > 0) {
        qsort(places->at, ms_reader_count(places), sizeof(struct ms_extent_place), by_sequence);
    }
}

static void find_extents(struct ms_reader *reader)
{
    const uint64_t count = (reader->file_bytes + MS_EXTENT_BYTES - 1) / MS_EXTENT_BYTES;

    reader->cut = reader->file_bytes % MS_EXTENT_BYTES != 0;
    for (uint64_t i = 1; i < count && i < MOST_EXTENTS; i++) {
        struct ms_extent_header header;

        const bool read = read_at(reader->fd, &header, sizeof(header), i * MS_EXTENT_BYTES);

        if (read && is_blank(&header)) {
            continue;
        }
        if (read && is_plausible(reader, &header)) {
            note_place(reader, &header, i * MS_EXTENT_BYTES);
        } else {
            reader->strange_extents++;
        }
    }
    sort(&reader->windows);
    sort(&reader->logs);
    sort(&reader->devices);
    sort(&reader->sites);
    sort(&reader->digests);
}

/* Reads the tail before the windows. A live writer packs an event before it overwrites it in the
 * tail, so events packed meanwhile are found in the windows. */
static void read_tail(struct ms_reader *reader)
{
    const uint64_t at = offsetof(struct ms_file_header, events);
    uint64_t recorded = 0, after = 0;

    if (read_at(reader->fd, &recorded, sizeof(recorded), at) &&
        read_at(reader->fd, &reader->tail, sizeof(reader->tail), MS_TAIL_OFFSET) &&
        read_at(reader->fd, &after, sizeof(after), at)) {
        reader->header.events = recorded;
        reader->tail_end = recorded;
        reader->tail_first = after > MS_TAIL_EVENTS ? after - MS_TAIL_EVENTS : 0;
        if (reader->tail_first > recorded) {
            reader->tail_first = recorded;
        }
    }
}

const struct ms_timed_event *ms_reader_tail(const struct ms_reader *reader, uint64_t number)
{
    const struct ms_timed_event *timed = &reader->tail.events[number % MS_TAIL_EVENTS];
    const struct ms_event *event = &timed->event;

    return event->kind > MS_EVENT_NONE && event->kind < MS_EVENT_KIND_COUNT &&
                   event->device < MS_DEVICE_COUNT && event->owner < MS_OWNER_COUNT
               ? timed
               : NULL;
}

/* Whether a live process has the trace open. It then holds a lock on it. Some network file systems
 * have no locks, and a program may close descriptors that it did not open: then its mappings
 * decide. */
static bool is_held(const struct ms_reader *reader)
{
    if (flock(reader->fd, LOCK_SH | LOCK_NB) == 0) {
        (void)flock(reader->fd, LOCK_UN);
    } else if (errno == EWOULDBLOCK) {
        return true;
    }
    return reader->header.state != MS_TRACE_CLOSED &&
           ms_is_mapped_by(reader->header.pid, reader->fd);
}

/* -1, and a sentence in `why`, where it is no file that can be read. */
static int open_file(const char *path, uint64_t *bytes, char *why, size_t why_bytes)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat status;

    if (fd < 0 || fstat(fd, &status) != 0) {
        char text[128];

        (void)say(why, why_bytes, path, strerror_r(errno, text, sizeof(text)));
    } else if (!S_ISREG(status.st_mode)) {
        (void)say(why, why_bytes, path, "is not a file");
    } else {
        *bytes = (uint64_t)status.st_size;
        return fd;
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    return -1;
}

bool ms_reader_header(const char *path, struct ms_file_header *header, char *why, size_t why_bytes)
{
    uint64_t bytes = 0;
    bool damaged = false;
    const int fd = open_file(path, &bytes, why, why_bytes);
    const bool good = fd >= 0 && read_header(fd, path, header, &damaged, why, why_bytes);

    if (fd >= 0) {
        (void)close(fd);
    }
    return good && (!damaged || say(why, why_bytes, path, "has a damaged header"));
}

bool ms_reader_open(struct ms_reader *reader, const char *path, char *why, size_t why_bytes)
{
    struct ms_file_header *header = &reader->header;
    bool *damaged = &reader->header_damaged;
    bool opened;

    memset(reader, 0, sizeof(*reader));
    snprintf(reader->path, sizeof(reader->path), "%s", path);
    reader->fd = open_file(path, &reader->file_bytes, why, why_bytes);
    opened = reader->fd >= 0 && read_header(reader->fd, path, header, damaged, why, why_bytes);
    if (opened) {
        reader->extent = ms_pages_map(EXTENT_ROOM_BYTES);
        if (!reader->extent) {
            opened = say(why, why_bytes, path, "no memory to read it");
        }
    }
    if (opened) {
        reader->running = is_held(reader);
        /* The header was read before, and the writer may have closed the trace in between. */
        opened = reader->running || read_header(reader->fd, path, header, damaged, why, why_bytes);
    }
    if (opened) {
        read_tail(reader);
        find_extents(reader);
    } else {
        ms_reader_close(reader);
    }
    return opened;
}

void ms_reader_close(struct ms_reader *reader)
{
    if (reader->fd >= 0) {
        close(reader->fd);
    }
    if (reader->extent) {
        ms_pages_unmap(reader->extent, EXTENT_ROOM_BYTES);
    }
    ms_buffer_free(&reader->windows);
    ms_buffer_free(&reader->logs);
    ms_buffer_free(&reader->devices);
    ms_buffer_free(&reader->sites);
    ms_buffer_free(&reader->digests);
    reader->fd = -1;
    reader->extent = NULL;
}

bool ms_reader_load(struct ms_reader *reader, struct ms_extent_place *place)
{
    const struct ms_extent_header *header = (const struct ms_extent_header *)reader->extent;
    const size_t got = read_some(reader->fd, reader->extent, MS_EXTENT_BYTES, place->offset);
    struct ms_extent_header again;

    if (got < MS_EXTENT_BYTES) {
        memset(reader->extent + got, 0, MS_EXTENT_BYTES - got);
    }
    if (got < sizeof(*header) || !is_plausible(reader, header) ||
        header->sequence != place->sequence ||
        header->checksum != ms_extent_checksum(header, header->sequence) ||
        header->payload_offset > got) {
        return false;
    }

    const uint64_t left = got - header->payload_offset;
    const uint64_t committed = header->committed & UINT32_MAX;
    const uint64_t bytes = committed < left ? committed : left;
    const uint64_t checksum = bytes == committed ? header->payload_checksum : 0;

    if (checksum != 0 &&
        checksum != ms_checksum(reader->extent + header->payload_offset, (size_t)bytes)) {
        return false;
    }
    /* A live writer may have begun to recycle the window meanwhile. */
    if (reader->running && (!read_at(reader->fd, &again, sizeof(again), place->offset) ||
                            again.sequence != place->sequence)) {
        return false;
    }
    place->committed_bytes = bytes;
    place->count = (uint32_t)(header->committed >> 32);
    return true;
}

/* One part of a digest: it must belong to the digest of `first`, and be the next in order. Null: it
 * is not. */
static const char *load_part(struct ms_reader *reader, struct ms_extent_place *place,
                             const struct ms_digest_part *first, uint32_t number, size_t *bytes)
{
    struct ms_digest_part part;

    if (!ms_reader_load(reader, place) || place->committed_bytes < sizeof(part)) {
        return NULL;
    }

    const struct ms_extent_header *header = (const struct ms_extent_header *)reader->extent;
    const char *at = reader->extent + header->payload_offset;

    memcpy(&part, at, sizeof(part));
    *bytes = place->committed_bytes - sizeof(part);
    return part.generation == first->generation && part.part == number &&
                   part.parts == first->parts && part.total_bytes == first->total_bytes
               ? at + sizeof(part)
               : NULL;
}

/* The parts of one digest have consecutive sequences; `index` is the first one's. */
static bool load_digest(struct ms_reader *reader, size_t index, struct ms_buffer *digest)
{
    const size_t count = ms_reader_count(&reader->digests);
    struct ms_digest_part first;
    size_t bytes;

    if (!ms_reader_load(reader, ms_reader_place(&reader->digests, index))) {
        return false;
    }
    memcpy(&first, reader->extent + sizeof(struct ms_extent_header), sizeof(first));
    for (uint32_t i = 0; i < first.parts; i++) {
        const char *part =
            index + i < count
                ? load_part(reader, ms_reader_place(&reader->digests, index + i), &first, i, &bytes)
                : NULL;

        if (!part) {
            return false;
        }
        ms_buffer_append(digest, part, bytes);
    }
    return !digest->failed && digest->bytes == first.total_bytes && digest->bytes > 0 &&
           ms_checksum(digest->at, digest->bytes) == first.checksum;
}

bool ms_reader_digest(struct ms_reader *reader, struct ms_buffer *digest)
{
    for (size_t i = ms_reader_count(&reader->digests); i-- > 0;) {
        digest->bytes = 0;
        if (load_digest(reader, i, digest)) {
            return true;
        }
    }
    return false;
}

bool ms_reader_sums(const struct ms_reader *reader, const struct ms_extent_place *place,
                    struct ms_device_sums *sums)
{
    const uint64_t page = place->offset + sizeof(struct ms_extent_header);
    const uint64_t at = page + offsetof(struct ms_device_page, current);
    struct {
        uint64_t current;
        struct ms_device_sums copy[2];
    } read = {0};
    uint64_t after = 0;
    bool still = false;

    for (int tries = 0; tries < MOST_TRIES && !still; tries++) {
        if (!read_at(reader->fd, &read, sizeof(read), at) ||
            !read_at(reader->fd, &after, sizeof(after), at)) {
            break;
        }
        still = read.current == after;
    }
    *sums = read.copy[read.current & 1];
    return still;
}
