/* SPDX-License-Identifier: Apache-2.0 */
/* What a dry run learns about cuDNN's spaces (cudnn_word.c). */
#ifndef SIMGPU_CUDNN_WORD_H
#define SIMGPU_CUDNN_WORD_H

#include <stdint.h>

/* Bytes that a call takes: of a recurrent network two spaces, of a convolution one. missed: what
 * the fastest plan for a convolution takes, where a slower one ran since that was not to be had. */
typedef struct {
    int64_t work, reserve, convolution, missed;
} simcudnn_spaces_t;

/* Writes the largest of each beside the devices' shared file. */
void simcudnn_leave_word(simcudnn_spaces_t spaces);

#endif
