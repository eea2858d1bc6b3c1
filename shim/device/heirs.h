/* SPDX-License-Identifier: Apache-2.0 */
/* Work of streams that were destroyed.
 *
 * Each context has an heir, a stream of memshim's own, made when it is first needed. It waits for
 * work that no other stream may tell of later; it is a stream like others to fences and
 * standstills. cuCtxRecordEvent may cover destroyed streams by itself: cuda.h does not say so, and
 * the heir is covered in any case. */
#ifndef MEMSHIM_SHIM_DEVICE_HEIRS_H
#define MEMSHIM_SHIM_DEVICE_HEIRS_H

#include "shim/device/stream.h"

/* Before a stream of the context is destroyed: what is still queued there is the heir's. Nothing is
 * asked of a stream that captures: ms_heirs_keep was called before it did. */
void ms_heirs_take(struct ms_context *context, ms_stream_t stream);

/* Before a capture begins: what is queued anywhere is the heirs', too. A stream may be destroyed
 * while it captures, and of such a one nobody can ask what was queued before. */
void ms_heirs_keep(void);

#endif
