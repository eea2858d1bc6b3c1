/* SPDX-License-Identifier: Apache-2.0 */
/* What a stranger may have in a name, and what JSON makes of it. */
#include <criterion/criterion.h>

#include "allocator/base/json.h"

static void expect(const char *text, const char *written)
{
    struct ms_buffer out = {0};
    struct ms_json json = {.out = &out};

    ms_json_text(&json, NULL, text);
    ms_buffer_add(&out, "");
    *(char *)ms_buffer_extend(&out, 1) = '\0';
    cr_expect_str_eq(out.at, written);
    ms_buffer_free(&out);
}

Test(json, names_are_inert)
{
    expect("plain", "\"plain\"");
    expect("a\"b\\c", "\"a\\u0022b\\u005cc\"");
    expect("</script>&", "\"\\u003c/script\\u003e\\u0026\"");
    expect("line\nnext\ttab\x01", "\"line\\u000anext\\u0009tab\\u0001\"");
    expect("\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", "\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\"");
    expect("\xff\xc3(", "\"\\ufffd\\ufffd(\"");
    expect("\xe2\x82", "\"\\ufffd\\ufffd\"");
    expect("\xc0\xaf", "\"\\ufffd\\ufffd\"");            /* too long a form */
    expect("\xed\xa0\x80", "\"\\ufffd\\ufffd\\ufffd\""); /* half of a surrogate pair */
    expect("\xe2\x80\xa8", "\"\\u2028\"");
}

Test(json, text_lines_are_inert)
{
    struct ms_buffer out = {0};

    const char reorders[] = {'\xe2', '\x80', '\xae', '\0'};

    ms_buffer_add_plain(&out, "a\nb\x1b[31m\xff ");
    ms_buffer_add_plain(&out, reorders);
    ms_buffer_add_plain(&out, " \xc3\xa9");
    *(char *)ms_buffer_extend(&out, 1) = '\0';
    cr_expect_str_eq(out.at, "a\\x0ab\\x1b[31m\\xff \\xe2\\x80\\xae \xc3\xa9");
    ms_buffer_free(&out);
}

Test(json, structure)
{
    struct ms_buffer out = {0};
    struct ms_json json = {.out = &out, .dense = true};

    ms_json_open(&json, NULL, '{');
    ms_json_open(&json, "list", '[');
    ms_json_count(&json, NULL, UINT64_MAX);
    ms_json_integer(&json, NULL, -1);
    ms_json_close(&json, ']');
    ms_json_open(&json, "empty", '{');
    ms_json_close(&json, '}');
    ms_json_flag(&json, "yes", true);
    ms_json_text(&json, "none", NULL);
    ms_json_close(&json, '}');
    *(char *)ms_buffer_extend(&out, 1) = '\0';
    cr_expect_str_eq(
        out.at, "{\"list\":[18446744073709551615,-1],\"empty\":{},\"yes\":true,\"none\":null}");
    ms_buffer_free(&out);
}
