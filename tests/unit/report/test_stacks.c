/* SPDX-License-Identifier: Apache-2.0 */
/* Stacks of Python and native frames, merged into one. */
#include <criterion/criterion.h>

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "report/symbols/stacks.h"
#include "report/symbols/stacks_merge.h"
#include "report/symbols/stacks_roles.h"
#include "samples.h"
#include "synthetic.h"

#define MOST 64

/* A stack in letters, innermost first. Native: n any, i interpreter, E evaluator, s greenlet's.
 * Python: p, P with MS_PYTHON_ENTRY. The merged one: each letter's index behind it. */
static const char *merge(const char *native, const char *python, uint32_t flags)
{
    static char text[8 * MOST];
    uint8_t roles[MOST];
    uint32_t python_flags[MOST];
    struct ms_merged_frame merged[2 * MOST];
    const size_t native_count = strlen(native), python_count = strlen(python);

    for (size_t i = 0; i < native_count; i++) {
        roles[i] = native[i] == 'E'   ? MS_ROLE_EVALUATOR
                   : native[i] == 'i' ? MS_ROLE_INTERPRETER
                   : native[i] == 's' ? MS_ROLE_SWITCH
                                      : MS_ROLE_OTHER;
    }
    for (size_t i = 0; i < python_count; i++) {
        python_flags[i] = python[i] == 'P' ? MS_PYTHON_ENTRY : 0;
    }

    const size_t count =
        ms_stacks_merge(roles, native_count, python_flags, python_count, flags, merged);
    size_t at = 0;

    cr_assert_leq(count, native_count + python_count);
    text[0] = 0;
    for (size_t i = 0; i < count; i++) {
        at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%c%u", i > 0 ? " " : "",
                               merged[i].language == MS_FRAME_PYTHON ? 'p' : 'n', merged[i].index);
    }
    return text;
}

Test(stacks_merge, python_frames_stand_where_their_evaluators_were)
{
    cr_assert_str_eq(merge("nniEiin", "P", 0), "n0 n1 p0 n6");
    cr_assert_str_eq(merge("niEiEin", "pPP", 0), "n0 p0 p1 p2 n6");
    cr_assert_str_eq(merge("niEinnEin", "pPppP", 0), "n0 p0 p1 n4 n5 p2 p3 p4 n8");
    cr_assert_str_eq(merge("EnEnEn", "PpPP", 0), "p0 n1 p1 p2 n3 p3 n5");
}

Test(stacks_merge, one_stack_alone_is_shown_as_it_is)
{
    cr_assert_str_eq(merge("", "", 0), "");
    cr_assert_str_eq(merge("niEn", "", 0), "n0 n1 n2 n3");
    cr_assert_str_eq(merge("", "pPP", 0), "p0 p1 p2");
    cr_assert_str_eq(merge("", "pp", MS_SITE_PYTHON_CUT), "p0 p1");
}

Test(stacks_merge, what_is_cut_off_outside_is_paired_from_the_inside)
{
    /* Native cut: the Python frames that are left over are outermost. */
    cr_assert_str_eq(merge("niEnn", "PpPP", MS_SITE_NATIVE_CUT), "n0 p0 n3 n4 p1 p2 p3");
    cr_assert_str_eq(merge("nnn", "PP", MS_SITE_NATIVE_LOST), "n0 n1 n2 p0 p1");
    /* Python cut, in the middle of a group: the evaluators left over are dropped. */
    cr_assert_str_eq(merge("nEinEiEn", "Pp", MS_SITE_PYTHON_CUT), "n0 p0 n3 p1 n7");
    cr_assert_str_eq(merge("nEnEnEn", "P", MS_SITE_PYTHON_LOST), "n0 p0 n2 n4 n6");
    cr_assert_str_eq(merge("nEn", "PpP", MS_SITE_NATIVE_CUT | MS_SITE_PYTHON_CUT),
                     "n0 p0 n2 p1 p2");
}

Test(stacks_merge, an_evaluator_without_a_name_is_in_its_run)
{
    cr_assert_str_eq(merge("niinniiin", "pPP", 0), "n0 p0 p1 n3 n4 p2 n8");
    /* Parts of it have one. */
    cr_assert_str_eq(merge("niEnninEi", "PpPP", 0), "n0 p0 n3 n4 p1 p2 n6 p3");
    cr_assert_str_eq(merge("niEnnini", "PpPP", 0), "n0 p0 n3 n4 p1 p2 n6 p3");
    /* Where the outer end is missing, runs cannot be counted. */
    cr_assert_str_eq(merge("niinii", "PP", MS_SITE_NATIVE_CUT), "n0 p0 p1");
}

Test(stacks_merge, a_greenlets_stack_ends_where_it_was_switched_to)
{
    cr_assert_str_eq(merge("nEnEissEinEn", "PpP", 0), "n0 p0 n2 p1 p2");
    cr_assert_str_eq(merge("nsn", "P", 0), "n0 p0");
    cr_assert_str_eq(merge("nsn", "", 0), "n0 n1 n2");
}

Test(stacks_merge, what_nobody_can_place_is_left_out)
{
    /* More calls than evaluators and the reverse, nothing said to be missing. */
    cr_assert_str_eq(merge("nEinEn", "PPP", 0), "n0 p0 p1 p2 n5");
    cr_assert_str_eq(merge("nEnEnEn", "pP", 0), "n0 p0 p1 n6");
    /* The wrong stack is the one that is cut. */
    cr_assert_str_eq(merge("nEnEn", "P", MS_SITE_NATIVE_CUT), "n0 p0");
    cr_assert_str_eq(merge("nEn", "PP", MS_SITE_PYTHON_CUT), "n0 p0 p1 n2");
    /* An interpreter without names: its frames are known by their module alone. */
    cr_assert_str_eq(merge("niiniin", "PPP", 0), "n0 p0 p1 p2 n6");
    /* No interpreter in sight. */
    cr_assert_str_eq(merge("nn", "P", 0), "n0 n1 p0");
}

Test(stacks_merge, keeps_both_orders_whatever_comes)
{
    static const char natives[] = "nniEniEs", pythons[] = "ppP";
    uint64_t random = 99;

    for (int round = 0; round < 20000; round++) {
        char native[MOST] = "", python[MOST] = "";
        const size_t native_count = synthetic_random(&random) % 20;
        const size_t python_count = synthetic_random(&random) % 20;
        int last_native = -1, last_python = -1;
        size_t pythons_seen = 0;

        for (size_t i = 0; i < native_count; i++) {
            native[i] = natives[synthetic_random(&random) % 8];
        }
        for (size_t i = 0; i < python_count; i++) {
            python[i] = pythons[synthetic_random(&random) % 3];
        }

        const char *text = merge(native, python, (uint32_t)synthetic_random(&random) % 16);

        for (const char *at = text; *at; at += strcspn(at, " "), at += *at == ' ') {
            int index;

            cr_assert_eq(sscanf(at + 1, "%d", &index), 1);
            if (*at == 'p') {
                cr_assert_eq(index, last_python + 1);
                last_python = index;
                pythons_seen++;
            } else {
                cr_assert_gt(index, last_native);
                last_native = index;
            }
        }
        cr_assert_eq(pythons_seen, python_count, "%s + %s = %s", native, python, text);
    }
}

Test(stacks_roles, the_interpreter_is_known_by_name)
{
    static const char *const yes[] = {"/usr/lib/libpython3.11.so.1.0",
                                      "/opt/bin/python3.13",
                                      "/usr/bin/python3",
                                      "/venv/bin/python",
                                      "/usr/lib/libpython3.13t.so.1.0",
                                      "/x/libpython3.so"};
    static const char *const no[] = {"/opt/python_server", "/lib/libc.so.6", "/lib/libpythonic.so",
                                     "/opt/python/bin/app", "/t/libtorch_python.so"};

    for (size_t i = 0; i < sizeof(yes) / sizeof(*yes); i++) {
        cr_assert(ms_is_interpreter(yes[i]), "%s", yes[i]);
    }
    for (size_t i = 0; i < sizeof(no) / sizeof(*no); i++) {
        cr_assert_not(ms_is_interpreter(no[i]), "%s", no[i]);
    }
    cr_assert_eq(ms_native_role("_PyEval_EvalFrameDefault", "/app"), MS_ROLE_EVALUATOR);
    cr_assert_eq(ms_native_role("_PyEval_EvalFrameDefault.cold", NULL), MS_ROLE_EVALUATOR);
    cr_assert_eq(ms_native_role("_PyEval_EvalFrameDefaults", "/app"), MS_ROLE_INTERPRETER);
    cr_assert_eq(ms_native_role("PyObject_Call", "/app"), MS_ROLE_INTERPRETER);
    cr_assert_eq(ms_native_role("cfunction_call", "/usr/bin/python3"), MS_ROLE_INTERPRETER);
    cr_assert_eq(ms_native_role("Pyramid", "/app"), MS_ROLE_OTHER);
    cr_assert_eq(ms_native_role(NULL, "/app"), MS_ROLE_OTHER);
    cr_assert_eq(ms_native_role(NULL, "/t/lib/libc10_cuda.so"), MS_ROLE_ALLOCATOR);
    cr_assert_eq(ms_native_role("_ZN3c104cuda20CUDACachingAllocator6NativeE", "/app"),
                 MS_ROLE_ALLOCATOR);
    cr_assert_eq(ms_native_role("_ZN2at5emptyEv", "/t/lib/libtorch_cpu.so"), MS_ROLE_OTHER);
}

Test(stacks_roles, autograd_names_the_operation)
{
    cr_assert(ms_is_backward_operation("torch::autograd::generated::MmBackward0::apply(int&&)"));
    cr_assert_not(ms_is_backward_operation("torch::autograd::Engine::thread_main(int)"));
    cr_assert_not(ms_is_backward_operation("mine::apply(int)"));
}

Test(stacks_roles, libraries_are_told_from_the_program)
{
    static const char *const libraries[] = {
        "/v/lib/python3.11/site-packages/torch/nn/modules/module.py",
        "/usr/lib/python3/dist-packages/numpy/core.py",
        "/usr/lib/python3.11/runpy.py",
        "/opt/conda/lib64/python3.9/threading.py",
        "<frozen importlib._bootstrap>",
        "<frozen runpy>",
        "<eval_with_key>.12",
        "/opt/lib/python3.13t/contextlib.py"};
    static const char *const own[] = {"/home/me/train.py",
                                      "train.py",
                                      "<string>",
                                      "<stdin>",
                                      "/home/me/python3.11/model.py",
                                      "<ipython-input-3-ab>",
                                      "/home/me/lib/python3.11.py",
                                      "/home/bin/train.py"};

    for (size_t i = 0; i < sizeof(libraries) / sizeof(*libraries); i++) {
        cr_assert(ms_is_library_script(libraries[i], "f"), "%s", libraries[i]);
    }
    for (size_t i = 0; i < sizeof(own) / sizeof(*own); i++) {
        cr_assert_not(ms_is_library_script(own[i], "<module>"), "%s", own[i]);
    }
    cr_assert(ms_is_library_script("/venv/bin/torchrun", "<module>"));
    cr_assert(ms_is_library_module("/usr/lib/x86_64-linux-gnu/libc.so.6"));
    cr_assert(ms_is_library_module("/v/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so"));
    cr_assert(ms_is_library_module("linux-vdso.so.1"));
    cr_assert(ms_is_library_module("/opt/conda/lib/libstdc++.so.6"));
    cr_assert(ms_is_library_module("/opt/lib/python3.12/lib-dynload/_ctypes.so"));
    cr_assert_not(ms_is_library_module("/home/me/build/train"));
    cr_assert_not(ms_is_library_module("/home/me/ops/my_ops.so"));
}

/* A program's stack: leaf, called by exported_outer, called by main; Python around it. */
struct fixture {
    ms_definitions_t *definitions;
    uint64_t leaf, returns_to, main_address;
};

static struct fixture set_up(const uint8_t *id, const char *path)
{
    struct fixture fixture = {.definitions = ms_definitions_new(),
                              .leaf = sample_symbol("whole/plain", "local_leaf", NULL),
                              .returns_to = sample_return_address("whole/plain"),
                              .main_address = sample_symbol("whole/plain", "main", NULL)};

    define_module(fixture.definitions, 1, id, path);
    define_native(fixture.definitions, 1, 0, 1, fixture.main_address + 5);
    define_native(fixture.definitions, 2, 1, 1, fixture.returns_to);
    define_native(fixture.definitions, 3, 2, 1, fixture.leaf + 4);
    define_site(fixture.definitions, 1, 3, 0, 0);
    return fixture;
}

/* function[@file:line][^ where inlined], innermost first, joined by " < ". */
static const char *spell(ms_stacks_t *stacks, uint32_t site)
{
    static char text[8192];
    size_t count, at = 0;
    const struct ms_frame *frames = ms_stacks_frames(stacks, site, &count);

    text[0] = 0;
    for (size_t i = 0; i < count; i++) {
        const struct ms_frame *frame = &frames[i];
        const char *slash = frame->file ? strrchr(frame->file, '/') : NULL;

        at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%s", i > 0 ? " < " : "",
                               frame->function);
        if (frame->file) {
            at += (size_t)snprintf(text + at, sizeof(text) - at, "@%s:%u",
                                   slash ? slash + 1 : frame->file, frame->line);
        }
        at += (size_t)snprintf(text + at, sizeof(text) - at, "%s", frame->inlined ? "^" : "");
    }
    return text;
}

Test(stacks, names_come_from_the_symbol_table)
{
    struct fixture fixture = set_up(sample_whole_id, sample_path("whole/plain"));
    ms_stacks_t *stacks = ms_stacks_new(fixture.definitions, MS_STACKS_NAMES, NULL);
    size_t count, again;

    cr_assert_str_eq(spell(stacks, 1), "local_leaf < exported_outer < main");
    cr_assert_eq(ms_stacks_frames(stacks, 1, &count), ms_stacks_frames(stacks, 1, &again));
    cr_assert_eq(count, again);
    cr_assert_null(ms_stacks_frames(stacks, 0, &count));
    cr_assert_null(ms_stacks_frames(stacks, 2, &count));
    cr_assert_null(ms_stacks_frames(stacks, UINT32_MAX, &count));
    cr_assert_eq(count, 0);
    cr_assert_null(ms_stacks_own_frame(stacks, 2));
    ms_stacks_delete(stacks);
    ms_definitions_delete(fixture.definitions);
}

Test(stacks, lines_and_inlined_functions_come_from_dwarf)
{
    static const char *const files[] = {"whole/plain", "apart/plain"};
    char expected[256];

    snprintf(expected, sizeof(expected),
             " < inlined_middle@plain.c:%u^ < exported_outer@plain.c:%u < main@plain.c:",
             sample_line("plain.c", "middle"), sample_line("plain.c", "outer"));
    for (size_t i = 0; i < 2; i++) {
        struct fixture fixture = set_up(sample_whole_id, sample_path(files[i]));
        ms_stacks_t *stacks = ms_stacks_new(fixture.definitions, MS_STACKS_LINES, NULL);

        cr_assert_not_null(strstr(spell(stacks, 1), expected), "%s: %s", files[i],
                           spell(stacks, 1));
        ms_stacks_delete(stacks);
        ms_definitions_delete(fixture.definitions);
    }
}

Test(stacks, methods_read_as_people_write_them)
{
    ms_definitions_t *definitions = ms_definitions_new();
    ms_stacks_t *stacks;
    char expected[256];

    if (!sample_exists("cxx/plain")) {
        cr_skip_test("no C++ compiler");
    }
    snprintf(expected, sizeof(expected),
             "sample::Layer<double>::forward(double) const@model.cpp:%u^ < "
             "sample::Model::run(double) const@model.cpp:%u",
             sample_line("model.cpp", "forward"), sample_line("model.cpp", "run"));
    define_module(definitions, 1, sample_cxx_id, sample_path("cxx/plain"));
    define_native(definitions, 1, 0, 1, sample_return_address("cxx/plain"));
    define_site(definitions, 1, 1, 0, 0);
    stacks = ms_stacks_new(definitions, MS_STACKS_LINES, NULL);
    cr_assert_str_eq(spell(stacks, 1), expected);
    cr_assert_str_eq(ms_stacks_own_frame(stacks, 1)->function,
                     "sample::Layer<double>::forward(double) const");
    ms_stacks_delete(stacks);
    stacks = ms_stacks_new(definitions, MS_STACKS_NAMES, NULL);
    cr_assert_str_eq(spell(stacks, 1), "sample::Model::run(double) const");
    ms_stacks_delete(stacks);
    ms_definitions_delete(definitions);
}

Test(stacks, a_stripped_module_gives_offsets)
{
    struct fixture fixture = set_up(sample_whole_id, sample_path("bare/plain"));
    ms_stacks_t *stacks = ms_stacks_new(fixture.definitions, MS_STACKS_LINES, NULL);
    char expected[256];

    snprintf(expected, sizeof(expected), "plain+0x%" PRIx64 " < exported_outer < plain+0x%" PRIx64,
             fixture.leaf + 4, fixture.main_address + 5);
    cr_assert_str_eq(spell(stacks, 1), expected);
    ms_stacks_delete(stacks);
    ms_definitions_delete(fixture.definitions);
}

Test(stacks, another_build_at_the_path_gives_no_names_but_a_folder_of_modules_does)
{
    struct fixture fixture = set_up(sample_whole_id, sample_path("other/plain"));
    ms_stacks_t *stacks = ms_stacks_new(fixture.definitions, MS_STACKS_LINES, NULL);
    char expected[256], dir[PATH_MAX];

    snprintf(expected, sizeof(expected),
             "plain+0x%" PRIx64 " < plain+0x%" PRIx64 " < plain+0x%" PRIx64, fixture.leaf + 4,
             fixture.returns_to, fixture.main_address + 5);
    cr_assert_str_eq(spell(stacks, 1), expected);
    ms_stacks_delete(stacks);

    snprintf(dir, sizeof(dir), "%s", sample_path("whole"));
    stacks = ms_stacks_new(fixture.definitions, MS_STACKS_NAMES, dir);
    cr_assert_str_eq(spell(stacks, 1), "local_leaf < exported_outer < main");
    ms_stacks_delete(stacks);
    ms_definitions_delete(fixture.definitions);
}

Test(stacks, a_call_at_the_end_of_a_function_belongs_to_it)
{
    uint64_t bytes;
    const uint64_t leaf = sample_symbol("whole/plain", "local_leaf", &bytes);
    struct fixture fixture = set_up(sample_whole_id, sample_path("whole/plain"));
    const struct ms_native_definition exact = {.id = 5, .module = 1, .exact = 1, .address = leaf};
    ms_stacks_t *stacks;

    define_native(fixture.definitions, 4, 0, 1, leaf + bytes);
    ms_definitions_add(fixture.definitions, MS_DEFINE_NATIVE, &exact, sizeof(exact));
    define_native(fixture.definitions, 6, 0, 0, 0x7f0012345678);
    define_native(fixture.definitions, 7, 0, UINT32_MAX, 0x1234);
    define_site(fixture.definitions, 2, 4, 0, 0);
    define_site(fixture.definitions, 3, 5, 0, 0);
    define_site(fixture.definitions, 4, 6, 0, 0);
    define_site(fixture.definitions, 5, 7, 0, 0);
    stacks = ms_stacks_new(fixture.definitions, MS_STACKS_NAMES, NULL);
    cr_assert_str_eq(spell(stacks, 2), "local_leaf");
    cr_assert_str_eq(spell(stacks, 3), "local_leaf");
    cr_assert_str_eq(spell(stacks, 4), "0x7f0012345678");
    cr_assert_str_eq(spell(stacks, 5), "0x1234");
    ms_stacks_delete(stacks);
    ms_definitions_delete(fixture.definitions);
}

Test(stacks, python_frames_replace_the_interpreter_and_the_allocator_is_cut)
{
    struct fixture fixture = set_up(sample_whole_id, sample_path("whole/plain"));
    ms_definitions_t *definitions = fixture.definitions;
    ms_stacks_t *stacks;

    define_module(definitions, 2, NULL, "/nowhere/libc10_cuda.so");
    define_module(definitions, 3, NULL, "/nowhere/libpython3.11.so.1.0");
    define_python(definitions, 1, 0, MS_PYTHON_ENTRY, "/home/me/train.py", "main", 7);
    define_python(definitions, 2, 1, 0, "/v/site-packages/torch/nn.py", "Linear.forward", 114);
    /* The interpreter, without names, around the program's own code; the allocator inside. */
    define_native(definitions, 4, 1, 3, 0x100);
    define_native(definitions, 5, 4, 1, fixture.returns_to);
    define_native(definitions, 6, 5, 2, 0x200);
    define_native(definitions, 7, 6, 2, 0x300);
    define_native(definitions, 8, 0, 2, 0x300);
    define_site(definitions, 2, 7, 2, 0);
    define_site(definitions, 3, 7, 0, 0);
    define_site(definitions, 4, 0, 2, 0);
    define_site(definitions, 5, 8, 0, 0);
    stacks = ms_stacks_new(definitions, MS_STACKS_NAMES, NULL);
    cr_assert_str_eq(spell(stacks, 2),
                     "exported_outer < Linear.forward@nn.py:114 < main@train.py:7 < main");
    cr_assert_str_eq(spell(stacks, 3), "exported_outer < libpython3.11.so.1.0+0x100 < main");
    cr_assert_str_eq(spell(stacks, 4), "Linear.forward@nn.py:114 < main@train.py:7");
    cr_assert_str_eq(spell(stacks, 5), "libc10_cuda.so+0x300");
    cr_assert_str_eq(ms_stacks_own_frame(stacks, 2)->file, "/home/me/train.py");
    cr_assert_str_eq(ms_stacks_own_frame(stacks, 3)->function, "exported_outer");
    cr_assert_str_eq(ms_stacks_own_frame(stacks, 5)->function, "libc10_cuda.so+0x300");
    ms_stacks_delete(stacks);
    ms_definitions_delete(definitions);
}

Test(stacks, the_own_frame_without_one_is_the_innermost)
{
    ms_definitions_t *definitions = ms_definitions_new();
    ms_stacks_t *stacks;
    const struct ms_python_definition unreadable = {.id = 3, .caller = 2, .code = 0};

    define_python(definitions, 1, 0, MS_PYTHON_ENTRY, "/usr/lib/python3.11/runpy.py", "run", 1);
    define_python(definitions, 2, 1, 0, "/v/site-packages/trainer.py", "Trainer.fit", 50);
    ms_definitions_add(definitions, MS_DEFINE_PYTHON, &unreadable, sizeof(unreadable));
    define_module(definitions, 1, NULL, "/lib/libc.so.6");
    define_native(definitions, 1, 0, 1, 0x10);
    define_native(definitions, 2, 1, 1, 0x20);
    define_site(definitions, 1, 0, 2, 0);
    define_site(definitions, 2, 0, 3, 0);
    define_site(definitions, 3, 2, 0, 0);
    stacks = ms_stacks_new(definitions, MS_STACKS_NAMES, NULL);
    cr_assert_str_eq(ms_stacks_own_frame(stacks, 1)->function, "Trainer.fit");
    cr_assert_str_eq(spell(stacks, 2), "(unreadable) < Trainer.fit@trainer.py:50 < run@runpy.py:1");
    cr_assert_str_eq(ms_stacks_own_frame(stacks, 3)->function, "libc.so.6+0x20");
    ms_stacks_delete(stacks);
    ms_definitions_delete(definitions);
}

Test(stacks, of_nothing_are_none)
{
    ms_definitions_t *definitions = ms_definitions_new();
    ms_stacks_t *stacks = ms_stacks_new(definitions, MS_STACKS_LINES, "/nowhere");
    size_t count = 5;

    cr_assert_not_null(stacks);
    cr_assert_null(ms_stacks_frames(stacks, 1, &count));
    cr_assert_eq(count, 0);
    ms_stacks_delete(stacks);
    ms_stacks_delete(NULL);
    ms_definitions_delete(definitions);
}
