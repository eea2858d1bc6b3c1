/* SPDX-License-Identifier: Apache-2.0 */
/* What is shown of a stranger's text: each kind of character by itself, and no way around it. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "allocator/base/buffer.h"
#include "allocator/base/json.h"
#include "allocator/base/plain.h"

/* Text that misleads is what is tested here. NOLINTBEGIN(misc-misleading-bidirectional) */

static const struct {
    const char *text, *plain, *json;
} cases[] = {
    {"train.py", "train.py", "train.py"},
    {"\xc3\xbc\xe6\xbc\xa2\xf0\x9f\x98\x80", "\xc3\xbc\xe6\xbc\xa2\xf0\x9f\x98\x80",
     "\xc3\xbc\xe6\xbc\xa2\xf0\x9f\x98\x80"},
    {"a\x1b[2J", "a\\x1b[2J", "a\\u001b[2J"},
    {"a\nb\tc\r", "a\\x0ab\\x09c\\x0d", "a\\u000ab\\u0009c\\u000d"},
    {"\x7f", "\\x7f", "\\u007f"},
    {"\xc2\x9b"
     "2J",
     "\\xc2\\x9b2J", "\\u009b2J"}, /* C1 */
    {"\xc2\x85", "\\xc2\\x85", "\\u0085"},
    {"\xe2\x80\xae"
     "cod",
     "\\xe2\\x80\\xaecod", "\\u202ecod"}, /* an override */
    {"\xe2\x80\x8f", "\\xe2\\x80\\x8f", "\\u200f"},
    {"\xe2\x81\xa6", "\\xe2\\x81\\xa6", "\\u2066"},
    {"\xd8\x9c", "\\xd8\\x9c", "\\u061c"},
    {"\xe2\x80\xa8", "\\xe2\\x80\\xa8", "\\u2028"},
    {"\xf3\xa0\x80\x81", "\\xf3\\xa0\\x80\\x81", "\\udb40\\udc01"}, /* a tag */
    {"\xff\xc3", "\\xff\\xc3", "\\ufffd\\ufffd"},                   /* no UTF-8 */
    {"\xed\xa0\x80", "\\xed\\xa0\\x80", "\\ufffd\\ufffd\\ufffd"},   /* half of a pair */
};

Test(plain, lines)
{
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct ms_buffer buffer = {0};
        char text[64];

        cr_expect_eq(ms_plain_text(cases[i].text, text, sizeof(text)), strlen(cases[i].plain));
        cr_expect_str_eq(text, cases[i].plain);
        ms_buffer_add_plain(&buffer, cases[i].text);
        ms_buffer_append(&buffer, "", 1);
        cr_expect_str_eq(buffer.at, cases[i].plain);
        ms_buffer_free(&buffer);
    }
}

/* Never half of a character, nor half of what stands for one. */
Test(plain, as_far_as_it_fits)
{
    char text[8];

    cr_expect_eq(ms_plain_text("abcd\x1b", text, sizeof(text)), 4);
    cr_expect_str_eq(text, "abcd");
    cr_expect_eq(ms_plain_text("abc\x1b"
                               "d",
                               text, sizeof(text)),
                 7);
    cr_expect_str_eq(text, "abc\\x1b");
    cr_expect_eq(ms_plain_text("abcdef\xc3\xbc", text, sizeof(text)), 6);
    cr_expect_str_eq(text, "abcdef");
}

static void expect_json(const char *text, bool shown, const char *expected)
{
    struct ms_buffer out = {0};
    struct ms_json json = {.out = &out, .dense = true, .shown = shown};
    char quoted[128];

    snprintf(quoted, sizeof(quoted), "\"%s\"", expected);
    ms_json_text(&json, NULL, text);
    ms_buffer_append(&out, "", 1);
    cr_expect_str_eq(out.at, quoted);
    ms_buffer_free(&out);
}

Test(plain, json)
{
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        expect_json(cases[i].text, false, cases[i].json);
    }
}

/* For a page: a browser reorders text as a terminal does, whatever the string was written with. */
Test(plain, json_for_people)
{
    expect_json("a\xe2\x80\xae"
                "b\xc2\x9b",
                true, "a\\\\xe2\\\\x80\\\\xaeb\\\\xc2\\\\x9b");
    expect_json("a\nb\tc", true, "a\\u000ab\\u0009c");
    expect_json("\x1b\xff\xc3\xbc", true, "\\\\x1b\\\\xff\xc3\xbc");
}

/* NOLINTEND(misc-misleading-bidirectional) */
