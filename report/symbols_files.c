/* Which file on this machine a module of a trace is. */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "report/symbols.h"

#define DEBUG_ROOT "/usr/lib/debug"

struct build {
    uint8_t id[MS_BUILD_ID_BYTES];
    uint32_t bytes;
};

/* Opens `path` if it is that build; a file without a build id only for a module without one. */
static bool open_build(struct ms_elf *elf, const char *path, const struct build *build)
{
    struct build found;

    if (!ms_elf_open(elf, path)) {
        return false;
    }
    found.bytes = ms_elf_build_id(elf, found.id);
    if (found.bytes == build->bytes && memcmp(found.id, build->id, found.bytes) == 0) {
        return true;
    }
    ms_elf_close(elf);
    return false;
}

/* root/.build-id/ab/cdef...suffix, as debuggers lay them out. */
static bool open_by_id(struct ms_elf *elf, const char *root, const char *suffix,
                       const struct build *build, char *path, size_t path_bytes)
{
    char hex[2 * MS_BUILD_ID_BYTES + 1];

    if (build->bytes < 2) {
        return false;
    }
    for (uint32_t i = 0; i < build->bytes; i++) {
        snprintf(hex + (size_t)2 * i, 3, "%02x", build->id[i]);
    }

    const int length =
        snprintf(path, path_bytes, "%s/.build-id/%.2s/%s%s", root, hex, hex + 2, suffix);

    return length > 0 && (size_t)length < path_bytes && open_build(elf, path, build);
}

/* The three parts one after the other. */
static bool open_joined(struct ms_elf *elf, const char *root, const char *folder, const char *name,
                        const struct build *build, char *path, size_t path_bytes)
{
    const int length = snprintf(path, path_bytes, "%s%s%s", root, folder, name);

    return length > 0 && (size_t)length < path_bytes && open_build(elf, path, build);
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

bool ms_symbols_open(struct ms_elf *elf, const struct ms_module_definition *module,
                     const char *module_path, const char *modules_dir, char *path,
                     size_t path_bytes)
{
    struct build build = {.bytes = module->build_id_bytes < MS_BUILD_ID_BYTES
                                       ? module->build_id_bytes
                                       : MS_BUILD_ID_BYTES};

    memcpy(build.id, module->build_id, build.bytes);
    if (module_path[0] == '/' && open_joined(elf, "", "", module_path, &build, path, path_bytes)) {
        return true;
    }
    return modules_dir &&
           (open_by_id(elf, modules_dir, "", &build, path, path_bytes) ||
            open_joined(elf, modules_dir, "/", module_path, &build, path, path_bytes) ||
            open_joined(elf, modules_dir, "/", base_name(module_path), &build, path, path_bytes));
}

/* Without a build id nothing says that the file belongs to the other: none then. */
bool ms_symbols_open_debug(struct ms_elf *debug, const struct ms_elf *elf, const char *elf_path,
                           const char *modules_dir, char *path, size_t path_bytes)
{
    char folder[PATH_MAX], name[NAME_MAX + 1];
    struct build build;

    build.bytes = ms_elf_build_id(elf, build.id);
    if (build.bytes == 0) {
        return false;
    }
    if ((modules_dir && open_by_id(debug, modules_dir, ".debug", &build, path, path_bytes)) ||
        open_by_id(debug, DEBUG_ROOT, ".debug", &build, path, path_bytes)) {
        return true;
    }
    if (!ms_elf_debug_link(elf, name, sizeof(name))) {
        return false;
    }
    snprintf(folder, sizeof(folder), "%.*s", (int)(base_name(elf_path) - elf_path), elf_path);
    return open_joined(debug, folder, ".debug/", name, &build, path, path_bytes) ||
           open_joined(debug, folder, "", name, &build, path, path_bytes) ||
           open_joined(debug, DEBUG_ROOT, folder, name, &build, path, path_bytes) ||
           (modules_dir && open_joined(debug, modules_dir, "/", name, &build, path, path_bytes));
}
