/* SPDX-License-Identifier: Apache-2.0 */
/* Names, files and lines for addresses of a module, from its file on this machine.
 *
 * elfutils reads each file in a process of its own. A damaged or hostile file, or one that is cut
 * meanwhile, ends or delays only that process, and the answers so far are kept. No network is
 * used. */
#ifndef MEMSHIM_REPORT_SYMBOLS_SYMBOLS_H
#define MEMSHIM_REPORT_SYMBOLS_SYMBOLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "report/trace/definitions.h"

#define MS_SYMBOLS_LIMIT_MS 60000u /* for one module: the largest libraries take a few seconds */

/* A module's file is the one at its own path, else in modules_dir (may be null):
 * .build-id/ab/cdef..., its path below it, its file name. A file with another build id does not
 * count. Debugging information may be in a separate file: by build id in modules_dir and
 * /usr/lib/debug, else by .gnu_debuglink beside it, in .debug, in modules_dir and in
 * /usr/lib/debug. */
struct ms_symbols_request {
    const struct ms_module_definition *module;
    const char *module_path;
    const char *modules_dir;
    const uint64_t *addresses; /* in the file's own addresses, ascending */
    size_t count;
    bool lines;        /* files, lines and inlined functions too, from DWARF */
    uint32_t limit_ms; /* the reading process is ended after this time */
};

/* The source of one address. Strings are valid until the next call. */
struct ms_source {
    const char *function; /* demangled; null: unknown */
    const char *file;     /* null: unknown */
    uint32_t line;        /* 0: unknown */
};

/* Receives answers. Each function may be called for each index, in any order. The sources of one
 * index come in sequence, innermost first, with `inlined` set on all but the last. */
struct ms_symbols_listener {
    void *context;
    void (*on_symbol)(void *context, size_t index, const char *symbol, const char *readable);
    void (*on_source)(void *context, size_t index, const struct ms_source *source, bool inlined);
};

/* Whether anything can be looked up: the machine has libdw. */
bool ms_symbols_can_read(void);

/* False: the file was not read to its end (damaged, or too slow), no process could be started, or
 * the machine has no libdw. */
bool ms_symbols_read(const struct ms_symbols_request *request,
                     const struct ms_symbols_listener *listener);

#endif
