/* SPDX-License-Identifier: Apache-2.0 */
/* The figures for people. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "allocator/base/clock.h"
#include "allocator/base/plain.h"
#include "allocator/base/units.h"
#include "shim/cli/top/top.h"

static void add_head(const struct ms_top_frame *frame, struct ms_buffer *out)
{
    char date[MS_UNIT_TEXT_BYTES];
    size_t running = 0;
    for (size_t i = 0; i < frame->count; i++) {
        running += frame->processes[i].running != 0;
    }
    ms_buffer_add(out, "memshim top  ");
    ms_buffer_add_plain(out, frame->target);
    ms_buffer_format(out, "  %zu process%s, %zu running  %s\n\n", frame->count,
                     frame->count == 1 ? "" : "es", running,
                     ms_date_text(frame->unix_ns, date, sizeof(date)));
}

static void state_text(const struct ms_top_process *process, const struct memshim_stats *stats,
                       char *text, size_t text_bytes)
{
    if (process->state == MS_TOP_RUNNING && stats != NULL) {
        (void)snprintf(text, text_bytes, "%s", ms_threshold_name(stats->status));
    } else if (process->exit_known) {
        (void)snprintf(text, text_bytes, "%s, %" PRId32, ms_top_state_name(process->state),
                       process->header.exit_status);
    } else {
        (void)snprintf(text, text_bytes, "%s", ms_top_state_name(process->state));
    }
}

/* --- the table -------------------------------------------------------------------------------- */

enum column {
    RANK,
    PID,
    DEVICE,
    USED,
    SHARE,
    LIVE,
    TREND,
    RESERVED,
    FRAGMENTATION,
    HOST,
    STATUS,
    STEP,
    TIME,
    PROGRAM,
    COLUMNS
};

/* If a window is too narrow for all columns, whole columns are left out, the highest `leaves`
 * first; none is cut. A program's name gets the rest, at least LEAST_PROGRAM characters. */
static const struct {
    const char *head;
    int width, leaves;
    bool left; /* left-aligned text */
} columns[COLUMNS] = {
    [RANK] = {"RANK", 4, 0, false},
    [PID] = {"PID", 8, 4, false},
    [DEVICE] = {"DEV", 3, 0, false},
    [USED] = {"USED /        CAP", 23, 0, false},
    [SHARE] = {"", 8, 0, false},
    [LIVE] = {"LIVE", 11, 1, false},
    [TREND] = {"TREND", MS_TOP_TREND, 2, true},
    [RESERVED] = {"RESERVED", 11, 8, false},
    [FRAGMENTATION] = {"FRAG", 8, 7, false},
    [HOST] = {"HOST", 11, 6, false},
    [STATUS] = {"STATUS", 10, 0, true},
    [STEP] = {"STEP", 8, 3, false},
    [TIME] = {"TIME", 10, 5, false},
    [PROGRAM] = {"PROGRAM", 8, 0, true},
};

#define LEAST_PROGRAM 8
#define CELL_BYTES    (MS_PROGRAM_BYTES + 128)
#define RAMP          8

/* One blank is too little between right-aligned text and left-aligned text after it. */
static int gap_before(enum column column)
{
    return column == RANK ? 0 : columns[column].left ? 2 : 1;
}

static int table_width(const bool shown[COLUMNS])
{
    int width = 0;
    for (int i = 0; i < COLUMNS; i++) {
        width += shown[i] ? columns[i].width + gap_before((enum column)i) : 0;
    }
    return width;
}

/* The next column to leave out; COLUMNS if none may be. */
static int next_to_leave(const bool shown[COLUMNS])
{
    int next = COLUMNS;
    for (int i = 0; i < COLUMNS; i++) {
        if (shown[i] && columns[i].leaves > 0 &&
            (next == COLUMNS || columns[i].leaves > columns[next].leaves)) {
            next = i;
        }
    }
    return next;
}

/* Returns the characters that a program's name may have; 0: no limit. */
static size_t choose_columns(const struct ms_top_frame *frame, bool shown[COLUMNS])
{
    memset(shown, true, COLUMNS * sizeof(*shown));
    if (frame->width == 0) {
        return 0;
    }
    for (int next = next_to_leave(shown); next < COLUMNS && table_width(shown) > (int)frame->width;
         next = next_to_leave(shown)) {
        shown[next] = false;
    }
    const int left = (int)frame->width - table_width(shown) + LEAST_PROGRAM;
    return left > LEAST_PROGRAM ? (size_t)left : LEAST_PROGRAM;
}

/* One block for each part of the run; the highest for the part in which most was live. */
static void trend_text(const struct ms_top_device *device, bool utf8, char *text, size_t text_bytes)
{
    static const char *const blocks[RAMP] = {"\u2581", "\u2582", "\u2583", "\u2584",
                                             "\u2585", "\u2586", "\u2587", "\u2588"};
    static const char *const plain[RAMP] = {"_", ".", ":", "-", "=", "+", "*", "#"};
    uint64_t most = 1;
    size_t used = 0;
    for (int i = 0; i < MS_TOP_TREND; i++) {
        most = device->trend_bytes[i] > most ? device->trend_bytes[i] : most;
    }
    for (int i = 0; i < MS_TOP_TREND && device->has_trend; i++) {
        const size_t level =
            (size_t)((double)device->trend_bytes[i] / (double)most * (RAMP - 1) + 0.5);
        used += (size_t)snprintf(text + used, text_bytes - used, "%s",
                                 (utf8 ? blocks : plain)[level < RAMP ? level : RAMP - 1]);
    }
}

/* The text of a device's column. */
static void device_text(enum column column, const struct ms_top_device *device, bool utf8,
                        char *text, size_t text_bytes)
{
    const struct memshim_stats *stats = &device->stats;
    char used[MS_UNIT_TEXT_BYTES], cap[MS_UNIT_TEXT_BYTES];
    switch (column) {
    case DEVICE:
        (void)snprintf(text, text_bytes, "%u", (unsigned)device->index);
        break;
    case USED:
        (void)snprintf(text, text_bytes, "%10s / %10s",
                       ms_bytes_text(stats->used_bytes, used, sizeof(used)),
                       ms_bytes_text(stats->cap_bytes, cap, sizeof(cap)));
        break;
    case SHARE:
        (void)ms_percent_text(stats->used_bytes, stats->cap_bytes, text, text_bytes);
        break;
    case LIVE:
        (void)ms_bytes_text(stats->live_bytes, text, text_bytes);
        break;
    case TREND:
        trend_text(device, utf8, text, text_bytes);
        break;
    case RESERVED:
        (void)ms_bytes_text(stats->reserved_bytes, text, text_bytes);
        break;
    case FRAGMENTATION:
        (void)ms_percent_text((uint64_t)(stats->fragmentation * 1e6 + 0.5),
                              stats->reserved_bytes > 0 ? 1000000 : 0, text, text_bytes);
        break;
    case HOST:
        (void)ms_bytes_text(stats->host_bytes, text, text_bytes);
        break;
    default:
        break;
    }
}

/* device: null if the process has none. */
static void cell_text(enum column column, const struct ms_top_process *process,
                      const struct ms_top_sites *sites, const struct ms_top_device *device,
                      bool utf8, char *text, size_t text_bytes)
{
    (void)snprintf(text, text_bytes, "%s", column == RANK || column == DEVICE ? "-" : "");
    switch (column) {
    case RANK:
        if (process->header.rank >= 0) {
            (void)snprintf(text, text_bytes, "%" PRId32, process->header.rank);
        }
        break;
    case PID:
        (void)snprintf(text, text_bytes, "%" PRId32, process->header.pid);
        break;
    case STATUS:
        state_text(process, device ? &device->stats : NULL, text, text_bytes);
        break;
    case STEP:
        (void)snprintf(text, text_bytes, "-");
        if (sites->steps > 0) {
            (void)ms_count_text(sites->steps, text, text_bytes);
        }
        break;
    case TIME:
        (void)ms_duration_text(process->duration_ns, text, text_bytes);
        break;
    default:
        if (device) {
            device_text(column, device, utf8, text, text_bytes);
        }
    }
}

/* Of UTF-8. */
static int characters(const char *text)
{
    int count = 0;
    for (; *text; text++) {
        count += ((unsigned char)*text & 0xC0) != 0x80;
    }
    return count;
}

static void add_cell(enum column column, const char *text, struct ms_buffer *out)
{
    const int blanks = columns[column].width - characters(text);
    ms_buffer_format(out, "%*s", gap_before(column), "");
    if (columns[column].left) {
        ms_buffer_format(out, "%s%*s", text, blanks > 0 ? blanks : 0, "");
    } else {
        ms_buffer_format(out, "%*s%s", blanks > 0 ? blanks : 0, "", text);
    }
}

/* Adds the program's name, cut to the room. It may hold any bytes. */
static void add_program(const struct ms_top_process *process, size_t room, struct ms_buffer *out)
{
    char plain[MS_PLAIN_BYTES * MS_PROGRAM_BYTES];
    const size_t bytes = ms_plain_text(process->header.program, plain, sizeof(plain));
    ms_buffer_add(out, "  ");
    if (room == 0 || bytes <= room) {
        ms_buffer_add(out, plain);
    } else {
        ms_buffer_format(out, "%.*s..", (int)room - 2, plain);
    }
    if (process->torn && room == 0) {
        ms_buffer_add(out, "  (changed while it was read; not exact)");
    }
}

static void add_row(const struct ms_top_frame *frame, size_t index, const bool shown[COLUMNS],
                    size_t room, const struct ms_top_device *device, struct ms_buffer *out)
{
    const struct ms_top_process *process = &frame->processes[index];
    for (int i = 0; i < PROGRAM; i++) {
        char text[CELL_BYTES];
        if (shown[i]) {
            cell_text((enum column)i, process, &frame->sites[index], device, frame->utf8, text,
                      sizeof(text));
            add_cell((enum column)i, text, out);
        }
    }
    add_program(process, room, out);
    ms_buffer_add(out, "\n");
}

static void add_table(const struct ms_top_frame *frame, struct ms_buffer *out)
{
    bool shown[COLUMNS];
    const size_t room = choose_columns(frame, shown);
    for (int i = 0; i < COLUMNS; i++) {
        if (shown[i]) {
            add_cell((enum column)i, columns[i].head, out);
        }
    }
    ms_buffer_add(out, "\n");
    for (size_t i = 0; i < frame->count; i++) {
        const struct ms_top_process *process = &frame->processes[i];
        const size_t devices = ms_top_device_count(process);
        for (size_t d = 0; d < devices && process->why[0] == '\0'; d++) {
            add_row(frame, i, shown, room, ms_top_device_at(process, d), out);
        }
        if (devices == 0 && process->why[0] == '\0') {
            add_row(frame, i, shown, room, NULL, out);
        }
    }
    for (size_t i = 0; i < frame->count; i++) {
        if (frame->processes[i].why[0] != '\0') {
            ms_buffer_add(out, "not read: ");
            ms_buffer_add_plain(out, frame->processes[i].why);
            ms_buffer_add(out, "\n");
        }
    }
}

/* --- lines that hold the memory --------------------------------------------------------------- */

static void add_sites(const struct ms_top_frame *frame, size_t index,
                      const struct ms_top_device *device, struct ms_buffer *out)
{
    const struct ms_top_process *process = &frame->processes[index];
    const struct ms_top_sites *sites = &frame->sites[index];
    char bytes[MS_UNIT_TEXT_BYTES], share[MS_UNIT_TEXT_BYTES], age[MS_UNIT_TEXT_BYTES];
    size_t shown = 0;
    for (size_t i = 0; i < ms_top_site_count(sites) && shown < frame->most_sites; i++) {
        const struct ms_top_site *site = ms_top_site_at(sites, i);
        if (site->device != device->index) {
            continue;
        }
        if (shown++ == 0) {
            const uint64_t age_ns =
                frame->unix_ns > sites->unix_ns ? frame->unix_ns - sites->unix_ns : 0;
            ms_buffer_format(out, "\n  live %s, pid %" PRId32 " device %u%s",
                             ms_bytes_text(sites->live_bytes[device->index], bytes, sizeof(bytes)),
                             process->header.pid, (unsigned)device->index,
                             sites->sampled ? ", of sampled allocations only" : "");
            if (age_ns > MS_NS_PER_S) {
                ms_buffer_format(out, " (%s ago)", ms_duration_text(age_ns, age, sizeof(age)));
            }
            ms_buffer_add(out, "\n");
        }
        ms_buffer_format(
            out, "  %11s %8s  ", ms_bytes_text(site->bytes, bytes, sizeof(bytes)),
            ms_percent_text(site->bytes, sites->live_bytes[device->index], share, sizeof(share)));
        ms_buffer_add_plain(out, site->line);
        ms_buffer_add(out, "\n");
    }
}

/* --- caps that several processes share ------------------------------------------------------- */

static bool same_cap(const struct ms_top_device *a, const struct ms_top_device *b)
{
    return strcmp(a->group, b->group) == 0 && strcmp(a->uuid, b->uuid) == 0;
}

/* Whether a row before that one has the same. */
static bool was_told(const struct ms_top_frame *frame, const struct ms_top_device *device)
{
    for (size_t i = 0; i < frame->count; i++) {
        for (size_t d = 0; d < ms_top_device_count(&frame->processes[i]); d++) {
            const struct ms_top_device *other = ms_top_device_at(&frame->processes[i], d);
            if (other == device) {
                return false;
            }
            if (same_cap(other, device)) {
                return true;
            }
        }
    }
    return false;
}

static void add_shared_cap(const struct ms_top_device *device, struct ms_buffer *out)
{
    const struct memshim_stats *stats = &device->stats;
    char cap[MS_UNIT_TEXT_BYTES], used[MS_UNIT_TEXT_BYTES];
    ms_buffer_format(out, "\nThe cap of %s on device %u is that of ",
                     ms_bytes_text(device->group_cap_bytes, cap, sizeof(cap)),
                     (unsigned)device->index);
    ms_buffer_add_plain(out, device->group);
    ms_buffer_format(out, ": %" PRIu32 " process%s use%s %s of it.\n", device->group_processes,
                     device->group_processes == 1 ? "" : "es",
                     device->group_processes == 1 ? "s" : "",
                     ms_bytes_text(stats->used_bytes + stats->others_bytes, used, sizeof(used)));
}

static void add_shared_caps(const struct ms_top_frame *frame, struct ms_buffer *out)
{
    for (size_t i = 0; i < frame->count; i++) {
        for (size_t d = 0; d < ms_top_device_count(&frame->processes[i]); d++) {
            const struct ms_top_device *device = ms_top_device_at(&frame->processes[i], d);
            if (device->group[0] != '\0' && !was_told(frame, device)) {
                add_shared_cap(device, out);
            }
        }
    }
}

void ms_top_text(const struct ms_top_frame *frame, struct ms_buffer *out)
{
    add_head(frame, out);
    add_table(frame, out);
    add_shared_caps(frame, out);
    for (size_t i = 0; i < frame->count && frame->most_sites > 0; i++) {
        const struct ms_top_process *process = &frame->processes[i];
        for (size_t d = 0; d < ms_top_device_count(process) && process->running; d++) {
            add_sites(frame, i, ms_top_device_at(process, d), out);
        }
    }
}
