/* SPDX-License-Identifier: Apache-2.0 */
/* Sets up the simulated GPU for a command. */
#include "shim/cli/dry_run/ground.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "allocator/base/buffer.h"
#include "allocator/base/path.h"
#include "shim/cli/dry_run/complaint.h"
#include "shim/cli/launch/helper.h"
#include "shim/cli/launch/place.h"
#include "shim/cli/launch/preload.h"
#include "shim/tables/remembered.h"

#define COMMAND   "dry-run"
#define BUILT     "simgpu"
#define INSTALLED "memshim/simulated-gpu"

/* ---- the libraries ---- */

static bool is_python(const char *path)
{
    return strncmp(ms_base_name(path), "python", strlen("python")) == 0;
}

/* The interpreter in the first line of a script such as torchrun, if that is a Python. */
static bool find_interpreter(const char *script, char *path)
{
    char line[PATH_MAX];
    FILE *file = fopen(script, "re");
    bool found = false;

    if (file && fgets(line, sizeof(line), file) && strncmp(line, "#!", 2) == 0) {
        char *word = line + 2 + strspn(line + 2, " \t");
        size_t length = strcspn(word, " \t\n");

        if (length > 4 && strncmp(word + length - 4, "/env", 4) == 0) {
            word += length + strspn(word + length, " \t");
            length = strcspn(word, " \t\n");
        }
        word[length] = '\0';
        found = is_python(word) && ms_cli_find_program(word, path);
    }
    if (file) {
        (void)fclose(file);
    }
    return found;
}

/* The Python that the command runs, otherwise the one on PATH: its wheels decide which libraries
 * need stand-ins. */
static bool find_python(char *const *command, char *path)
{
    char program[PATH_MAX];

    for (; *command && strchr(*command, '=') && strcmp(*command, "env") != 0; command++) {
    }
    if (*command && ms_cli_find_program(*command, program)) {
        if (is_python(program)) {
            return snprintf(path, PATH_MAX, "%s", program) < PATH_MAX;
        }
        if (find_interpreter(program, path)) {
            return true;
        }
    }
    return ms_cli_find_program("python", path) || ms_cli_find_program("python3", path);
}

/* Where the stand-ins for the wheels' libraries are kept: in the user's cache folder. */
static bool find_cache(char *path)
{
    struct ms_remembered remembered;
    bool found;

    ms_remembered_open(&remembered, environ, true);
    found = remembered.state == MS_REMEMBERED_OPEN &&
            snprintf(path, PATH_MAX, "%s/simulated-gpu", remembered.path) < PATH_MAX &&
            (mkdir(path, 0700) == 0 || errno == EEXIST);
    if (!found) {
        complain("there is no cache folder to keep the doubles of the program's libraries in%s%s "
                 "(XDG_CACHE_HOME, or .cache in HOME)",
                 remembered.trouble ? ": " : "", remembered.trouble ? remembered.trouble : "");
    }
    ms_remembered_close(&remembered);
    return found;
}

/* The last line first, because each is put before what is preloaded already. */
static bool preload_lines(char *lines)
{
    char *last;

    while ((last = strrchr(lines, '\n'))) {
        *last = '\0';
        if (last[1] && !ms_preload(COMMAND, last + 1)) {
            return false;
        }
    }
    return *lines == '\0' || ms_preload(COMMAND, lines);
}

static int ask(char *const *argv, struct ms_buffer *out)
{
    return ms_helper_read(argv, out, "memshim " COMMAND ": interrupted: the command was not begun");
}

static bool preload_doubles(const char *folder, char *const *command)
{
    char python[PATH_MAX], cache[PATH_MAX], script[PATH_MAX];
    char *argv[] = {python, script, (char *)folder, cache, NULL};
    struct ms_buffer out = {0};
    bool good = true;

    if (!find_python(command, python)) {
        return true; /* a program without Python brings no wheels */
    }
    if (snprintf(script, sizeof(script), "%s/doubles/build.py", folder) >= (int)sizeof(script) ||
        !find_cache(cache)) {
        return false;
    }
    if (ask(argv, &out) != 0) {
        complain("the doubles of PyTorch's libraries could not be made (see above)");
        good = false;
    } else {
        good = preload_lines(out.at);
    }
    ms_buffer_free(&out);
    return good;
}

bool ms_dry_ground_readers(void)
{
    char folder[PATH_MAX], path[PATH_MAX];

    return ms_cli_find_folder(folder, BUILT, INSTALLED) &&
           snprintf(path, sizeof(path), "%s/libsimgpu-torch.so", folder) < (int)sizeof(path) &&
           ms_preload(COMMAND, path);
}

/* so that nvidia-smi answers for the simulated card */
static bool put_on_path(const char *folder)
{
    const char *before = getenv("PATH");
    struct ms_buffer path = {0};
    bool good;

    ms_buffer_format(&path, "%s", folder);
    ms_buffer_add(&path, "/bin:");
    ms_buffer_add(&path, before ? before : "/usr/local/bin:/usr/bin:/bin");
    ms_buffer_append(&path, "", 1);
    good = !path.failed && setenv("PATH", path.at, 1) == 0;
    ms_buffer_free(&path);
    return good;
}

bool ms_dry_ground_preload(char *const *command)
{
    static const char *const libraries[] = {"libnvidia-ml.so.1", "libcuda.so.1"};
    char folder[PATH_MAX], path[PATH_MAX];
    const char *before = getenv("LD_LIBRARY_PATH");
    struct ms_buffer search = {0};
    bool good = ms_cli_find_folder(folder, BUILT, INSTALLED);

    if (!good) {
        complain("the simulated GPU is missing: " BUILT " beside this executable, or " INSTALLED
                 " in " MEMSHIM_LIBRARY_FROM_BIN);
        return false;
    }
    good = preload_doubles(folder, command);

    for (size_t i = 0; good && i < sizeof(libraries) / sizeof(*libraries); i++) {
        good = snprintf(path, sizeof(path), "%s/%s", folder, libraries[i]) < (int)sizeof(path) &&
               ms_preload(COMMAND, path);
    }
    good = good && put_on_path(folder);
    if (good) {
        ms_buffer_add(&search, folder);
        if (before && *before) {
            ms_buffer_add(&search, ":");
            ms_buffer_add(&search, before);
        }
        ms_buffer_append(&search, "", 1);
        good = !search.failed && setenv("LD_LIBRARY_PATH", search.at, 1) == 0;
    }
    ms_buffer_free(&search);
    return good;
}

/* The command's Python, and a script of doubles/ for it; each has PATH_MAX bytes. */
static bool find_script(char *const *command, const char *name, char *python, char *script)
{
    char home[PATH_MAX];

    return find_python(command, python) && ms_cli_find_folder(home, BUILT, INSTALLED) &&
           snprintf(script, PATH_MAX, "%s/doubles/%s", home, name) < PATH_MAX;
}

bool ms_dry_ground_weights(char *const *command, const char *folder, uint64_t host_bytes,
                           uint64_t processes, char *made)
{
    char python[PATH_MAX], script[PATH_MAX], cache[PATH_MAX], limit[32], count[32];
    char *argv[] = {python, script, (char *)folder, cache, limit, count, NULL};
    struct ms_buffer out = {0};
    bool good;

    (void)snprintf(limit, sizeof(limit), "%llu", (unsigned long long)host_bytes);
    (void)snprintf(count, sizeof(count), "%llu", (unsigned long long)processes);
    if (!find_script(command, "offline_weights.py", python, script) || !find_cache(cache)) {
        complain("--offline-weights needs a Python with transformers");
        return false;
    }
    good = ask(argv, &out) == 0 && out.bytes > 1;
    if (good) {
        out.at[strcspn(out.at, "\n")] = '\0';
        good = snprintf(made, PATH_MAX, "%s", out.at) < PATH_MAX;
    }
    ms_buffer_free(&out);
    return good;
}

bool ms_dry_ground_data(char *const *command, const char *path)
{
    char python[PATH_MAX], script[PATH_MAX];
    char *argv[] = {python, script, (char *)path, NULL};
    struct ms_buffer out = {0};
    bool good;

    if (!find_script(command, "data_stub.py", python, script)) {
        complain("--data-stub needs a Python");
        return false;
    }
    good = ask(argv, &out) == 0;
    ms_buffer_free(&out);
    return good;
}

bool ms_dry_ground_count(char *const *command, const char *folder, struct ms_dry_model *model)
{
    char python[PATH_MAX], script[PATH_MAX];
    char *argv[] = {python, script, (char *)folder, NULL};
    struct ms_buffer out = {0};
    bool good = find_script(command, "offline_weights.py", python, script) &&
                ask(argv, &out) == 0 &&
                sscanf(out.at, "%" SCNu64 " %" SCNu64 " %31s", &model->elements, &model->bytes,
                       model->type) == 3;

    ms_buffer_free(&out);
    return good;
}

static size_t count_of(char *const *words)
{
    size_t count = 0;

    while (words[count]) {
        count++;
    }
    return count;
}

bool ms_dry_ground_wrap(char *const *command, const struct ms_buffer *words, char ***wrapped)
{
    static char python[PATH_MAX], script[PATH_MAX], end[] = "--";
    char **argv = calloc(words->bytes + count_of(command) + 4, sizeof(*argv));
    size_t count = 0;

    *wrapped = argv;
    if (!argv || !find_script(command, "around.py", python, script)) {
        complain("there is no Python on the PATH to begin the command with");
        return false;
    }
    argv[count++] = python;
    argv[count++] = script;
    for (size_t i = 0; i < words->bytes; i += strlen(words->at + i) + 1) {
        argv[count++] = words->at + i;
    }
    argv[count++] = end;
    memcpy(argv + count, command, count_of(command) * sizeof(*argv));
    return true;
}

/* ---- the environment ---- */

static bool set_number(const char *name, uint64_t value)
{
    char text[32];

    (void)snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
    return setenv(name, text, 1) == 0;
}

static bool set_nccl(const struct ms_card *card)
{
    const struct ms_card_nccl nccl = ms_card_nccl(card);
    char text[64];

    (void)snprintf(text, sizeof(text), "%u,%u,%u%s", nccl.channels, nccl.nvls_channels,
                   nccl.peer_channels, nccl.on_host ? ",host" : "");
    return setenv("SIMGPU_NCCL", text, 1) == 0;
}

bool ms_dry_ground_set(const struct ms_card *card, uint64_t total_bytes, uint64_t devices,
                       bool random, bool late, const char *shared)
{
    char name[MS_CARD_NAME_BYTES + 16], capability[16], devices_file[PATH_MAX];

    (void)snprintf(name, sizeof(name), "Simulated %s", card->name);
    (void)snprintf(capability, sizeof(capability), "%u.%u", card->major % 100, card->minor % 10);
    (void)unsetenv("CUDA_VISIBLE_DEVICES");
    return snprintf(devices_file, sizeof(devices_file), "%s/devices", shared) <
               (int)sizeof(devices_file) &&
           setenv("SIMGPU_SHARED", devices_file, 1) == 0 && setenv("SIMGPU_NAME", name, 1) == 0 &&
           setenv("SIMGPU_CAPABILITY", capability, 1) == 0 &&
           setenv("SIMGPU_CONTENTS", "none", 1) == 0 && set_nccl(card) &&
           setenv("SIMGPU_VALUES", random ? "random" : "zeros", 1) == 0 &&
           setenv("SIMGPU_SCHEDULE", late ? "late" : "early", 1) == 0 &&
           set_number("SIMGPU_DEVICES", devices) && set_number("SIMGPU_MEMORY", total_bytes) &&
           set_number("SIMGPU_CONTEXT", card->context_bytes) &&
           set_number("SIMGPU_PROCESSORS", card->processors);
}
