/* SPDX-License-Identifier: Apache-2.0 */
/* Lines of source in the page: what is shown of a file, and of which files nothing. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "report/render/source.h"
#include "synthetic.h"

#define LATE UINT64_MAX

static char folder[PATH_MAX], path[2 * PATH_MAX];

static const char *in_folder(const char *name)
{
    if (folder[0] == 0) {
        snprintf(folder, sizeof(folder), "%s", synthetic_folder());
    }
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return path;
}

static const char *write_file(const char *name, const char *text)
{
    FILE *file = fopen(in_folder(name), "w");

    cr_assert(file && fputs(text, file) >= 0 && fclose(file) == 0);
    return path;
}

/* The object as JSON. */
static const char *told(const char *file, uint32_t line, uint64_t before_unix_ns)
{
    static char text[8192];
    const struct ms_frame frame = {
        .language = MS_FRAME_PYTHON, .function = "step", .file = file, .line = line};
    struct ms_buffer out = {0};
    struct ms_json json = {.out = &out, .dense = true, .shown = true};

    ms_source_json(&json, &frame, before_unix_ns);
    snprintf(text, sizeof(text), "%.*s", (int)out.bytes, out.at);
    ms_buffer_free(&out);
    return text;
}

static void assert_says(const char *json, const char *wanted)
{
    cr_assert(strstr(json, wanted), "%s has no %s", json, wanted);
}

static void assert_refused(const char *json, const char *why)
{
    assert_says(json, why);
    cr_assert_null(strstr(json, "\"lines\""), "%s", json);
}

Test(source, the_lines_around)
{
    const char *file = write_file("train.py", "1\n2\n3\n4\n5\n6\n7\n8\n9\n");

    assert_says(told(file, 5, LATE), "\"first\":2,\"lines\":[\"2\",\"3\",\"4\",\"5\",\"6\",\"7\","
                                     "\"8\"],\"why\":null");
    assert_says(told(file, 1, LATE), "\"first\":1,\"lines\":[\"1\",\"2\",\"3\",\"4\"]");
    assert_says(told(file, 9, LATE), "\"first\":6,\"lines\":[\"6\",\"7\",\"8\",\"9\"]");
    assert_says(told(file, 10, LATE), "it has no such line");
    assert_says(told(file, 4000000000u, LATE), "it has no such line");
}

Test(source, a_line_is_no_markup)
{
    const char *json = told(write_file("train.py", "x = '</script><b>'\n"), 1, LATE);

    cr_assert_null(strchr(json, '<'), "%s", json);
}

Test(source, what_changed_since_is_not_what_ran)
{
    const char *file = write_file("train.py", "1\n");
    struct stat status;

    cr_assert_eq(stat(file, &status), 0);

    const uint64_t changed =
        (uint64_t)status.st_mtim.tv_sec * UINT64_C(1000000000) + (uint64_t)status.st_mtim.tv_nsec;

    assert_says(told(file, 1, changed), "\"lines\":[\"1\"]");
    assert_refused(told(file, 1, changed - 1), "it was changed after the run began");
}

Test(source, links_are_not_followed)
{
    char target[sizeof(path)], link[sizeof(path)];

    snprintf(target, sizeof(target), "%s", write_file("train.py", "1\n"));
    snprintf(link, sizeof(link), "%s", in_folder("other.py"));
    cr_assert_eq(symlink(target, link), 0);
    assert_refused(told(link, 1, LATE), "a symbolic link leads to it");

    snprintf(link, sizeof(link), "%s", in_folder("folder"));
    cr_assert_eq(symlink(folder, link), 0);
    assert_refused(told(in_folder("folder/train.py"), 1, LATE), "a symbolic link leads to it");
}

Test(source, only_python_files_that_are_files)
{
    assert_refused(told(write_file("train.txt", "1\n"), 1, LATE), "it is no Python file");
    assert_refused(told("/etc/passwd", 1, LATE), "it is no Python file");
    assert_refused(told("train.py", 1, LATE), "its folder is not known");
    assert_refused(told(in_folder("gone.py"), 1, LATE), "it is not there");
    cr_assert_eq(mkfifo(in_folder("pipe.py"), 0600), 0);
    assert_refused(told(path, 1, LATE), "it is no file");
    cr_assert_eq(mkdir(in_folder("folder.py"), 0700), 0);
    assert_refused(told(path, 1, LATE), "it is no file");
    assert_refused(told(write_file("empty.py", ""), 1, LATE), "too large, or empty");
}

Test(source, what_looks_secret_is_left_out)
{
    static const char *const secret[] = {
        "/job/.env",        "/job/.env.py",       "/job/api_key.py",
        "/job/APIKEYS.py",  "/job/secrets.py",    "/job/aws_credentials.py",
        "/job/password.py", "/home/me/.ssh/x.py", "/job/my-secret.py"};
    static const char *const open[] = {"/job/train.py", "/keys/train.py", "/job/tokenizer.py"};

    for (size_t i = 0; i < sizeof(secret) / sizeof(*secret); i++) {
        cr_assert(ms_source_looks_secret(secret[i]), "%s", secret[i]);
    }
    for (size_t i = 0; i < sizeof(open) / sizeof(*open); i++) {
        cr_assert_not(ms_source_looks_secret(open[i]), "%s", open[i]);
    }
    assert_refused(told(write_file("keys.py", "1\n"), 1, LATE), "it may hold a secret");
}

Test(source, a_secret_in_a_line_is_left_out)
{
    const char *json = told(
        write_file("train.py", "import wandb\nwandb.login(api_key=\"12345\")\nlosses.append(x)\n"),
        3, LATE);

    cr_assert_null(strstr(json, "12345"), "%s", json);
    assert_says(json, "it looks like a secret");
    assert_says(json, "losses.append(x)");
    assert_says(told(write_file("words.py", "x = batch[\"tokens\"]\n"), 1, LATE), "tokens");
}
