/* SPDX-License-Identifier: Apache-2.0 */
/* What was read, for people. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "allocator/base/units.h"
#include "shim/cli/top.h"

#define NS_PER_S UINT64_C(1000000000)

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
        (void)snprintf(text, text_bytes, "%s", ms_status_name(stats->status));
    } else if (process->state == MS_TOP_ENDED && process->exit_known) {
        (void)snprintf(text, text_bytes, "ended, %" PRId32, process->exit_status);
    } else {
        (void)snprintf(text, text_bytes, "%s", ms_top_state_name(process->state));
    }
}

static void add_begin(const struct ms_top_process *process, const char *device,
                      struct ms_buffer *out)
{
    char rank[16] = "-";
    if (process->rank >= 0) {
        (void)snprintf(rank, sizeof(rank), "%" PRId32, process->rank);
    }
    ms_buffer_format(out, "%4s %8" PRId32 " %3s ", rank, process->pid, device);
}

static void add_end(const struct ms_top_process *process, const struct ms_top_sites *sites,
                    const struct memshim_stats *stats, struct ms_buffer *out)
{
    char state[32], ran[MS_UNIT_TEXT_BYTES], steps[MS_UNIT_TEXT_BYTES] = "-";
    state_text(process, stats, state, sizeof(state));
    if (sites->steps > 0) {
        (void)ms_count_text(sites->steps, steps, sizeof(steps));
    }
    ms_buffer_format(out, "  %-10s %8s %10s  ", state, steps,
                     ms_duration_text(process->duration_ns, ran, sizeof(ran)));
    ms_buffer_add_plain(out, process->program);
    if (process->torn) {
        ms_buffer_add(out, "  (changing too fast to be read exactly)");
    }
    ms_buffer_add(out, "\n");
}

static void add_row(const struct ms_top_process *process, const struct ms_top_sites *sites,
                    const struct ms_top_device *device, struct ms_buffer *out)
{
    const struct memshim_stats *stats = &device->stats;
    char index[16], used[MS_UNIT_TEXT_BYTES], cap[MS_UNIT_TEXT_BYTES], share[MS_UNIT_TEXT_BYTES],
        live[MS_UNIT_TEXT_BYTES], reserved[MS_UNIT_TEXT_BYTES], host[MS_UNIT_TEXT_BYTES],
        holes[MS_UNIT_TEXT_BYTES];
    (void)snprintf(index, sizeof(index), "%u", (unsigned)device->index);
    add_begin(process, index, out);
    ms_buffer_format(out, "%10s / %10s %8s %11s %11s %8s %11s",
                     ms_bytes_text(stats->used_bytes, used, sizeof(used)),
                     ms_bytes_text(stats->cap_bytes, cap, sizeof(cap)),
                     ms_percent_text(stats->used_bytes, stats->cap_bytes, share, sizeof(share)),
                     ms_bytes_text(stats->live_bytes, live, sizeof(live)),
                     ms_bytes_text(stats->reserved_bytes, reserved, sizeof(reserved)),
                     ms_percent_text((uint64_t)(stats->fragmentation * 1e6 + 0.5),
                                     stats->reserved_bytes > 0 ? 1000000 : 0, holes, sizeof(holes)),
                     ms_bytes_text(stats->host_bytes, host, sizeof(host)));
    add_end(process, sites, stats, out);
}

static void add_table(const struct ms_top_frame *frame, struct ms_buffer *out)
{
    ms_buffer_format(out, "%4s %8s %3s %10s / %10s %8s %11s %11s %8s %11s  %-10s %8s %10s  %s\n",
                     "RANK", "PID", "DEV", "USED", "CAP", "", "LIVE", "RESERVED", "FRAG", "HOST",
                     "STATUS", "STEP", "TIME", "PROGRAM");
    for (size_t i = 0; i < frame->count; i++) {
        const struct ms_top_process *process = &frame->processes[i];
        if (process->why[0] != '\0') {
            continue;
        }
        for (size_t d = 0; d < ms_top_device_count(process); d++) {
            add_row(process, &frame->sites[i], ms_top_device_at(process, d), out);
        }
        if (ms_top_device_count(process) == 0) {
            add_begin(process, "-", out);
            ms_buffer_format(out, "%78s", "");
            add_end(process, &frame->sites[i], NULL, out);
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
            ms_buffer_format(out, "\n  live, pid %" PRId32 " device %u%s", process->pid,
                             (unsigned)device->index,
                             sites->sampled ? ", only what was sampled" : "");
            if (age_ns > NS_PER_S) {
                ms_buffer_format(out, " (%s ago)", ms_duration_text(age_ns, age, sizeof(age)));
            }
            ms_buffer_add(out, "\n");
        }
        ms_buffer_format(
            out, "  %11s %8s  ", ms_bytes_text(site->bytes, bytes, sizeof(bytes)),
            ms_percent_text(site->bytes, device->stats.live_bytes, share, sizeof(share)));
        ms_buffer_add_plain(out, site->line);
        ms_buffer_add(out, "\n");
    }
}

void ms_top_text(const struct ms_top_frame *frame, struct ms_buffer *out)
{
    add_head(frame, out);
    add_table(frame, out);
    for (size_t i = 0; i < frame->count && frame->most_sites > 0; i++) {
        const struct ms_top_process *process = &frame->processes[i];
        for (size_t d = 0; d < ms_top_device_count(process) && process->running; d++) {
            add_sites(frame, i, ms_top_device_at(process, d), out);
        }
    }
}
