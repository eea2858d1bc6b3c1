/* SPDX-License-Identifier: Apache-2.0 */
/* memshim version: what somebody who reports a bug must tell. */
#include <fcntl.h>
#include <gnu/libc-version.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cuda.h>
#include <zlib.h>

#include "allocator/base/build_id.h"
#include "shim/cli/arguments/cli.h"
#include "shim/cli/arguments/parse.h"
#include "shim/cli/commit.h"
#include "shim/cli/doctor/host.h"
#include "shim/cli/launch/place.h"

#ifdef __clang__
#    define COMPILER __VERSION__
#else
#    define COMPILER "GCC " __VERSION__
#endif

static const uint8_t *find_in_file(const uint8_t *file, size_t bytes, size_t *id_bytes)
{
    const ElfW(Ehdr) *header = (const ElfW(Ehdr) *)file;
    const uint8_t *id = NULL;

    if (bytes < sizeof(*header) || memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 ||
        header->e_phoff > bytes ||
        header->e_phnum > (bytes - header->e_phoff) / sizeof(ElfW(Phdr))) {
        return NULL;
    }
    for (int i = 0; i < header->e_phnum && !id; i++) {
        const ElfW(Phdr) *segment = (const ElfW(Phdr) *)(file + header->e_phoff) + i;

        if (segment->p_type == PT_NOTE && segment->p_offset <= bytes &&
            segment->p_filesz <= bytes - segment->p_offset) {
            id = ms_build_id_find(file + segment->p_offset, segment->p_filesz, segment->p_align,
                                  id_bytes);
        }
    }
    return id;
}

static void print_build_id(const char *path)
{
    struct stat about;
    size_t id_bytes = 0;
    const uint8_t *id = NULL;
    void *file = MAP_FAILED;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd >= 0 && fstat(fd, &about) == 0 && about.st_size > 0) {
        file = mmap(NULL, (size_t)about.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    }
    if (file != MAP_FAILED) {
        id = find_in_file(file, (size_t)about.st_size, &id_bytes);
    }
    for (size_t i = 0; id && i < id_bytes; i++) {
        (void)printf("%02x", id[i]);
    }
    (void)fputs(id ? "" : "none", stdout);
    if (file != MAP_FAILED) {
        (void)munmap(file, (size_t)about.st_size);
    }
    if (fd >= 0) {
        (void)close(fd);
    }
}

int ms_cli_version(int argc, char **argv)
{
    const int status = ms_cli_parse(MS_CLI_VERSION, argc, argv, &(struct ms_cli_reader){0}, NULL);
    char library[PATH_MAX];

    if (status >= 0) {
        return status;
    }
    (void)printf("memshim %s\n"
                 "  commit    %s\n"
                 "  compiler  %s, glibc %d.%d (here: %s), CUDA's headers of %d.%d\n"
                 "  build id  ",
                 MEMSHIM_VERSION, MEMSHIM_COMMIT, COMPILER, __GLIBC__, __GLIBC_MINOR__,
                 gnu_get_libc_version(), CUDA_VERSION / 1000, CUDA_VERSION % 1000 / 10);
    print_build_id("/proc/self/exe");
    (void)fputs(" (command), ", stdout);
    if (ms_cli_find_library(library)) {
        print_build_id(library);
        (void)puts(" (" MS_CLI_LIBRARY ")");
    } else {
        (void)puts("no libmemshim.so");
    }
    (void)printf("  features  charts in the page: %s; names of functions (libdw): %s; zlib %s\n",
                 MEMSHIM_CHARTS ? "yes" : "no",
                 ms_doctor_finds_library("libdw.so.1") ? "yes" : "no", zlibVersion());
    return 0;
}
