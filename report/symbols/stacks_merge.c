/* SPDX-License-Identifier: Apache-2.0 */
/* Merges a site's native and its Python stack. The rule:
 *
 * The Python stack consists of groups, each ended by an entry: the frames that one call into the
 * interpreter runs. The native stack has one evaluator's frame for each such call. If the two
 * counts are equal, each group takes the place of its evaluator, innermost with innermost; the
 * interpreter's other frames are left out, and those of extensions in between stay where they are.
 *
 * If one count is smaller and that stack is known to lack its outer end (cut or lost), groups and
 * evaluators are still paired from the inside. Remaining Python frames go to the outer end;
 * remaining evaluators are dropped with the rest of the interpreter.
 *
 * A greenlet's native stack continues into that of the code that first switched to it, but its
 * Python stack ends. So the native stack is cut at the first frame of the switch.
 *
 * An evaluator may have no name, or only parts of it have one: in Debian's 3.13 and 3.14 the larger
 * part lies elsewhere, without a symbol. If there are fewer evaluators than groups, and as many
 * runs of the interpreter's frames as groups, each group takes the place of its run: a run without
 * Python (one extension calls another through the interpreter) is rare.
 *
 * Otherwise (frames that a tracer hides, calls without extensions in between) the place of each
 * group is unknown. Native frames inside the innermost frame of the interpreter come first, then
 * all Python frames, then native frames outside its outermost. Those in between are left out,
 * because their place is unknown.
 *
 * If there is only one stack, it is shown as it is; a native one then keeps the interpreter's
 * frames. */
#include "report/symbols/stacks_merge.h"

#include <stdbool.h>

#include "report/symbols/stacks.h"
#include "report/symbols/stacks_roles.h"
#include "report/trace/definitions.h"

struct merge {
    const uint8_t *roles;
    size_t native_count;
    const uint32_t *flags;
    size_t python_count, python_at; /* python_at: the next to be placed */
    struct ms_merged_frame *out;
    size_t count;
};

static void put(struct merge *merge, uint32_t language, size_t index)
{
    merge->out[merge->count++] = (struct ms_merged_frame){language, (uint32_t)index};
}

static bool put_python(struct merge *merge)
{
    const size_t index = merge->python_at;

    if (index == merge->python_count) {
        return false;
    }
    put(merge, MS_FRAME_PYTHON, index);
    merge->python_at++;
    return !(merge->flags[index] & MS_PYTHON_ENTRY);
}

static void put_group(struct merge *merge)
{
    while (put_python(merge)) {
    }
}

static void put_all_python(struct merge *merge)
{
    while (merge->python_at < merge->python_count) {
        put_python(merge);
    }
}

static bool is_interpreters(uint8_t role)
{
    return role == MS_ROLE_EVALUATOR || role == MS_ROLE_INTERPRETER;
}

static void put_native(struct merge *merge, size_t index)
{
    if (!is_interpreters(merge->roles[index])) {
        put(merge, MS_FRAME_NATIVE, index);
    }
}

static void pair(struct merge *merge)
{
    for (size_t i = 0; i < merge->native_count; i++) {
        if (merge->roles[i] == MS_ROLE_EVALUATOR) {
            put_group(merge);
        }
        put_native(merge, i);
    }
    put_all_python(merge);
}

static bool begins_run(const struct merge *merge, size_t index)
{
    return is_interpreters(merge->roles[index]) &&
           (index == 0 || !is_interpreters(merge->roles[index - 1]));
}

static size_t count_runs(const struct merge *merge)
{
    size_t runs = 0;

    for (size_t i = 0; i < merge->native_count; i++) {
        runs += begins_run(merge, i);
    }
    return runs;
}

static void pair_runs(struct merge *merge)
{
    for (size_t i = 0; i < merge->native_count; i++) {
        if (begins_run(merge, i)) {
            put_group(merge);
        }
        put_native(merge, i);
    }
}

/* outer_known: frames outside the interpreter's last frame certainly belong there. */
static void put_around(struct merge *merge, bool outer_known)
{
    size_t first = merge->native_count, behind = merge->native_count;

    for (size_t i = merge->native_count; i > 0; i--) {
        if (is_interpreters(merge->roles[i - 1])) {
            behind = behind == merge->native_count ? i : behind;
            first = i - 1;
        }
    }
    for (size_t i = 0; i < first; i++) {
        put_native(merge, i);
    }
    put_all_python(merge);
    for (size_t i = behind; outer_known && i < merge->native_count; i++) {
        put_native(merge, i);
    }
}

static size_t count_groups(const struct merge *merge)
{
    size_t groups = 0;
    bool ended = true;

    for (size_t i = 0; i < merge->python_count; i++) {
        ended = merge->flags[i] & MS_PYTHON_ENTRY;
        groups += ended;
    }
    return groups + !ended;
}

static size_t count_role(const struct merge *merge, uint8_t role)
{
    size_t count = 0;

    for (size_t i = 0; i < merge->native_count; i++) {
        count += merge->roles[i] == role;
    }
    return count;
}

static void put_both(struct merge *merge, bool native_lacks, bool python_lacks)
{
    const size_t groups = count_groups(merge);
    const size_t evaluators = count_role(merge, MS_ROLE_EVALUATOR);
    const bool nameless = evaluators == 0 && count_role(merge, MS_ROLE_INTERPRETER) > 0;

    if (!nameless && (groups == evaluators || (groups > evaluators && native_lacks) ||
                      (groups < evaluators && python_lacks))) {
        pair(merge);
    } else if (groups > evaluators && !native_lacks && groups == count_runs(merge)) {
        pair_runs(merge);
    } else {
        put_around(merge, !native_lacks);
    }
}

static size_t until_switch(const uint8_t *roles, size_t native_count)
{
    size_t count = 0;

    while (count < native_count && roles[count] != MS_ROLE_SWITCH) {
        count++;
    }
    return count;
}

size_t ms_stacks_merge(const uint8_t *roles, size_t native_count, const uint32_t *python_flags,
                       size_t python_count, uint32_t site_flags, struct ms_merged_frame *out)
{
    struct merge merge = {.roles = roles,
                          .native_count = native_count,
                          .flags = python_flags,
                          .python_count = python_count,
                          .out = out};

    if (python_count == 0) {
        for (size_t i = 0; i < native_count; i++) {
            put(&merge, MS_FRAME_NATIVE, i);
        }
    } else {
        merge.native_count = until_switch(roles, native_count);
        put_both(&merge, site_flags & (MS_SITE_NATIVE_CUT | MS_SITE_NATIVE_LOST),
                 site_flags & (MS_SITE_PYTHON_CUT | MS_SITE_PYTHON_LOST));
    }
    return merge.count;
}
