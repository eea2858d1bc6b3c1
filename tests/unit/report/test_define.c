/* SPDX-License-Identifier: Apache-2.0 */
/* Definitions of call sites, from the writer to the reader. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "report/model/model.h"
#include "report/model/reading/read_model.h"
#include "report/read/reader.h"
#include "synthetic.h"

static struct ms_model *must_read(const char *path)
{
    char why[512];
    struct ms_model *model = ms_model_new(path, why, sizeof(why));

    cr_assert_not_null(model, "%s", why);
    return model;
}

static bool define_site(ms_trace_t *trace, uint32_t id)
{
    const struct ms_site_definition site = {
        .id = id, .native = id + 1, .python = id + 2, .tag = id + 3, .thread = id % 3};

    return ms_trace_define(trace, MS_DEFINE_SITE, &site, sizeof(site));
}

static void expect_site(const struct ms_model *model, uint32_t id)
{
    const struct ms_site_definition *site = ms_definitions_site(model->definitions, id);

    cr_assert_not_null(site, "site %u", id);
    cr_assert_eq(site->id, id);
    cr_assert_eq(site->native, id + 1);
    cr_assert_eq(site->python, id + 2);
    cr_assert_eq(site->tag, id + 3);
    cr_assert_eq(site->thread, id % 3);
}

/* A struct with texts behind it. */
struct told {
    char bytes[4096];
    size_t count;
};

static void add(struct told *told, const void *bytes, size_t count)
{
    memcpy(told->bytes + told->count, bytes, count);
    told->count += count;
}

Test(define, every_kind_comes_back)
{
    ms_trace_t *trace = synthetic_open(synthetic_folder());
    const struct ms_module_definition module = {
        .id = 1, .build_id_bytes = 3, .build_id = {1, 2, 3}, .base = 0x7f00, .bytes = 4096};
    const struct ms_native_definition native = {.id = 1, .module = 1, .exact = 1, .address = 0x12};
    const struct ms_native_definition inner = {.id = 2, .caller = 1, .address = 0x34};
    const struct ms_code_definition code = {.id = 1,
                                            .version = 3 << 8 | 11,
                                            .first_line = 7,
                                            .file_bytes = 8,
                                            .function_bytes = 4,
                                            .table_bytes = 3};
    const struct ms_python_definition python = {.id = 1, .code = 1, .instruction = 6, .flags = 1};
    const struct ms_tag_definition tag = {.id = 1, .color = 0xff00ff00, .name_bytes = 5};
    const struct ms_sampling_definition sampling = {1 << 20};
    struct told told = {.count = 0};

    add(&told, &module, sizeof(module));
    add(&told, "/lib/a.so", 9);
    cr_assert(ms_trace_define(trace, MS_DEFINE_MODULE, told.bytes, told.count));
    cr_assert(ms_trace_define(trace, MS_DEFINE_NATIVE, &native, sizeof(native)));
    cr_assert(ms_trace_define(trace, MS_DEFINE_NATIVE, &inner, sizeof(inner)));
    told.count = 0;
    add(&told, &code, sizeof(code));
    add(&told, "train.pymain\x01\x00\x02", 15);
    cr_assert(ms_trace_define(trace, MS_DEFINE_CODE, told.bytes, told.count));
    cr_assert(ms_trace_define(trace, MS_DEFINE_PYTHON, &python, sizeof(python)));
    told.count = 0;
    add(&told, &tag, sizeof(tag));
    add(&told, "epoch", 5);
    cr_assert(ms_trace_define(trace, MS_DEFINE_TAG, told.bytes, told.count));
    cr_assert(define_site(trace, 1));
    cr_assert(ms_trace_define(trace, MS_DEFINE_SAMPLING, &sampling, sizeof(sampling)));
    ms_trace_close(trace, true, 0);
    cr_assert_not(define_site(trace, 2), "a closed trace takes nothing");

    struct ms_model *model = must_read(ms_trace_dir(trace));
    const ms_definitions_t *all = model->definitions;

    cr_assert_eq(memcmp(&ms_definitions_module(all, 1)->is, &module, sizeof(module)), 0);
    cr_assert_str_eq(ms_definitions_module(all, 1)->path, "/lib/a.so");
    cr_assert_eq(memcmp(ms_definitions_native(all, 1), &native, sizeof(native)), 0);
    cr_assert_eq(memcmp(ms_definitions_native(all, 2), &inner, sizeof(inner)), 0);
    cr_assert_eq(memcmp(&ms_definitions_code(all, 1)->is, &code, sizeof(code)), 0);
    cr_assert_str_eq(ms_definitions_code(all, 1)->file, "train.py");
    cr_assert_str_eq(ms_definitions_code(all, 1)->function, "main");
    cr_assert_eq(memcmp(ms_definitions_code(all, 1)->table, "\x01\x00\x02", 3), 0);
    cr_assert_eq(memcmp(ms_definitions_python(all, 1), &python, sizeof(python)), 0);
    cr_assert_eq(memcmp(&ms_definitions_tag(all, 1)->is, &tag, sizeof(tag)), 0);
    cr_assert_str_eq(ms_definitions_tag(all, 1)->name, "epoch");
    expect_site(model, 1);
    cr_assert_eq(ms_definitions_site_count(all), 1);
    cr_assert_eq(ms_definitions_sampling_bytes(all), 1 << 20);
    cr_assert_eq(ms_definitions_damaged(all), 0);
    cr_assert_null(ms_definitions_site(all, 0));
    cr_assert_null(ms_definitions_site(all, 2));
    cr_assert_null(ms_definitions_native(all, UINT32_MAX));
    cr_assert_eq(model->warning_count, 0, "nothing to warn of");
    ms_model_delete(model);
}

/* Nothing of a tree that is not one, of sizes that do not fit, of ids that are told twice. */
Test(define, what_is_damaged_is_counted_and_left_out)
{
    ms_definitions_t *all = ms_definitions_new();
    const struct ms_native_definition loops[] = {{.id = 1, .caller = 1}, {.id = 2, .caller = 3}};
    const struct ms_python_definition loop = {.id = 4, .caller = 9};
    const struct ms_native_definition good = {.id = 3};
    struct {
        struct ms_code_definition code;
        char text[8];
    } code = {{.id = 1, .file_bytes = UINT32_MAX, .function_bytes = 1, .table_bytes = 8}, "text"};
    struct {
        struct ms_tag_definition tag;
        char text[8];
    } tag = {{.id = 2, .outer = 2, .name_bytes = 8}, "text"};
    struct ms_module_definition module = {.id = 1, .build_id_bytes = 33};
    const struct ms_site_definition no_id = {.id = 0}, far = {.id = UINT32_MAX};
    static char long_path[MS_DEFINITION_MAX_BYTES + 1];

    ms_definitions_add(all, MS_DEFINE_NATIVE, &loops[0], sizeof(loops[0]));
    ms_definitions_add(all, MS_DEFINE_NATIVE, &loops[1], sizeof(loops[1]));
    ms_definitions_add(all, MS_DEFINE_PYTHON, &loop, sizeof(loop));
    ms_definitions_add(all, MS_DEFINE_CODE, &code, sizeof(code));
    ms_definitions_add(all, MS_DEFINE_TAG, &tag, sizeof(tag));
    ms_definitions_add(all, MS_DEFINE_MODULE, &module, sizeof(module));
    ms_definitions_add(all, MS_DEFINE_MODULE, long_path, sizeof(long_path));
    ms_definitions_add(all, MS_DEFINE_SITE, &no_id, sizeof(no_id));
    ms_definitions_add(all, MS_DEFINE_SITE, &far, sizeof(far));
    ms_definitions_add(all, MS_DEFINE_NATIVE, &good, sizeof(good) - 1);
    ms_definitions_add(all, 0, &good, sizeof(good));
    ms_definitions_add(all, MS_DEFINE_KIND_COUNT, &good, sizeof(good));
    cr_assert_eq(ms_definitions_damaged(all), 12);
    ms_definitions_add(all, MS_DEFINE_NATIVE, &good, sizeof(good));
    cr_assert_eq(ms_definitions_damaged(all), 12);
    ms_definitions_add(all, MS_DEFINE_NATIVE, &good, sizeof(good));
    cr_assert_eq(ms_definitions_damaged(all), 13, "told twice");
    for (uint32_t id = 0; id < 10; id++) {
        cr_assert_eq(ms_definitions_native(all, id) != NULL, id == 3);
        cr_assert_null(ms_definitions_python(all, id));
        cr_assert_null(ms_definitions_code(all, id));
        cr_assert_null(ms_definitions_tag(all, id));
        cr_assert_null(ms_definitions_module(all, id));
        cr_assert_null(ms_definitions_site(all, id));
    }
    ms_definitions_delete(all);
}

Test(define, what_is_too_long_is_refused)
{
    static const char payload[MS_DEFINITION_MAX_BYTES + 1];
    ms_trace_t *trace = synthetic_open(synthetic_folder());

    cr_assert(ms_trace_define(trace, MS_DEFINE_MODULE, payload, MS_DEFINITION_MAX_BYTES));
    cr_assert_not(ms_trace_define(trace, MS_DEFINE_MODULE, payload, sizeof(payload)));
    cr_assert_not(ms_trace_define(trace, 0, payload, 8));
    cr_assert_not(ms_trace_define(trace, MS_DEFINE_KIND_COUNT, payload, 8));
    ms_trace_close(trace, true, 0);
}

enum { THREADS = 4, EACH = 20000 };

static ms_trace_t *shared_trace;

static void *define_some(void *ctx)
{
    const uint32_t first = (uint32_t)(uintptr_t)ctx;

    for (uint32_t i = 0; i < EACH; i++) {
        cr_assert(define_site(shared_trace, first + i * THREADS));
    }
    return NULL;
}

/* Several extents, from several threads, beside one that tells events. */
Test(define, from_many_threads, .timeout = 600)
{
    pthread_t threads[THREADS];
    struct synthetic run;

    shared_trace = synthetic_open(synthetic_folder());
    synthetic_begin(&run, shared_trace, 3);
    for (uintptr_t i = 0; i < THREADS; i++) {
        cr_assert_eq(pthread_create(&threads[i], NULL, define_some, (void *)(i + 1)), 0);
    }
    synthetic_churn(&run, 200000);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    ms_trace_close(shared_trace, true, 0);

    struct ms_model *model = must_read(ms_trace_dir(shared_trace));

    cr_assert_eq(model->warning_count, 0, "%s", model->warnings.at);
    cr_assert_eq(ms_definitions_site_count(model->definitions), THREADS * EACH);
    for (uint32_t id = 1; id <= THREADS * EACH; id++) {
        expect_site(model, id);
    }
    cr_assert_eq(model->read_events, run.events);
    ms_model_delete(model);
}

/* Windows are recycled under a small limit, definitions are not; half of the limit is theirs. */
Test(define, kept_for_good_and_bounded)
{
    struct ms_trace_config config = synthetic_config(synthetic_folder());
    struct synthetic run;
    uint32_t defined = 0;

    config.limit_bytes = 2 * MIB;

    ms_trace_t *trace = ms_trace_open(&config, NULL, 0);

    cr_assert(define_site(trace, ++defined));
    synthetic_begin(&run, trace, 5);
    synthetic_churn(&run, 1000000);
    while (define_site(trace, defined + 1)) {
        defined++;
        cr_assert_lt(defined, 100000, "it is bounded");
    }
    cr_assert_not(define_site(trace, defined + 2));
    synthetic_churn(&run, 100);
    ms_trace_close(trace, true, 0);

    struct ms_model *model = must_read(ms_trace_dir(trace));

    cr_assert_gt(model->recycled_events, 0);
    cr_assert_eq(ms_definitions_site_count(model->definitions), defined);
    cr_assert_geq(defined,
                  UINT64_C(4) * (MS_EXTENT_BYTES - 256) / (8 + sizeof(struct ms_site_definition)));
    expect_site(model, 1);
    expect_site(model, defined);
    cr_assert_eq(model->lost_definitions, 2);
    cr_assert_eq(model->note_count, 1, "said once");
    cr_assert_not_null(strstr(model->notes.at, "no room in the trace for more call sites"));
    cr_assert_eq(model->read_events + model->recycled_events, run.events);
    ms_model_delete(model);
}

Test(define, a_full_disk_costs_definitions)
{
    const char *folder = synthetic_folder();
    const struct rlimit limit = {3 * MIB, 3 * MIB};
    struct synthetic run;
    uint32_t told = 0, kept = 0;

    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);

    ms_trace_t *trace = synthetic_open(folder);

    synthetic_begin(&run, trace, 1);
    for (; told < 200000; told++) {
        kept += define_site(trace, told + 1);
        synthetic_churn(&run, 1);
    }
    ms_trace_close(trace, true, 0);

    struct ms_model *model = must_read(ms_trace_dir(trace));

    cr_assert_eq(model->header.disk_full, 1);
    cr_assert_gt(kept, 0);
    cr_assert_lt(kept, told);
    cr_assert_eq(model->lost_definitions, told - kept);
    for (uint32_t id = 1; id <= kept; id++) {
        expect_site(model, id);
    }
    cr_assert_eq(model->events, run.events);
    cr_assert(model->sums_exact);
    ms_model_delete(model);
}

/* What is of no device makes none appear. */
Test(define, steps_and_tags_use_no_device)
{
    ms_trace_t *trace = synthetic_open(synthetic_folder());
    const struct ms_event step = {.kind = MS_EVENT_STEP, .id = 1};
    const struct ms_event tag = {.kind = MS_EVENT_TAG_BEGIN, .id = 9, .aux = 1};

    for (int i = 0; i < 300; i++) {
        ms_trace_emit(trace, &step);
        ms_trace_emit(trace, &tag);
    }
    ms_trace_close(trace, true, 0);

    struct ms_model *model = must_read(ms_trace_dir(trace));

    cr_assert_eq(model->events, 600);
    cr_assert_eq(model->read_events, 600);
    for (int i = 0; i < MS_DEVICE_COUNT; i++) {
        cr_assert_not(model->devices[i].used, "device %d", i);
    }
    ms_model_delete(model);
}

/* ---- killed ---- */

enum { KILLS = 60, PAST_FIRST_EXTENT = 8000 };

struct shared {
    _Atomic uint32_t defined; /* sites whose definition has returned */
    _Atomic bool ready;
    char dir[PATH_MAX];
};

static void define_until_killed(struct shared *shared, const char *output)
{
    struct ms_trace_config config = synthetic_config(output);
    struct synthetic run;

    config.process.pid = (int32_t)getpid();

    ms_trace_t *trace = ms_trace_open(&config, NULL, 0);

    snprintf(shared->dir, sizeof(shared->dir), "%s", ms_trace_dir(trace));
    synthetic_begin(&run, trace, 1);
    atomic_store(&shared->ready, true);
    for (uint32_t id = 1;; id++) {
        if (!define_site(trace, id)) {
            _exit(9);
        }
        atomic_store(&shared->defined, id);
        synthetic_churn(&run, 1);
    }
}

Test(define, killed_at_any_moment, .timeout = 600)
{
    const char *output = synthetic_folder();
    struct shared *shared =
        mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    uint64_t random = 5;
    uint32_t most = 0;

    for (int i = 0; i < KILLS; i++) {
        /* Some go on for long, however slow the machine is. */
        const uint32_t least = i % 4 == 0 ? PAST_FIRST_EXTENT : 0;

        memset(shared, 0, sizeof(*shared));

        const pid_t child = fork();

        if (child == 0) {
            define_until_killed(shared, output);
        }
        while (!atomic_load(&shared->ready) || atomic_load(&shared->defined) < least) {
            usleep(50);
        }
        usleep((useconds_t)(synthetic_random(&random) % 20000));
        kill(child, SIGKILL);
        cr_assert_eq(waitpid(child, NULL, 0), child);

        struct ms_model *model = must_read(shared->dir);
        const uint32_t count = ms_definitions_site_count(model->definitions);

        cr_assert_eq(model->warning_count, 0, "%s", model->warnings.at);
        cr_assert_geq(count, shared->defined);
        cr_assert_leq(count, shared->defined + 1);
        for (uint32_t id = 1; id <= count; id++) {
            expect_site(model, id);
        }
        most = count > most ? count : most;
        ms_model_delete(model);
    }
    cr_assert_geq(most, PAST_FIRST_EXTENT, "some were killed past the first extent: %u", most);
}
