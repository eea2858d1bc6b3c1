/* SPDX-License-Identifier: Apache-2.0 */
/* Opens and closes a trace. */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include "allocator/base/checksum.h"
#include "allocator/base/clock.h"
#include "allocator/base/containers/pages.h"
#include "report/write/trace_folder.h"
#include "report/write/writer_state.h"

#define NEW_SUFFIX          ".new"
#define DEFAULT_LIMIT_BYTES (UINT64_C(512) << 20)

/* Texts for the beginning, too large for a small thread's stack. */
struct writer_texts {
    char path[PATH_MAX - sizeof(NEW_SUFFIX)], new_path[PATH_MAX];
    char said[PATH_MAX + 512];
};

static void copy_text(char *to, size_t to_bytes, const char *from)
{
    snprintf(to, to_bytes, "%s", from ? from : "");
}

static uint64_t random_id(void)
{
    uint64_t id = 0;

    if (getrandom(&id, sizeof(id), GRND_NONBLOCK) != sizeof(id)) {
        id = ms_clock_unix_ns() * 0x9e3779b97f4a7c15u + (uint64_t)getpid();
    }
    return id ? id : 1;
}

static void fill_header(struct ms_trace *trace, const struct ms_trace_process *process)
{
    struct ms_file_header *header = trace->header;
    const uint64_t now_unix_ns = ms_clock_unix_ns();
    const uint64_t now_monotonic_ns = ms_clock_ns();
    uint64_t age_ns = 0;

    /* Ignore a start that the monotonic clock cannot have seen. */
    if (process->start_unix_ns && process->start_unix_ns < now_unix_ns &&
        now_unix_ns - process->start_unix_ns < now_monotonic_ns) {
        age_ns = now_unix_ns - process->start_unix_ns;
    }
    trace->start_monotonic_ns = now_monotonic_ns - age_ns;
    header->byte_order = MS_BYTE_ORDER;
    header->version_major = MS_FORMAT_MAJOR;
    header->version_minor = MS_FORMAT_MINOR;
    header->extent_bytes = MS_EXTENT_BYTES;
    header->pid = process->pid;
    header->rank = process->rank;
    header->local_rank = process->local_rank;
    header->world_size = process->world_size;
    header->supervisor_pid = process->supervisor_pid;
    header->trace_id = random_id();
    header->start_unix_ns = now_unix_ns - age_ns;
    header->start_monotonic_ns = trace->start_monotonic_ns;
    header->clock_ahead_ns = trace->clock_ahead_ns;
    copy_text(header->run_id, sizeof(header->run_id), process->run_id);
    copy_text(header->host, sizeof(header->host), process->host);
    copy_text(header->program, sizeof(header->program), process->program);
    copy_text(header->torch_mode, sizeof(header->torch_mode), process->torch_mode);
    copy_text(header->memshim_version, sizeof(header->memshim_version), process->memshim_version);
    copy_text(header->command, sizeof(header->command), process->command);
    copy_text(header->options, sizeof(header->options), process->options);
    memcpy(header->magic, MS_FORMAT_MAGIC, sizeof(header->magic));
    header->checksum = ms_checksum(header, offsetof(struct ms_file_header, checksum));
    ms_trace_put(trace, header, sizeof(*header));
}

static void release_extents(struct ms_trace *trace)
    MS_REQUIRES(ms_trace_growing_role, ms_trace_role)
{
    ms_mapped_drop(trace, &trace->window);
    ms_mapped_drop(trace, &trace->spare);
    ms_mapped_drop(trace, &trace->retired);
    ms_mapped_drop(trace, &trace->log);
    ms_mapped_drop(trace, &trace->sites);
    for (int device = 0; device < MS_DEVICE_COUNT; device++) {
        if (trace->pages[device] && !trace->device_extents[device].header) {
            munmap(trace->pages[device], sizeof(struct ms_device_page));
        }
        ms_mapped_drop(trace, &trace->device_extents[device]);
        trace->pages[device] = NULL;
    }
    ms_trace_file_unmap(&trace->file, trace->digest.folding);
    trace->digest.folding = NULL;
    ms_trace_file_unmap(&trace->file, trace->header);
    trace->header = NULL;
}

/* Gives the file its first extents. 0 or an errno. */
static int begin_file(struct ms_trace *trace, const struct ms_trace_process *process)
    MS_REQUIRES(ms_trace_growing_role, ms_trace_role)
{
    struct ms_mapped header = {0};
    int error = ms_mapped_new(trace, &header);

    if (error) {
        return error;
    }
    trace->header = (struct ms_file_header *)header.header;
    trace->tail = (struct ms_tail *)((char *)header.header + MS_TAIL_OFFSET);
    ms_clock_init(&trace->clock);
    fill_header(trace, process);
    error = ms_mapped_new(trace, &trace->log);
    if (!error) {
        trace->log.header->payload_offset = sizeof(*trace->log.header);
        ms_mapped_publish(trace, trace->log.header, MS_EXTENT_LOG, ++trace->log_count);
        error = ms_mapped_new(trace, &trace->spare);
    }
    if (!error) {
        ms_window_switch(trace, ms_trace_time_ns(trace));
        error = ms_mapped_new(trace, &trace->spare);
    }
    return error;
}

/* Tries one output folder. 0, or an errno with nothing left behind. The file gets its name once its
 * beginning is whole, so that a process killed meanwhile leaves no unreadable trace. */
static int begin_at(struct ms_trace *trace, const char *output, bool own,
                    const struct ms_trace_process *process, struct writer_texts *texts)
    MS_REQUIRES(ms_trace_growing_role, ms_trace_role)
{
    char *path = texts->path, *new_path = texts->new_path;
    int error = (own ? ms_place_make_own : ms_place_make)(output, process, trace->dir,
                                                          &trace->clock_ahead_ns);

    if (error) {
        return error;
    }
    if (snprintf(path, sizeof(texts->path), "%s/%s", trace->dir, MS_TRACE_FILE) >=
        (int)sizeof(texts->path)) {
        ms_place_drop(trace->dir);
        return ENAMETOOLONG;
    }
    (void)snprintf(new_path, sizeof(texts->new_path), "%s" NEW_SUFFIX, path);
    error = ms_trace_file_create(&trace->file, new_path);
    if (error) {
        ms_place_drop(trace->dir);
        return error;
    }
    error = begin_file(trace, process);
    if (!error) {
        error = ms_trace_file_rename(&trace->file, path);
    }
    if (error) {
        release_extents(trace);
        ms_trace_file_close(&trace->file);
        unlink(new_path);
        ms_place_drop(trace->dir);
        trace->log_count = 0;
        trace->window_sequence = 0;
        return error;
    }
    ms_place_link(trace->dir);
    return 0;
}

static void say(char *note, size_t note_bytes, const char *output, int error, const char *fallback,
                int fallback_error)
{
    char reason[128], fallback_reason[128];

    if (!note || note_bytes == 0) {
        return;
    }

    const char *why = strerror_r(error, reason, sizeof(reason));

    if (!fallback) {
        snprintf(note, note_bytes, "no trace and no report: %s cannot be written (%s)", output,
                 why);
    } else if (fallback_error) {
        snprintf(note, note_bytes,
                 "no trace and no report: neither %s (%s) nor %s (%s) can be "
                 "written",
                 output, why, fallback,
                 fallback_error == EPERM
                     ? "which another user made, or others can write to"
                     : strerror_r(fallback_error, fallback_reason, sizeof(fallback_reason)));
    } else {
        snprintf(note, note_bytes, "%s cannot be written (%s): the trace and the report go to %s",
                 output, why, fallback);
    }
}

static void unmap(void *pages, size_t bytes)
{
    if (pages) {
        munmap(pages, bytes);
    }
}

/* Makes the lists, on pages that are touched only as needed. False: no memory. Nobody else has the
 * trace yet. */
static bool make_lists(struct ms_trace *trace) MS_NO_THREAD_SAFETY
{
    trace->ring = ms_pages_map(trace->ring_room * sizeof(uint64_t));
    trace->site_offsets = ms_pages_map(trace->sites_room * sizeof(uint64_t));
    for (int slot = 0; slot < 2; slot++) {
        trace->digest.slots[slot].offsets = ms_pages_map(MS_DIGEST_PARTS * sizeof(uint64_t));
    }
    return trace->ring && trace->site_offsets && trace->digest.slots[0].offsets &&
           trace->digest.slots[1].offsets;
}

/* Nobody else has ever had the trace. */
static void free_handle(struct ms_trace *trace) MS_NO_THREAD_SAFETY
{
    unmap(trace->ring, trace->ring_room * sizeof(uint64_t));
    unmap(trace->site_offsets, trace->sites_room * sizeof(uint64_t));
    for (int slot = 0; slot < 2; slot++) {
        unmap(trace->digest.slots[slot].offsets, MS_DIGEST_PARTS * sizeof(uint64_t));
    }
    unmap(trace, sizeof(*trace));
}

/* Nobody else has the trace yet. */
ms_trace_t *ms_trace_open(const struct ms_trace_config *config, char *note,
                          size_t note_bytes) MS_NO_THREAD_SAFETY
{
    const int saved = errno;
    const uint64_t limit = config->limit_bytes ? config->limit_bytes : DEFAULT_LIMIT_BYTES;
    const char *fallback = config->fallback_dir;
    struct ms_trace *trace = ms_pages_map(sizeof(*trace));
    struct writer_texts *texts = ms_pages_map(sizeof(*texts));

    if (note && note_bytes > 0) {
        note[0] = '\0';
    }
    if (!trace || !texts) {
        say(note, note_bytes, config->output_dir, ENOMEM, NULL, 0);
        unmap(texts, sizeof(*texts));
        unmap(trace, sizeof(*trace));
        errno = saved;
        return NULL;
    }
    ms_lock_init(&trace->growing, MS_RANK_TRACE_GROWING);
    ms_lock_init(&trace->lock, MS_RANK_TRACE);
    trace->ring_room =
        limit / MS_EXTENT_BYTES < MS_MIN_WINDOWS
            ? MS_MIN_WINDOWS
            : (uint32_t)(limit / MS_EXTENT_BYTES < UINT32_MAX / 2 ? limit / MS_EXTENT_BYTES
                                                                  : UINT32_MAX / 2);
    trace->sites_room = trace->ring_room / 2;
    trace->ring_limit = trace->ring_room;

    const bool listed = make_lists(trace);
    int error =
        listed ? begin_at(trace, config->output_dir, false, &config->process, texts) : ENOMEM;
    int fallback_error = error;

    if (error && listed && fallback) {
        fallback_error = begin_at(trace, fallback, true, &config->process, texts);
    }
    if (error) {
        say(texts->said, sizeof(texts->said), config->output_dir, error, fallback, fallback_error);
        if (note && note_bytes > 0) {
            snprintf(note, note_bytes, "%s", texts->said);
        }
    }
    if (fallback_error) {
        free_handle(trace);
        trace = NULL;
    } else if (error) {
        ms_trace_note(trace, texts->said);
    }
    unmap(texts, sizeof(*texts));
    errno = saved;
    return trace;
}

const char *ms_trace_dir(const ms_trace_t *trace)
{
    return trace->dir;
}

/* Writes the end, whatever happened to the file. */
static void write_end(struct ms_trace *trace, bool exit_known, int exit_status)
    MS_REQUIRES(ms_trace_growing_role, ms_trace_role)
{
    struct ms_file_header *header = trace->header;

    header->exit_known = exit_known;
    header->exit_status = exit_status;
    header->end_time_ns = ms_trace_time_ns(trace);
    ms_trace_put(trace, &header->exit_known,
                 offsetof(struct ms_file_header, events) -
                     offsetof(struct ms_file_header, exit_known));
    atomic_store_explicit(&header->state, MS_TRACE_CLOSED, memory_order_release);
    ms_trace_put(trace, &header->state, sizeof(header->state));
    if (trace->retired.header) {
        ms_mapped_seal(trace, trace->retired.header);
    }
    if (trace->window.header) {
        ms_mapped_seal(trace, trace->window.header);
    }
    ms_mapped_seal(trace, trace->log.header);
    if (trace->sites.header) {
        ms_mapped_seal(trace, trace->sites.header);
    }
    if (trace->spare.header) {
        ms_trace_file_cut(&trace->file, trace->spare.offset);
    }
    ms_trace_file_touch(&trace->file);
}

int ms_trace_close(ms_trace_t *trace, bool exit_known, int exit_status)
{
    const int saved = errno;
    int error = 0;

    /* First packs with room for new windows, while other threads may still record events; then the
     * rest. */
    ms_trace_acquire(trace);
    if (!trace->closed) {
        ms_tail_pack(trace, true);
    }
    ms_trace_release(trace);
    ms_trace_growing_acquire(trace);
    ms_trace_acquire(trace);
    if (!trace->released) {
        if (!trace->closed) {
            ms_tail_pack(trace, false);
        }
        trace->closed = true;
        trace->released = true;
        write_end(trace, exit_known, exit_status);
        error = ms_trace_file_error(&trace->file);
        ms_digest_close(trace);
        release_extents(trace);
        ms_trace_file_close(&trace->file);
    }
    ms_trace_release(trace);
    ms_trace_growing_release(trace);
    errno = saved;
    return error;
}

/* The header is written through the file: another thread may be closing the trace, and unmap it. */
void ms_trace_leave(ms_trace_t *trace, int exit_status)
{
    const struct {
        uint32_t state, exit_known;
        int32_t exit_status;
        uint32_t unused_too;
        uint64_t end_time_ns;
    } end = {MS_TRACE_LEFT, true, exit_status, 0, ms_clock_ns() - trace->start_monotonic_ns};

    _Static_assert(sizeof(end) == offsetof(struct ms_file_header, events) -
                                      offsetof(struct ms_file_header, state),
                   "it lies in the file as the header's fields");
    if (!trace->closed) {
        ms_trace_file_write(&trace->file, offsetof(struct ms_file_header, state), &end,
                            sizeof(end));
    }
}

/* The child has no other thread. */
void ms_trace_abandon(ms_trace_t *trace) MS_NO_THREAD_SAFETY
{
    const int saved = errno;

    if (!trace->released) {
        release_extents(trace);
        ms_trace_file_close(&trace->file);
    }
    free_handle(trace);
    errno = saved;
}
