/* SPDX-License-Identifier: Apache-2.0 */
/* Options: every form that is allowed, and what is said of every one that is not. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "allocator/base/arithmetic.h"
#include "shim/tables/options.h"

struct said {
    int count;
    char last[1024];
};

static void listen(void *ctx, const char *sentence)
{
    struct said *said = ctx;
    said->count++;
    strncpy(said->last, sentence, sizeof(said->last) - 1);
}

static struct said parse(const char *variable, struct ms_options *out)
{
    struct said said = {0};
    char *environment[] = {"PATH=/bin", (char *)variable, NULL};
    ms_options_parse(environment, out, listen, &said);
    return said;
}

Test(options, defaults)
{
    struct ms_options options;
    struct said said = parse("HOME=/", &options);
    uint64_t ppb;
    cr_assert_eq(said.count, 0);
    cr_assert_eq(options.log, MS_LOG_WARN);
    cr_assert(options.pool);
    cr_assert(options.trace);
    cr_assert_eq(options.torch, MS_TORCH_NATIVE);
    cr_assert_eq(options.trace_limit_bytes, UINT64_C(512) << 20);
    cr_assert_eq(options.wait_ns, UINT64_C(30000000000));
    cr_assert_eq(ms_options_wait_most_ns(&options), UINT64_C(300000000000));
    cr_assert_eq(options.thresholds_ppb[2], 970000000);
    cr_assert_str_eq(options.output_dir, "memshim-out");
    cr_assert_null(options.run_id);
    cr_assert_eq(ms_options_cap_bytes(&options, 3, 1000, &ppb), 1000);
    cr_assert_eq(ppb, MS_PPB);
}

Test(options, bytes)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } good[] = {{"0", 0},
                {"1048576", 1048576},
                {"20GiB", UINT64_C(20) << 30},
                {"20gib", UINT64_C(20) << 30},
                {"20G", UINT64_C(20) << 30},
                {"1.5 GB", 1500000000},
                {"512MiB", UINT64_C(512) << 20},
                {".5K", 512},
                {"2TiB", UINT64_C(2) << 40},
                {"7B", 7}};
    static const char *const bad[] = {"",       "GiB",     "-1",     "1..5G",     "1,5GiB",
                                      "12GiBs", "0x10",    "1 2",    "99999999T", "nan",
                                      "1e9",    "20 GiB ", "1  GiB", "2 0G",      "."};
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        uint64_t bytes = 77;
        cr_assert(ms_parse_bytes(good[i].text, &bytes), "%s", good[i].text);
        cr_assert_eq(bytes, good[i].bytes, "%s is %llu", good[i].text, (unsigned long long)bytes);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        uint64_t bytes = 77;
        cr_assert_not(ms_parse_bytes(bad[i], &bytes), "%s", bad[i]);
        cr_assert_eq(bytes, 77);
    }
}

Test(options, sizes)
{
    static const char *const bad[] = {"8", "0", "1048575", "1023K", "GiB", ""};
    uint64_t bytes = 77;

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        cr_assert_not(ms_parse_size(bad[i], &bytes), "%s", bad[i]);
        cr_assert_eq(bytes, 77);
    }
    cr_assert(ms_parse_size("1MiB", &bytes));
    cr_assert_eq(bytes, 1 << 20);
    cr_assert(ms_parse_size("1048577", &bytes));
    cr_assert_eq(bytes, (1 << 20) + 1);
}

Test(options, fractions)
{
    static const char *const bad[] = {"",    "0",   "0.0", "1.01", "-0.5",
                                      "95%", "0,9", "inf", "1e-1", "1.000000001"};
    uint64_t ppb = 7;
    cr_assert(ms_parse_fraction("0.95", &ppb));
    cr_assert_eq(ppb, 950000000);
    cr_assert(ms_parse_fraction(".3333333333333", &ppb));
    cr_assert_eq(ppb, 333333333);
    cr_assert(ms_parse_fraction("1", &ppb));
    cr_assert_eq(ppb, MS_PPB);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        cr_assert_not(ms_parse_fraction(bad[i], &ppb), "%s", bad[i]);
    }
}

static uint64_t cap_of(const char *variable, int device, uint64_t *ppb)
{
    struct ms_options options;
    struct said said = parse(variable, &options);
    cr_assert_eq(said.count, 0, "%s: %s", variable, said.last);
    return ms_options_cap_bytes(&options, device, UINT64_C(24) << 30, ppb);
}

Test(options, caps)
{
    const uint64_t gib = UINT64_C(1) << 30;
    uint64_t ppb;
    cr_assert_eq(cap_of("MEMSHIM_FRACTION=0.5", 0, &ppb), 12 * gib);
    cr_assert_eq(ppb, MS_PPB / 2);
    cr_assert_eq(cap_of("MEMSHIM_LIMIT=20GiB", 7, &ppb), 20 * gib);
    cr_assert_eq(ppb, 0);
    cr_assert_eq(cap_of("MEMSHIM_LIMIT=99GiB", 0, &ppb), 24 * gib, "never more than there is");
    cr_assert_eq(cap_of("MEMSHIM_FRACTION=0:0.25,1:12GiB", 0, &ppb), 6 * gib);
    cr_assert_eq(cap_of("MEMSHIM_FRACTION=0:0.25,1:12GiB", 1, &ppb), 12 * gib);
    cr_assert_eq(cap_of("MEMSHIM_FRACTION=0:0.25,1:12GiB", 2, &ppb), 24 * gib);
    cr_assert_eq(cap_of("MEMSHIM_LIMIT= 8GiB , 1:0.25", 0, &ppb), 8 * gib);
    cr_assert_eq(cap_of("MEMSHIM_LIMIT= 8GiB , 1:0.25", 1, &ppb), 6 * gib);
    cr_assert_eq(cap_of("MEMSHIM_LIMIT=63:1GiB", 63, &ppb), gib);
}

Test(options, bad_values_keep_the_default_and_are_named)
{
    static const char *const bad[] = {"MEMSHIM_FRACTION=1.5",
                                      "MEMSHIM_FRACTION=20GiB",
                                      "MEMSHIM_FRACTION=0:",
                                      "MEMSHIM_FRACTION=64:0.5",
                                      "MEMSHIM_FRACTION=0:0.5,",
                                      "MEMSHIM_FRACTION=a:0.5",
                                      "MEMSHIM_FRACTION=0:0.5,1:",
                                      "MEMSHIM_LIMIT=0.9",
                                      "MEMSHIM_LIMIT=12",
                                      "MEMSHIM_LIMIT=-4GiB",
                                      "MEMSHIM_POOL=yes",
                                      "MEMSHIM_TORCH=tensors",
                                      "MEMSHIM_LOG=verbose",
                                      "MEMSHIM_LOG=WARN",
                                      "MEMSHIM_TRACE=1",
                                      "MEMSHIM_SOURCE=yes",
                                      "MEMSHIM_BATCH=0",
                                      "MEMSHIM_BATCH=32.5",
                                      "MEMSHIM_BATCH=many",
                                      "MEMSHIM_BATCH=99999999999",
                                      "MEMSHIM_TRACE_LIMIT=12",
                                      "MEMSHIM_WAIT_MS=-1",
                                      "MEMSHIM_WAIT_MS=1s",
                                      "MEMSHIM_WAIT_MS=600001",
                                      "MEMSHIM_THRESHOLDS=0.9",
                                      "MEMSHIM_THRESHOLDS=0.9,0.8,0.99",
                                      "MEMSHIM_RUN_ID=../up",
                                      "MEMSHIM_RUN_ID=a/b",
                                      "MEMSHIM_THRESHOLDS=0.7,0.8,0.9,1",
                                      "MEMSHIM_RUN_ID=.hidden",
                                      "MEMSHIM_FRACTION=0.5:0.5"};
    struct ms_options defaults;
    parse("HOME=/", &defaults);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct ms_options options;
        struct said said = parse(bad[i], &options);
        cr_assert_eq(said.count, 1, "%s", bad[i]);
        cr_assert(strstr(said.last, bad[i]) != NULL, "%s must be named: %s", bad[i], said.last);
        cr_assert(strstr(said.last, "it takes ") != NULL, "%s", said.last);
        cr_assert_arr_eq(&options, &defaults, sizeof(options), "%s", bad[i]);
    }
}

Test(options, nothing_is_not_a_value)
{
    struct ms_options options;
    cr_assert_eq(parse("MEMSHIM_LIMIT=", &options).count, 0);
    cr_assert_eq(parse("MEMSHIM_RUN_ID=", &options).count, 0);
    cr_assert_null(options.run_id);
}

Test(options, misspelt_words)
{
    static const struct {
        const char *variable, *meant; /* null: nothing can be guessed */
    } cases[] = {{"MEMSHIM_SPILL=of", "off"},
                 {"MEMSHIM_SPILL=OFF", "off"},
                 {"MEMSHIM_SPILL=0", "off"},
                 {"MEMSHIM_SPILL=false", "off"},
                 {"MEMSHIM_POOL=True", "on"},
                 {"MEMSHIM_TORCH=natvie", "native"},
                 {"MEMSHIM_STACKS=pyton", "python"},
                 {"MEMSHIM_LOG=warning", "warn"},
                 {"MEMSHIM_LIMIT=20", "20GiB"},
                 {"MEMSHIM=of", "off"},
                 {"MEMSHIM_SPILL=sideways", NULL},
                 {"MEMSHIM_FRACTION=of", NULL},
                 {"MEMSHIM_FRAMEWORKS=sideways", NULL},
                 {"MEMSHIM_FRACTION=2", NULL},
                 {"MEMSHIM_FRACTION=2%", "0.02"},
                 {"MEMSHIM_FRACTION=10", "0.1"},
                 {"MEMSHIM_TRACE_LIMIT=7", "7MiB"},
                 {"MEMSHIM_LIMIT=20000", "20000MiB"}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct ms_options options;
        char guess[64] = "did you mean";
        struct said said = parse(cases[i].variable, &options);
        if (cases[i].meant != NULL) {
            (void)snprintf(guess, sizeof(guess), "(did you mean '%s'?)", cases[i].meant);
        }
        cr_assert_eq(strstr(said.last, guess) != NULL, cases[i].meant != NULL, "%s: %s",
                     cases[i].variable, said.last);
    }
}

Test(options, unknown_names)
{
    struct ms_options options;
    struct said said = parse("MEMSHIM_FRACTOIN=0.5", &options);
    cr_assert_eq(said.count, 1);
    cr_assert(strstr(said.last, "MEMSHIM_FRACTOIN") != NULL);
    cr_assert(strstr(said.last, "did you mean 'MEMSHIM_FRACTION'?") != NULL, "%s", said.last);
    said = parse("MEMSHIM_LOGS=warn", &options);
    cr_assert(strstr(said.last, "did you mean 'MEMSHIM_LOG'?") != NULL, "%s", said.last);
    said = parse("MEMSHIM_FROBNICATE=1", &options);
    cr_assert_eq(said.count, 1);
    cr_assert(strstr(said.last, "did you mean") == NULL, "%s", said.last);
    cr_assert_eq(parse("MEMSHIM_VENV=/x", &options).count, 0, "a script's own");
    cr_assert_eq(parse("MEMSHIM_BUILD=/x", &options).count, 0, "a script's own");
    cr_assert_eq(parse("MEMSHIMX=/x", &options).count, 0, "not ours");
}

static void collect(void *ctx, const char *text)
{
    strncat(ctx, text, 60000 - strlen(ctx));
}

Test(options, tables_are_complete)
{
    static char text[65536];
    static const char *const names[] = {"FRACTION", "LIMIT", "OUTPUT",      "LOG",     "POOL",
                                        "TORCH",    "TRACE", "TRACE_LIMIT", "WAIT_MS", "THRESHOLDS",
                                        "RUN_ID",   "VENV",  "BUILD"};
    ms_options_print(true, collect, text);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char row[64];
        snprintf(row, sizeof(row), "| `MEMSHIM_%s` |", names[i]);
        cr_assert(strstr(text, row) != NULL, "%s", row);
    }
    text[0] = '\0';
    ms_hooks_print(false, collect, text);
    cr_assert(strstr(text, "cuMemAllocFromPoolAsync_ptsz") != NULL);
}

Test(options, set_text)
{
    char text[64];
    char *environment[] = {"PATH=/bin", "MEMSHIM_FRACTION=0.9", "MEMSHIM_LOG=off", NULL};
    cr_assert_str_eq(ms_options_set_text(environment, text, sizeof(text)),
                     "MEMSHIM_FRACTION=0.9\nMEMSHIM_LOG=off\n");
    cr_assert_str_eq(ms_options_set_text(environment, text, 30), "MEMSHIM_FRACTION=0.9\n");
}
