/* SPDX-License-Identifier: Apache-2.0 */
/* Checks whether a run fits a card: replays its recording through PyTorch's allocator and through
 * the pool, with the card's memory. */
#include "report/fit/cards.h"

#include <string.h>
#include <strings.h>

#include "allocator/base/clock.h"
#include "report/replay/replay.h"
#include "report/replay/torch_alone.h"

static const struct ms_card cards[] = {
#define MS_CARD(id, name, total_bytes, total_known, context_bytes, context_known, context_cuda, \
                major, minor, processors, bus_mb_per_s, bus_known, source)                      \
    {id,                                                                                        \
     name,                                                                                      \
     total_bytes,                                                                               \
     context_bytes,                                                                             \
     UINT64_C(1000000) * (bus_mb_per_s),                                                        \
     MS_CARD_##total_known,                                                                     \
     MS_CARD_##context_known,                                                                   \
     MS_CARD_##bus_known,                                                                       \
     major,                                                                                     \
     minor,                                                                                     \
     processors,                                                                                \
     context_cuda,                                                                              \
     source},
#include "report/fit/cards.def"
#undef MS_CARD
};

size_t ms_card_count(void)
{
    return sizeof(cards) / sizeof(*cards);
}

const struct ms_card *ms_card_at(size_t index)
{
    return &cards[index];
}

const struct ms_card *ms_card_find(const char *id)
{
    for (size_t i = 0; i < ms_card_count(); i++) {
        if (strcasecmp(cards[i].id, id) == 0) {
            return &cards[i];
        }
    }
    return NULL;
}

struct ms_card_nccl ms_card_nccl(const struct ms_card *card)
{
    enum { DEVICE, HOST };
    static const struct ms_card_nccl rows[] = {
#define MS_NCCL(card, channels, nvls_channels, peer_channels, reach, known, source) \
    {card, channels, nvls_channels, peer_channels, (reach) == HOST, MS_CARD_##known, source},
#include "report/fit/nccl.def"
#undef MS_NCCL
    };
    struct ms_card_nccl row = rows[0];

    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        if (strcmp(rows[i].card, card->id) == 0) {
            return rows[i];
        }
    }
    row.known = MS_CARD_GUESSED;
    return row;
}

const char *ms_card_known_name(enum ms_card_known known)
{
    static const char *const names[] = {"measured", "documented", "guessed", "as given"};

    return names[known];
}

/* ---- whether a run fits ---- */

/* Replays with that much memory in all, and nothing on the host. */
static void replay(const struct ms_recording *recording, uint64_t cap_bytes,
                   struct ms_replay_result *result)
{
    struct ms_call_costs costs = {0};
    const struct ms_replay_config config = {.cap_bytes = cap_bytes,
                                            .device_bytes = cap_bytes,
                                            .host_limit_bytes = MS_REPLAY_AMPLE_BYTES,
                                            .charges = true,
                                            .costs = &costs};

    if (ms_call_costs_default(&costs)) {
        ms_replay_run(recording, &config, result);
    } else {
        *result = (struct ms_replay_result){.host_memory = true};
    }
    ms_call_costs_free(&costs);
}

bool ms_card_needs(const struct ms_recording *recording, uint64_t context_bytes,
                   struct ms_card_needs *needs)
{
    struct ms_torch_alone alone;
    struct ms_replay_result result;

    *needs = (struct ms_card_needs){.context_bytes = context_bytes};
    for (int ground = MS_GROUND_TORCH; ground <= MS_GROUND_EXPANDABLE; ground++) {
        ms_torch_alone_run(recording, MS_REPLAY_AMPLE_BYTES, ground == MS_GROUND_EXPANDABLE,
                           &alone);
        if (alone.host_memory) {
            return false;
        }
        needs->charged_bytes[ground] = alone.peak_charged_bytes;
    }
    replay(recording, MS_REPLAY_AMPLE_BYTES, &result);
    needs->charged_bytes[MS_GROUND_MEMSHIM] = result.peak_charged_bytes;
    return !result.host_memory;
}

uint64_t ms_card_spill_ns(const struct ms_card *card, uint64_t bytes)
{
    return (uint64_t)((double)bytes * 2 * MS_NS_PER_S / (double)card->bus_bytes_per_s);
}

static unsigned fraction_percent(const struct ms_card_needs *needs, const struct ms_card *card)
{
    const uint64_t bytes =
        needs->charged_bytes[MS_GROUND_MEMSHIM] - needs->context_bytes + card->context_bytes;

    return bytes < card->total_bytes
               ? (unsigned)((bytes * 100 + card->total_bytes - 1) / card->total_bytes)
               : 100;
}

void ms_card_fit(const struct ms_recording *recording, const struct ms_card_needs *needs,
                 const struct ms_card *card, struct ms_card_fit *fit)
{
    /* The recording has the context of the card that it was made on. */
    const uint64_t cap_bytes = card->total_bytes + needs->context_bytes > card->context_bytes
                                   ? card->total_bytes + needs->context_bytes - card->context_bytes
                                   : 0;
    struct ms_torch_alone alone = {0};
    struct ms_replay_result result = {0};

    *fit = (struct ms_card_fit){.known = true};
    for (int ground = 0; ground < MS_GROUND_COUNT; ground++) {
        fit->fits[ground] = needs->charged_bytes[ground] <= cap_bytes;
    }
    for (int ground = MS_GROUND_TORCH; ground <= MS_GROUND_EXPANDABLE; ground++) {
        if (!fit->fits[ground]) {
            ms_torch_alone_run(recording, cap_bytes, ground == MS_GROUND_EXPANDABLE, &alone);
            fit->fits[ground] = !alone.failed;
            fit->slower[ground] = fit->fits[ground] && alone.went_without;
            fit->known = fit->known && !alone.host_memory;
        }
    }
    if (!fit->fits[MS_GROUND_MEMSHIM]) {
        replay(recording, cap_bytes, &result);
        fit->fits[MS_GROUND_MEMSHIM] = ms_replay_fits(&result);
        fit->known = fit->known && !result.host_memory;
    }
    if (!fit->fits[MS_GROUND_MEMSHIM]) {
        fit->spilled_bytes = needs->charged_bytes[MS_GROUND_MEMSHIM] - cap_bytes;
    } else {
        fit->fraction_percent = fraction_percent(needs, card);
    }
}
