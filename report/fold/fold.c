/* SPDX-License-Identifier: Apache-2.0 */
/* Folds windows of records into a digest, some records at a time, before they are recycled. */
#include "report/fold/fold.h"

#include "allocator/base/containers/pages.h"
#include "report/fold/digest.h"
#include "report/fold/landmarks.h"
#include "report/trace/records.h"

struct ms_fold {
    ms_definitions_t *definitions;
    ms_landmarks_t *landmarks; /* of the first `known_sites` sites */
    uint32_t known_sites;
    struct ms_digest digest;
    struct ms_model_steps steps_recorded;
    struct ms_model_tags tags;
    struct ms_buffer moves;
    struct ms_digest_moments moments;
    uint64_t devices;        /* seen so far: a bit each */
    uint64_t windows, every; /* moments are taken after every `every`th window */
    size_t ooms;             /* already handled */
    struct ms_codec codec;

    /* The window that is being folded. */
    bool inside;
    struct ms_records records;
    uint32_t window_events; /* events of it with records */
};

ms_fold_t *ms_fold_new(void)
{
    struct ms_fold *fold = ms_pages_map(sizeof(*fold));

    if (!fold) {
        return NULL;
    }
    fold->every = 1;
    fold->definitions = ms_definitions_new();
    fold->landmarks = fold->definitions ? ms_landmarks_new(fold->definitions) : NULL;
    fold->digest = (struct ms_digest){.steps_recorded = &fold->steps_recorded,
                                      .tags = &fold->tags,
                                      .moves = &fold->moves,
                                      .moments = &fold->moments};
    fold->digest.sites = ms_site_table_new();
    fold->digest.steps = fold->landmarks ? ms_steps_new(fold->landmarks) : NULL;
    if (!fold->digest.sites || !fold->digest.steps) {
        ms_fold_delete(fold);
        return NULL;
    }
    return fold;
}

void ms_fold_delete(ms_fold_t *fold)
{
    if (fold) {
        ms_steps_delete(fold->digest.steps);
        ms_site_table_delete(fold->digest.sites);
        ms_landmarks_delete(fold->landmarks);
        ms_definitions_delete(fold->definitions);
        ms_recorded_free(&fold->steps_recorded, &fold->tags, &fold->moves);
        ms_digest_moments_free(&fold->moments);
        ms_pages_unmap(fold, sizeof(*fold));
    }
}

void ms_fold_define(ms_fold_t *fold, uint32_t kind, const void *payload, size_t bytes)
{
    ms_definitions_add(fold->definitions, kind, payload, bytes);
}

/* Finds the frame hints of new sites. */
static bool read_new_sites(struct ms_fold *fold)
{
    const uint32_t count = ms_definitions_site_count(fold->definitions);

    if (count != fold->known_sites) {
        ms_landmarks_t *landmarks = ms_landmarks_new(fold->definitions);

        if (!landmarks) {
            return false;
        }
        ms_steps_find(fold->digest.steps, landmarks);
        ms_landmarks_delete(fold->landmarks);
        fold->landmarks = landmarks;
        fold->known_sites = count;
    }
    ms_site_table_sample(fold->digest.sites, ms_definitions_sampling_bytes(fold->definitions));
    return true;
}

/* ---- moments ---- */

static size_t heads(const struct ms_fold *fold)
{
    return fold->moments.heads.bytes / sizeof(struct ms_digest_moment);
}

/* Takes the moments of out-of-memories that came before the next event. */
static void take_ooms(struct ms_fold *fold, const struct ms_fold_oom *ooms, size_t count)
{
    while (fold->ooms < count && ooms[fold->ooms].event <= fold->digest.end_event) {
        const struct ms_digest_moment moment = {.time_ns = fold->digest.end_ns,
                                                .event = ooms[fold->ooms].event,
                                                .device = ooms[fold->ooms].device,
                                                .oom = 1};

        if (fold->ooms < MS_DIGEST_OOMS) {
            ms_digest_moments_add(&fold->moments, fold->digest.sites, &moment);
        }
        fold->ooms++;
    }
}

static void take_instant(struct ms_fold *fold)
{
    const size_t ooms = fold->ooms < MS_DIGEST_OOMS ? fold->ooms : MS_DIGEST_OOMS;
    const size_t devices = (size_t)__builtin_popcountll(fold->devices);

    if (++fold->windows % fold->every != 0) {
        return;
    }
    while (heads(fold) - ooms + devices > MS_DIGEST_INSTANTS && heads(fold) > ooms) {
        ms_digest_moments_thin(&fold->moments);
        fold->every *= 2;
    }
    for (uint64_t left = fold->devices; left && devices <= MS_DIGEST_INSTANTS; left &= left - 1) {
        const struct ms_digest_moment moment = {.time_ns = fold->digest.end_ns,
                                                .event = fold->digest.end_event,
                                                .device = (uint32_t)__builtin_ctzll(left)};

        ms_digest_moments_add(&fold->moments, fold->digest.sites, &moment);
    }
}

/* ---- windows ---- */

static bool begin_window(struct ms_fold *fold, const struct ms_extent_header *header)
{
    const uint64_t committed = atomic_load_explicit(&header->committed, memory_order_acquire);

    if (header->first_event != fold->digest.end_event || !read_new_sites(fold)) {
        return false;
    }
    fold->records = ms_records_begin(&fold->codec, header, committed & UINT32_MAX);
    fold->window_events = (uint32_t)(committed >> 32);
    fold->inside = true;
    return true;
}

static enum ms_fold_state end_window(struct ms_fold *fold)
{
    fold->inside = false;
    ms_site_table_hush(fold->digest.sites);
    take_instant(fold);
    return fold->records.left_bytes == 0 && fold->records.count == fold->window_events
               ? MS_FOLD_DONE
               : MS_FOLD_FAILED;
}

enum ms_fold_state ms_fold_some(ms_fold_t *fold, const struct ms_extent_header *header,
                                const struct ms_fold_oom *ooms, size_t oom_count,
                                uint64_t most_records)
{
    struct ms_event event;
    uint64_t time_ns;

    if (!fold->inside && !begin_window(fold, header)) {
        return MS_FOLD_FAILED;
    }
    for (; most_records > 0; most_records--) {
        if (!ms_records_next(&fold->records, &event, &time_ns)) {
            return end_window(fold);
        }
        if (fold->ooms < oom_count) {
            take_ooms(fold, ooms, oom_count);
        }
        ms_digest_take(&fold->digest, &event, time_ns, fold->digest.end_event);
        fold->devices |= ms_event_has_device(&event) ? UINT64_C(1) << event.device : 0;
        fold->digest.end_event++;
        fold->digest.end_ns = time_ns;
    }
    return MS_FOLD_MORE;
}

void ms_fold_store(const ms_fold_t *fold, struct ms_buffer *out)
{
    ms_digest_store(&fold->digest, out);
}
