/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the lines that hold the memory. That needs all records, so a separate thread does it, and
 * rarely. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "allocator/base/clock.h"
#include "report/model/model.h"
#include "report/model/reading/read_model.h"
#include "report/model/site_rows.h"
#include "shim/cli/top/top.h"

#define REST      15u  /* the rest before the next reading, in times of its duration */
#define MOST_ROWS 500u /* sites are merged by line; naming more than this costs too much */

/* --- one reading ------------------------------------------------------------------------------ */

static int by_live(const void *a, const void *b)
{
    const struct ms_site_row *left = a, *right = b;
    if (left->sums.live_bytes != right->sums.live_bytes) {
        return left->sums.live_bytes > right->sums.live_bytes ? -1 : 1;
    }
    return left->site < right->site ? -1 : left->site > right->site;
}

static int by_bytes(const void *a, const void *b)
{
    const struct ms_top_site *left = a, *right = b;
    if (left->device != right->device) {
        return (int)left->device - (int)right->device;
    }
    if (left->bytes != right->bytes) {
        return left->bytes > right->bytes ? -1 : 1;
    }
    return strcmp(left->line, right->line);
}

static void add_line(struct ms_buffer *sites, size_t first, uint8_t device, const char *line,
                     uint64_t bytes)
{
    struct ms_top_site *all = (struct ms_top_site *)sites->at;
    for (size_t i = first; i < sites->bytes / sizeof(*all); i++) {
        if (strcmp(all[i].line, line) == 0) {
            all[i].bytes += bytes;
            return;
        }
    }
    struct ms_top_site *site = ms_buffer_extend(sites, sizeof(*site));
    if (site != NULL) {
        site->device = device;
        site->bytes = bytes;
        (void)snprintf(site->line, sizeof(site->line), "%s", line);
    }
}

static void add_device(const struct ms_model *model, int device, struct ms_buffer *sites)
{
    struct ms_buffer rows = {0};
    const size_t first = sites->bytes / sizeof(struct ms_top_site);
    ms_site_rows(model, device, &rows);
    if (rows.bytes > 0) {
        qsort(rows.at, ms_site_row_count(&rows), sizeof(struct ms_site_row), by_live);
    }
    for (size_t i = 0; i < ms_site_row_count(&rows) && i < MOST_ROWS; i++) {
        const struct ms_site_row *row = ms_site_row_at(&rows, i);
        struct ms_buffer line = {0};
        if (row->sums.live_bytes == 0) {
            break;
        }
        ms_site_add_line(model, row->site, &line);
        ms_buffer_append(&line, "", 1);
        if (!line.failed) {
            add_line(sites, first, (uint8_t)device, line.at, row->sums.live_bytes);
        }
        ms_buffer_free(&line);
    }
    ms_buffer_free(&rows);
}

void ms_top_sites_read(const char *path, struct ms_top_sites *out)
{
    char why[PATH_MAX + 512];
    memset(out, 0, sizeof(*out));
    (void)snprintf(out->path, sizeof(out->path), "%s", path);
    out->unix_ns = ms_clock_unix_ns();
    struct ms_model *model = ms_model_new(path, why, sizeof(why));
    if (model == NULL) {
        return;
    }
    out->whole = true;
    out->sampled = ms_definitions_sampling_bytes(model->definitions) > 0;
    out->of_end = model->end != MS_PROCESS_RUNNING;
    out->steps = model->steps.count > 0 ? model->steps.number : model->recurrence.count;
    ms_model_name_sites(model, MS_STACKS_NAMES, NULL);
    for (int device = 0; device < MS_DEVICE_COUNT; device++) {
        if (model->devices[device].used) {
            out->live_bytes[device] = ms_counters_live(&model->devices[device].sums.now);
            add_device(model, device, &out->sites);
        }
    }
    if (out->sites.bytes > 0) {
        qsort(out->sites.at, ms_top_site_count(out), sizeof(struct ms_top_site), by_bytes);
    }
    ms_model_delete(model);
}

void ms_top_sites_free(struct ms_top_sites *sites)
{
    ms_buffer_free(&sites->sites);
}

/* --- the worker ------------------------------------------------------------------------------- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wanted = PTHREAD_COND_INITIALIZER;
static struct ms_buffer slots; /* struct ms_top_sites; guarded by the lock */
static bool begun;             /* likewise */

static struct ms_top_sites *slot_of(const char *path)
{
    struct ms_top_sites *all = (struct ms_top_sites *)slots.at;
    for (size_t i = 0; i < slots.bytes / sizeof(*all); i++) {
        if (strcmp(all[i].path, path) == 0) {
            return &all[i];
        }
    }
    return NULL;
}

/* The process that was read longest ago, among those that may have changed since. */
static const struct ms_top_sites *oldest(void)
{
    const struct ms_top_sites *all = (const struct ms_top_sites *)slots.at;
    const struct ms_top_sites *found = NULL;
    for (size_t i = 0; i < slots.bytes / sizeof(*all); i++) {
        if (!all[i].of_end && (found == NULL || all[i].unix_ns < found->unix_ns)) {
            found = &all[i];
        }
    }
    return found;
}

static void rest(uint64_t ns)
{
    const struct timespec span = {(time_t)(ns / MS_NS_PER_S), (long)(ns % MS_NS_PER_S)};
    (void)nanosleep(&span, NULL);
}

static void *work(void *unused)
{
    (void)unused;
    for (;;) {
        struct ms_top_sites read;
        char path[PATH_MAX];
        pthread_mutex_lock(&lock);
        const struct ms_top_sites *next;
        while ((next = oldest()) == NULL) {
            pthread_cond_wait(&wanted, &lock);
        }
        const bool first = next->unix_ns == 0;
        (void)snprintf(path, sizeof(path), "%s", next->path);
        pthread_mutex_unlock(&lock);
        const uint64_t begin_ns = ms_clock_ns();
        ms_top_sites_read(path, &read);
        const uint64_t took_ns = ms_clock_ns() - begin_ns;
        pthread_mutex_lock(&lock);
        struct ms_top_sites *slot = slot_of(path);
        if (slot != NULL) {
            ms_top_sites_free(slot);
            *slot = read;
        }
        pthread_mutex_unlock(&lock);
        if (slot == NULL) {
            ms_top_sites_free(&read);
        }
        /* Reads each process once soon, and then at leisure. */
        rest(first ? 0 : took_ns * REST + MS_NS_PER_S);
    }
    return NULL;
}

static void forget_others(const char *const *paths, size_t count)
{
    struct ms_top_sites *all = (struct ms_top_sites *)slots.at;
    size_t kept = 0;
    for (size_t i = 0; i < slots.bytes / sizeof(*all); i++) {
        bool still = false;
        for (size_t p = 0; p < count && !still; p++) {
            still = strcmp(paths[p], all[i].path) == 0;
        }
        if (still) {
            all[kept++] = all[i];
        } else {
            ms_top_sites_free(&all[i]);
        }
    }
    slots.bytes = kept * sizeof(*all);
}

void ms_top_worker_want(const char *const *paths, size_t count)
{
    pthread_mutex_lock(&lock);
    forget_others(paths, count);
    for (size_t i = 0; i < count; i++) {
        struct ms_top_sites *slot = slot_of(paths[i]);
        slot = slot == NULL ? ms_buffer_extend(&slots, sizeof(*slot)) : NULL;
        if (slot != NULL) {
            memset(slot, 0, sizeof(*slot));
            (void)snprintf(slot->path, sizeof(slot->path), "%s", paths[i]);
        }
    }
    pthread_t thread;
    if (!begun && pthread_create(&thread, NULL, work, NULL) == 0) {
        (void)pthread_detach(thread);
        begun = true;
    }
    pthread_cond_signal(&wanted);
    pthread_mutex_unlock(&lock);
}

bool ms_top_worker_get(const char *path, struct ms_top_sites *out)
{
    pthread_mutex_lock(&lock);
    const struct ms_top_sites *slot = slot_of(path);
    const bool known = slot != NULL && slot->unix_ns != 0;
    if (known) {
        *out = *slot;
        out->sites = (struct ms_buffer){0};
        if (slot->sites.bytes > 0) {
            ms_buffer_append(&out->sites, slot->sites.at, slot->sites.bytes);
        }
    }
    pthread_mutex_unlock(&lock);
    return known;
}
