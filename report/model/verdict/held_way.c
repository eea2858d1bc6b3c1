/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the place where the stacks of most live memory part. */
#include "report/model/verdict/held_way.h"

#include <stdlib.h>

#include "report/model/paths.h"

struct held_path {
    struct ms_path path;
    uint64_t bytes;
};

struct held_walk {
    const struct ms_model *model;
    struct held_path *all;
    size_t count;
    struct ms_place prefix[MS_PATH_DEPTH];
    uint32_t depth;
};

static uint64_t bytes_under(const struct held_walk *walk, uint32_t depth)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < walk->count; i++) {
        bytes += ms_path_begins_with(walk->model, &walk->all[i].path, walk->prefix, depth)
                     ? walk->all[i].bytes
                     : 0;
    }
    return bytes;
}

/* Goes one place deeper, if more than that lies under it. Only one place can have more than
 * half. */
static bool descend(struct held_walk *walk, uint64_t more_than_bytes)
{
    for (size_t i = 0; i < walk->count && walk->depth < MS_PATH_DEPTH; i++) {
        const struct ms_path *path = &walk->all[i].path;

        if (path->count > walk->depth &&
            ms_path_begins_with(walk->model, path, walk->prefix, walk->depth)) {
            walk->prefix[walk->depth] = path->places[walk->depth];
            if (bytes_under(walk, walk->depth + 1) > more_than_bytes) {
                walk->depth++;
                return true;
            }
        }
    }
    return false;
}

/* Whether the place says anything: some memory was asked for elsewhere, and some further inside. */
static bool distinguishes(const struct held_walk *walk)
{
    bool elsewhere = false, inside = false;

    for (size_t i = 0; i < walk->count; i++) {
        const struct ms_path *path = &walk->all[i].path;

        if (!ms_path_begins_with(walk->model, path, walk->prefix, walk->depth)) {
            elsewhere |= path->count > 0;
        } else {
            inside |= path->count > walk->depth;
        }
    }
    return walk->depth > 0 && elsewhere && inside;
}

bool ms_held_way(const struct ms_model *model, int device, const struct ms_survey_moment *moment,
                 struct ms_held_way *way)
{
    const struct ms_survey_device *surveyed = &model->survey->devices[device];
    struct held_walk *walk = calloc(1, sizeof(*walk));
    bool found = false;

    if (walk) {
        walk->model = model;
    }
    if (walk && (walk->all = calloc(moment->count + 1, sizeof(*walk->all)))) {
        for (; walk->count < moment->count; walk->count++) {
            const struct ms_holding *holding =
                ms_survey_holding_at(surveyed, moment->first + walk->count);

            ms_path_read(model, holding->path_site, &walk->all[walk->count].path);
            walk->all[walk->count].bytes = holding->bytes;
        }
        while (descend(walk, moment->live_bytes / 2)) {
        }
        found = distinguishes(walk);
        if (found) {
            way->frame = ms_place_frame(model, walk->prefix[walk->depth - 1]);
            way->bytes = bytes_under(walk, walk->depth);
        }
        free(walk->all);
    }
    free(walk);
    return found;
}
