#include "report/writer.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "allocator/lock.h"
#include "report/checksum.h"
#include "report/encoding.h"
#include "report/format.h"
#include "report/place.h"
#include "report/trace_file.h"

#define NEW_SUFFIX          ".new"
#define DEFAULT_LIMIT_BYTES (512ull << 20)
#define MIN_WINDOWS         4u
#define MAX_LOGS            16u
#define MAX_NOTE_BYTES      2048u
#define MAX_NOTES_BYTES     (64u << 10)
#define MAX_THRESHOLDS      4096u
#define RETRY_EVENTS        65536u /* lost ones between two tries to get room again */
#define NS_PER_S            1000000000ull

/* An extent that is mapped. */
struct extent {
    struct ms_extent_header *header;
    uint64_t offset;
};

struct ms_trace {
    /* Order of the two: growing, then lock. `lock` is short and guards all that follows; `growing`
     * is held while the file grows, so that no emitter waits for another one's system calls. */
    ms_lock_t lock;
    ms_lock_t growing;
    bool closed;
    bool notes_full;
    struct ms_file_header *header;
    struct ms_device_page *devices[MS_DEVICE_COUNT]; /* null: not seen yet */
    struct extent device_extents[MS_DEVICE_COUNT];   /* none where the file had no room */
    struct extent window, spare, retired;            /* in use; next; full and not sealed yet */
    uint8_t *payload;                                /* of `window` */
    uint32_t payload_bytes, payload_room;
    uint32_t window_events;
    uint64_t window_sequence;
    struct extent log;
    uint32_t log_count;
    uint32_t note_bytes, thresholds;
    uint64_t retry_at_lost; /* lost events at which room is asked for again */
    uint64_t start_monotonic_ns;
    struct ms_codec codec;

    struct ms_trace_file file; /* under `growing` */
    uint64_t *ring;            /* offsets of full windows, oldest first; under `growing` */
    uint32_t ring_room, ring_first, ring_count;
    char dir[PATH_MAX];
};

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec now;

    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

static uint64_t time_ns(const struct ms_trace *trace)
{
    const uint64_t ns = clock_ns(CLOCK_MONOTONIC) - trace->start_monotonic_ns;

    return ns - ns % MS_TIME_UNIT_NS;
}

/* Only holders of the lock write these counters; the atomics are for readers of the file. */
static void add(_Atomic uint64_t *counter, uint64_t more)
{
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + more,
                          memory_order_relaxed);
}

static void *pages(size_t bytes)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    return at == MAP_FAILED ? NULL : at;
}

static uint8_t *payload_of(const struct ms_extent_header *header)
{
    return (uint8_t *)header + header->payload_offset;
}

/* ---- extents ---- */

static int new_extent(struct ms_trace *trace, struct extent *extent)
{
    int error = ms_trace_file_grow(&trace->file, &extent->offset);

    if (error) {
        return error;
    }
    extent->header = ms_trace_file_map(&trace->file, extent->offset, &error);
    if (!extent->header) {
        ms_trace_file_cut(&trace->file, extent->offset);
    }
    return error;
}

static void drop_extent(struct extent *extent)
{
    ms_trace_file_unmap(extent->header);
    *extent = (struct extent){0};
}

/* Everything else of the extent is in place: from the sequence on a reader believes it. */
static void publish_extent(struct ms_trace *trace, struct ms_extent_header *header, uint32_t kind,
                           uint64_t sequence)
{
    header->magic = MS_EXTENT_MAGIC;
    header->kind = kind;
    header->trace_id = trace->header->trace_id;
    header->checksum = ms_extent_checksum(header, sequence);
    atomic_store_explicit(&header->sequence, sequence, memory_order_release);
}

static void seal(struct ms_extent_header *header)
{
    uint64_t bytes = atomic_load_explicit(&header->committed, memory_order_relaxed) & UINT32_MAX;

    atomic_store_explicit(&header->payload_checksum, ms_checksum(payload_of(header), (size_t)bytes),
                          memory_order_release);
}

/* ---- windows ---- */

static uint32_t ring_at(const struct ms_trace *trace, uint32_t index)
{
    return (trace->ring_first + index) % trace->ring_room;
}

/* The oldest full window makes room for the next one. Needs `growing`. */
static int recycle_window(struct ms_trace *trace, struct extent *extent)
{
    int error;

    extent->offset = trace->ring[ring_at(trace, 0)];
    extent->header = ms_trace_file_map(&trace->file, extent->offset, &error);
    if (!extent->header) {
        return error;
    }
    add(&trace->header->recycled_events,
        atomic_load_explicit(&extent->header->committed, memory_order_relaxed) >> 32);
    atomic_store_explicit(&extent->header->sequence, 0, memory_order_release);
    atomic_store_explicit(&extent->header->committed, 0, memory_order_release);
    atomic_store_explicit(&extent->header->payload_checksum, 0, memory_order_release);
    trace->ring_first = ring_at(trace, 1);
    trace->ring_count--;
    return 0;
}

/* Needs `growing`. Two windows at the least stay: the one that fills and the one before it. */
static int next_window(struct ms_trace *trace, struct extent *extent)
{
    int error = ENOSPC;

    if (trace->ring_count + 2 <= trace->ring_room) {
        error = new_extent(trace, extent);
        if (!error) {
            return 0;
        }
        atomic_store_explicit(&trace->header->disk_full, 1, memory_order_relaxed);
    }
    if (trace->ring_count > 1) {
        return recycle_window(trace, extent);
    }
    return error;
}

/* Seals the window that is full and makes the spare one ready. Called without the lock; false
 * where there is no room. */
static bool prepare(struct ms_trace *trace)
{
    struct extent spare = {0};
    bool ready = true;

    ms_lock_acquire(&trace->growing);
    ms_lock_acquire(&trace->lock);

    struct extent retired = trace->retired;
    bool wanted = !trace->spare.header && !trace->closed;

    trace->retired = (struct extent){0};
    ms_lock_release(&trace->lock);
    if (retired.header) {
        seal(retired.header);
        trace->ring[ring_at(trace, trace->ring_count)] = retired.offset;
        trace->ring_count++;
        drop_extent(&retired);
    }
    if (wanted) {
        ready = next_window(trace, &spare) == 0;
        ms_lock_acquire(&trace->lock);
        trace->spare = spare;
        ms_lock_release(&trace->lock);
    }
    ms_lock_release(&trace->growing);
    return ready;
}

/* The spare window becomes the one in use. Needs the lock; the window in use is full or none, and
 * nothing waits to be sealed. */
static void switch_window(struct ms_trace *trace, uint64_t now_ns)
{
    struct ms_extent_header *header = trace->spare.header;
    struct ms_base *base = (struct ms_base *)(header + 1);

    trace->retired = trace->window;
    trace->window = trace->spare;
    trace->spare = (struct extent){0};
    header->start_time_ns = now_ns;
    header->first_event = atomic_load_explicit(&trace->header->events, memory_order_relaxed);
    header->base_count = 0;
    for (uint64_t device = 0; device < MS_DEVICE_COUNT; device++) {
        if (trace->devices[device]) {
            base->device = device;
            base->sums = trace->devices[device]->sums;
            base++;
            header->base_count++;
        }
    }
    header->payload_offset = (uint32_t)((uint8_t *)base - (uint8_t *)header);
    trace->payload = payload_of(header);
    trace->payload_bytes = 0;
    trace->payload_room = MS_EXTENT_BYTES - header->payload_offset - MS_RECORD_MAX_BYTES;
    trace->window_events = 0;
    ms_codec_reset(&trace->codec, now_ns);
    publish_extent(trace, header, MS_EXTENT_WINDOW, ++trace->window_sequence);
}

/* ---- devices ---- */

/* Called without the lock. A device that the file has no room for keeps its sums in memory: the
 * windows repeat them. */
static void make_device(struct ms_trace *trace, uint8_t device)
{
    struct extent extent = {0};
    struct ms_device_page *page = NULL;

    ms_lock_acquire(&trace->growing);
    if (!trace->devices[device] && !trace->closed) {
        if (new_extent(trace, &extent) == 0) {
            page = (struct ms_device_page *)(extent.header + 1);
        } else {
            atomic_store_explicit(&trace->header->disk_full, 1, memory_order_relaxed);
            page = pages(sizeof(*page));
        }
    }
    if (page) {
        page->device = device;
        ms_series_init(&page->series);
        if (extent.header) {
            extent.header->payload_offset = sizeof(*extent.header);
            publish_extent(trace, extent.header, MS_EXTENT_DEVICE, (uint64_t)device + 1);
        }
        ms_lock_acquire(&trace->lock);
        trace->devices[device] = page;
        trace->device_extents[device] = extent;
        ms_lock_release(&trace->lock);
    }
    ms_lock_release(&trace->growing);
}

/* Takes the lock and gives the device's page; null, without the lock, where the trace is closed or
 * there is no memory for one. */
static struct ms_device_page *lock_device(struct ms_trace *trace, uint8_t device)
{
    if (device >= MS_DEVICE_COUNT) {
        return NULL;
    }
    for (int tries = 0; tries < 2; tries++) {
        ms_lock_acquire(&trace->lock);

        struct ms_device_page *page = trace->devices[device];
        const bool closed = trace->closed;

        if (page && !closed) {
            return page;
        }
        ms_lock_release(&trace->lock);
        if (closed || tries > 0) {
            return NULL;
        }
        make_device(trace, device);
    }
    return NULL;
}

static void begin_change(struct ms_device_page *page)
{
    uint64_t changing = atomic_load_explicit(&page->changing, memory_order_relaxed);

    atomic_store_explicit(&page->changing, changing + 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
}

static void end_change(struct ms_device_page *page)
{
    uint64_t changing = atomic_load_explicit(&page->changing, memory_order_relaxed);

    atomic_store_explicit(&page->changing, changing + 1, memory_order_release);
}

/* ---- the log ---- */

static bool next_log(struct ms_trace *trace)
{
    struct extent fresh = {0}, full = {0};
    bool grown = false;

    ms_lock_acquire(&trace->growing);
    if (!trace->closed && trace->log_count < MAX_LOGS) {
        grown = new_extent(trace, &fresh) == 0;
    }
    if (grown) {
        fresh.header->payload_offset = sizeof(*fresh.header);
        ms_lock_acquire(&trace->lock);
        full = trace->log;
        trace->log = fresh;
        publish_extent(trace, fresh.header, MS_EXTENT_LOG, ++trace->log_count);
        ms_lock_release(&trace->lock);
    }
    if (full.header) {
        seal(full.header);
        drop_extent(&full);
    }
    ms_lock_release(&trace->growing);
    return grown;
}

/* Needs the lock. False where the log is full. */
static bool put_entry(struct ms_trace *trace, struct ms_log_entry entry, const void *payload)
{
    struct ms_extent_header *header = trace->log.header;
    uint64_t committed = atomic_load_explicit(&header->committed, memory_order_relaxed);
    uint64_t used = committed & UINT32_MAX;
    uint64_t bytes = sizeof(entry) + ((entry.bytes + 7u) & ~7ull);
    uint8_t *at = payload_of(header) + used;

    if (header->payload_offset + used + bytes > MS_EXTENT_BYTES) {
        return false;
    }
    entry.event = atomic_load_explicit(&trace->header->events, memory_order_relaxed);
    memcpy(at, &entry, sizeof(entry));
    memcpy(at + sizeof(entry), payload, entry.bytes);
    atomic_store_explicit(&header->committed, committed + bytes + (1ull << 32),
                          memory_order_release);
    return true;
}

/* ---- events ---- */

/* Whether the window has room for one more record. Needs the lock. */
static bool have_room(struct ms_trace *trace)
{
    return trace->window.header && trace->payload_bytes < trace->payload_room;
}

/* Gets the next window, if there is room for one. Needs the lock, which it lets go in between. */
static void make_room(struct ms_trace *trace)
{
    while (!have_room(trace) && !trace->closed) {
        uint64_t lost = atomic_load_explicit(&trace->header->lost_events, memory_order_relaxed);

        if (trace->spare.header && !trace->retired.header) {
            switch_window(trace, time_ns(trace));
            return;
        }
        if (lost < trace->retry_at_lost) {
            return;
        }
        ms_lock_release(&trace->lock);

        bool ready = prepare(trace);

        ms_lock_acquire(&trace->lock);
        if (!ready) {
            trace->retry_at_lost = lost + RETRY_EVENTS;
            return;
        }
    }
}

/* Needs the lock. */
static void record(struct ms_trace *trace, struct ms_device_page *page,
                   const struct ms_event *event)
{
    struct ms_extent_header *header = trace->window.header;
    const uint64_t now_ns = time_ns(trace);

    if (have_room(trace)) {
        trace->payload_bytes += (uint32_t)ms_encode(&trace->codec, event, now_ns,
                                                    trace->payload + trace->payload_bytes);
        trace->window_events++;
        atomic_store_explicit(&header->committed,
                              trace->payload_bytes | (uint64_t)trace->window_events << 32,
                              memory_order_release);
    } else {
        add(&trace->header->lost_events, 1);
    }
    add(&trace->header->events, 1);
    begin_change(page);
    ms_aggregate_apply(&page->sums, event, now_ns);
    end_change(page);

    const struct ms_moment moment = ms_aggregate_moment(&page->sums, now_ns);

    ms_series_note(&page->series, &moment);
}

/* Needs the lock. */
static void note_threshold(struct ms_trace *trace, const struct ms_event *event)
{
    const struct ms_log_threshold payload = {event->aux, event->bytes};
    const struct ms_log_entry entry = {
        .kind = MS_LOG_THRESHOLD,
        .bytes = sizeof(payload),
        .time_ns = time_ns(trace),
        .device = event->device,
    };

    if (trace->thresholds < MAX_THRESHOLDS && put_entry(trace, entry, &payload)) {
        trace->thresholds++;
    } else {
        add(&trace->header->lost_entries, 1);
    }
}

void ms_trace_emit(ms_trace_t *trace, const struct ms_event *event)
{
    if (event->kind == MS_EVENT_NONE || event->kind >= MS_EVENT_KIND_COUNT ||
        event->owner >= MS_OWNER_COUNT) {
        return;
    }

    const int saved = errno;
    struct ms_device_page *page = lock_device(trace, event->device);

    if (!page) {
        errno = saved;
        return;
    }
    if (!have_room(trace)) {
        make_room(trace);
    }
    if (!trace->closed) {
        record(trace, page, event);
        if (event->kind == MS_EVENT_THRESHOLD) {
            note_threshold(trace, event);
        }
    }

    const bool full = trace->retired.header;

    ms_lock_release(&trace->lock);
    if (full) {
        (void)prepare(trace);
    }
    errno = saved;
}

void ms_trace_oom(ms_trace_t *trace, uint8_t device, const struct ms_oom_state *state)
{
    const int saved = errno;

    for (int tries = 0; tries < 2; tries++) {
        struct ms_device_page *page = lock_device(trace, device);

        if (!page) {
            break;
        }

        const struct ms_log_oom payload = {
            .state = *state,
            .counters = page->sums.now,
            .allocations = page->sums.allocations + page->sums.births,
            .peak_live = ms_aggregate_peak_live(&page->sums),
        };
        const struct ms_log_entry entry = {
            .kind = MS_LOG_OOM,
            .bytes = sizeof(payload),
            .time_ns = time_ns(trace),
            .device = device,
        };
        const bool put = put_entry(trace, entry, &payload);

        if (put || tries > 0) {
            begin_change(page);
            ms_aggregate_oom(&page->sums, state->source == MS_OOM_TORCH);
            end_change(page);
            add(&trace->header->lost_entries, put ? 0 : 1);
            ms_lock_release(&trace->lock);
            break;
        }
        ms_lock_release(&trace->lock);
        (void)next_log(trace);
    }
    errno = saved;
}

void ms_trace_note(ms_trace_t *trace, const char *text)
{
    const int saved = errno;
    const struct ms_log_entry entry = {
        .kind = MS_LOG_NOTE,
        .bytes = (uint32_t)strnlen(text, MAX_NOTE_BYTES),
    };

    for (int tries = 0; tries < 2; tries++) {
        ms_lock_acquire(&trace->lock);

        struct ms_log_entry timed = entry;
        const bool wanted = !trace->closed && trace->note_bytes + entry.bytes <= MAX_NOTES_BYTES;
        bool put = false;

        if (wanted) {
            timed.time_ns = time_ns(trace);
            put = put_entry(trace, timed, text);
            trace->note_bytes += put ? entry.bytes : 0;
        }
        if (!trace->closed && !put && (!wanted || tries > 0)) {
            add(&trace->header->lost_entries, 1);
        }
        ms_lock_release(&trace->lock);
        if (put || !wanted) {
            break;
        }
        (void)next_log(trace);
    }
    errno = saved;
}

/* ---- what is said once ---- */

void ms_trace_device(ms_trace_t *trace, uint8_t device, const char *name, const uint8_t *uuid,
                     uint64_t total_bytes, uint64_t cap_bytes)
{
    const struct ms_event cap = {
        .kind = MS_EVENT_CAP,
        .device = device,
        .bytes = cap_bytes,
        .aux = total_bytes,
    };
    const int saved = errno;
    struct ms_device_page *page = lock_device(trace, device);

    if (page) {
        snprintf(page->name, sizeof(page->name), "%s", name ? name : "");
        if (uuid) {
            memcpy(page->uuid, uuid, sizeof(page->uuid));
            page->has_uuid = 1;
        }
        ms_lock_release(&trace->lock);
        ms_trace_emit(trace, &cap);
    }
    errno = saved;
}

void ms_trace_version(ms_trace_t *trace, const char *what, const char *version)
{
    static const char *const names[MS_VERSION_COUNT] = {
        [MS_VERSION_DRIVER] = "driver",
        [MS_VERSION_CUDA] = "cuda",
        [MS_VERSION_TORCH] = "torch",
    };

    ms_lock_acquire(&trace->lock);
    for (int slot = 0; slot < MS_VERSION_COUNT && !trace->closed; slot++) {
        if (strcmp(names[slot], what) == 0) {
            snprintf(trace->header->versions[slot], MS_VERSION_BYTES, "%s", version);
        }
    }
    ms_lock_release(&trace->lock);
}

/* ---- life ---- */

static void copy_text(char *to, size_t to_bytes, const char *from)
{
    snprintf(to, to_bytes, "%s", from ? from : "");
}

static uint64_t random_id(void)
{
    uint64_t id = 0;

    if (getrandom(&id, sizeof(id), GRND_NONBLOCK) != sizeof(id)) {
        id = clock_ns(CLOCK_REALTIME) * 0x9e3779b97f4a7c15u + (uint64_t)getpid();
    }
    return id ? id : 1;
}

static void fill_header(struct ms_trace *trace, const struct ms_trace_process *process)
{
    struct ms_file_header *header = trace->header;
    const uint64_t now_unix_ns = clock_ns(CLOCK_REALTIME);
    const uint64_t now_monotonic_ns = clock_ns(CLOCK_MONOTONIC);
    uint64_t age_ns = 0;

    /* A start that the monotonic clock cannot have seen is not believed. */
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
    header->trace_id = random_id();
    header->start_unix_ns = now_unix_ns - age_ns;
    header->start_monotonic_ns = trace->start_monotonic_ns;
    copy_text(header->run_id, sizeof(header->run_id), process->run_id);
    copy_text(header->host, sizeof(header->host), process->host);
    copy_text(header->program, sizeof(header->program), process->program);
    copy_text(header->torch_mode, sizeof(header->torch_mode), process->torch_mode);
    copy_text(header->memshim_version, sizeof(header->memshim_version), process->memshim_version);
    copy_text(header->command, sizeof(header->command), process->command);
    copy_text(header->options, sizeof(header->options), process->options);
    memcpy(header->magic, MS_FORMAT_MAGIC, sizeof(header->magic));
    header->checksum = ms_checksum(header, offsetof(struct ms_file_header, checksum));
}

static void release_extents(struct ms_trace *trace)
{
    drop_extent(&trace->window);
    drop_extent(&trace->spare);
    drop_extent(&trace->retired);
    drop_extent(&trace->log);
    for (int device = 0; device < MS_DEVICE_COUNT; device++) {
        if (trace->devices[device] && !trace->device_extents[device].header) {
            munmap(trace->devices[device], sizeof(struct ms_device_page));
        }
        drop_extent(&trace->device_extents[device]);
        trace->devices[device] = NULL;
    }
    ms_trace_file_unmap(trace->header);
    trace->header = NULL;
}

/* Gives the file its first extents. 0 or an errno. */
static int begin_file(struct ms_trace *trace, const struct ms_trace_process *process)
{
    struct extent header = {0};
    int error = new_extent(trace, &header);

    if (error) {
        return error;
    }
    trace->header = (struct ms_file_header *)header.header;
    fill_header(trace, process);
    error = new_extent(trace, &trace->log);
    if (!error) {
        trace->log.header->payload_offset = sizeof(*trace->log.header);
        publish_extent(trace, trace->log.header, MS_EXTENT_LOG, ++trace->log_count);
        error = new_extent(trace, &trace->spare);
    }
    if (!error) {
        switch_window(trace, time_ns(trace));
        error = new_extent(trace, &trace->spare);
    }
    return error;
}

/* Tries one output folder. 0 or an errno; then nothing is left behind. The file gets its name when
 * its beginning is whole, so that a process killed meanwhile leaves no trace that cannot be read.
 */
static int begin_at(struct ms_trace *trace, const char *output,
                    const struct ms_trace_process *process)
{
    char path[PATH_MAX - sizeof(NEW_SUFFIX)], new_path[PATH_MAX];
    int error = ms_place_make(output, process, trace->dir);

    if (error) {
        return error;
    }
    if (snprintf(path, sizeof(path), "%s/%s", trace->dir, MS_TRACE_FILE) >= (int)sizeof(path)) {
        ms_place_drop(trace->dir);
        return ENAMETOOLONG;
    }
    (void)snprintf(new_path, sizeof(new_path), "%s" NEW_SUFFIX, path);
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
                 strerror_r(fallback_error, fallback_reason, sizeof(fallback_reason)));
    } else {
        snprintf(note, note_bytes, "%s cannot be written (%s): the trace and the report go to %s",
                 output, why, fallback);
    }
}

static void free_handle(struct ms_trace *trace)
{
    if (trace->ring) {
        munmap(trace->ring, trace->ring_room * sizeof(*trace->ring));
    }
    munmap(trace, sizeof(*trace));
}

ms_trace_t *ms_trace_open(const struct ms_trace_config *config, char *note, size_t note_bytes)
{
    const int saved = errno;
    const uint64_t limit = config->limit_bytes ? config->limit_bytes : DEFAULT_LIMIT_BYTES;
    const char *fallback = config->fallback_dir;
    struct ms_trace *trace = pages(sizeof(*trace));
    char said[PATH_MAX + 512] = "";

    if (note && note_bytes > 0) {
        note[0] = '\0';
    }
    if (!trace) {
        say(note, note_bytes, config->output_dir, ENOMEM, NULL, 0);
        errno = saved;
        return NULL;
    }
    trace->ring_room =
        limit / MS_EXTENT_BYTES < MIN_WINDOWS
            ? MIN_WINDOWS
            : (uint32_t)(limit / MS_EXTENT_BYTES < UINT32_MAX / 2 ? limit / MS_EXTENT_BYTES
                                                                  : UINT32_MAX / 2);
    trace->ring = pages(trace->ring_room * sizeof(*trace->ring));

    int error = trace->ring ? begin_at(trace, config->output_dir, &config->process) : ENOMEM;
    int fallback_error = error;

    if (error && trace->ring && fallback) {
        fallback_error = begin_at(trace, fallback, &config->process);
    }
    if (error) {
        say(said, sizeof(said), config->output_dir, error, fallback, fallback_error);
        if (note && note_bytes > 0) {
            snprintf(note, note_bytes, "%s", said);
        }
    }
    if (fallback_error) {
        free_handle(trace);
        trace = NULL;
    } else if (error) {
        ms_trace_note(trace, said);
    }
    errno = saved;
    return trace;
}

const char *ms_trace_dir(const ms_trace_t *trace)
{
    return trace->dir;
}

void ms_trace_close(ms_trace_t *trace, bool exit_known, int exit_status)
{
    const int saved = errno;

    ms_lock_acquire(&trace->growing);
    ms_lock_acquire(&trace->lock);
    if (!trace->closed) {
        struct ms_file_header *header = trace->header;

        trace->closed = true;
        header->exit_known = exit_known;
        header->exit_status = exit_status;
        header->end_time_ns = time_ns(trace);
        atomic_store_explicit(&header->state, MS_TRACE_CLOSED, memory_order_release);
        if (trace->retired.header) {
            seal(trace->retired.header);
        }
        if (trace->window.header) {
            seal(trace->window.header);
        }
        seal(trace->log.header);
        if (trace->spare.header) {
            ms_trace_file_cut(&trace->file, trace->spare.offset);
        }
        ms_trace_file_touch(&trace->file);
        release_extents(trace);
        ms_trace_file_close(&trace->file);
    }
    ms_lock_release(&trace->lock);
    ms_lock_release(&trace->growing);
    errno = saved;
}

void ms_trace_abandon(ms_trace_t *trace)
{
    const int saved = errno;

    if (!trace->closed) {
        release_extents(trace);
        ms_trace_file_close(&trace->file);
    }
    free_handle(trace);
    errno = saved;
}
