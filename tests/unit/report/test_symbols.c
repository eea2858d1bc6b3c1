/* SPDX-License-Identifier: Apache-2.0 */
/* Names of native functions, against binaries that this test builds. */
#include <criterion/criterion.h>

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "report/symbols/demangle.h"
#include "report/symbols/symbols.h"
#include "samples.h"
#include "synthetic.h"

#define MOST_ASKED  512u
#define MOST_TOLD   8u
#define MOST_LENGTH 256u

/* What was told of one address. */
struct told {
    char symbol[MOST_LENGTH], readable[MOST_LENGTH];
    uint32_t symbols, sources;
    struct {
        char function[MOST_LENGTH], file[MOST_LENGTH];
        uint32_t line, inlined;
    } source[MOST_TOLD];
};

static struct told told[MOST_ASKED];
static uint64_t asked[MOST_ASKED];
static size_t asked_count;

static void copy(char *to, const char *from)
{
    snprintf(to, MOST_LENGTH, "%s", from ? from : "");
}

static void on_symbol(void *context, size_t index, const char *symbol, const char *readable)
{
    (void)context;
    cr_assert_lt(index, asked_count);
    copy(told[index].symbol, symbol);
    copy(told[index].readable, readable);
    told[index].symbols++;
}

static void on_source(void *context, size_t index, const struct ms_source *source, bool inlined)
{
    struct told *to = &told[index];

    (void)context;
    cr_assert_lt(index, asked_count);
    if (to->sources < MOST_TOLD) {
        copy(to->source[to->sources].function, source->function);
        copy(to->source[to->sources].file, source->file);
        to->source[to->sources].line = source->line;
        to->source[to->sources++].inlined = inlined;
    }
}

/* The module's file at `path`, of that build (null: of none). What comes back stands in `told`. */
static bool ask_module(const char *path, const uint8_t *id, const char *dir, bool lines)
{
    struct ms_module_definition module = {.id = 1, .build_id_bytes = id ? SAMPLE_ID_BYTES : 0};
    const struct ms_symbols_listener listener = {NULL, on_symbol, on_source};

    memset(told, 0, sizeof(told));
    if (id) {
        memcpy(module.build_id, id, SAMPLE_ID_BYTES);
    }
    return ms_symbols_read(&(struct ms_symbols_request){.module = &module,
                                                        .module_path = path,
                                                        .modules_dir = dir,
                                                        .addresses = asked,
                                                        .count = asked_count,
                                                        .lines = lines,
                                                        .limit_ms = MS_SYMBOLS_LIMIT_MS},
                           &listener);
}

static void ask_for(uint64_t address)
{
    asked[0] = address;
    asked_count = 1;
}

/* The name at one address of a sample; empty: none. */
static const char *name_at(const char *sample, uint64_t address)
{
    ask_for(address);
    cr_assert(ask_module(sample_path(sample), sample_whole_id, NULL, false), "%s", sample);
    return told[0].symbol;
}

Test(symbols, names_from_the_first_byte_of_a_function_to_its_last)
{
    static const char *const functions[] = {"local_leaf", "exported_outer", "main"};

    for (size_t i = 0; i < 3; i++) {
        uint64_t bytes;
        const uint64_t start = sample_symbol("whole/plain", functions[i], &bytes);

        cr_assert_str_eq(name_at("whole/plain", start), functions[i]);
        cr_assert_str_eq(name_at("whole/plain", start + bytes - 1), functions[i]);
        cr_assert_str_neq(name_at("whole/plain", start + bytes), functions[i]);
        cr_assert_str_neq(name_at("whole/plain", start - 1), functions[i]);
    }
    cr_assert_str_eq(name_at("whole/plain", 1), "");
    cr_assert_str_eq(name_at("whole/plain", UINT64_MAX), "");
}

Test(symbols, a_function_without_a_size_ends_with_its_section)
{
    cr_assert_str_eq(name_at("whole/plain", sample_section("whole/plain", ".init") + 2), "_init");
    cr_assert_str_eq(name_at("whole/plain", sample_section("whole/plain", ".plt") + 2), "");
}

Test(symbols, many_addresses_in_one_pass_are_each_the_one_they_are_alone)
{
    const uint64_t start = sample_symbol("whole/plain", "local_leaf", NULL) - 256;
    static struct told together[MOST_ASKED];
    uint32_t named = 0;

    for (size_t i = 0; i < MOST_ASKED; i++) {
        asked[i] = start + i;
    }
    asked_count = MOST_ASKED;
    cr_assert(ask_module(sample_path("whole/plain"), sample_whole_id, NULL, true));
    memcpy(together, told, sizeof(told));
    for (size_t i = 0; i < MOST_ASKED; i += 7) {
        ask_for(start + i);
        cr_assert(ask_module(sample_path("whole/plain"), sample_whole_id, NULL, true));
        cr_assert_eq(memcmp(&together[i], &told[0], sizeof(told[0])), 0, "%zu", i);
        named += told[0].symbols;
    }
    cr_assert_gt(named, 20);
}

Test(symbols, a_stripped_file_has_what_it_exports)
{
    const uint64_t leaf = sample_symbol("whole/plain", "local_leaf", NULL);
    const uint64_t outer = sample_symbol("whole/plain", "exported_outer", NULL);

    cr_assert_str_eq(name_at("bare/plain", leaf), "");
    cr_assert_str_eq(name_at("bare/plain", outer), "exported_outer");
}

/* Whether the module's file was found: main has a name then. */
static bool is_found(const char *path, const uint8_t *id, const char *dir)
{
    ask_for(sample_symbol("whole/plain", "exported_outer", NULL));
    cr_assert(ask_module(path, id, dir, false));
    return strcmp(told[0].symbol, "exported_outer") == 0;
}

Test(symbols, another_build_is_not_the_module)
{
    uint8_t near[SAMPLE_ID_BYTES];

    memcpy(near, sample_whole_id, sizeof(near));
    near[SAMPLE_ID_BYTES - 1] ^= 1;
    cr_assert(is_found(sample_path("whole/plain"), sample_whole_id, NULL));
    cr_assert_not(is_found(sample_path("other/plain"), sample_whole_id, NULL));
    cr_assert_not(is_found(sample_path("whole/plain"), near, NULL));
    cr_assert_not(is_found(sample_path("whole/plain"), NULL, NULL));
    cr_assert_not(is_found("/nowhere", sample_whole_id, NULL));
}

Test(symbols, a_folder_of_modules_is_searched_by_build_id_and_by_name)
{
    char dir[PATH_MAX], laid_out[PATH_MAX + 256];
    const char *folder = synthetic_folder();

    snprintf(dir, sizeof(dir), "%s", sample_path("bare"));
    cr_assert(is_found("/elsewhere/plain", sample_whole_id, dir));
    cr_assert(is_found(sample_path("other/plain"), sample_whole_id, dir));
    snprintf(dir, sizeof(dir), "%s", sample_path("other"));
    cr_assert_not(is_found("/elsewhere/plain", sample_whole_id, dir));

    snprintf(laid_out, sizeof(laid_out), "%s/.build-id", folder);
    mkdir(laid_out, 0755);
    snprintf(laid_out, sizeof(laid_out), "%s/.build-id/11", folder);
    mkdir(laid_out, 0755);
    snprintf(laid_out, sizeof(laid_out), "%s/.build-id/11/223344556677889900aabbccddeeff01234567",
             folder);
    cr_assert_not(is_found("/elsewhere/renamed", sample_whole_id, folder));
    cr_assert_eq(symlink(sample_path("whole/plain"), laid_out), 0);
    cr_assert(is_found("/elsewhere/renamed", sample_whole_id, folder));
}

/* Whether the leaf, which a stripped file does not name, has a name and a line. */
static bool leaf_is_known(const char *path, const char *dir)
{
    ask_for(sample_symbol("whole/plain", "local_leaf", NULL));
    cr_assert(ask_module(path, sample_whole_id, dir, true));
    return strcmp(told[0].symbol, "local_leaf") == 0 && told[0].sources == 1 &&
           told[0].source[0].line > 0;
}

static void copy_file(const char *from, const char *dir, const char *name)
{
    char command[3 * PATH_MAX];

    snprintf(command, sizeof(command), "mkdir -p '%s' && cp '%s' '%s/%s'", dir, from, dir, name);
    cr_assert_eq(system(command), 0); /* NOLINT(cert-env33-c): the test's own paths */
}

Test(symbols, debugging_information_apart_is_found_and_must_match)
{
    char dir[PATH_MAX], stripped[PATH_MAX + 16];
    const char *folder = synthetic_folder();

    cr_assert(leaf_is_known(sample_path("whole/plain"), NULL));
    cr_assert(leaf_is_known(sample_path("apart/plain"), NULL));
    cr_assert_not(leaf_is_known(sample_path("bare/plain"), NULL));

    /* The stripped file alone, then with another build's information beside it, then with the
     * information in the folder of modules: by name, and by build id. */
    snprintf(dir, sizeof(dir), "%s/alone", folder);
    snprintf(stripped, sizeof(stripped), "%s/plain", dir);
    copy_file(sample_path("apart/plain"), dir, "plain");
    cr_assert_not(leaf_is_known(stripped, NULL));
    copy_file(sample_path("other/plain"), dir, "plain.debug");
    cr_assert_not(leaf_is_known(stripped, NULL));
    snprintf(dir, sizeof(dir), "%s/named", folder);
    copy_file(sample_path("apart/.debug/plain.debug"), dir, "plain.debug");
    cr_assert(leaf_is_known(stripped, dir));
    snprintf(dir, sizeof(dir), "%s/identified/.build-id/11", folder);
    copy_file(sample_path("apart/.debug/plain.debug"), dir,
              "223344556677889900aabbccddeeff01234567.debug");
    snprintf(dir, sizeof(dir), "%s/identified", folder);
    cr_assert(leaf_is_known(stripped, dir));
}

static void write_file(const char *path, const char *bytes, size_t count)
{
    FILE *file = fopen(path, "w");

    cr_assert_not_null(file);
    cr_assert_eq(fwrite(bytes, 1, count, file), count);
    fclose(file);
}

/* Everything that is asked of a file. Whatever becomes of its reader, this process lives on. */
static bool ask_all(const char *path)
{
    const uint64_t leaf = 0x1000;

    for (size_t i = 0; i < 64; i++) {
        asked[i] = i < 60 ? leaf + i * 16 : UINT64_MAX - (63 - i);
    }
    asked_count = 64;
    return ask_module(path, sample_whole_id, NULL, true);
}

Test(symbols, cut_and_hostile_files_do_no_harm, .timeout = 600)
{
    size_t bytes;
    char *from = synthetic_read(sample_path("whole/plain"), &bytes);
    char *hostile = malloc(bytes);
    char path[PATH_MAX];
    uint64_t random = 4711;

    snprintf(path, sizeof(path), "%s/hostile", synthetic_folder());
    for (size_t cut = 0; cut < bytes; cut += 1 + cut / 16) {
        write_file(path, from, cut);
        ask_all(path);
    }

    const uint64_t sections_at = *(const uint64_t *)(const void *)(from + 0x28);

    for (int round = 0; round < 1000; round++) {
        memcpy(hostile, from, bytes);
        for (uint64_t i = synthetic_random(&random) % 12 + 1; i > 0; i--) {
            /* The headers, the sections' table, or anywhere. */
            const uint64_t where = synthetic_random(&random) % 4;
            const uint64_t at =
                where == 0   ? synthetic_random(&random) % 1024
                : where == 1 ? sections_at + synthetic_random(&random) % (bytes - sections_at)
                             : synthetic_random(&random) % bytes;

            const uint8_t byte =
                synthetic_random(&random) % 3 == 0 ? 0xff : (uint8_t)synthetic_random(&random);

            memcpy(hostile + at, &byte, 1);
        }
        write_file(path, hostile, bytes);
        ask_all(path);
    }
    free(hostile);
    free(from);
}

/* A pipe in place of debugging information keeps the reader waiting. */
Test(symbols, a_reader_that_never_ends_is_ended, .timeout = 600)
{
    struct ms_module_definition module = {.id = 1, .build_id_bytes = SAMPLE_ID_BYTES};
    const struct ms_symbols_listener listener = {NULL, on_symbol, on_source};
    const uint64_t outer = sample_symbol("whole/plain", "exported_outer", NULL);
    char dir[PATH_MAX], path[PATH_MAX + 16];
    struct timespec before, after;

    snprintf(dir, sizeof(dir), "%s/waits", synthetic_folder());
    copy_file(sample_path("apart/plain"), dir, "plain");
    snprintf(path, sizeof(path), "%s/plain.debug", dir);
    cr_assert_eq(mkfifo(path, 0600), 0);
    snprintf(path, sizeof(path), "%s/plain", dir);
    memcpy(module.build_id, sample_whole_id, SAMPLE_ID_BYTES);
    memset(told, 0, sizeof(told));
    asked_count = 1;
    clock_gettime(CLOCK_MONOTONIC, &before);
    cr_assert_not(ms_symbols_read(&(struct ms_symbols_request){.module = &module,
                                                               .module_path = path,
                                                               .addresses = &outer,
                                                               .count = 1,
                                                               .limit_ms = 300},
                                  &listener));
    clock_gettime(CLOCK_MONOTONIC, &after);
    cr_assert_lt(after.tv_sec - before.tv_sec, 30);
}

Test(symbols, what_is_no_elf_file_is_none)
{
    char path[PATH_MAX];

    snprintf(path, sizeof(path), "%s/fifo", synthetic_folder());
    cr_assert_eq(mkfifo(path, 0600), 0);
    cr_assert_not(is_found(path, NULL, NULL));
    cr_assert_not(is_found("/", NULL, NULL));
    cr_assert_not(is_found("/dev/zero", NULL, NULL));
}

Test(symbols, inlined_functions_have_their_own_lines)
{
    const uint64_t returns_to = sample_return_address("whole/plain");

    asked[0] = 1;
    asked[1] = returns_to - 1;
    asked_count = 2;
    cr_assert(ask_module(sample_path("whole/plain"), sample_whole_id, NULL, true));
    cr_assert_eq(told[0].sources, 0);
    cr_assert_eq(told[1].sources, 2);
    cr_assert_str_eq(told[1].source[0].function, "inlined_middle");
    cr_assert_eq(told[1].source[0].line, sample_line("plain.c", "middle"));
    cr_assert(told[1].source[0].inlined);
    cr_assert_str_eq(told[1].source[1].function, "exported_outer");
    cr_assert_eq(told[1].source[1].line, sample_line("plain.c", "outer"));
    cr_assert_not(told[1].source[1].inlined);
    cr_assert_str_eq(strrchr(told[1].source[0].file, '/'), "/plain.c");
    cr_assert_str_eq(strrchr(told[1].source[1].file, '/'), "/plain.c");

    cr_assert(ask_module(sample_path("whole/plain"), sample_whole_id, NULL, false));
    cr_assert_eq(told[1].sources, 0);
    cr_assert(ask_module(sample_path("bare/plain"), sample_whole_id, NULL, true));
    cr_assert_eq(told[1].sources, 0);
}

Test(symbols, inlined_methods_read_as_people_write_them)
{
    if (!sample_exists("cxx/plain")) {
        cr_skip_test("no C++ compiler");
    }
    ask_for(sample_return_address("cxx/plain") - 1);
    cr_assert(ask_module(sample_path("cxx/plain"), sample_cxx_id, NULL, true));
    cr_assert_eq(told[0].sources, 2);
    cr_assert_str_eq(told[0].source[0].function, "sample::Layer<double>::forward(double) const");
    cr_assert_eq(told[0].source[0].line, sample_line("model.cpp", "forward"));
    cr_assert_eq(told[0].source[1].line, sample_line("model.cpp", "run"));
    cr_assert_str_eq(told[0].symbol, "_ZNK6sample5Model3runEd");
    cr_assert_str_eq(told[0].readable, "sample::Model::run(double) const");
}

Test(symbols, names_are_demangled_and_bounded)
{
    char name[MS_FUNCTION_NAME_BYTES], brief[24];
    char long_name[3 * MS_FUNCTION_NAME_BYTES];

    ms_demangle("_ZNK6sample5LayerIdE7forwardEd", name, sizeof(name));
    cr_assert_str_eq(name, "sample::Layer<double>::forward(double) const");
    ms_demangle("_ZNK6sample5LayerIdE7forwardEd", brief, sizeof(brief));
    cr_assert_str_eq(brief, "sample::Layer<double...");
    ms_demangle("main", name, sizeof(name));
    cr_assert_str_eq(name, "main");
    ms_demangle("_ZNot a name", name, sizeof(name));
    cr_assert_str_eq(name, "_ZNot a name");
    memset(long_name, 'a', sizeof(long_name));
    memcpy(long_name, "_Z", 2);
    long_name[sizeof(long_name) - 1] = 0;
    ms_demangle(long_name, name, sizeof(name));
    cr_assert_eq(strlen(name), sizeof(name) - 1);
    cr_assert_str_eq(name + sizeof(name) - 4, "...");
}
