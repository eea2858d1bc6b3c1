/* SPDX-License-Identifier: Apache-2.0 */
/* What is read out of a CSV, and what is said of one that is wrong. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "report/replay/recording.h"
#include "report/trace/format.h"
#include "synthetic.h"

#define PLAIN "time_us,op,id,bytes,stream,site\n"
#define WHOLE "time_us,op,id,bytes,stream,site,addr\n"

static const char *path_of(const char *name)
{
    static char path[PATH_MAX];

    (void)snprintf(path, sizeof(path), "%s/%s", synthetic_folder(), name);
    return path;
}

static const char *write_text(const char *name, const char *text)
{
    const char *path = path_of(name);
    FILE *file = fopen(path, "w");

    cr_assert_not_null(file);
    cr_assert_eq(fwrite(text, 1, strlen(text), file), strlen(text));
    cr_assert_eq(fclose(file), 0);
    return path;
}

static struct ms_recording read_file(const char *path)
{
    struct ms_recording recording;
    char why[PATH_MAX + 512] = "";

    cr_assert(ms_recording_begin(&recording));
    cr_assert(ms_recording_read_csv(&recording, path, why, sizeof(why)), "%s", why);
    return recording;
}

static struct ms_recording read_text(const char *text)
{
    return read_file(write_text("run.csv", text));
}

Test(recording, blocks)
{
    struct ms_recording recording = read_text(PLAIN "10,alloc,1,1000,7,train.py:3 f\n"
                                                    ",alloc,2,500,8,\n"
                                                    "30,free,1,,7,\n"
                                                    "31,alloc,1,700,7,\"a \"\"b\"\", c\"\n"
                                                    "32,free,2,,8,\n");
    const struct ms_operation *last = ms_recording_at(&recording, 3);

    cr_assert_eq(ms_recording_count(&recording), 5);
    cr_assert_eq(recording.allocations, 3);
    cr_assert_eq(recording.peak_live_bytes, 1500);
    cr_assert_eq(recording.end_live_bytes, 700);
    cr_assert_eq(recording.streams, 2);
    cr_assert_eq(ms_recording_at(&recording, 1)->time_us, 10, "an empty time is the one above");
    cr_assert_eq(ms_recording_at(&recording, 2)->bytes, 1000, "a free has its block's size");
    cr_assert_eq(last->object, 2, "an id that is used again is another block");
    cr_assert_str_eq(ms_recording_site_name(&recording, last->site), "a \"b\", c");
    cr_assert_null(ms_recording_site_name(&recording, ms_recording_at(&recording, 1)->site));
    ms_recording_free(&recording);
}

/* A segment is not live, its tensors are; a block becomes one when something is born in it. */
Test(recording, arenas)
{
    struct ms_recording recording = read_text(WHOLE "0,segment,1,4194304,,,8388608\n"
                                                    "1,alloc,2,2097152,,,20971520\n"
                                                    "2,born,3,512,,,8389632\n"
                                                    "3,born,4,1024,,,20971520\n"
                                                    "4,died,4,,,,\n"
                                                    "5,segment_free,2,,,,\n");

    cr_assert_eq(recording.peak_live_bytes, 1536);
    cr_assert_eq(recording.end_live_bytes, 512);
    cr_assert_eq(ms_recording_arenas(&recording), 2);
    cr_assert_eq(ms_recording_at(&recording, 2)->offset, 1024, "by its place in the segment");
    cr_assert_neq(ms_recording_at(&recording, 1)->arena, MS_RECORDED_NONE);
    ms_recording_free(&recording);
}

Test(recording, pages)
{
    struct ms_recording recording = read_text(WHOLE "0,map,5,2097152,,,6291456\n"
                                                    "0,map,5,2097152,,,4194304\n"
                                                    "1,born,1,4194304,,,4194304\n"
                                                    "2,died,1,,,,\n"
                                                    "3,unmap,,4194304,,,4194304\n"
                                                    "4,unreserve,5,,,,\n");
    const struct ms_recorded_arena *arena = ms_recording_arena(&recording, 0);

    cr_assert_eq(ms_recording_arenas(&recording), 1);
    cr_assert_eq(arena->addr, 4194304, "from its lowest page");
    cr_assert_eq(arena->bytes, 4194304);
    cr_assert_eq(ms_recording_at(&recording, 0)->kind, MS_OPERATION_RESERVE, "with the first page");
    cr_assert_eq(ms_recording_at(&recording, 1)->offset, 2097152);
    cr_assert_eq(ms_recording_at(&recording, 3)->offset, 0);
    ms_recording_free(&recording);
}

Test(recording, packed)
{
    const char *text = PLAIN "1,alloc,1,1000,7,here\n2,free,1,,7,\n";
    const char *path = path_of("run.csv.gz");
    gzFile file = gzopen(path, "wb");

    cr_assert_gt(gzputs(file, text), 0);
    cr_assert_eq(gzclose(file), Z_OK);

    struct ms_recording recording = read_file(path);

    cr_assert_eq(ms_recording_count(&recording), 2);
    cr_assert_eq(recording.peak_live_bytes, 1000);
    ms_recording_free(&recording);
}

/* What a framework keeps is in no tensor: it is not live, and lies in a segment or in pages. */
Test(recording, cached)
{
    static const char *const text = WHOLE "0,segment,0,4194304,,,2097152\n"
                                          ",cached,,2097152,,,4194304\n"
                                          ",reserve,1,2097152,,,6291456\n"
                                          ",map,1,2097152,,,6291456\n"
                                          ",cached,,512,,,6292480\n";
    struct ms_recording recording = read_text(text);
    const struct ms_operation *in_segment = ms_recording_at(&recording, 1);
    const struct ms_operation *in_page = ms_recording_at(&recording, 4);
    struct ms_buffer out = {0};

    cr_assert_eq(recording.peak_live_bytes, 0);
    cr_assert_eq(in_segment->kind, MS_OPERATION_CACHED);
    cr_assert_eq(in_segment->offset, 2097152);
    cr_assert_eq(in_page->offset, 1024);
    cr_assert_neq(in_page->arena, in_segment->arena);
    ms_recording_format_csv(&recording, &out);
    ms_buffer_append(&out, "", 1);
    cr_assert_str_eq(out.at, text);
    ms_buffer_free(&out);
    ms_recording_free(&recording);
}

/* What is written says the same as what was read, in small numbers. */
Test(recording, there_and_back)
{
    static const char *const written = WHOLE "5,charge,,4096,,,\n"
                                             ",segment,0,4194304,,,2097152\n"
                                             ",born,1,512,,\"f, g\",2098176\n"
                                             ",alloc,2,777,1,,\n"
                                             "20005,reserve,1,8388608,,,6291456\n"
                                             ",map,1,2097152,,,8388608\n"
                                             ",freeze,,,,,6291456\n"
                                             ",born,3,512,,,8388608\n"
                                             ",died,1,,,,\n"
                                             ",born,1,1024,,,2097152\n"
                                             ",free,2,,1,,\n"
                                             ",step,,,,,\n"
                                             ",discharge,,4096,,,\n"
                                             ",refused,,9000,2,\"f, g\",\n"
                                             ",fatal,,8000,,,\n";
    struct ms_recording first = read_text(WHOLE "5,charge,,4096,,,\n"
                                                "6,segment,100,4194304,,,139637976727552\n"
                                                "7,born,101,512,,\"f, g\",139637976728576\n"
                                                "8,alloc,102,777,900,,\n"
                                                "20005,reserve,77,8388608,,,4398046511104\n"
                                                "20006,map,77,2097152,,,4398048608256\n"
                                                "20006,freeze,,,,,4398046511104\n"
                                                "20007,born,103,512,,,4398048608256\n"
                                                "20008,died,101,,,,\n"
                                                "20009,born,104,1024,,,139637976727552\n"
                                                "20010,free,102,,900,,\n"
                                                "20011,step,,,,,\n"
                                                "20012,discharge,,4096,,,\n"
                                                "20013,refused,,9000,901,\"f, g\",\n"
                                                "20014,fatal,,8000,,,\n");
    struct ms_buffer out = {0};

    ms_recording_format_csv(&first, &out);

    char *text = strndup(out.at, out.bytes);

    cr_assert_str_eq(text, written);

    struct ms_recording second = read_text(text);

    cr_assert_eq(second.peak_live_bytes, first.peak_live_bytes);
    cr_assert_eq(second.peak_live_bytes, 512 + 777 + 1024);
    cr_assert_eq(second.peak_wanted_bytes, 512 + 1024 + 8000);
    cr_assert_eq(second.refused, 1);
    cr_assert_eq(second.fatal, 1);
    cr_assert_eq(ms_recording_count(&second), ms_recording_count(&first));
    free(text);
    ms_buffer_free(&out);
    ms_recording_free(&first);
    ms_recording_free(&second);
}

static const struct {
    const char *text, *expected; /* a part of what is said */
} faults[] = {
    {"", ":1: the file is empty"},
    {"time,op\n", ":1: the header is not"},
    {PLAIN "1,alloc,1,12x,,\n", ":2: bytes: '12x' is no whole number"},
    {PLAIN "-1,alloc,1,12,,\n", ":2: time_us: '-1' is no whole number"},
    {PLAIN "1,alloc,1,99999999999999999999,,\n", ":2: bytes: '99999999999999999999' is no"},
    {PLAIN "1,alloc,1,12,,\n\n2,move,1,,,\n", ":4: op: 'move' is none"},
    {PLAIN "1,alloc,,12,,\n", ":2: id is missing: 'alloc' needs one"},
    {PLAIN "1,alloc,1,,,\n", ":2: bytes is missing: 'alloc' needs one"},
    {PLAIN "1,alloc,1,0,,\n", ":2: bytes is 0"},
    {PLAIN "1,alloc,1,999999999999999999,,\n", ":2: bytes is more than any device has"},
    {PLAIN "1,alloc,1,12\n", ":2: stream is missing: the row ends before it"},
    {PLAIN "1,alloc,1,12,,,\n", ":2: there are more fields than the header's 6"},
    {PLAIN "1,alloc,1,12,,\"here\n", ":2: site: its quotes are not closed"},
    {PLAIN "1,alloc,1,12,,\n2,alloc,1,12,,\n", ":3: id is live already"},
    {PLAIN "1,free,1,,,\n", ":2: id is not live"},
    {PLAIN "1,refused,1,,,\n", ":2: bytes is missing: 'refused' needs one"},
    {PLAIN "1,fatal,,,,\n", ":2: bytes is missing: 'fatal' needs one"},
    {PLAIN "1,fatal,,0,,\n", ":2: bytes is 0"},
    {PLAIN "1,refused,,-4096,,\n", ":2: bytes: '-4096' is no whole number"},
    {PLAIN "1,fatal,,999999999999999999,,\n", ":2: bytes is more than any device has"},
    {PLAIN "1,refused,,4096,x,\n", ":2: stream: 'x' is no whole number"},
    {PLAIN "1,fatal,,4096\n", ":2: stream is missing: the row ends before it"},
    {PLAIN "1,alloc,1,12,,\n2,died,1,,,\n", ":3: id is that of a block, not of a tensor"},
    {PLAIN "1,segment,1,12,,\n", ":2: addr is missing: 'segment' needs one"},
    {WHOLE "1,segment,1,4096,,,512\n1,born,2,512,,,8192\n", ":3: addr lies in no segment"},
    {WHOLE "1,segment,1,4096,,,512\n1,born,2,4097,,,512\n", ":3: bytes reaches beyond"},
    {WHOLE "1,segment,1,4096,,,512\n1,segment,2,512,,,1024\n", ":3: addr lies in something"},
    {WHOLE "1,map,1,2097152,,,4096\n", ":2: addr and bytes of a page are multiples of 2 MiB"},
    {WHOLE "1,map,1,4194304,,,4194304\n1,unmap,,2097152,,,4194304\n", ":3: bytes does not end"},
    {WHOLE "1,unmap,,2097152,,,4194304\n", ":2: addr is not where a page is mapped"},
    {WHOLE "1,unreserve,1,,,,\n", ":2: id is no reservation"},
    {WHOLE "1,cached,,512,,,4096\n", ":2: addr lies in no segment"},
    {WHOLE "1,segment,1,4096,,,512\n1,cached,,4097,,,512\n", ":3: bytes reaches beyond"},
    {WHOLE "1,freeze,,,,,4096\n", ":2: addr lies in no segment"},
};

Test(recording, faults_are_named)
{
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
        const char *path = write_text("bad.csv", faults[i].text);
        struct ms_recording recording;
        char why[PATH_MAX + 512] = "", expected[PATH_MAX + 512];

        cr_assert(ms_recording_begin(&recording));
        cr_expect_not(ms_recording_read_csv(&recording, path, why, sizeof(why)), "fault %zu", i);
        (void)snprintf(expected, sizeof(expected), "%s%s", path, faults[i].expected);
        cr_expect_eq(strncmp(why, expected, strlen(expected)), 0, "fault %zu: '%s', not '%s'", i,
                     why, expected);
        ms_recording_free(&recording);
    }
}

Test(recording, a_line_without_end)
{
    char text[8192] = PLAIN;
    struct ms_recording recording;
    char why[PATH_MAX + 512] = "";

    memset(text + strlen(text), '1', 6000);
    cr_assert(ms_recording_begin(&recording));
    cr_assert_not(ms_recording_read_csv(&recording, write_text("bad.csv", text), why, sizeof(why)));
    cr_assert_not_null(strstr(why, ":2: the line is longer than"), "%s", why);
    ms_recording_free(&recording);
}

Test(recording, no_file)
{
    struct ms_recording recording;
    char why[PATH_MAX + 512] = "";

    cr_assert(ms_recording_begin(&recording));
    cr_assert_not(ms_recording_read_csv(&recording, path_of("none.csv"), why, sizeof(why)));
    cr_assert_not_null(strstr(why, "none.csv: cannot be opened"), "%s", why);
    ms_recording_free(&recording);
}

/* The generator keeps its own books. */
Test(recording, a_trace)
{
    static struct synthetic run;
    ms_trace_t *trace = synthetic_open(synthetic_folder());
    struct ms_recording recording;
    char why[PATH_MAX + 512] = "", folder[PATH_MAX];

    synthetic_begin(&run, trace, 1);
    synthetic_churn(&run, 50000);
    (void)snprintf(folder, sizeof(folder), "%s", ms_trace_dir(trace));
    cr_assert(ms_recording_begin(&recording));
    cr_assert(ms_recording_read_trace(&recording, folder, 0, why, sizeof(why)), "%s", why);
    cr_assert_eq(recording.tensor_allocations, run.allocations,
                 "the newest events are not packed yet");
    ms_recording_free(&recording);

    ms_trace_close(trace, true, 0);
    cr_assert(ms_recording_begin(&recording));
    cr_assert(ms_recording_read_trace(&recording, folder, -1, why, sizeof(why)), "%s", why);
    cr_assert_eq(recording.tensor_allocations, run.allocations);
    cr_assert_eq(recording.peak_live_bytes, run.peak_live_bytes);
    cr_assert_eq(recording.end_live_bytes, run.live_bytes);
    cr_assert_eq(recording.left_out, 0);
    cr_assert_eq(recording.cap_bytes, 23 * GIB);
    cr_assert_eq(recording.device_bytes, 24 * GIB);
    ms_recording_free(&recording);

    cr_assert(ms_recording_begin(&recording));
    cr_assert_not(ms_recording_read_trace(&recording, folder, 5, why, sizeof(why)));
    cr_assert_not_null(strstr(why, "it has no event of device 5"), "%s", why);
    ms_recording_free(&recording);
}

Test(recording, steps_go_from_a_trace_into_a_csv)
{
    static struct synthetic run;
    ms_trace_t *trace = synthetic_open(synthetic_folder());
    struct ms_recording recording, again;
    struct ms_buffer out = {0};
    char why[PATH_MAX + 512] = "";

    synthetic_begin(&run, trace, 1);
    for (uint64_t step = 1; step <= 5; step++) {
        ms_trace_emit(trace, &(struct ms_event){.kind = MS_EVENT_STEP, .id = step});
        synthetic_churn(&run, 100);
    }
    ms_trace_close(trace, true, 0);
    cr_assert(ms_recording_begin(&recording));
    cr_assert(ms_recording_read_trace(&recording, ms_trace_dir(trace), -1, why, sizeof(why)), "%s",
              why);
    cr_assert_eq(recording.steps, 5);
    ms_recording_format_csv(&recording, &out);
    ms_buffer_append(&out, "", 1);
    again = read_text(out.at);
    cr_assert_eq(again.steps, 5);
    cr_assert_eq(ms_recording_count(&again), ms_recording_count(&recording));
    for (size_t i = 0; i < ms_recording_count(&again); i++) {
        cr_assert_eq(ms_recording_at(&again, i)->kind, ms_recording_at(&recording, i)->kind);
    }
    ms_buffer_free(&out);
    ms_recording_free(&again);
    ms_recording_free(&recording);
}

/* ---- requests that were refused ---- */

static void refuse(ms_trace_t *trace, uint8_t device, uint64_t bytes, uint64_t torch_called_bytes)
{
    struct ms_oom_state state =
        synthetic_oom(bytes, torch_called_bytes ? MS_OOM_TORCH : MS_OOM_DRIVER);

    state.refused_bytes = torch_called_bytes;
    state.site = 7;
    ms_trace_oom(trace, device, &state);
}

static void tell(ms_trace_t *trace, enum ms_event_kind kind, uint64_t id, uint64_t bytes)
{
    ms_trace_emit(trace, &(struct ms_event){
                             .kind = (uint8_t)kind, .id = id, .addr = id << 40, .bytes = bytes});
}

static ms_trace_t *begin_with_a_block(void)
{
    ms_trace_t *trace = synthetic_open(synthetic_folder());

    ms_trace_device(trace, 0, "a card", NULL, 24 * GIB, 23 * GIB);
    tell(trace, MS_EVENT_BLOCK_ALLOC, 1, 4 * GIB);
    return trace;
}

static struct ms_recording end_with(ms_trace_t *trace, int status)
{
    struct ms_recording recording;
    char why[PATH_MAX + 512] = "";

    ms_trace_close(trace, true, status);
    cr_assert(ms_recording_begin(&recording));
    cr_assert(ms_recording_read_trace(&recording, ms_trace_dir(trace), 0, why, sizeof(why)), "%s",
              why);
    cr_assert_eq(recording.left_out, 0);
    return recording;
}

/* The kinds of the operations after the first: a letter each. */
static const char *kinds_of(const struct ms_recording *recording)
{
    static const char letters[MS_OPERATION_KIND_COUNT] = {[MS_OPERATION_ALLOC] = 'a',
                                                          [MS_OPERATION_FREE] = 'f',
                                                          [MS_OPERATION_REFUSED] = 'r',
                                                          [MS_OPERATION_FATAL] = 'X'};
    static char kinds[256];
    const size_t count = ms_recording_count(recording);

    cr_assert_leq(count, sizeof(kinds));
    for (size_t i = 1; i < count; i++) {
        kinds[i - 1] = letters[ms_recording_at(recording, i)->kind];
    }
    kinds[count > 0 ? count - 1 : 0] = '\0';
    return kinds;
}

Test(recording, what_a_run_died_of)
{
    ms_trace_t *trace = begin_with_a_block();

    refuse(trace, 0, 20 * GIB, 0);

    struct ms_recording recording = end_with(trace, 1);
    const struct ms_operation *last = ms_recording_at(&recording, 1);

    cr_assert_str_eq(kinds_of(&recording), "X");
    cr_assert_eq(last->bytes, 20 * GIB);
    cr_assert_eq(last->site, 7);
    cr_assert_eq(recording.peak_live_bytes, 4 * GIB);
    cr_assert_eq(recording.peak_wanted_bytes, 24 * GIB);
    ms_recording_free(&recording);
}

/* Its unwinding frees, and may still allocate a little. */
Test(recording, what_comes_after_a_death)
{
    ms_trace_t *trace = begin_with_a_block();

    refuse(trace, 0, 20 * GIB, 0);
    tell(trace, MS_EVENT_BLOCK_FREE, 1, 4 * GIB);
    tell(trace, MS_EVENT_BLOCK_ALLOC, 2, 512);

    struct ms_recording recording = end_with(trace, 1);

    cr_assert_str_eq(kinds_of(&recording), "Xfa");
    ms_recording_free(&recording);
}

/* Halved, and got; then something larger, that nobody gets. */
Test(recording, what_a_run_went_on_without)
{
    ms_trace_t *trace = begin_with_a_block();

    refuse(trace, 0, 20 * GIB, 0);
    refuse(trace, 0, 19 * GIB, 0);
    tell(trace, MS_EVENT_BLOCK_ALLOC, 2, 19 * GIB);
    tell(trace, MS_EVENT_BLOCK_FREE, 2, 19 * GIB);
    tell(trace, MS_EVENT_BLOCK_ALLOC, 2, 20 * GIB);
    refuse(trace, 0, 21 * GIB, 0);
    refuse(trace, 1, 21 * GIB, 0);

    struct ms_recording recording = end_with(trace, 1);

    cr_assert_str_eq(kinds_of(&recording), "rrafaX", "and nothing of the other device");
    cr_assert_eq(ms_recording_at(&recording, 6)->bytes, 21 * GIB);
    ms_recording_free(&recording);
}

Test(recording, who_ends_well_died_of_nothing)
{
    ms_trace_t *trace = begin_with_a_block();

    refuse(trace, 0, 20 * GIB, 0);

    struct ms_recording recording = end_with(trace, 0);

    cr_assert_str_eq(kinds_of(&recording), "r");
    cr_assert_eq(recording.peak_wanted_bytes, 4 * GIB);
    ms_recording_free(&recording);
}

Test(recording, who_allocates_on_died_of_nothing)
{
    ms_trace_t *trace = begin_with_a_block();

    refuse(trace, 0, 20 * GIB, 0);
    for (uint64_t id = 2; id < 80; id++) {
        tell(trace, MS_EVENT_BLOCK_ALLOC, id, 512);
    }

    struct ms_recording recording = end_with(trace, 1);

    cr_assert_eq(recording.refused, 1);
    cr_assert_eq(recording.fatal, 0);
    ms_recording_free(&recording);
}

/* PyTorch asks the driver for 20 GiB to put 19 in, frees what it has cached, asks again, and raises
 * its error: one request, refused where nothing was cached any more. */
Test(recording, torchs_retry_is_one_request)
{
    ms_trace_t *trace = begin_with_a_block();

    refuse(trace, 0, 20 * GIB, 0);
    tell(trace, MS_EVENT_BLOCK_FREE, 1, 4 * GIB);
    refuse(trace, 0, 20 * GIB, 0);
    refuse(trace, 0, 19 * GIB, 20 * GIB);

    struct ms_recording recording = end_with(trace, 1);

    cr_assert_str_eq(kinds_of(&recording), "fX");
    cr_assert_eq(ms_recording_at(&recording, 2)->bytes, 20 * GIB, "with what it is put in");
    ms_recording_free(&recording);
}

Test(recording, torchs_retry_that_succeeds)
{
    ms_trace_t *trace = begin_with_a_block();

    refuse(trace, 0, 20 * GIB, 0);
    tell(trace, MS_EVENT_BLOCK_FREE, 1, 4 * GIB);
    tell(trace, MS_EVENT_BLOCK_ALLOC, 2, 20 * GIB);

    struct ms_recording recording = end_with(trace, 1);

    cr_assert_str_eq(kinds_of(&recording), "rfa");
    ms_recording_free(&recording);
}

/* More than a CSV may say is still more than any device has. */
Test(recording, a_request_that_no_device_could_meet)
{
    ms_trace_t *trace = begin_with_a_block();
    struct ms_buffer out = {0};

    refuse(trace, 0, UINT64_MAX, 0);

    struct ms_recording recording = end_with(trace, 1);

    cr_assert_eq(ms_recording_at(&recording, 1)->bytes, MS_RECORDED_MOST_BYTES);
    ms_recording_format_csv(&recording, &out);
    ms_buffer_append(&out, "", 1);

    struct ms_recording again = read_text(out.at);

    cr_assert_str_eq(kinds_of(&again), "X");
    ms_buffer_free(&out);
    ms_recording_free(&again);
    ms_recording_free(&recording);
}

/* A part of the log that is damaged may have held what the run ended of: that is said. */
Test(recording, a_log_that_is_damaged)
{
    ms_trace_t *trace = begin_with_a_block();
    struct ms_recording recording;
    char path[PATH_MAX], why[PATH_MAX + 512] = "";
    struct ms_extent_header header;
    FILE *file;

    refuse(trace, 0, 20 * GIB, 0);
    ms_trace_close(trace, true, 1);
    (void)snprintf(path, sizeof(path), "%s/" MS_TRACE_FILE, ms_trace_dir(trace));
    file = fopen(path, "r+");
    cr_assert_not_null(file);
    for (long at = MS_EXTENT_BYTES;; at += MS_EXTENT_BYTES) {
        cr_assert_eq(fseek(file, at, SEEK_SET), 0);
        cr_assert_eq(fread(&header, sizeof(header), 1, file), 1, "there is a log");
        if (header.kind == MS_EXTENT_LOG) {
            cr_assert_eq(fseek(file, at + header.payload_offset, SEEK_SET), 0);
            break;
        }
    }
    cr_assert_eq(fputs("damage", file) < 0, 0);
    cr_assert_eq(fclose(file), 0);

    cr_assert(ms_recording_begin(&recording));
    cr_assert(ms_recording_read_trace(&recording, path, 0, why, sizeof(why)), "%s", why);
    cr_assert_str_eq(kinds_of(&recording), "");
    cr_assert_eq(recording.damaged_windows, 1);
    ms_recording_free(&recording);
}
