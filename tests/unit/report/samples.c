/* SPDX-License-Identifier: Apache-2.0 */
/* The programs of samples/, and definitions of stacks in them. See samples.h. */
#include "samples.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PYTHON_VERSION 0x30b

const uint8_t sample_whole_id[SAMPLE_ID_BYTES] = {0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77,
                                                  0x88, 0x99, 0x00, 0xaa, 0xbb, 0xcc, 0xdd,
                                                  0xee, 0xff, 0x01, 0x23, 0x45, 0x67};
const uint8_t sample_other_id[SAMPLE_ID_BYTES] = {0x99, 0x99, 0x99, 0x99, 0x99, 0x99, 0x99,
                                                  0x99, 0x99, 0x99, 0x99, 0x99, 0x99, 0x99,
                                                  0x99, 0x99, 0xab, 0xcd, 0xef, 0xab};
const uint8_t sample_cxx_id[SAMPLE_ID_BYTES] = {0x55, 0x55, 0x55, 0x55, 0x55, 0x55, 0x55,
                                                0x55, 0x55, 0x55, 0x55, 0x55, 0x55, 0x55,
                                                0x55, 0x55, 0xcc, 0xcc, 0xcc, 0xcc};

static void fail(const char *what)
{
    fprintf(stderr, "samples: %s\n", what);
    abort();
}

const char *sample_path(const char *name)
{
    static char path[PATH_MAX];

    snprintf(path, sizeof(path), "%s/%s", SAMPLES_DIR, name);
    return path;
}

bool sample_exists(const char *name)
{
    return access(sample_path(name), R_OK) == 0;
}

static FILE *run(const char *before, const char *name)
{
    char command[PATH_MAX + 256];
    FILE *output;

    snprintf(command, sizeof(command), "%s %s/%s", before, SAMPLES_DIR, name);
    output = popen(command, "r");
    if (!output) {
        fail(command);
    }
    return output;
}

uint64_t sample_symbol(const char *name, const char *symbol, uint64_t *bytes)
{
    FILE *output = run("nm -S", name);
    char line[1024], found[512];
    uint64_t address = 0, start, size;

    while (fgets(line, sizeof(line), output)) {
        if (sscanf(line, "%" SCNx64 " %" SCNx64 " %*c %511s", &start, &size, found) == 3 &&
            strcmp(found, symbol) == 0) {
            address = start;
            if (bytes) {
                *bytes = size;
            }
        }
    }
    pclose(output);
    if (address == 0) {
        fail(symbol);
    }
    return address;
}

uint64_t sample_section(const char *name, const char *section)
{
    FILE *output = run("readelf -SW", name);
    char line[1024], found[128];
    uint64_t address = 0, start;

    while (fgets(line, sizeof(line), output)) {
        const char *behind = strchr(line, ']');

        if (behind && sscanf(behind, "] %127s %*s %" SCNx64, found, &start) == 2 &&
            strcmp(found, section) == 0) {
            address = start;
        }
    }
    pclose(output);
    if (address == 0) {
        fail(section);
    }
    return address;
}

uint64_t sample_return_address(const char *name)
{
    FILE *output = run("", name);
    uint64_t address;

    if (fscanf(output, "0x%" SCNx64, &address) != 1) {
        fail(name);
    }
    pclose(output);
    return address;
}

uint32_t sample_line(const char *source, const char *word)
{
    char path[PATH_MAX], line[1024], in_c[64], in_cxx[64];
    FILE *file;
    uint32_t number = 0;

    snprintf(path, sizeof(path), "%s/%s", SAMPLES_SOURCE_DIR, source);
    snprintf(in_c, sizeof(in_c), "; /* %s */\n", word);
    snprintf(in_cxx, sizeof(in_cxx), "; // %s\n", word);
    file = fopen(path, "r");
    if (!file) {
        fail(path);
    }
    do {
        number++;
        if (!fgets(line, sizeof(line), file)) {
            fail(word);
        }
    } while (!strstr(line, in_c) && !strstr(line, in_cxx));
    fclose(file);
    return number;
}

void define_module(ms_definitions_t *to, uint32_t id, const uint8_t *build_id, const char *path)
{
    struct {
        struct ms_module_definition is;
        char path[PATH_MAX];
    } payload = {.is = {.id = id, .build_id_bytes = build_id ? SAMPLE_ID_BYTES : 0}};

    if (build_id) {
        memcpy(payload.is.build_id, build_id, SAMPLE_ID_BYTES);
    }
    memcpy(payload.path, path, strlen(path));
    ms_definitions_add(to, MS_DEFINE_MODULE, &payload, sizeof(payload.is) + strlen(path));
}

void define_native(ms_definitions_t *to, uint32_t id, uint32_t caller, uint32_t module,
                   uint64_t address)
{
    const struct ms_native_definition is = {
        .id = id, .caller = caller, .module = module, .address = address};

    ms_definitions_add(to, MS_DEFINE_NATIVE, &is, sizeof(is));
}

/* The node has a code object of its own, with a location table of one entry: the first line. */
void define_python(ms_definitions_t *to, uint32_t id, uint32_t caller, uint32_t flags,
                   const char *file, const char *function, uint32_t line)
{
    static const uint8_t table[] = {0x80 | 10 << 3 | 7, 0, 0};
    struct {
        struct ms_code_definition is;
        char texts[1024];
    } payload = {.is = {.id = id,
                        .version = PYTHON_VERSION,
                        .first_line = line,
                        .file_bytes = (uint32_t)strlen(file),
                        .function_bytes = (uint32_t)strlen(function),
                        .table_bytes = sizeof(table)}};
    const struct ms_python_definition node = {
        .id = id, .caller = caller, .code = id, .instruction = 2, .flags = flags};
    const int texts = snprintf(payload.texts, sizeof(payload.texts), "%s%s", file, function);

    memcpy(payload.texts + texts, table, sizeof(table));
    ms_definitions_add(to, MS_DEFINE_CODE, &payload,
                       sizeof(payload.is) + (size_t)texts + sizeof(table));
    ms_definitions_add(to, MS_DEFINE_PYTHON, &node, sizeof(node));
}

void define_site(ms_definitions_t *to, uint32_t id, uint32_t native, uint32_t python,
                 uint32_t flags)
{
    const struct ms_site_definition is = {
        .id = id, .native = native, .python = python, .flags = flags};

    ms_definitions_add(to, MS_DEFINE_SITE, &is, sizeof(is));
}
