/* SPDX-License-Identifier: Apache-2.0 */
/* Text from outside made harmless for a terminal. */
#include "allocator/base/plain.h"

#include <stdio.h>
#include <string.h>

size_t ms_utf8_length(const char *text, unsigned *code_point)
{
    const unsigned char *at = (const unsigned char *)text;
    static const unsigned smallest[5] = {0, 0, 0x80, 0x800, 0x10000};
    size_t length = 1;
    unsigned point = at[0];

    if (at[0] >= 0xf0 && at[0] < 0xf8) {
        length = 4;
        point = at[0] & 0x07;
    } else if (at[0] >= 0xe0 && at[0] < 0xf0) {
        length = 3;
        point = at[0] & 0x0f;
    } else if (at[0] >= 0xc0 && at[0] < 0xe0) {
        length = 2;
        point = at[0] & 0x1f;
    } else if (at[0] >= 0x80) {
        return 0;
    }
    for (size_t i = 1; i < length; i++) {
        if ((at[i] & 0xc0) != 0x80) {
            return 0;
        }
        point = point << 6 | (at[i] & 0x3f);
    }
    if (point < smallest[length] || point > 0x10ffff || (point >= 0xd800 && point < 0xe000)) {
        return 0;
    }
    *code_point = point;
    return length;
}

struct character_span {
    unsigned first, last;
};

bool ms_is_plain(unsigned code_point)
{
    static const struct character_span others[] = {
        {0x00, 0x1f},       /* C0 */
        {0x7f, 0x9f},       /* delete, and C1: 0x9b is an escape sequence's beginning */
        {0x061c, 0x061c},   /* the Arabic letter mark */
        {0x180e, 0x180e},   /* invisible */
        {0x200b, 0x200f},   /* invisible; marks of direction */
        {0x2028, 0x202e},   /* line and paragraph; embeddings and overrides of direction */
        {0x2060, 0x206f},   /* invisible; isolates of direction */
        {0xfeff, 0xfeff},   /* invisible */
        {0xfff9, 0xfffb},   /* annotations */
        {0xe0000, 0xe007f}, /* tags: invisible */
    };

    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        if (code_point >= others[i].first && code_point <= others[i].last) {
            return false;
        }
    }
    return true;
}

size_t ms_plain_step(const char *text, char out[MS_PLAIN_BYTES])
{
    unsigned point;
    const size_t length = ms_utf8_length(text, &point);

    if (length > 0 && ms_is_plain(point)) {
        memcpy(out, text, length);
        out[length] = '\0';
        return length;
    }
    (void)snprintf(out, MS_PLAIN_BYTES, "\\x%02x", (unsigned char)*text);
    return 1;
}

size_t ms_plain_text(const char *text, char *out, size_t out_bytes)
{
    size_t used = 0;

    for (out[0] = '\0'; *text;) {
        char plain[MS_PLAIN_BYTES];
        const size_t taken = ms_plain_step(text, plain), length = strlen(plain);

        if (used + length + 1 > out_bytes) {
            break;
        }
        memcpy(out + used, plain, length + 1);
        used += length;
        text += taken;
    }
    return used;
}
