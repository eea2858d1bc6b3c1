/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the names of a code object. Every read may fail; nothing here is on the hot path. */
#include <string.h>

#include "shim/sites/python/python.h"
#include "shim/sites/python/python_interpreter.h"

/* PyASCIIObject.state, of builds with the GIL. */
#define KIND_SHIFT  2
#define KIND_MASK   7u /* bytes per character */
#define COMPACT_BIT (1u << 5)
#define ASCII_BIT   (1u << 6)

#define CHUNK_CHARACTERS 256u

struct python_text {
    uint64_t characters; /* address */
    uint64_t length;     /* in characters */
    uint32_t kind;       /* bytes per character: 1, 2, 4 */
};

static bool find_text(const struct ms_python_layout *layout, uint64_t at, struct python_text *out)
{
    uint32_t state = 0;
    if (!ms_python_read(at + MS_PYTHON_TEXT_LENGTH, &out->length, sizeof(out->length)) ||
        !ms_python_read(at + MS_PYTHON_TEXT_STATE, &state, sizeof(state))) {
        return false;
    }
    out->kind = state >> KIND_SHIFT & KIND_MASK;
    if ((state & COMPACT_BIT) == 0) { /* of a class derived from str */
        return ms_python_read(at + layout->text.data, &out->characters, sizeof(out->characters));
    }
    out->characters = at + ((state & ASCII_BIT) != 0 ? layout->text.ascii : layout->text.compact);
    return out->kind == 1 || out->kind == 2 || out->kind == 4;
}

/* The UTF-8 bytes of one character; surrogates are encoded like other numbers. */
static size_t encode(uint32_t character, char out[4])
{
    enum { TAIL_BITS = 6, TAIL_MASK = 0x3f, TAIL = 0x80 };
    static const uint8_t head[] = {0, 0, 0xc0, 0xe0, 0xf0};
    size_t bytes = 1;
    if (character < 0x80) {
        out[0] = (char)character;
        return bytes;
    }
    bytes = character < 0x800 ? 2 : character < 0x10000 ? 3 : 4;
    for (size_t i = bytes - 1; i > 0; i--) {
        out[i] = (char)(TAIL | (character & TAIL_MASK));
        character >>= TAIL_BITS;
    }
    out[0] = (char)(head[bytes] | character);
    return bytes;
}

static uint32_t character_at(const uint8_t *characters, uint32_t kind, size_t index)
{
    uint32_t character = 0;
    memcpy(&character, characters + index * kind, kind); /* little-endian */
    return character;
}

static bool read_text(const struct ms_python_layout *layout, uint64_t at, char *out, size_t room,
                      size_t *bytes)
{
    struct python_text text;
    *bytes = 0;
    out[0] = '\0';
    if (!find_text(layout, at, &text)) {
        return false;
    }
    while (text.length > 0) {
        uint8_t chunk[CHUNK_CHARACTERS * 4];
        char encoded[4];
        size_t count = text.length < CHUNK_CHARACTERS ? text.length : CHUNK_CHARACTERS;
        if (!ms_python_read(text.characters, chunk, count * text.kind)) {
            return false;
        }
        for (size_t i = 0; i < count; i++) {
            size_t more = encode(character_at(chunk, text.kind, i), encoded);
            if (*bytes + more >= room) {
                return true;
            }
            memcpy(out + *bytes, encoded, more);
            *bytes += more;
            out[*bytes] = '\0';
        }
        text.characters += count * text.kind;
        text.length -= count;
    }
    return true;
}

static bool read_table(uint64_t at, struct ms_python_code *out)
{
    uint64_t bytes = 0;
    out->table_bytes = 0;
    if (!ms_python_read(at + MS_PYTHON_SIZE, &bytes, sizeof(bytes))) {
        return false;
    }
    if (bytes > sizeof(out->table)) {
        return true;
    }
    out->table_bytes = bytes;
    return bytes == 0 || ms_python_read(at + MS_PYTHON_BYTES, out->table, bytes);
}

bool ms_python_code(uint64_t code, struct ms_python_code *out)
{
    const struct ms_python_interpreter *python = ms_python_interpreter();
    uint64_t type = 0, file = 0, function = 0, table = 0;
    if (python == NULL) {
        return false;
    }
    const struct ms_python_layout *layout = &python->layout;
    out->version = layout->version;
    return ms_python_read(code + MS_PYTHON_TYPE, &type, sizeof(type)) &&
           type == python->code_type &&
           ms_python_read(code + layout->code.first_line, &out->first_line,
                          sizeof(out->first_line)) &&
           ms_python_read(code + layout->code.file, &file, sizeof(file)) &&
           ms_python_read(code + layout->code.function, &function, sizeof(function)) &&
           ms_python_read(code + layout->code.table, &table, sizeof(table)) &&
           read_text(layout, file, out->file, sizeof(out->file), &out->file_bytes) &&
           read_text(layout, function, out->function, sizeof(out->function),
                     &out->function_bytes) &&
           read_table(table, out);
}
