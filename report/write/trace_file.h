/* SPDX-License-Identifier: Apache-2.0 */
/* The file of a trace. It grows an extent at a time, and allocates the space first, so that a full
 * disk is an error here. Windows hold the parts being filled, at most MS_FILE_WINDOWS at a time.
 *
 * A window is a mapping of the file, so that stored bytes are in the file at once, at no further
 * cost; window_guard.h prevents signals from such stores. If the file system has no writable shared
 * mappings (some FUSE file systems, 9p, Lustre without flock), or the guard cannot be kept, a
 * window is memory of the process's own and ms_trace_file_put copies it to the file piece by piece.
 * Either way all bytes that were put are in the file when the process is killed.
 *
 * A file that somebody has cut, or that cannot be written any more, has an error from then on:
 * stores to windows still work, but do not reach the file. */
#ifndef MEMSHIM_REPORT_WRITE_TRACE_FILE_H
#define MEMSHIM_REPORT_WRITE_TRACE_FILE_H

#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define MS_FILE_WINDOWS 128u

struct ms_trace_file {
    _Atomic int fd; /* for copies; any thread may have to open it again */
    dev_t device;
    ino_t inode;
    uint64_t bytes;                    /* allocated, a multiple of MS_EXTENT_BYTES */
    char *windows;                     /* addresses for MS_FILE_WINDOWS extents */
    uint64_t offsets[MS_FILE_WINDOWS]; /* in the file, for windows in use */
    bool used[MS_FILE_WINDOWS];
    bool copied;       /* windows are memory of the process's own */
    _Atomic int error; /* an errno; 0: none */
    char path[PATH_MAX];
};

/* Makes `path`, which must not exist. 0 or an errno. The file stays locked (flock) while the
 * process lives, so that a reader can tell a running process from a killed one. */
int ms_trace_file_create(struct ms_trace_file *file, const char *path);

/* Renames the file within its folder. 0 or an errno. */
int ms_trace_file_rename(struct ms_trace_file *file, const char *path);

/* Allocates one more extent and returns its offset. 0 or an errno; then the file is unchanged. */
int ms_trace_file_grow(struct ms_trace_file *file, uint64_t *offset);

/* A window of one extent, its pages present. Null and an errno in *error on failure. */
void *ms_trace_file_map(struct ms_trace_file *file, uint64_t offset, int *error);

void ms_trace_file_unmap(struct ms_trace_file *file, void *window);

/* Copies stored bytes to the file if windows are no mappings. Call it in the order that a reader
 * relies on: first the bytes that a count covers, then the count. at: any address; one outside all
 * windows is ignored. */
void ms_trace_file_put(struct ms_trace_file *file, const void *at, size_t bytes);

/* Writes to the file, also if windows are mappings. By system calls alone: needs no lock, and may
 * be called by a signal's handler. */
void ms_trace_file_write(struct ms_trace_file *file, uint64_t offset, const void *from,
                         size_t bytes);

/* Turns all windows into memory of the process's own. Nobody else may use the file or store to a
 * window meanwhile. */
void ms_trace_file_leave_mappings(struct ms_trace_file *file);

/* Gives back an empty extent at the end of the file. */
void ms_trace_file_cut(struct ms_trace_file *file, uint64_t offset);

/* Sets the file's time of change to now, which stores through a mapping do not. */
void ms_trace_file_touch(struct ms_trace_file *file);

/* Why the file is not whole: 0, or an errno; ESTALE: somebody has cut it. Call it before the file
 * is closed. */
int ms_trace_file_error(struct ms_trace_file *file);

void ms_trace_file_close(struct ms_trace_file *file);

#endif
