/* SPDX-License-Identifier: Apache-2.0 */
/* Follows a trace up to a moment, and records what PyTorch's own allocator would have recorded. */
#include "report/model/snapshot.h"

#include <stdio.h>
#include <string.h>

#include "report/read/events.h"

/* ---- entries ---- */

/* Returns its number + 1, by which it can be withdrawn; 0: memory ran out. */
static uint64_t add_entry(struct ms_snapshot *snapshot, uint8_t index,
                          const struct ms_snapshot_entry *entry)
{
    struct ms_snapshot_device *device = &snapshot->devices[index];
    const size_t count = ms_snapshot_entry_count(device);

    if (count == (size_t)2 * MS_SNAPSHOT_ENTRIES) {
        memmove(device->entries.at, ms_snapshot_entry_at(device, MS_SNAPSHOT_ENTRIES),
                MS_SNAPSHOT_ENTRIES * sizeof(*entry));
        device->entries.bytes = MS_SNAPSHOT_ENTRIES * sizeof(*entry);
        device->dropped += MS_SNAPSHOT_ENTRIES;
    }

    struct ms_snapshot_entry *to = ms_buffer_extend(&device->entries, sizeof(*to));

    if (!to) {
        snapshot->failed = true;
        return 0;
    }
    *to = *entry;
    return device->dropped + ms_snapshot_entry_count(device);
}

static uint64_t add(struct ms_snapshot *snapshot, const struct ms_event *event, uint64_t time_ns,
                    enum ms_snapshot_action action)
{
    const struct ms_snapshot_entry entry = {.action = (uint8_t)action,
                                            .site = event->site,
                                            .time_ns = time_ns,
                                            .addr = event->addr,
                                            .bytes = event->bytes,
                                            .stream = event->stream};

    return add_entry(snapshot, event->device, &entry);
}

/* Adds the model's out-of-memories before that time; events of the same time count as before
 * them. */
static void add_ooms(struct ms_snapshot *snapshot, uint64_t time_ns)
{
    while (snapshot->next_oom < ms_model_oom_count(snapshot->model)) {
        const struct ms_model_oom *oom = ms_model_oom_at(snapshot->model, snapshot->next_oom);
        const uint8_t device = (uint8_t)(oom->device & (MS_DEVICE_COUNT - 1));
        const struct ms_oom_state *state = &oom->record.state;
        const struct ms_snapshot_entry entry = {
            .action = MS_ACTION_OOM,
            .site = state->site,
            .time_ns = oom->time_ns,
            .addr = state->cap_bytes > state->charged_bytes
                        ? state->cap_bytes - state->charged_bytes
                        : 0,
            .bytes = state->requested_bytes,
        };

        if (oom->time_ns >= time_ns) {
            return;
        }
        snapshot->next_oom++;
        if (oom->time_ns <= snapshot->devices[device].until_ns) {
            (void)add_entry(snapshot, device, &entry);
        }
    }
}

/* ---- segments ---- */

static bool add_segment(struct ms_snapshot *snapshot, const struct ms_event *event,
                        uint64_t time_ns, bool pages)
{
    const struct ms_container container = {.addr = event->addr,
                                           .bytes = event->bytes,
                                           .stream = pages ? 0 : event->stream,
                                           .site = event->site,
                                           .pages = pages};
    struct ms_event change = *event;

    change.stream = container.stream;
    if (!ms_containers_add(&snapshot->devices[event->device].segments, &container)) {
        return false;
    }
    (void)add(snapshot, &change, time_ns, pages ? MS_ACTION_SEGMENT_MAP : MS_ACTION_SEGMENT_ALLOC);
    return true;
}

static void remove_segment(struct ms_snapshot *snapshot, const struct ms_event *event,
                           uint64_t time_ns)
{
    struct ms_event change = *event;
    struct ms_container removed;

    if (ms_containers_remove(&snapshot->devices[event->device].segments, event->addr, &removed)) {
        change.bytes = removed.bytes;
        change.stream = removed.stream;
        change.site = removed.site;
        (void)add(snapshot, &change, time_ns, MS_ACTION_SEGMENT_FREE);
    }
}

static void cut_pages(struct ms_snapshot *snapshot, const struct ms_event *event, uint64_t time_ns)
{
    struct ms_event change = *event;

    change.stream = 0;
    if (ms_containers_cut(&snapshot->devices[event->device].segments, event->addr, event->bytes)) {
        (void)add(snapshot, &change, time_ns, MS_ACTION_SEGMENT_UNMAP);
    }
}

/* ---- blocks and tensors ---- */

/* Memory outside all known segments gets a segment of its own. */
static void note_allocation(struct ms_snapshot *snapshot, const struct ms_event *event,
                            uint64_t time_ns)
{
    const struct ms_containers *segments = &snapshot->devices[event->device].segments;
    struct ms_event change = *event;
    struct ms_standing *standing;
    uint64_t number;

    if (!ms_containers_find(segments, event->addr)) {
        (void)add_segment(snapshot, event, time_ns, false);
    }

    const struct ms_container *within = ms_containers_find(segments, event->addr);

    change.stream = within ? within->stream : 0;
    number = within ? add(snapshot, &change, time_ns, MS_ACTION_ALLOC) : 0;
    standing = ms_instant_find(&snapshot->instant, event->id);
    if (standing) {
        standing->note = number;
        standing->stream = change.stream;
    }
}

static void note_free(struct ms_snapshot *snapshot, const struct ms_event *event,
                      const struct ms_standing *standing, uint64_t time_ns)
{
    const struct ms_container *within =
        ms_containers_find(&snapshot->devices[event->device].segments, standing->addr);
    struct ms_event change = *event;

    if (within) {
        change.addr = standing->addr;
        change.bytes = standing->bytes;
        change.site = standing->site;
        change.stream = standing->stream;
        (void)add(snapshot, &change, time_ns, MS_ACTION_FREE);
    }
    /* Its own segment. */
    if (within && within->addr == standing->addr && within->bytes == standing->bytes &&
        standing->tensor) {
        remove_segment(snapshot, &change, time_ns);
    }
}

/* It was recorded as a live block, but is a segment. */
static void take_back(struct ms_snapshot *snapshot, const struct ms_event *event,
                      const struct ms_standing *standing)
{
    struct ms_snapshot_device *device = &snapshot->devices[event->device];

    if (standing->note > device->dropped) {
        ms_snapshot_entry_at(device, standing->note - device->dropped - 1)->action = MS_ACTION_NONE;
    }
}

static void before_end(struct ms_snapshot *snapshot, const struct ms_event *event, uint64_t time_ns)
{
    const struct ms_standing *standing = ms_instant_find(&snapshot->instant, event->id);
    /* A damaged trace may free on one device memory that another allocated. */
    const bool known = standing && standing->device == event->device;

    if (known && event->kind == MS_EVENT_BLOCK_ARENA) {
        take_back(snapshot, event, standing);
    } else if (known) {
        note_free(snapshot, event, standing, time_ns);
    }
    if (event->kind == MS_EVENT_BLOCK_FREE) {
        remove_segment(snapshot, event, time_ns);
    }
}

static void after(struct ms_snapshot *snapshot, const struct ms_event *event, uint64_t time_ns)
{
    const bool own = event->owner == MS_OWNER_APPLICATION;

    switch (event->kind) {
    case MS_EVENT_BLOCK_ALLOC:
        (void)add_segment(snapshot, event, time_ns, false);
        note_allocation(snapshot, event, time_ns);
        break;
    case MS_EVENT_TENSOR_ALLOC:
        note_allocation(snapshot, event, time_ns);
        break;
    case MS_EVENT_PROXY_MAP:
        (void)add_segment(snapshot, event, time_ns, true);
        break;
    case MS_EVENT_PROXY_UNMAP:
        cut_pages(snapshot, event, time_ns);
        break;
    case MS_EVENT_MAP:
        if (own) {
            (void)add_segment(snapshot, event, time_ns, true);
        }
        break;
    case MS_EVENT_UNMAP:
        if (own) {
            cut_pages(snapshot, event, time_ns);
        }
        break;
    case MS_EVENT_CHARGE:
        if (event->owner == MS_OWNER_FORWARDED && event->addr) {
            (void)add_segment(snapshot, event, time_ns, false);
        }
        break;
    case MS_EVENT_DISCHARGE:
        if (event->owner == MS_OWNER_FORWARDED && event->addr) {
            remove_segment(snapshot, event, time_ns);
        }
        break;
    default:
        break;
    }
}

static bool is_at_peak(const struct ms_snapshot *snapshot, const struct ms_snapshot_device *device)
{
    const struct ms_aggregate *sums = &snapshot->instant.sums[device - snapshot->devices];

    return device->peak_bytes > 0 && ms_aggregate_peak_live(sums).live_bytes >= device->peak_bytes;
}

static void take_event(void *ctx, const struct ms_event *event, uint64_t time_ns)
{
    struct ms_snapshot *snapshot = ctx;
    struct ms_snapshot_device *device = &snapshot->devices[event->device & (MS_DEVICE_COUNT - 1)];

    if (!ms_event_has_device(event) || time_ns > device->until_ns || device->passed) {
        return;
    }
    device->used = true;
    add_ooms(snapshot, time_ns);
    if (event->kind == MS_EVENT_BLOCK_ARENA || event->kind == MS_EVENT_BLOCK_FREE ||
        event->kind == MS_EVENT_TENSOR_FREE) {
        before_end(snapshot, event, time_ns);
    }
    ms_instant_take(&snapshot->instant, event, time_ns);
    after(snapshot, event, time_ns);
    device->passed = time_ns == device->until_ns && is_at_peak(snapshot, device);
}

static void take_gap(void *ctx, uint8_t index, const struct ms_aggregate *sums, uint64_t time_ns)
{
    struct ms_snapshot *snapshot = ctx;
    struct ms_snapshot_device *device = &snapshot->devices[index];

    if (time_ns <= device->until_ns) {
        ms_instant_gap(&snapshot->instant, index, sums, time_ns);
        device->dropped += ms_snapshot_entry_count(device);
        device->entries.bytes = 0;
        device->segments.ranges.bytes = 0;
    } else if (!device->used) {
        snapshot->gone = true;
    }
}

bool ms_snapshot_take(struct ms_snapshot *snapshot, const struct ms_model *model,
                      const struct ms_moment_name *moment, char *why, size_t why_bytes)
{
    const struct ms_events_visitor visitor = {
        .ctx = snapshot, .event = take_event, .gap = take_gap};

    memset(snapshot, 0, sizeof(*snapshot));
    snapshot->model = model;
    snapshot->failed = !ms_instant_begin(&snapshot->instant);
    for (int i = 0; i < MS_DEVICE_COUNT; i++) {
        const struct ms_model_device *device = &model->devices[i];

        if (device->used &&
            !ms_moment_find(model, moment, i, &snapshot->devices[i].until_ns, why, why_bytes)) {
            return false;
        }
        if (device->used && moment->word == MS_AT_PEAK) {
            snapshot->devices[i].peak_bytes = ms_aggregate_peak_live(&device->sums).live_bytes;
        }
    }
    if (!snapshot->failed && !ms_events_visit(model->path, &visitor, why, why_bytes)) {
        return false;
    }
    if (snapshot->gone) {
        (void)snprintf(why, why_bytes,
                       "%s: the records of that moment are gone; name a later one with --at",
                       model->path);
        return false;
    }
    add_ooms(snapshot, UINT64_MAX);
    if (snapshot->failed || snapshot->instant.failed) {
        (void)snprintf(why, why_bytes, "%s: no memory to read it", model->path);
        return false;
    }
    return true;
}

void ms_snapshot_free(struct ms_snapshot *snapshot)
{
    ms_instant_free(&snapshot->instant);
    for (int i = 0; i < MS_DEVICE_COUNT; i++) {
        ms_buffer_free(&snapshot->devices[i].segments.ranges);
        ms_buffer_free(&snapshot->devices[i].entries);
    }
}
