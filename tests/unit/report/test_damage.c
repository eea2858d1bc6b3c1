/* SPDX-License-Identifier: Apache-2.0 */
/* The reader trusts no byte. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "allocator/base/checksum.h"
#include "report/model/model.h"
#include "report/model/reading/read_model.h"
#include "report/render/formats.h"
#include "report/render/json/report.h"
#include "report/render/text/report.h"
#include "report/trace/format.h"
#include "synthetic.h"

static char *content;
static size_t content_bytes;
static char path[PATH_MAX];

/* How many times something is damaged. */
static int seeds(void)
{
    return getenv("MEMSHIM_TEST_ALL") != NULL ? 1500 : 400; /* scripts/test.sh --all */
}

static void begin(void)
{
    const char *folder = synthetic_folder();
    ms_trace_t *trace = synthetic_open(folder);
    const struct ms_oom_state state = synthetic_oom(30 * GIB, MS_OOM_TORCH);
    const struct ms_event crossing = {.kind = MS_EVENT_THRESHOLD, .bytes = 22 * GIB, .aux = 2};
    const struct ms_event step = {.kind = MS_EVENT_STEP, .id = 1};
    const struct ms_event tag = {.kind = MS_EVENT_TAG_BEGIN, .id = 1, .aux = 2};
    struct synthetic run;

    synthetic_begin(&run, trace, 1);
    synthetic_define(trace);
    ms_trace_emit(trace, &step);
    ms_trace_emit(trace, &tag);
    ms_trace_oom(trace, 0, &state);
    ms_trace_note(trace, "a note");
    synthetic_churn(&run, 40000);
    ms_trace_emit(trace, &crossing);
    ms_trace_oom(trace, 0, &state);
    ms_trace_close(trace, true, 1);
    snprintf(path, sizeof(path), "%s/trace.mshm", ms_trace_dir(trace));
    content = synthetic_read(path, &content_bytes);
    snprintf(path, sizeof(path), "%s/damaged.mshm", folder);
}

static void put(const char *bytes, size_t count)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

    cr_assert_eq(write(fd, bytes, count), (ssize_t)count);
    close(fd);
}

/* Every form is made of whatever can be read. True where something could. */
static bool survive(char *why, size_t why_bytes)
{
    struct ms_model *model = ms_model_new(path, why, why_bytes);
    struct ms_buffer out = {0};

    if (!model) {
        cr_assert_not_null(strstr(why, "damaged.mshm"), "the error names the file: %s", why);
        return false;
    }
    ms_model_name_sites(model, MS_STACKS_NAMES, NULL);
    ms_format_text(model, &out);
    ms_format_json(model, &out);
    ms_format_timeline(model, &out);
    ms_folded_add(&out, model, "");
    cr_assert_not(out.failed);
    cr_assert_gt(out.bytes, 100);
    ms_buffer_free(&out);
    ms_model_delete(model);
    return true;
}

/* Half of the damage goes where it hurts: headers, log, device page, the start of a window. */
static size_t any_place(uint64_t *random)
{
    const size_t extent = synthetic_random(random) % (content_bytes / MS_EXTENT_BYTES);
    const size_t within =
        synthetic_random(random) % (synthetic_random(random) % 2 ? 256 : MS_EXTENT_BYTES);

    return extent * MS_EXTENT_BYTES + within;
}

Test(damage, random_bytes_change, .timeout = 600)
{
    char why[512];
    int readable = 0;

    begin();
    for (int seed = 1; seed <= seeds(); seed++) {
        char *copy = malloc(content_bytes);
        uint64_t random = (uint64_t)seed * 0x9e3779b97f4a7c15u;
        const uint64_t flips = 1 + synthetic_random(&random) % 16;

        memcpy(copy, content, content_bytes);
        for (uint64_t i = 0; i < flips; i++) {
            copy[any_place(&random)] = (char)synthetic_random(&random);
        }
        put(copy, content_bytes);
        free(copy);
        readable += survive(why, sizeof(why));
    }
    cr_assert_gt(readable, seeds() / 2, "most damage leaves something to read: %d", readable);
    cr_assert_lt(readable, seeds(), "some damage leaves nothing");
}

/* Somebody who damages on purpose makes the checksums fit: then the content itself is met. */
static void forge_checksums(char *copy)
{
    struct ms_file_header *file = (struct ms_file_header *)copy;

    file->checksum = ms_checksum(file, offsetof(struct ms_file_header, checksum));
    for (size_t at = MS_EXTENT_BYTES; at < content_bytes; at += MS_EXTENT_BYTES) {
        struct ms_extent_header *extent = (struct ms_extent_header *)(copy + at);

        extent->payload_checksum = 0;
        extent->checksum = ms_extent_checksum(extent, extent->sequence);
    }
}

Test(damage, random_bytes_change_behind_valid_checksums, .timeout = 600)
{
    char why[512];
    int readable = 0;

    begin();
    for (int seed = 1; seed <= seeds(); seed++) {
        char *copy = malloc(content_bytes);
        uint64_t random = (uint64_t)seed * 0x9e3779b97f4a7c15u;
        const uint64_t flips = 1 + synthetic_random(&random) % 64;

        memcpy(copy, content, content_bytes);
        for (uint64_t i = 0; i < flips; i++) {
            copy[any_place(&random)] = (char)synthetic_random(&random);
        }
        forge_checksums(copy);
        put(copy, content_bytes);
        free(copy);
        readable += survive(why, sizeof(why));
    }
    cr_assert_gt(readable, seeds() / 4, "%d", readable);
}

Test(damage, cut_at_any_length, .timeout = 600)
{
    char why[512];
    uint64_t random = 5;

    begin();
    for (int i = 0; i < seeds() / 8; i++) {
        put(content, synthetic_random(&random) % content_bytes);
        (void)survive(why, sizeof(why));
    }
}

/* The events before the cut are there, and the report says that it was cut. */
Test(damage, a_cut_trace_gives_what_is_left)
{
    char why[512];

    begin();
    put(content, content_bytes - MS_EXTENT_BYTES / 2);

    struct ms_model *model = ms_model_new(path, why, sizeof(why));

    cr_assert_not_null(model, "%s", why);
    cr_assert_gt(model->read_events, 1000);
    cr_assert_gt(model->warning_count, 0);
    cr_assert_not_null(strstr(model->warnings.at, "cut"));
    ms_model_delete(model);
}

Test(damage, one_flipped_bit_in_a_window_is_noticed)
{
    char why[512];
    struct ms_extent_header *header = NULL;

    begin();
    for (size_t at = MS_EXTENT_BYTES; at < content_bytes && !header; at += MS_EXTENT_BYTES) {
        struct ms_extent_header *extent = (struct ms_extent_header *)(content + at);

        header = extent->kind == MS_EXTENT_WINDOW ? extent : NULL;
    }
    cr_assert_not_null(header);
    ((char *)header)[header->payload_offset + 5000] ^= 1;
    put(content, content_bytes);

    struct ms_model *model = ms_model_new(path, why, sizeof(why));

    cr_assert_not_null(model, "%s", why);
    cr_assert_gt(model->warning_count, 0);
    cr_assert_not_null(strstr(model->warnings.at, "damaged"));
    cr_assert(model->sums_exact, "the device's page has the sums");
    ms_model_delete(model);
}

/* The second of two traces in one file is not mixed in. */
Test(damage, concatenated)
{
    char why[512];

    begin();

    char *twice = malloc(2 * content_bytes);
    struct ms_extent_header *extent;

    memcpy(twice, content, content_bytes);
    memcpy(twice + content_bytes, content, content_bytes);
    for (size_t at = content_bytes; at < 2 * content_bytes; at += MS_EXTENT_BYTES) {
        extent = (struct ms_extent_header *)(twice + at);
        extent->trace_id ^= 0x1234;
    }
    put(twice, 2 * content_bytes);

    struct ms_model *model = ms_model_new(path, why, sizeof(why));

    cr_assert_not_null(model, "%s", why);
    cr_assert_eq(model->read_events, model->events);
    cr_assert_eq(ms_model_oom_count(model), 2);
    cr_assert_not_null(strstr(model->warnings.at, "another trace"));
    ms_model_delete(model);
    free(twice);
}

static void expect_error(const char *part)
{
    char why[512] = "";

    cr_assert_not(survive(why, sizeof(why)));
    cr_assert_not_null(strstr(why, part), "%s", why);
}

Test(damage, a_trace_of_the_oldest_version_that_is_read_gives_all_that_it_holds)
{
    struct ms_file_header *header;
    char why[512] = "";
    struct ms_model *model;

    begin();
    header = (struct ms_file_header *)content;
    header->version_minor = MS_FORMAT_OLDEST_MINOR;
    header->checksum = ms_checksum(header, offsetof(struct ms_file_header, checksum));
    put(content, content_bytes);
    model = ms_model_new(path, why, sizeof(why));
    cr_assert_not_null(model, "%s", why);
    cr_assert_eq(model->warning_count, 0);
    cr_assert_eq(model->read_events, model->events);
    ms_model_delete(model);
}

/* It grew with versions 3.3, 3.4, 3.9, 3.10 and 3.12, in the middle of what an entry has. */
Test(damage, an_out_of_memory_of_each_version_is_known_by_its_size)
{
    const uint64_t whole = sizeof(struct ms_log_oom), state = sizeof(struct ms_oom_state);
    const uint64_t of_3_11 = offsetof(struct ms_oom_state, grad_mode);
    const uint64_t of_3_9 = offsetof(struct ms_oom_state, driver_error);
    const uint64_t of_3_8 = offsetof(struct ms_oom_state, shared);
    const uint64_t of_3_3 = offsetof(struct ms_oom_state, terms_known);
    const uint64_t of_3_2 = offsetof(struct ms_oom_state, limit_bytes);

    cr_expect_eq(ms_log_oom_state_bytes(whole), state);
    cr_expect_eq(ms_log_oom_state_bytes(whole - (state - of_3_11)), of_3_11);
    cr_expect_eq(ms_log_oom_state_bytes(whole - (state - of_3_9)), of_3_9);
    cr_expect_eq(ms_log_oom_state_bytes(whole - (state - of_3_8)), of_3_8);
    cr_expect_eq(ms_log_oom_state_bytes(whole - (state - of_3_3)), of_3_3);
    cr_expect_eq(ms_log_oom_state_bytes(whole - (state - of_3_2)), of_3_2);
    cr_expect_eq(ms_log_oom_state_bytes(whole - 4), 0);
    cr_expect_eq(ms_log_oom_state_bytes(whole + 8), 0);
    cr_expect_eq(ms_log_oom_state_bytes(0), 0);
}

Test(damage, what_is_no_trace_is_said_clearly)
{
    begin();
    ((struct ms_file_header *)content)->version_major = 9;
    put(content, content_bytes);
    expect_error("version 9.");
    ((struct ms_file_header *)content)->version_major = MS_FORMAT_MAJOR;
    ((struct ms_file_header *)content)->version_minor = MS_FORMAT_MINOR + 1;
    put(content, content_bytes);
    expect_error("use the memshim that wrote it");
    ((struct ms_file_header *)content)->version_minor = MS_FORMAT_OLDEST_MINOR - 1;
    put(content, content_bytes);
    expect_error("use the memshim that wrote it");
    put("short", 5);
    expect_error("is not a memshim trace");
    put(content, 100);
    expect_error("too short");
    put("", 0);
    expect_error("too short");
    memset(content, 0, sizeof(struct ms_file_header));
    put(content, content_bytes);
    expect_error("is empty");
    memset(content, 'x', sizeof(struct ms_file_header));
    put(content, content_bytes);
    expect_error("is not a memshim trace");
    cr_assert_eq(unlink(path), 0);
    expect_error("No such file");
}
