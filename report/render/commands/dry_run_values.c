/* SPDX-License-Identifier: Apache-2.0 */
/* The part of a dry run's answer about values: no kernel has computed them. */
#include "report/render/commands/dry_run_parts.h"

#include "allocator/base/units.h"

#define SHOWN 8u

/* memshim_value_read's readers. */
static const char *const readers[] = {"copy", "value", "count", "flag"};

/* PyTorch's numbers (c10/core/ScalarType.h) and one more, as memshim_value_read has them. */
static const char *const types[] = {"",          "uint8",      "int8",    "int16",   "int32",
                                    "int64",     "float16",    "float32", "float64", "complex32",
                                    "complex64", "complex128", "bool",    "qint8",   "quint8",
                                    "qint32",    "bfloat16"};

static const char *reader_of(const struct ms_dry_value *value)
{
    return value->reader < sizeof(readers) / sizeof(*readers) ? readers[value->reader] : "copy";
}

static const char *type_of(const struct ms_dry_value *value)
{
    return value->type < sizeof(types) / sizeof(*types) ? types[value->type] : "";
}

/* The possible effect of a wrong value; none if it is only shown. */
static const char *follows(const struct ms_dry_value *value)
{
    switch (value->reader) {
    case 2:
        return "; a shape follows it";
    case 3:
        return "; it says that nothing went wrong";
    default:
        return "";
    }
}

static void add_value(const struct ms_dry_value *value, struct ms_buffer *out)
{
    ms_buffer_format(out, "  %8s x  ", MS_COUNT(value->count));
    ms_buffer_add_plain(out, value->line);
    ms_buffer_format(out, "   %s%s%s, %s%s\n", reader_of(value), *type_of(value) ? " " : "",
                     type_of(value), MS_BYTES(value->bytes), follows(value));
}

void ms_dry_values_text(const struct ms_dry_answer *answer, struct ms_buffer *out)
{
    const size_t count = ms_dry_value_count(answer);

    if (count == 0) {
        return;
    }
    ms_buffer_format(
        out,
        "\nThe host read what kernels would have computed. Its value is %s here; where "
        "a condition\nfollows it, the run may take another branch.\n",
        answer->random ? "drawn at random where its type is known, else zero," : "zero");
    for (size_t i = 0; i < count && i < SHOWN; i++) {
        add_value(ms_dry_value_at(answer, i), out);
    }
    if (count > SHOWN) {
        ms_buffer_format(out, "  and %s more places (--json has them)\n", MS_COUNT(count - SHOWN));
    }
}

void ms_dry_values_json(const struct ms_dry_answer *answer, struct ms_json *json)
{
    ms_json_text(json, "values", answer->random ? "random" : "zeros");
    ms_json_open(json, "value_reads", '[');
    for (size_t i = 0; i < ms_dry_value_count(answer); i++) {
        const struct ms_dry_value *value = ms_dry_value_at(answer, i);

        ms_json_open(json, NULL, '{');
        ms_json_text(json, "line", value->line);
        ms_json_text(json, "reader", reader_of(value));
        if (*type_of(value)) {
            ms_json_text(json, "type", type_of(value));
        }
        ms_json_count(json, "bytes", value->bytes);
        ms_json_count(json, "count", value->count);
        ms_json_close(json, '}');
    }
    ms_json_close(json, ']');
}
