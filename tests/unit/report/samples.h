/* SPDX-License-Identifier: Apache-2.0 */
/* The programs of samples/, and definitions of stacks in them. */
#ifndef MEMSHIM_TESTS_UNIT_REPORT_SAMPLES_H
#define MEMSHIM_TESTS_UNIT_REPORT_SAMPLES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "report/trace/sites.h"

#define SAMPLE_ID_BYTES 20u

extern const uint8_t sample_whole_id[SAMPLE_ID_BYTES];
extern const uint8_t sample_other_id[SAMPLE_ID_BYTES];
extern const uint8_t sample_cxx_id[SAMPLE_ID_BYTES];

/* The path of a file of samples/ in the build folder: "whole/plain". Static: the next call
 * overwrites it. */
const char *sample_path(const char *name);

bool sample_exists(const char *name);

/* What `nm` says of the symbol: its address; its length in *bytes (may be null). */
uint64_t sample_symbol(const char *name, const char *symbol, uint64_t *bytes);

/* What `readelf` says of a section: its address. */
uint64_t sample_section(const char *name, const char *section);

/* What the program prints: where its leaf returns to. */
uint64_t sample_return_address(const char *name);

/* The number of the line of a source that ends in a comment with that word. */
uint32_t sample_line(const char *source, const char *word);

/* Definitions, told one by one. */
void define_module(ms_definitions_t *to, uint32_t id, const uint8_t *build_id, const char *path);
void define_native(ms_definitions_t *to, uint32_t id, uint32_t caller, uint32_t module,
                   uint64_t address);
void define_python(ms_definitions_t *to, uint32_t id, uint32_t caller, uint32_t flags,
                   const char *file, const char *function, uint32_t line);
void define_site(ms_definitions_t *to, uint32_t id, uint32_t native, uint32_t python,
                 uint32_t flags);

#endif
