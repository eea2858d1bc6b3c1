/* SPDX-License-Identifier: Apache-2.0 */
/* The blocks and pages of a recording under construction, by address. */
#include "report/replay/recording_state.h"

static inline struct ms_treap_key key_of(const struct ms_treap_node *node)
{
    return (struct ms_treap_key){
        .major = MS_CONTAINER_OF(node, const struct ms_recorded_place, node)->addr};
}

struct ms_recorded_place *ms_recorded_place_at(const struct ms_recording *recording, uint64_t addr)
{
    struct ms_treap_node *node =
        ms_treap_below(recording->places, (struct ms_treap_key){.major = addr + 1}, key_of);
    struct ms_recorded_place *place =
        node ? MS_CONTAINER_OF(node, struct ms_recorded_place, node) : NULL;

    return place && addr - place->addr < place->bytes ? place : NULL;
}

static bool is_taken(const struct ms_recording *recording, uint64_t addr, uint64_t bytes)
{
    const struct ms_treap_node *node =
        ms_treap_below(recording->places, (struct ms_treap_key){.major = addr + bytes}, key_of);
    const struct ms_recorded_place *last =
        node ? MS_CONTAINER_OF(node, const struct ms_recorded_place, node) : NULL;

    return last && last->addr + last->bytes > addr;
}

bool ms_recorded_add_place(struct ms_recording *recording, const struct ms_recorded_place *what)
{
    struct ms_recorded_place *place = ms_slab_take(&recording->place_slab);

    if (place) {
        *place = *what;
        ms_treap_insert(&recording->places, &place->node, key_of);
    }
    return place != NULL;
}

void ms_recorded_remove_place(struct ms_recording *recording, struct ms_recorded_place *place)
{
    ms_treap_remove(&recording->places, &place->node, key_of);
    ms_slab_give(&recording->place_slab, place);
}

struct ms_complaint ms_recorded_check_place(const struct ms_recording *recording, uint64_t addr,
                                            uint64_t bytes)
{
    if (addr > UINT64_MAX - bytes) {
        return ms_complaint_of("addr", "is too high");
    }
    return is_taken(recording, addr, bytes)
               ? ms_complaint_of("addr", "lies in something that is live")
               : ms_fine;
}
