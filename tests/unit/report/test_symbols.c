#include <criterion/criterion.h>

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "report/demangle.h"
#include "report/symbols.h"
#include "report/symbols_dwarf.h"
#include "samples.h"
#include "synthetic.h"

/* The name at one address of a file; empty: none. */
static const char *name_at(const char *path, uint64_t address)
{
    static char name[MS_FUNCTION_NAME_BYTES];
    struct ms_symbol symbol = {.address = address};
    struct ms_elf elf;

    cr_assert(ms_elf_open(&elf, path), "%s", path);
    name[0] = 0;
    if (ms_elf_find(&elf, &symbol, 1) && symbol.name_at) {
        ms_elf_name(&elf, symbol.name_at, name, sizeof(name));
    }
    ms_elf_close(&elf);
    return name;
}

Test(symbols, names_from_the_first_byte_of_a_function_to_its_last)
{
    static const char *const functions[] = {"local_leaf", "exported_outer", "main"};

    for (size_t i = 0; i < 3; i++) {
        uint64_t bytes;
        const uint64_t start = sample_symbol("whole/plain", functions[i], &bytes);

        cr_assert_str_eq(name_at(sample_path("whole/plain"), start), functions[i]);
        cr_assert_str_eq(name_at(sample_path("whole/plain"), start + bytes - 1), functions[i]);
        cr_assert_str_neq(name_at(sample_path("whole/plain"), start + bytes), functions[i]);
        cr_assert_str_neq(name_at(sample_path("whole/plain"), start - 1), functions[i]);
    }
    cr_assert_str_eq(name_at(sample_path("whole/plain"), 1), "");
    cr_assert_str_eq(name_at(sample_path("whole/plain"), UINT64_MAX), "");
}

Test(symbols, a_function_without_a_size_ends_with_its_section)
{
    const char *path = sample_path("whole/plain");

    cr_assert_str_eq(name_at(path, sample_section("whole/plain", ".init") + 2), "_init");
    cr_assert_str_eq(name_at(path, sample_section("whole/plain", ".plt") + 2), "");
}

Test(symbols, many_addresses_in_one_pass_are_each_the_one_they_are_alone)
{
    struct ms_symbol symbols[512];
    struct ms_elf elf;
    const uint64_t start = sample_symbol("whole/plain", "local_leaf", NULL) - 256;
    uint32_t named = 0;

    for (size_t i = 0; i < 512; i++) {
        symbols[i].address = start + i;
    }
    cr_assert(ms_elf_open(&elf, sample_path("whole/plain")));
    cr_assert(ms_elf_find(&elf, symbols, 512));
    for (size_t i = 0; i < 512; i++) {
        char name[256] = "";

        if (symbols[i].name_at) {
            ms_elf_name(&elf, symbols[i].name_at, name, sizeof(name));
            named++;
        }
        cr_assert_str_eq(name, name_at(sample_path("whole/plain"), start + i));
    }
    cr_assert_gt(named, 20);
    ms_elf_close(&elf);
}

Test(symbols, a_stripped_file_has_what_it_exports)
{
    const uint64_t leaf = sample_symbol("whole/plain", "local_leaf", NULL);
    const uint64_t outer = sample_symbol("whole/plain", "exported_outer", NULL);

    cr_assert_str_eq(name_at(sample_path("bare/plain"), leaf), "");
    cr_assert_str_eq(name_at(sample_path("bare/plain"), outer), "exported_outer");
}

Test(symbols, the_build_id_is_the_one_it_was_linked_with)
{
    static const char *const files[] = {"whole/plain", "bare/plain", "apart/.debug/plain.debug"};
    struct ms_elf elf;
    uint8_t id[MS_BUILD_ID_BYTES];

    for (size_t i = 0; i < 3; i++) {
        cr_assert(ms_elf_open(&elf, sample_path(files[i])));
        cr_assert_eq(ms_elf_build_id(&elf, id), SAMPLE_ID_BYTES, "%s", files[i]);
        cr_assert_arr_eq(id, sample_whole_id, SAMPLE_ID_BYTES);
        ms_elf_close(&elf);
    }
}

static struct ms_module_definition module_of(const uint8_t *id)
{
    struct ms_module_definition module = {.id = 1, .build_id_bytes = SAMPLE_ID_BYTES};

    memcpy(module.build_id, id, SAMPLE_ID_BYTES);
    return module;
}

Test(symbols, another_build_is_not_the_module)
{
    const struct ms_module_definition whole = module_of(sample_whole_id);
    struct ms_module_definition shorter = whole, none = whole;
    struct ms_elf elf;
    char path[PATH_MAX];

    shorter.build_id_bytes--;
    none.build_id_bytes = 0;
    cr_assert(ms_symbols_open(&elf, &whole, sample_path("whole/plain"), NULL, path, sizeof(path)));
    ms_elf_close(&elf);
    cr_assert_not(
        ms_symbols_open(&elf, &whole, sample_path("other/plain"), NULL, path, sizeof(path)));
    cr_assert_not(
        ms_symbols_open(&elf, &shorter, sample_path("whole/plain"), NULL, path, sizeof(path)));
    cr_assert_not(
        ms_symbols_open(&elf, &none, sample_path("whole/plain"), NULL, path, sizeof(path)));
}

Test(symbols, a_folder_of_modules_is_searched_by_build_id_and_by_name)
{
    const struct ms_module_definition whole = module_of(sample_whole_id);
    struct ms_elf elf;
    char path[PATH_MAX], dir[PATH_MAX], laid_out[PATH_MAX + 256];
    const char *folder = synthetic_folder();

    snprintf(dir, sizeof(dir), "%s", sample_path("bare"));
    cr_assert(ms_symbols_open(&elf, &whole, "/elsewhere/plain", dir, path, sizeof(path)));
    cr_assert_str_eq(path, sample_path("bare/plain"));
    ms_elf_close(&elf);
    cr_assert(ms_symbols_open(&elf, &whole, sample_path("other/plain"), dir, path, sizeof(path)));
    ms_elf_close(&elf);
    cr_assert_not(ms_symbols_open(&elf, &whole, "/elsewhere/plain", sample_path("other"), path,
                                  sizeof(path)));

    snprintf(laid_out, sizeof(laid_out), "%s/.build-id", folder);
    mkdir(laid_out, 0755);
    snprintf(laid_out, sizeof(laid_out), "%s/.build-id/11", folder);
    mkdir(laid_out, 0755);
    snprintf(laid_out, sizeof(laid_out), "%s/.build-id/11/223344556677889900aabbccddeeff01234567",
             folder);
    cr_assert_eq(symlink(sample_path("whole/plain"), laid_out), 0);
    cr_assert(ms_symbols_open(&elf, &whole, "/elsewhere/renamed", folder, path, sizeof(path)));
    cr_assert_str_eq(path, laid_out);
    ms_elf_close(&elf);
}

Test(symbols, debugging_information_apart_is_found_and_must_match)
{
    struct ms_elf elf, debug;
    char path[PATH_MAX], elf_path[PATH_MAX];

    snprintf(elf_path, sizeof(elf_path), "%s", sample_path("apart/plain"));
    cr_assert(ms_elf_open(&elf, elf_path));
    cr_assert_not(ms_elf_has_full_table(&elf));
    cr_assert(ms_symbols_open_debug(&debug, &elf, elf_path, NULL, path, sizeof(path)));
    cr_assert_str_eq(path, sample_path("apart/.debug/plain.debug"));
    cr_assert(ms_elf_has_full_table(&debug));
    ms_elf_close(&debug);
    ms_elf_close(&elf);

    cr_assert(ms_elf_open(&elf, sample_path("bare/plain")));
    cr_assert_not(
        ms_symbols_open_debug(&debug, &elf, sample_path("bare/plain"), NULL, path, sizeof(path)));
    ms_elf_close(&elf);
}

/* Everything that is asked of a file. */
static void ask_all(const char *path)
{
    struct ms_symbol symbols[64];
    uint8_t id[MS_BUILD_ID_BYTES];
    char name[MS_FUNCTION_NAME_BYTES];
    struct ms_elf elf;

    if (!ms_elf_open(&elf, path)) {
        return;
    }
    cr_assert_leq(ms_elf_build_id(&elf, id), MS_BUILD_ID_BYTES);
    ms_elf_debug_link(&elf, name, sizeof(name));
    for (size_t i = 0; i < 64; i++) {
        symbols[i].address = i < 60 ? i * 128 : UINT64_MAX - (63 - i);
    }
    if (ms_elf_find(&elf, symbols, 64)) {
        for (size_t i = 0; i < 64; i++) {
            if (symbols[i].name_at) {
                cr_assert_leq(ms_elf_name(&elf, symbols[i].name_at, name, sizeof(name)),
                              sizeof(name) - 1);
            }
        }
    }
    ms_elf_close(&elf);
}

static void write_file(const char *path, const char *bytes, size_t count)
{
    FILE *file = fopen(path, "w");

    cr_assert_not_null(file);
    cr_assert_eq(fwrite(bytes, 1, count, file), count);
    fclose(file);
}

Test(symbols, cut_and_hostile_files_do_no_harm, .timeout = 120)
{
    size_t bytes;
    char *from = synthetic_read(sample_path("apart/plain"), &bytes);
    char *hostile = malloc(bytes);
    char path[PATH_MAX];
    uint64_t random = 4711;

    snprintf(path, sizeof(path), "%s/hostile", synthetic_folder());
    for (size_t cut = 0; cut < bytes; cut += 1 + cut / 16) {
        write_file(path, from, cut);
        ask_all(path);
    }

    const uint64_t sections_at = *(const uint64_t *)(const void *)(from + 0x28);

    for (int round = 0; round < 3000; round++) {
        memcpy(hostile, from, bytes);
        for (uint64_t i = synthetic_random(&random) % 12 + 1; i > 0; i--) {
            /* The headers, the sections' table, or anywhere. */
            const uint64_t where = synthetic_random(&random) % 3;
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

Test(symbols, what_is_no_elf_file_is_none)
{
    struct ms_elf elf;
    char path[PATH_MAX];

    snprintf(path, sizeof(path), "%s/fifo", synthetic_folder());
    cr_assert_eq(mkfifo(path, 0600), 0);
    cr_assert_not(ms_elf_open(&elf, path));
    cr_assert_not(ms_elf_open(&elf, "/"));
    cr_assert_not(ms_elf_open(&elf, "/dev/zero"));
    cr_assert_not(ms_elf_open(&elf, "/nowhere"));
}

Test(symbols, inlined_functions_have_their_own_lines)
{
    struct ms_source sources[8];
    ms_dwarf_t *dwarf = ms_dwarf_open(sample_path("whole/plain"));
    const uint64_t returns_to = sample_return_address("whole/plain");

    cr_assert_not_null(dwarf);
    cr_assert_eq(ms_dwarf_find(dwarf, returns_to - 1, sources, 8), 2);
    cr_assert_str_eq(sources[0].function, "inlined_middle");
    cr_assert_eq(sources[0].line, sample_line("plain.c", "middle"));
    cr_assert_str_eq(sources[1].function, "exported_outer");
    cr_assert_eq(sources[1].line, sample_line("plain.c", "outer"));
    cr_assert_str_eq(strrchr(sources[0].file, '/'), "/plain.c");
    cr_assert_str_eq(strrchr(sources[1].file, '/'), "/plain.c");
    cr_assert_eq(ms_dwarf_find(dwarf, returns_to - 1, sources, 1), 1);
    cr_assert_eq(ms_dwarf_find(dwarf, 1, sources, 8), 0);
    ms_dwarf_close(dwarf);
    cr_assert_null(ms_dwarf_open(sample_path("bare/plain")));
}

Test(symbols, inlined_methods_have_their_linkage_names)
{
    struct ms_source sources[8];
    ms_dwarf_t *dwarf;

    if (!sample_exists("cxx/plain")) {
        cr_skip_test("no C++ compiler");
    }
    dwarf = ms_dwarf_open(sample_path("cxx/plain"));
    cr_assert_not_null(dwarf);
    cr_assert_eq(ms_dwarf_find(dwarf, sample_return_address("cxx/plain") - 1, sources, 8), 2);
    cr_assert_str_eq(sources[0].function, "_ZNK6sample5LayerIdE7forwardEd");
    cr_assert_eq(sources[0].line, sample_line("model.cpp", "forward"));
    cr_assert_eq(sources[1].line, sample_line("model.cpp", "run"));
    ms_dwarf_close(dwarf);
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
