/* SPDX-License-Identifier: Apache-2.0 */
/* Images of modules and libraries, in the text form that simgpu.h describes, or anything else. */
#ifndef SIMGPU_IMAGE_H
#define SIMGPU_IMAGE_H

#include "module.h"

/* With one reference; NULL: a text that cannot be parsed (printed to stderr), or out of host
 * memory. */
struct sim_image *sim_image_parse(const void *data);
struct sim_image *sim_image_retain(struct sim_image *image);
void sim_image_release(struct sim_image *image);

/* A file's bytes and a zero byte; the caller frees them. NULL: cannot be read. */
char *sim_image_read(const char *path);

/* NULL: the image has no such kernel or global. An image that declares nothing has any kernel. */
const struct sim_symbol *sim_image_kernel(struct sim_image *image, const char *name);
const struct sim_symbol *sim_image_global(struct sim_image *image, const char *name);
unsigned sim_image_kernel_count(const struct sim_image *image);

#endif
