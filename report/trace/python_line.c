/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the line of an instruction, in CPython's three formats: co_lnotab until 3.9, the line table
 * of 3.10, the location table since 3.11. Tables come from a stranger's memory: reads stay inside
 * them, and a line that is out of range counts as none. */
#include "report/trace/python_line.h"

#include <stddef.h>

#define VERSION(major, minor) ((uint32_t)(major) << 8 | (uint32_t)(minor))
#define INSTRUCTION_BYTES     2u
#define NO_LINE               (-128) /* a line step of 3.10 that means: no line */

/* Location codes of 3.11 (Objects/locations.md, InternalDocs/code_objects.md). */
enum {
    CODE_ONE_LINE_0 = 10, /* 10 to 12: that many lines further */
    CODE_ONE_LINE_2 = 12,
    CODE_NO_COLUMNS = 13,
    CODE_LONG = 14,
    CODE_NONE = 15
};

static uint32_t as_line(int64_t line)
{
    return line > 0 && line <= INT32_MAX ? (uint32_t)line : 0;
}

/* Pairs of a step in bytes and a step in lines. The line holds from the new byte on. */
static uint32_t line_by_lnotab(const uint8_t *table, size_t bytes, int64_t line,
                               uint32_t instruction)
{
    uint64_t at = 0;

    for (size_t i = 0; i + 1 < bytes; i += 2) {
        at += table[i];
        if (at > instruction) {
            break;
        }
        line += (int8_t)table[i + 1];
    }
    return as_line(line);
}

/* Pairs too, but the line holds for the bytes stepped over. */
static uint32_t line_by_line_table(const uint8_t *table, size_t bytes, int64_t line,
                                   uint32_t instruction)
{
    uint64_t end = 0;

    for (size_t i = 0; i + 1 < bytes; i += 2) {
        const int8_t step = (int8_t)table[i + 1];

        end += table[i];
        line += step == NO_LINE ? 0 : step;
        if (end > instruction) {
            return step == NO_LINE ? 0 : as_line(line);
        }
    }
    return 0;
}

/* Six bits a byte, lowest first; the seventh bit: more bytes follow; the number's lowest bit is the
 * sign. */
static int64_t signed_varint(const uint8_t *at, const uint8_t *end)
{
    uint64_t value = 0;

    for (unsigned shift = 0; at < end && shift < 36; shift += 6) {
        value |= (uint64_t)(*at & 63u) << shift;
        if (!(*at++ & 64u)) {
            break;
        }
    }
    return value & 1 ? -(int64_t)(value >> 1) : (int64_t)(value >> 1);
}

/* Entries begin with a byte whose highest bit is set: a code, and a number of instructions. */
static uint32_t line_by_location_table(const uint8_t *table, size_t bytes, int64_t line,
                                       uint32_t instruction)
{
    const uint8_t *at = table, *end = table + bytes;
    uint64_t covered = 0;

    while (at < end) {
        const unsigned code = *at >> 3 & 15u;

        covered += ((uint64_t)(*at & 7u) + 1) * INSTRUCTION_BYTES;
        at++;
        if (code == CODE_NO_COLUMNS || code == CODE_LONG) {
            line += signed_varint(at, end);
        } else if (code >= CODE_ONE_LINE_0 && code <= CODE_ONE_LINE_2) {
            line += (int64_t)code - CODE_ONE_LINE_0;
        }
        if (covered > instruction) {
            return code == CODE_NONE ? 0 : as_line(line);
        }
        while (at < end && !(*at & 128u)) {
            at++;
        }
    }
    return 0;
}

uint32_t ms_python_line(const struct ms_code_definition *code, const uint8_t *table,
                        uint32_t instruction)
{
    const size_t bytes = code->table_bytes;

    if (bytes == 0) {
        return 0;
    }
    if (code->version <= VERSION(3, 9)) {
        return line_by_lnotab(table, bytes, code->first_line, instruction);
    }
    if (code->version == VERSION(3, 10)) {
        return line_by_line_table(table, bytes, code->first_line, instruction);
    }
    return line_by_location_table(table, bytes, code->first_line, instruction);
}
