/* SPDX-License-Identifier: Apache-2.0 */
/* Images of modules and libraries, in the text form that simgpu.h describes, or anything else. */
#ifndef SIMGPU_IMAGE_H
#define SIMGPU_IMAGE_H

#include "module.h"

/* One reference; NULL: a text that is not understood (said on stderr), or out of host memory. */
struct sim_image *sim_image_parse(const void *data);
struct sim_image *sim_image_retain(struct sim_image *image);
void sim_image_release(struct sim_image *image);

/* A file's bytes and a zero, for the caller to free; NULL: cannot be read. */
char *sim_image_read(const char *path);

/* NULL: no such kernel or global in it. In an image that declares nothing any kernel exists. */
const struct sim_symbol *sim_image_kernel(struct sim_image *image, const char *name);
const struct sim_symbol *sim_image_global(struct sim_image *image, const char *name);
unsigned sim_image_kernel_count(const struct sim_image *image);

#endif
