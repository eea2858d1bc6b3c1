/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a digest as words, reads it back, and adds an event to it. */
#include "report/fold/digest.h"

#include <string.h>

#include "report/trace/words.h"

#define SIGN          UINT64_C(0x32747365676964) /* "digest2" */
#define MOST_HOLDINGS (1u << 22)

void ms_digest_store(const struct ms_digest *digest, struct ms_buffer *out)
{
    ms_words_put(out, SIGN);
    ms_words_put(out, digest->end_event);
    ms_words_put(out, digest->end_ns);
    ms_site_table_store(digest->sites, out);
    ms_steps_store(digest->steps, out);
    ms_recorded_store(digest->steps_recorded, digest->tags, digest->moves, out);
    ms_words_put_buffer(out, &digest->moments->heads, sizeof(struct ms_digest_moment));
    ms_words_put_buffer(out, &digest->moments->holdings, sizeof(struct ms_digest_holding));
    ms_words_put(out, SIGN);
}

static bool load_moments(struct ms_digest_moments *moments, struct ms_words_in *in)
{
    ms_words_get_buffer(in, &moments->heads, sizeof(struct ms_digest_moment),
                        MS_DIGEST_OOMS + MS_DIGEST_INSTANTS);
    ms_words_get_buffer(in, &moments->holdings, sizeof(struct ms_digest_holding), MOST_HOLDINGS);

    const struct ms_digest_moment *all = (const struct ms_digest_moment *)moments->heads.at;
    const size_t count = moments->holdings.bytes / sizeof(struct ms_digest_holding);

    for (size_t i = 0; i < moments->heads.bytes / sizeof(*all) && !in->failed; i++) {
        in->failed |= all[i].device >= MS_DEVICE_COUNT || all[i].first > count ||
                      all[i].count > count - all[i].first;
    }
    for (size_t i = 0; i < count && !in->failed; i++) {
        in->failed |=
            ((const struct ms_digest_holding *)moments->holdings.at)[i].site >= MS_SITE_LIMIT;
    }
    return !in->failed;
}

bool ms_digest_load(struct ms_digest *digest, const void *from, size_t bytes)
{
    struct ms_words_in in = {.at = from, .end = (const uint8_t *)from + bytes};
    const bool signed_first = ms_words_get(&in) == SIGN;

    digest->end_event = ms_words_get(&in);
    digest->end_ns = ms_words_get(&in);
    return signed_first && ms_site_table_load(digest->sites, &in) &&
           ms_steps_load(digest->steps, &in) &&
           ms_recorded_load(digest->steps_recorded, digest->tags, digest->moves, &in) &&
           load_moments(digest->moments, &in) && ms_words_get(&in) == SIGN && !in.failed;
}

void ms_digest_take(const struct ms_digest *digest, const struct ms_event *event, uint64_t time_ns,
                    uint64_t number)
{
    if (!ms_event_has_device(event)) {
        ms_recorded_take(digest->steps_recorded, digest->tags, event, time_ns, number);
        return;
    }
    if (event->kind == MS_EVENT_TENSOR_ALLOC || event->kind == MS_EVENT_BLOCK_ALLOC) {
        ms_site_table_enter(digest->sites,
                            ms_steps_allocation(digest->steps, event->site, time_ns, number));
    }
    ms_site_table_apply(digest->sites, event, time_ns);
    if (event->kind == MS_EVENT_SPILL || event->kind == MS_EVENT_PROMOTE) {
        ms_recorded_move(digest->moves, event, time_ns);
    }
}

/* ---- moments ---- */

static void add_holding(void *ctx, uint32_t site, uint64_t bytes)
{
    const struct ms_digest_holding holding = {site, bytes};

    ms_buffer_append(ctx, (const char *)&holding, sizeof(holding));
}

void ms_digest_moments_add(struct ms_digest_moments *moments, const ms_site_table_t *sites,
                           const struct ms_digest_moment *head)
{
    struct ms_digest_moment *moment = ms_buffer_extend(&moments->heads, sizeof(*moment));

    if (moment) {
        *moment = *head;
        moment->first = moments->holdings.bytes / sizeof(struct ms_digest_holding);
        ms_site_table_each_held(sites, (uint8_t)head->device, add_holding, &moments->holdings);
        moment->count = moments->holdings.bytes / sizeof(struct ms_digest_holding) - moment->first;
    }
}

void ms_digest_moments_thin(struct ms_digest_moments *moments)
{
    struct ms_digest_moment *all = (struct ms_digest_moment *)moments->heads.at;
    struct ms_digest_holding *holdings = (struct ms_digest_holding *)moments->holdings.at;
    uint64_t last_event = 0;
    size_t kept = 0, held = 0, instants = 0;

    for (size_t i = 0; i < moments->heads.bytes / sizeof(*all); i++) {
        if (!all[i].oom) { /* one instant has a moment of each device */
            instants += instants == 0 || all[i].event != last_event;
            last_event = all[i].event;
            if (instants % 2 == 1) {
                continue;
            }
        }
        memmove(&holdings[held], &holdings[all[i].first], all[i].count * sizeof(*holdings));
        all[kept] = all[i];
        all[kept].first = held;
        held += all[kept].count;
        kept++;
    }
    moments->heads.bytes = kept * sizeof(*all);
    moments->holdings.bytes = held * sizeof(*holdings);
}

void ms_digest_moments_free(struct ms_digest_moments *moments)
{
    ms_buffer_free(&moments->heads);
    ms_buffer_free(&moments->holdings);
}
