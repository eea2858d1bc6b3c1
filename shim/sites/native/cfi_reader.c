/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers of call frame information: fixed, LEB128, encoded pointers. */
#include "shim/sites/native/cfi_reader.h"

#include <string.h>

uint64_t ms_cfi_fixed(struct ms_cfi_reader *in, size_t bytes)
{
    uint64_t value = 0;
    if ((size_t)(in->end - in->at) < bytes) {
        in->bad = true;
        return 0;
    }
    memcpy(&value, in->at, bytes);
    in->at += bytes;
    return value;
}

uint64_t ms_cfi_uleb(struct ms_cfi_reader *in)
{
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        uint64_t byte = ms_cfi_fixed(in, 1);
        value |= (byte & 0x7f) << shift;
        if ((byte & 0x80) == 0) {
            return value;
        }
    }
    in->bad = true;
    return value;
}

int64_t ms_cfi_sleb(struct ms_cfi_reader *in)
{
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        uint64_t byte = ms_cfi_fixed(in, 1);
        value |= (byte & 0x7f) << shift;
        if ((byte & 0x80) == 0) {
            const unsigned used = shift + 7;
            if ((byte & 0x40) != 0 && used < 64) {
                value |= ~UINT64_C(0) << used;
            }
            return (int64_t)value;
        }
    }
    in->bad = true;
    return 0;
}

uint64_t ms_cfi_pointer(struct ms_cfi_reader *in, uint8_t encoding)
{
    const uint64_t here = (uintptr_t)in->at;
    const uint8_t base = encoding & MS_POINTER_BASE;
    uint64_t value = 0;
    switch (encoding & MS_POINTER_FORMAT) {
    case MS_POINTER_ABSOLUTE:
    case MS_POINTER_UDATA8:
    case MS_POINTER_SDATA8:
        value = ms_cfi_fixed(in, 8);
        break;
    case MS_POINTER_UDATA4:
        value = ms_cfi_fixed(in, 4);
        break;
    case MS_POINTER_SDATA4:
        value = (uint64_t)(int64_t)(int32_t)ms_cfi_fixed(in, 4);
        break;
    case MS_POINTER_UDATA2:
        value = ms_cfi_fixed(in, 2);
        break;
    case MS_POINTER_SDATA2:
        value = (uint64_t)(int64_t)(int16_t)ms_cfi_fixed(in, 2);
        break;
    default:
        in->bad = true;
    }
    if (base != 0 && base != MS_POINTER_PC_RELATIVE) {
        in->bad = true;
    }
    return base == MS_POINTER_PC_RELATIVE ? here + value : value;
}
