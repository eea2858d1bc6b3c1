/* SPDX-License-Identifier: Apache-2.0 */
/* report.txt: its head, its parts in order, and the notes at its end. */
#include "report/render/text/report.h"

#include <inttypes.h>
#include <string.h>

#include "allocator/base/units.h"
#include "report/model/ledger.h"
#include "report/model/site_rows.h"
#include "report/model/verdict/verdict_report.h"
#include "report/model/verdict/what_if.h"
#include "report/render/text/answer.h"
#include "report/render/text/parts.h"
#include "report/symbols/symbols.h"

#define LISTED_OOMS 10

static void add_head(const struct ms_model *model, struct ms_buffer *out)
{
    const struct ms_file_header *header = &model->header;
    char date[MS_UNIT_TEXT_BYTES];

    ms_buffer_add(out, "memshim  ");
    ms_buffer_add_plain(out, header->program[0] ? header->program : "process");
    if (header->rank >= 0 && header->world_size > 0) {
        ms_buffer_format(out, "  rank %d of %d", (int)header->rank, (int)header->world_size);
    } else if (header->rank >= 0) {
        ms_buffer_format(out, "  rank %d", (int)header->rank);
    }
    ms_buffer_add(out, "  ");
    ms_buffer_add_plain(out, header->host);
    ms_date_text(header->start_unix_ns, date, sizeof(date));
    ms_buffer_format(out, "  pid %d   %.10s %.5s UTC   %s %s   ", (int)header->pid, date, date + 11,
                     model->end == MS_PROCESS_RUNNING ? "runs for" : "ran",
                     MS_DURATION(model->duration_ns));
    if (ms_model_exit_known(model)) {
        ms_buffer_format(out, "exit %d%s\n", (int)header->exit_status,
                         model->end == MS_PROCESS_EXITED ? ", its trace left open" : "");
    } else if (model->end == MS_PROCESS_ENDED) {
        ms_buffer_add(out, "exit status unknown\n");
    } else {
        ms_buffer_add(out, model->end == MS_PROCESS_RUNNING ? "still running\n"
                                                            : "was killed, or aborted\n");
    }
}

/* Where the whole run shows another reason than that moment. */
static void add_judged(const struct ms_model *model, size_t index, struct ms_buffer *out)
{
    struct ms_judgement judgement;

    ms_judge(model, index, &judgement);
    if (judgement.verdict != ms_model_oom_at(model, index)->verdict) {
        ms_buffer_format(out, "; `why` says %s", ms_verdict_name(judgement.verdict));
    }
}

static void add_ooms(const struct ms_model *model, struct ms_buffer *out)
{
    const size_t count = ms_model_oom_count(model);
    const size_t first = count > LISTED_OOMS ? count - LISTED_OOMS : 0;
    const size_t judged = ms_judged_fatal(model);

    if (count == 0) {
        return;
    }
    ms_buffer_format(out, "\nOut-of-memories: %s", MS_COUNT(count));
    if (first > 0) {
        ms_buffer_format(out, ", the last %d of them", LISTED_OOMS);
    }
    ms_buffer_add(out, "   (with the first finding, from the figures of that moment alone");
    if (judged != SIZE_MAX) {
        ms_buffer_add(out, "; `why`, at the top, is from the whole run");
    }
    ms_buffer_add(out, ")\n");
    for (size_t i = first; i < count; i++) {
        const struct ms_model_oom *oom = ms_model_oom_at(model, i);
        const bool lacked = oom->short_bytes > 0;

        ms_buffer_format(
            out, "  after %-10s device %" PRIu64 "  %-7s asked for %-11s %s %-11s %-13s  %s",
            MS_DURATION(oom->time_ns), oom->device,
            oom->record.state.source == MS_OOM_TORCH  ? "PyTorch"
            : oom->record.state.source == MS_OOM_HOST ? "host"
                                                      : "driver",
            MS_BYTES(oom->record.state.requested_bytes), lacked ? "short" : "     ",
            lacked ? MS_BYTES(oom->short_bytes) : "", ms_verdict_name(oom->verdict),
            ms_model_oom_outcome(model, i));
        if (oom->times > 1) {
            ms_buffer_format(out, ", refused %s times", MS_COUNT(oom->times));
        }
        if (i == judged) {
            add_judged(model, i, out);
        }
        ms_buffer_add(out, "\n");
    }
}

static void add_device(const struct ms_model *model, int index, struct ms_buffer *out)
{
    const struct ms_model_device *device = &model->devices[index];
    const struct ms_aggregate *sums = &device->sums;
    const uint64_t torch_bytes = ms_what_if_torch_bytes(model, index);

    ms_buffer_format(out, "\nDevice %d  ", index);
    ms_buffer_add_plain(out, device->name[0] ? device->name : "(name unknown)");
    ms_buffer_format(out, "  %s, cap %s\n", MS_BYTES(sums->now.total_bytes),
                     MS_BYTES(sums->now.cap_bytes));
    ms_buffer_format(out, "  peak   live %s   reserved %s   charged %s\n",
                     MS_BYTES(ms_aggregate_peak_live(sums).live_bytes),
                     MS_BYTES(sums->peak_reserved.reserved_bytes),
                     MS_BYTES(sums->peak_charged.charged_bytes));
    ms_buffer_format(
        out,
        "         each is the highest of the whole run; they need not be of the same moment%s\n  ",
        sums->peak_host_chunk_bytes > 0
            ? "; live bytes count wherever they lie, in host memory as well"
            : "");
    ms_text_add_fragmentation(out, sums);
    if (ms_model_fatal_oom(model) && ms_aggregate_fragmentation_ppm(sums) > 0) {
        ms_buffer_add(out, ", which need not be when memory ran out; PyTorch's cache counts in it");
    }
    ms_buffer_format(out, "\n  %sallocations %s, frees %s, refused %s%s\n",
                     sums->tensor_allocations > 0 ? "besides tensors: " : "",
                     MS_COUNT(sums->allocations), MS_COUNT(sums->frees),
                     MS_COUNT(sums->failed_allocations),
                     sums->failed_allocations > 0
                         ? " (the driver's and the host's out-of-memories, each as often as it was "
                           "refused; an error of PyTorch's comes beside them)"
                         : "");
    if (sums->tensor_allocations > 0) {
        ms_buffer_format(out, "  tensors: %s allocated, %s freed, at most %s live at once\n",
                         MS_COUNT(sums->tensor_allocations), MS_COUNT(sums->tensor_frees),
                         MS_BYTES(sums->peak_tensor_bytes));
    }
    if (torch_bytes > 0) {
        ms_buffer_format(out,
                         "  PyTorch's own count (memory_reserved): at most %s; this includes its "
                         "cache, and what memshim took out of that or moved to the host\n",
                         MS_BYTES(torch_bytes));
    }
    ms_buffer_format(
        out, "  driver calls: create %s, map %s, set access %s, release %s; mappings removed: %s\n",
        MS_COUNT(sums->driver_calls[MS_CALL_CREATE]), MS_COUNT(sums->driver_calls[MS_CALL_MAP]),
        MS_COUNT(sums->driver_calls[MS_CALL_SET_ACCESS]),
        MS_COUNT(sums->driver_calls[MS_CALL_RELEASE]), MS_COUNT(sums->driver_calls[MS_CALL_UNMAP]));
    if (sums->peak_host_chunk_bytes > 0) {
        ms_buffer_format(
            out, "  host memory in the device's place: at most %s, not charged: %s\n",
            MS_BYTES(sums->peak_host_chunk_bytes),
            sums->spilled_bytes > 0
                ? "live memory that moved there, and memory that replaces holes, which "
                  "MEMSHIM_SPILL_LIMIT does not limit"
                : "at any moment of the run; it replaces holes whose device memory was in use "
                  "elsewhere, and no live memory moved there");
    }
    if (sums->spilled_bytes > 0) {
        ms_text_add_spill(out, model, index);
    }
    if (sums->kind_events[MS_EVENT_LOST] > 0) {
        ms_buffer_format(out,
                         "  LOST: the driver failed again and again while memory moved; no memory "
                         "was left behind %s address ranges\n",
                         MS_COUNT(sums->kind_events[MS_EVENT_LOST]));
    }
    if (sums->peak_host_pinned_bytes > 0) {
        ms_buffer_format(out, "  pinned host memory: at most %s\n",
                         MS_BYTES(sums->peak_host_pinned_bytes));
    }
}

static void add_tensor_note(const struct ms_model *model, struct ms_buffer *out)
{
    if (ms_model_has_tensors(model)) {
        return;
    }
    if (strcmp(model->header.torch_mode, "tensor") == 0) {
        ms_buffer_add(out, "\nMEMSHIM_TORCH=tensor: each of PyTorch's tensors is an allocation of "
                           "its own.\n");
    } else if (model->header.versions[MS_VERSION_TORCH][0]) {
        ms_buffer_add(out, "\nPyTorch did not report its tensors: live bytes are those of its "
                           "segments, and holes inside them are not seen.\n");
    } else {
        ms_buffer_add(out, "\nNo framework reported tensors: live bytes are those of whole "
                           "allocations.\n");
    }
}

static void add_lines(const char *title, const char *lines, struct ms_buffer *out)
{
    if (!lines[0]) {
        return;
    }
    ms_buffer_format(out, "\n%s\n", title);
    while (*lines) {
        char line[1024];
        const size_t length = strcspn(lines, "\n");
        const size_t kept = length < sizeof(line) ? length : sizeof(line) - 1;

        memcpy(line, lines, kept);
        line[kept] = '\0';
        ms_buffer_add(out, "  ");
        ms_buffer_add_plain(out, line);
        ms_buffer_add(out, "\n");
        lines += length + (lines[length] == '\n');
    }
}

static void add_list(const char *title, const struct ms_buffer *lines, uint64_t count,
                     struct ms_buffer *out)
{
    const char *at = lines->at;

    if (count > 0) {
        ms_buffer_format(out, "\n%s\n", title);
    }
    for (uint64_t i = 0; i < count; i++) {
        ms_buffer_add(out, "  ");
        ms_buffer_add_plain(out, at);
        ms_buffer_add(out, "\n");
        at += strlen(at) + 1;
    }
}

static void add_exactness(const struct ms_model *model, struct ms_buffer *out)
{
    ms_buffer_format(out, "\nExact: ");
    if (!model->sums_exact) {
        ms_buffer_add(out, "not known, because the trace is damaged; the figures are from what "
                           "could be read of it");
    } else if (model->one_event_torn) {
        ms_buffer_add(out, "sums and peaks of the whole run, except for one event that was being "
                           "recorded when the process ended");
    } else {
        ms_buffer_format(out, "sums, peaks%s and out-of-memories of the whole run",
                         model->beginning_lost ? "" : ", call sites, kinds, steps");
    }
    if (model->events == model->read_events) {
        ms_buffer_format(out, "; all %s events in detail.\n", MS_COUNT(model->events));
    } else {
        ms_buffer_format(
            out,
            "; the last %s of %s events in detail (since %s), and with them growth and "
            "the map of addresses.\n",
            MS_COUNT(model->read_events), MS_COUNT(model->events),
            MS_DURATION(model->first_detail_ns));
    }
    if (!ms_symbols_can_read()) {
        ms_buffer_add(out,
                      "Native functions have no names here: libdw.so.1 is missing (Debian, Ubuntu: "
                      "libdw1; Fedora: elfutils-libs).\n");
    }
    if (model->lost_events > 0) {
        ms_buffer_format(out,
                         "There was no room on disk for the records of %s events; they count "
                         "in the sums.\n",
                         MS_COUNT(model->lost_events));
    }
    if (model->lost_definitions > 0) {
        ms_buffer_format(out,
                         "There was no room for %s definitions of call sites: some stacks are "
                         "missing or cut.\n",
                         MS_COUNT(model->lost_definitions));
    }
    if (model->lost_entries > 0) {
        ms_buffer_format(out,
                         "There was no room for %s log entries (out-of-memories, notes or "
                         "thresholds).\n",
                         MS_COUNT(model->lost_entries));
    }
}

static void add_versions(const struct ms_model *model, struct ms_buffer *out)
{
    static const char *const names[MS_VERSION_COUNT] = {"driver", "CUDA", "PyTorch"};
    const struct ms_file_header *header = &model->header;

    ms_buffer_add(out, "\nmemshim ");
    ms_buffer_add_plain(out, header->memshim_version);
    for (int slot = 0; slot < MS_VERSION_COUNT; slot++) {
        if (header->versions[slot][0]) {
            ms_buffer_format(out, "   %s ", names[slot]);
            ms_buffer_add_plain(out, header->versions[slot]);
        }
    }
    if (header->torch_mode[0]) {
        ms_buffer_add(out, "   MEMSHIM_TORCH ");
        ms_buffer_add_plain(out, header->torch_mode);
    }
    ms_buffer_add(out, "\ncommand  ");
    ms_buffer_add_plain(out, header->command);
    ms_buffer_add(out, "\n");
}

void ms_format_text(const struct ms_model *model, struct ms_buffer *out)
{
    const int main_device = ms_model_main_device(model);

    add_head(model, out);
    ms_answer_text(out, model);
    if (main_device >= 0) {
        ms_text_add_ledger(out, model, main_device);
        if (!ms_ledger_peak_moment(model, main_device)) {
            ms_text_add_kinds(out, model, main_device);
        }
        ms_text_add_sites(out, model, main_device);
    }
    add_ooms(model, out);
    for (int i = 0; i < MS_DEVICE_COUNT; i++) {
        if (model->devices[i].used) {
            add_device(model, i, out);
        }
    }
    add_tensor_note(model, out);
    add_lines("Options that were set", model->header.options, out);
    add_list("Messages during the run", &model->notes, model->note_count, out);
    add_list("The trace is incomplete", &model->warnings, model->warning_count, out);
    add_versions(model, out);
    add_exactness(model, out);
    ms_buffer_add(out,
                  model->end == MS_PROCESS_RUNNING
                      ? "More: memshim report --open (a page for the browser, as of now)\n"
                      : "More, beside the trace: report.html (for the browser)   report.json   "
                        "timeline.json (opens in Perfetto)\n");
}
