/* SPDX-License-Identifier: Apache-2.0 */
/* Reads paths from the definitions of call sites. */
#include "report/model/paths.h"

#include <string.h>

#include "report/model/model.h"
#include "report/symbols/stacks_roles.h"

static bool same_function(const struct ms_model *model, uint32_t a, uint32_t b)
{
    const struct ms_code_read *one = ms_definitions_code(model->definitions, a);
    const struct ms_code_read *other = ms_definitions_code(model->definitions, b);

    return one && other && strcmp(one->function, other->function) == 0 &&
           strcmp(one->file, other->file) == 0;
}

bool ms_place_same(const struct ms_model *model, struct ms_place a, struct ms_place b)
{
    return a.line == b.line && (a.code == b.code || same_function(model, a.code, b.code));
}

void ms_path_read(const struct ms_model *model, uint32_t id, struct ms_path *path)
{
    const struct ms_site_definition *site = ms_definitions_site(model->definitions, id);

    ms_path_read_from(model, site ? site->python : 0, path);
}

void ms_path_read_from(const struct ms_model *model, uint32_t innermost, struct ms_path *path)
{
    const struct ms_python_definition *node;

    path->count = 0;
    /* The loop ends: the number of a caller is smaller than that of the node. */
    for (uint32_t at = innermost;
         path->count < MS_PATH_DEPTH && (node = ms_definitions_python(model->definitions, at));
         at = node->caller) {
        const struct ms_code_read *code = ms_definitions_code(model->definitions, node->code);

        if (code && code->file[0] && !ms_is_library_script(code->file, code->function)) {
            path->places[path->count++] = (struct ms_place){
                node->code, ms_python_line(&code->is, code->table, node->instruction)};
        }
    }
    for (uint32_t i = 0; i < path->count / 2; i++) {
        const struct ms_place place = path->places[i];

        path->places[i] = path->places[path->count - 1 - i];
        path->places[path->count - 1 - i] = place;
    }
}

bool ms_path_begins_with(const struct ms_model *model, const struct ms_path *path,
                         const struct ms_place *prefix, uint32_t depth)
{
    for (uint32_t i = 0; i < depth; i++) {
        if (i >= path->count || !ms_place_same(model, path->places[i], prefix[i])) {
            return false;
        }
    }
    return true;
}

struct ms_frame ms_place_frame(const struct ms_model *model, struct ms_place place)
{
    const struct ms_code_read *code = ms_definitions_code(model->definitions, place.code);

    return (struct ms_frame){.language = MS_FRAME_PYTHON,
                             .function = code->function,
                             .file = code->file,
                             .line = place.line};
}
