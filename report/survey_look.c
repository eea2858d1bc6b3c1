/* What is live while the records are read again, and whose it is. */
#include <string.h>
#include <sys/mman.h>

#include "report/site_rows.h"
#include "report/survey_internal.h"

static void take(uint64_t *sum, uint64_t bytes)
{
    *sum = *sum > bytes ? *sum - bytes : 0;
}

bool ms_look_begin(struct ms_look *look, const struct ms_model *model, uint8_t device,
                   struct ms_survey_device *to)
{
    const uint32_t end = ms_site_table_end(model->sites, device);

    look->model = model;
    look->to = to;
    look->device = device;
    look->site_count = end ? end : 1;
    look->epoch = 1;
    look->sites = mmap(NULL, look->site_count * sizeof(*look->sites), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (look->sites == MAP_FAILED) {
        look->sites = NULL;
    }
    return look->sites != NULL;
}

void ms_look_end(struct ms_look *look)
{
    if (look->sites) {
        munmap(look->sites, look->site_count * sizeof(*look->sites));
    }
    ms_buffer_free(&look->samples);
}

/* ---- kinds ---- */

/* Whether a larger batch needs more of it. What stays for good is not made anew by a step. */
static bool follows_batch(enum ms_kind kind, int told, enum ms_doing doing)
{
    if (told == MS_FATE_KEPT) {
        return false;
    }
    switch (kind) {
    case MS_KIND_ACTIVATIONS:
    case MS_KIND_INPUTS:
    case MS_KIND_GRAPHS:
    case MS_KIND_UNKNOWN:
        return true;
    case MS_KIND_TEMPORARY:
        return doing != MS_DOING_OPTIMIZER && doing != MS_DOING_STEP;
    default:
        return false;
    }
}

static __attribute__((noinline, cold)) void judge(const struct ms_look *look, uint32_t id,
                                                  struct ms_look_site *site)
{
    const struct ms_model *model = look->model;
    const struct ms_kinds_ground ground = ms_site_ground(model);
    const enum ms_doing doing = (enum ms_doing)ms_landmarks_of(model->landmarks, id)->doing;
    struct ms_site_kinds all;

    ms_kinds_judge(&ground, look->device, id, &all);
    ms_kinds_by_fate(&ground, look->device, id, site->kinds);
    site->kind = all.kind;
    site->kinds[MS_TOLD_ARENA] = site->kind;
    site->kinds[MS_TOLD_NOTHING] = site->kind;
    for (int told = 0; told < MS_TOLD_COUNT; told++) {
        site->scaling |= (uint32_t)follows_batch((enum ms_kind)site->kinds[told], told, doing)
                         << told;
    }
    site->judged = true;
}

static inline struct ms_look_site *site_of(const struct ms_look *look, uint32_t id)
{
    const uint32_t known = id < look->site_count ? id : 0;
    struct ms_look_site *site = &look->sites[known];

    if (!site->judged) {
        judge(look, known, site);
    }
    return site;
}

/* What a site held at the highest moment of the slice is what it holds now, until it changes: then
 * it is kept. Such a moment is a number, its epoch. */
static inline void keep(const struct ms_look *look, struct ms_look_site *site)
{
    if (site->kept_epoch != look->epoch) {
        site->kept_epoch = look->epoch;
        site->kept_bytes = site->bytes;
    }
}

/* ---- births and deaths ---- */

static void count_size(struct ms_survey_device *to, uint64_t bytes)
{
    struct ms_size_class *size = &to->sizes[bytes ? 63 - __builtin_clzll(bytes) : 0];

    size->count++;
    size->bytes += bytes;
}

/* What a checkpoint needs while it is loaded is told apart from what training needs. */
static void note_most(struct ms_look *look, uint64_t time_ns)
{
    const struct ms_growth_clock *clock = &look->to->growth.clock;
    uint64_t *most = clock->count > 0 && time_ns < clock->time_ns[0]
                         ? &look->to->most_before_steps_bytes
                         : &look->to->most_in_steps_bytes;

    if (clock->count > 0 && !clock->by_time && look->live_bytes > *most) {
        *most = look->live_bytes;
    }
}

static void note_rise(struct ms_look *look, uint64_t time_ns)
{
    note_most(look, time_ns);
    look->risen = true;
    if (look->live_bytes > look->highest_bytes) {
        look->highest_bytes = look->live_bytes;
        look->to->buckets[look->bucket].highest_ns = time_ns;
        look->rising = true;
    }
    if (look->live_bytes > look->slice_bytes) {
        look->slice_bytes = look->live_bytes;
        look->slice_ns = time_ns;
        look->epoch++;
    }
}

void ms_look_birth(struct ms_look *look, struct ms_live_set *live, const struct ms_event *event,
                   uint32_t birth, uint64_t time_ns)
{
    const uint8_t told = ms_site_table_told(look->model->sites, birth);
    struct ms_look_site *site;
    struct ms_live *born;

    look->newest = birth + 1;
    if (told == MS_TOLD_ARENA) {
        return; /* its tensors are what is live */
    }
    site = site_of(look, event->site);
    born = event->id ? ms_live_add(live, event->id) : NULL;
    if (born) {
        born->addr = event->addr;
        born->bytes = event->bytes;
        born->born_ns = time_ns;
        born->site = event->site < look->site_count ? event->site : 0;
        born->birth = birth;
        born->device = look->device;
    }
    count_size(look->to, event->bytes);
    keep(look, site);
    site->bytes += event->bytes;
    look->kind_bytes[site->kinds[told]] += event->bytes;
    look->live_bytes += event->bytes;
    look->scaling_bytes += site->scaling >> told & 1 ? event->bytes : 0;
    note_rise(look, time_ns);
}

static void note_temporary(struct ms_look *look, struct ms_look_site *site,
                           const struct ms_live *died, uint64_t time_ns)
{
    site->temporaries++;
    site->temporary_bytes += died->bytes;
    site->temporary_ns += time_ns > died->born_ns ? time_ns - died->born_ns : 0;
    look->to->temporary_allocations++;
    look->to->temporary_bytes += died->bytes;
}

void ms_look_death(struct ms_look *look, struct ms_live_set *live, const struct ms_event *event,
                   uint64_t time_ns)
{
    struct ms_live died;
    uint8_t told = MS_TOLD_NOTHING;

    if (event->kind == MS_EVENT_BLOCK_FREE && event->aux == 1) {
        return; /* an arena */
    }
    if (!ms_live_take(live, event->id, &died) || died.device != look->device) {
        died = (struct ms_live){.bytes = event->bytes};
    } else {
        told = ms_site_table_told(look->model->sites, died.birth);
    }
    if (look->rising) {
        ms_look_note_highest(look);
    }
    if (look->risen) {
        ms_look_note_headroom(look);
    }

    struct ms_look_site *site = site_of(look, died.site);

    keep(look, site);
    take(&site->bytes, died.bytes);
    take(&look->kind_bytes[site->kinds[told]], died.bytes);
    take(&look->live_bytes, died.bytes);
    take(&look->scaling_bytes, site->scaling >> told & 1 ? died.bytes : 0);
    if (died.key && died.birth + 1 == look->newest) {
        note_temporary(look, site, &died, time_ns);
    }
}

void ms_look_waits(struct ms_look *look, uint64_t bytes, uint64_t time_ns)
{
    struct ms_survey_bucket *bucket = &look->to->buckets[look->bucket];

    look->waiting_bytes = bytes;
    if (bytes > bucket->most_waiting_bytes) {
        bucket->most_waiting_bytes = bytes;
    }
    if (bytes > look->to->most_waiting_bytes) {
        look->to->most_waiting_bytes = bytes;
        look->to->most_waiting_ns = time_ns;
    }
}

void ms_look_rebase(struct ms_look *look, struct ms_live_set *live, const struct ms_aggregate *sums)
{
    const uint64_t live_bytes = ms_counters_live(&sums->now);
    struct ms_look_site *unknown = site_of(look, 0);

    ms_look_note_highest(look);
    look->waiting_bytes = 0; /* the next event tells */
    ms_live_forget(live, look->device);
    for (uint32_t id = 0; id < look->site_count; id = ms_look_next(look, id)) {
        struct ms_look_site *site = &look->sites[id];

        if (site->bytes > 0) {
            keep(look, site);
            site->bytes = 0;
        }
    }
    keep(look, unknown);
    unknown->bytes = live_bytes;
    memset(look->kind_bytes, 0, sizeof(look->kind_bytes));
    look->kind_bytes[unknown->kinds[MS_TOLD_NOTHING]] = live_bytes;
    look->live_bytes = live_bytes;
    look->scaling_bytes = 0;
    look->sums = *sums;
    look->newest = 0;
    note_rise(look, look->slice_ns);
}

void ms_look_hold(struct ms_look *look, const struct ms_digest_holding *holdings, size_t count,
                  uint64_t time_ns)
{
    ms_look_note_highest(look);
    for (uint32_t id = 0; id < look->site_count; id = ms_look_next(look, id)) {
        if (look->sites[id].bytes > 0) {
            keep(look, &look->sites[id]);
            look->sites[id].bytes = 0;
        }
    }
    memset(look->kind_bytes, 0, sizeof(look->kind_bytes));
    look->live_bytes = 0;
    for (size_t i = 0; i < count; i++) {
        struct ms_look_site *site = site_of(look, (uint32_t)holdings[i].site);

        keep(look, site);
        site->bytes += holdings[i].bytes;
        look->kind_bytes[site->kind] += holdings[i].bytes;
        look->live_bytes += holdings[i].bytes;
    }
    note_rise(look, time_ns);
}

void ms_look_adopt(struct ms_look *look, struct ms_live_set *live, const struct ms_live *known)
{
    const uint8_t told = ms_site_table_told(look->model->sites, known->birth);
    struct ms_look_site *unknown = site_of(look, 0), *site = site_of(look, known->site);
    struct ms_live *adopted = ms_live_add(live, known->key);

    if (!adopted || unknown->bytes < known->bytes) {
        return;
    }
    *adopted = *known;
    adopted->site = known->site < look->site_count ? known->site : 0;
    unknown->bytes -= known->bytes;
    take(&look->kind_bytes[unknown->kinds[MS_TOLD_NOTHING]], known->bytes);
    keep(look, site);
    site->bytes += known->bytes;
    look->kind_bytes[site->kinds[told]] += known->bytes;
    look->scaling_bytes += site->scaling >> told & 1 ? known->bytes : 0;
}
