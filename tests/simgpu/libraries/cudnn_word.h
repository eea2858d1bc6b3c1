/* SPDX-License-Identifier: Apache-2.0 */
/* What the answer of a dry run says of cuDNN's spaces (cudnn_word.c). */
#ifndef SIMGPU_CUDNN_WORD_H
#define SIMGPU_CUDNN_WORD_H

#include <stdint.h>

/* Bytes that a call takes: of a recurrent network two spaces, of a convolution one. */
typedef struct {
    int64_t work, reserve, convolution;
} simcudnn_spaces_t;

/* Leaves the largest of each beside the file of the devices. */
void simcudnn_leave_word(simcudnn_spaces_t spaces);

#endif
