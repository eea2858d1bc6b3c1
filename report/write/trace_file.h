/* SPDX-License-Identifier: Apache-2.0 */
/* The file of a trace: it grows an extent at a time, space first, so that a full disk is an error
 * here. What is filled of it stands in windows, at most MS_FILE_WINDOWS at a time.
 *
 * A window is a mapping of the file, so that what is stored in it is in the file at once and costs
 * nothing more; window_guard.h sees to it that no store raises a signal. Where the file system has
 * no writable shared mappings (some FUSE file systems, 9p, Lustre without flock), or the guard
 * cannot stand, a window is memory of the process's own and ms_trace_file_put copies it to the file
 * piece by piece. Either way what was put is in the file when the process is killed.
 *
 * A file that somebody has cut, or that cannot be written any more, has an error from then on:
 * windows can still be stored to, and nothing of them is in the file. */
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
    _Atomic int fd; /* of copies, any thread may have to open it again */
    dev_t device;
    ino_t inode;
    uint64_t bytes;                    /* allocated, a multiple of MS_EXTENT_BYTES */
    char *windows;                     /* addresses for MS_FILE_WINDOWS extents */
    uint64_t offsets[MS_FILE_WINDOWS]; /* in the file, of windows in use */
    bool used[MS_FILE_WINDOWS];
    bool copied;       /* windows are memory of the process's own */
    _Atomic int error; /* an errno; 0: the file is well */
    char path[PATH_MAX];
};

/* Makes `path`, which must not exist. 0 or an errno. The file stays locked (flock) for as long as
 * the process lives: that is how a reader tells a running process from a killed one. */
int ms_trace_file_create(struct ms_trace_file *file, const char *path);

/* Gives the file another name, in the same folder. 0 or an errno. */
int ms_trace_file_rename(struct ms_trace_file *file, const char *path);

/* Allocates one more extent and gives its offset. 0 or an errno; then the file is as it was. */
int ms_trace_file_grow(struct ms_trace_file *file, uint64_t *offset);

/* A window of one extent, its pages present. Null and an errno in *error on failure. */
void *ms_trace_file_map(struct ms_trace_file *file, uint64_t offset, int *error);

void ms_trace_file_unmap(struct ms_trace_file *file, void *window);

/* Where windows are no mappings: copies stored bytes to the file. Call it in the order that a
 * reader relies on: first what a count covers, then the count. at: any address; one that lies in no
 * window is ignored. */
void ms_trace_file_put(struct ms_trace_file *file, const void *at, size_t bytes);

/* From here on no window is a mapping. Nobody else uses the file or stores to a window. */
void ms_trace_file_leave_mappings(struct ms_trace_file *file);

/* Gives back an extent at the end of the file that holds nothing. */
void ms_trace_file_cut(struct ms_trace_file *file, uint64_t offset);

/* Marks the file as changed now: stores through a mapping do not. */
void ms_trace_file_touch(struct ms_trace_file *file);

/* Why the file is not whole: 0, or an errno, ESTALE where somebody has cut it. Before it is closed.
 */
int ms_trace_file_error(struct ms_trace_file *file);

void ms_trace_file_close(struct ms_trace_file *file);

#endif
