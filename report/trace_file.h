/* The file of a trace: it grows an extent at a time, space first, so that a full disk is an error
 * here and never a signal at a store. */
#ifndef MEMSHIM_REPORT_TRACE_FILE_H
#define MEMSHIM_REPORT_TRACE_FILE_H

#include <limits.h>
#include <stdint.h>
#include <sys/types.h>

struct ms_trace_file {
    int fd;
    dev_t device;
    ino_t inode;
    uint64_t bytes; /* allocated, a multiple of MS_EXTENT_BYTES */
    char path[PATH_MAX];
};

/* Makes `path`, which must not exist. 0 or an errno. The file stays locked (flock) for as long as
 * the process lives: that is how a reader tells a running process from a killed one. */
int ms_trace_file_create(struct ms_trace_file *file, const char *path);

/* Gives the file another name, in the same folder. 0 or an errno. */
int ms_trace_file_rename(struct ms_trace_file *file, const char *path);

/* Allocates one more extent and gives its offset. 0 or an errno; then the file is as it was. */
int ms_trace_file_grow(struct ms_trace_file *file, uint64_t *offset);

/* Maps one extent, its pages present. Null and an errno in *error on failure. */
void *ms_trace_file_map(struct ms_trace_file *file, uint64_t offset, int *error);

void ms_trace_file_unmap(void *extent);

/* Gives back an extent at the end of the file that holds nothing. */
void ms_trace_file_cut(struct ms_trace_file *file, uint64_t offset);

/* Marks the file as changed now: stores through a mapping do not. */
void ms_trace_file_touch(struct ms_trace_file *file);

void ms_trace_file_close(struct ms_trace_file *file);

#endif
