/* SPDX-License-Identifier: Apache-2.0 */
/* Where CPython's versions keep the fields from which stacks are read. */
#include "shim/tables/python_layout.h"

#include <string.h>

static const struct ms_python_layout fixed[] = {
    {.version = 0x0309,
     .chain = MS_PYTHON_OBJECTS,
     .scale = 1,
     .thread = {.frame = 24, .id = 176},
     .frame = {.bytes = 108, .code = 32, .previous = 24, .instruction = 104},
     .code =
         {.bytes = 128, .first_line = 40, .file = 104, .function = 112, .table = 120, .body = 48},
     .text = {.ascii = 48, .compact = 72, .data = 72}},
    {.version = 0x030a,
     .chain = MS_PYTHON_OBJECTS,
     .scale = 2,
     .thread = {.frame = 24, .id = 176},
     .frame = {.bytes = 100, .code = 32, .previous = 24, .instruction = 96},
     .code =
         {.bytes = 128, .first_line = 40, .file = 104, .function = 112, .table = 120, .body = 48},
     .text = {.ascii = 48, .compact = 72, .data = 72}},
    {.version = 0x030b,
     .chain = MS_PYTHON_MARKED,
     .cframe = true,
     .thread = {.frame = 56, .id = 152},
     .cframe_frame = 8,
     .frame = {.bytes = 69, .code = 32, .previous = 48, .instruction = 56, .entry = 68},
     .code = {.bytes = 144,
              .first_line = 72,
              .file = 112,
              .function = 128,
              .table = 136,
              .body = MS_PYTHON_SIZE,
              .begin = 184},
     .text = {.ascii = 48, .compact = 72, .data = 72}},
    {.version = 0x030c,
     .chain = MS_PYTHON_SHIMS,
     .cframe = true,
     .active = true,
     .thread = {.frame = 56, .id = 136},
     .cframe_frame = 0,
     .frame = {.bytes = 71, .code = 0, .previous = 8, .instruction = 56, .entry = 70},
     .code = {.bytes = 144,
              .first_line = 68,
              .file = 112,
              .function = 128,
              .table = 136,
              .body = MS_PYTHON_SIZE,
              .begin = 192},
     .text = {.ascii = 40, .compact = 56, .data = 56}},
};

/* Positions of words in struct _Py_DebugOffsets, from its beginning
 * (Include/internal/pycore_runtime.h of 3.13, pycore_debug_offsets.h of 3.14). */
struct words {
    uint16_t version;
    uint8_t thread_frame, thread_id;
    uint8_t frame_code, frame_previous, frame_instruction, frame_owner;
    uint8_t code_file, code_function, code_table, code_first_line, code_begin;
    uint8_t object_type, bytes_size, bytes_data, text_state, text_length, text_ascii;
};

static const struct words described[] = {
    {.version = 0x030d,
     .thread_frame = 23,
     .thread_id = 24,
     .frame_previous = 29,
     .frame_code = 30,
     .frame_instruction = 31,
     .frame_owner = 33,
     .code_file = 35,
     .code_function = 37,
     .code_table = 38,
     .code_first_line = 39,
     .code_begin = 43,
     .object_type = 45,
     .bytes_size = 65,
     .bytes_data = 66,
     .text_state = 68,
     .text_length = 69,
     .text_ascii = 70},
    {.version = 0x030e,
     .thread_frame = 26,
     .thread_id = 27,
     .frame_previous = 32,
     .frame_code = 33,
     .frame_instruction = 34,
     .frame_owner = 36,
     .code_file = 40,
     .code_function = 42,
     .code_table = 43,
     .code_first_line = 44,
     .code_begin = 48,
     .object_type = 51,
     .bytes_size = 75,
     .bytes_data = 76,
     .text_state = 78,
     .text_length = 79,
     .text_ascii = 80},
};

static bool describe(const struct words *words, const void *runtime, struct ms_python_layout *out)
{
    static const char cookie[8] = "xdebugpy";
    enum { VERSION_WORD = 1, FREE_THREADED_WORD = 2 };
    const uint64_t *at = runtime;
    if (memcmp(at, cookie, sizeof(cookie)) != 0 || at[VERSION_WORD] >> 16 != words->version ||
        at[FREE_THREADED_WORD] != 0 || at[words->object_type] != MS_PYTHON_TYPE ||
        at[words->bytes_size] != MS_PYTHON_SIZE || at[words->bytes_data] != MS_PYTHON_BYTES ||
        at[words->text_state] != MS_PYTHON_TEXT_STATE ||
        at[words->text_length] != MS_PYTHON_TEXT_LENGTH) {
        return false;
    }
    uint16_t ascii = (uint16_t)at[words->text_ascii];
    if (at[words->frame_owner] >= MS_PYTHON_READ_BYTES ||
        at[words->code_table] + sizeof(uint64_t) > MS_PYTHON_READ_BYTES) {
        return false;
    }
    *out = (struct ms_python_layout){
        .version = words->version,
        .chain = MS_PYTHON_SHIMS,
        .active = true,
        .thread = {.frame = (uint16_t)at[words->thread_frame],
                   .id = (uint16_t)at[words->thread_id]},
        /* The last of the fields that are read. */ .frame =
            {.bytes = (uint16_t)(at[words->frame_owner] + 1),
             .code = (uint16_t)at[words->frame_code],
             .previous = (uint16_t)at[words->frame_previous],
             .instruction = (uint16_t)at[words->frame_instruction],
             .entry = (uint16_t)at[words->frame_owner]},
        .code = {.bytes = (uint16_t)(at[words->code_table] + sizeof(uint64_t)),
                 .first_line = (uint16_t)at[words->code_first_line],
                 .file = (uint16_t)at[words->code_file],
                 .function = (uint16_t)at[words->code_function],
                 .table = (uint16_t)at[words->code_table],
                 .body = MS_PYTHON_SIZE,
                 .begin = (uint16_t)at[words->code_begin]},
        /* PyCompactUnicodeObject adds the length of its UTF-8 form, and a pointer to it. */
        .text = {.ascii = ascii, .compact = ascii + 16, .data = ascii + 16}};
    return true;
}

bool ms_python_layout(uint32_t version, const void *runtime, struct ms_python_layout *out)
{
    for (size_t i = 0; i < sizeof(fixed) / sizeof(*fixed); i++) {
        if (fixed[i].version == version) {
            *out = fixed[i];
            return true;
        }
    }
    for (size_t i = 0; i < sizeof(described) / sizeof(*described); i++) {
        if (described[i].version == version) {
            return runtime != NULL && describe(&described[i], runtime, out);
        }
    }
    return false;
}

bool ms_python_version_known(uint32_t version)
{
    bool known = false;
    for (size_t i = 0; i < sizeof(fixed) / sizeof(*fixed); i++) {
        known = known || fixed[i].version == version;
    }
    for (size_t i = 0; i < sizeof(described) / sizeof(*described); i++) {
        known = known || described[i].version == version;
    }
    return known;
}
