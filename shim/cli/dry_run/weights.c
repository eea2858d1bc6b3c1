/* SPDX-License-Identifier: Apache-2.0 */
/* Says beforehand what weights take of this machine's memory. A safetensors file has little beside
 * its tensors, and a pickled one has them uncompressed, so that the size of a file says it. */
#include "shim/cli/dry_run/weights.h"

#include <dirent.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "allocator/base/path.h"
#include "allocator/base/units.h"
#include "shim/cli/dry_run/complaint.h"
#include "shim/cli/dry_run/ground.h"

#define CONFIG       "config.json"
#define CONFIG_BYTES (64 << 10) /* so much of it is looked at */
#define SINGLE_BYTES 4          /* of float32, PyTorch's own choice */

static bool is_safetensors(const char *name)
{
    return ms_name_ends_with(name, ".safetensors");
}

/* As Hugging Face names them: other .bin files of a folder are an optimizer's, or a trainer's. */
static bool is_pickled(const char *name)
{
    return strncmp(name, "pytorch_model", strlen("pytorch_model")) == 0 &&
           ms_name_ends_with(name, ".bin");
}

static uint64_t sum_files(DIR *folder, bool (*is_weights)(const char *name))
{
    const struct dirent *entry;
    struct stat file;
    uint64_t bytes = 0;

    rewinddir(folder);
    while ((entry = readdir(folder))) {
        if (is_weights(entry->d_name) && fstatat(dirfd(folder), entry->d_name, &file, 0) == 0) {
            bytes += (uint64_t)file.st_size;
        }
    }
    return bytes;
}

/* A folder that has both forms has the same weights twice. */
static uint64_t bytes_of_folder(const char *path)
{
    DIR *folder = opendir(path);
    uint64_t bytes;

    if (!folder) {
        return 0;
    }
    bytes = sum_files(folder, is_safetensors);
    bytes = bytes > 0 ? bytes : sum_files(folder, is_pickled);
    (void)closedir(folder);
    return bytes;
}

static uint64_t bytes_of(const char *path)
{
    struct stat found;

    if (stat(path, &found) != 0) {
        return 0;
    }
    if (S_ISDIR(found.st_mode)) {
        return bytes_of_folder(path);
    }
    return is_safetensors(path) ? (uint64_t)found.st_size : 0;
}

static void say(const char *path, uint64_t bytes, uint64_t processes, uint64_t limit_bytes)
{
    const uint64_t all_bytes = bytes * processes;
    char each[64] = "";

    if (processes > 1) {
        (void)snprintf(each, sizeof(each), " in each of %llu processes",
                       (unsigned long long)processes);
    }
    if (limit_bytes == 0 || all_bytes <= limit_bytes) {
        complain("%s has weights of %s: a job that loads them to the host%s takes %s of it", path,
                 MS_BYTES(bytes), each, MS_BYTES(all_bytes));
    } else {
        complain("%s has weights of %s: a job that loads them to the host%s would take %s, and may "
                 "take %s: it would be ended on the way (--host-memory); one that loads them to "
                 "the device (device_map) is not",
                 path, MS_BYTES(bytes), each, MS_BYTES(all_bytes), MS_BYTES(limit_bytes));
    }
}

/* ---- a config alone ---- */

/* Whether it is a model's: tools of all kinds have a config.json. */
static bool describes_model(const char *path)
{
    char text[CONFIG_BYTES + 1];
    FILE *file = fopen(path, "re");
    const size_t bytes = file ? fread(text, 1, CONFIG_BYTES, file) : 0;

    if (file) {
        (void)fclose(file);
    }
    text[bytes] = '\0';
    return strstr(text, "\"architectures\"") != NULL;
}

/* The folder of a config that a word names: itself, or the one that the file is in. */
static bool find_config(const char *path, char *folder)
{
    char config[PATH_MAX];
    struct stat found;
    const char *name = ms_base_name(path);

    if (stat(path, &found) != 0) {
        return false;
    }
    if (S_ISDIR(found.st_mode)) {
        return snprintf(folder, PATH_MAX, "%s", path) < PATH_MAX &&
               snprintf(config, sizeof(config), "%s/" CONFIG, path) < (int)sizeof(config) &&
               describes_model(config);
    }
    return strcmp(name, CONFIG) == 0 && describes_model(path) &&
           snprintf(folder, PATH_MAX, "%.*s.", (int)(name - path), path) < PATH_MAX;
}

static void say_model(const char *path, const struct ms_dry_model *model, uint64_t processes,
                      uint64_t limit_bytes)
{
    const uint64_t single_bytes = model->elements * SINGLE_BYTES;
    const bool fits = limit_bytes == 0 || model->bytes * processes <= limit_bytes;
    char each[64] = "", wider[64 + MS_UNIT_TEXT_BYTES] = "";

    if (processes > 1) {
        (void)snprintf(each, sizeof(each), " in each of %llu processes",
                       (unsigned long long)processes);
    }
    if (single_bytes > model->bytes) {
        (void)snprintf(wider, sizeof(wider), ", and %s if it makes it in float32",
                       MS_BYTES(single_bytes * processes));
    }
    complain("%s describes a model of %s parameters and has no weights: a job that initialises it "
             "on the host%s takes %s of the host's memory in %s%s",
             path, MS_COUNT(model->elements), each, MS_BYTES(model->bytes * processes), model->type,
             wider);
    if (!fits) {
        complain("that is more than the %s that it may take (--host-memory): it would be ended on "
                 "the way. A job that makes the model on the meta device, or on the GPU (with "
                 "torch.device), is not",
                 MS_BYTES(limit_bytes));
    }
}

void ms_dry_weights_say(char *const *command, uint64_t processes, uint64_t limit_bytes,
                        bool configs)
{
    for (size_t i = 0; command[i]; i++) {
        const char *behind = strchr(command[i], '=');
        const char *path = behind ? behind + 1 : command[i];
        const uint64_t bytes = bytes_of(path);
        struct ms_dry_model model;
        char folder[PATH_MAX];

        if (bytes > 0) {
            say(path, bytes, processes, limit_bytes);
        } else if (configs && find_config(path, folder) && bytes_of(folder) == 0 &&
                   ms_dry_ground_count(command, folder, &model)) {
            say_model(path, &model, processes, limit_bytes);
        }
    }
}
