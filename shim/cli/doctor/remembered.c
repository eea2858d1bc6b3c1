/* SPDX-License-Identifier: Apache-2.0 */
/* Compares answers that earlier probes left in the cache folder with this trial. */
#include "shim/cli/doctor/remembered.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "allocator/base/clock.h"
#include "shim/tables/probe_codes.h"

static int device_of(const struct ms_doctor_facts *facts, const char *name)
{
    for (int i = 0; i < facts->device_count; i++) {
        const char *uuid = facts->devices[i].uuid;
        if (strncmp(name, "host-", 5) == 0 && strncmp(name + 5, uuid, strlen(uuid)) == 0) {
            return i;
        }
    }
    return -1;
}

/* Whether this trial found the opposite. */
static bool contradicts(const struct ms_doctor_device *device, enum ms_probe_answer kept)
{
    enum ms_probe_answer now =
        device->host_offered ? ms_probe_answer_of(device->host_code) : MS_PROBE_UNKNOWN;
    return kept != MS_PROBE_UNKNOWN && now != MS_PROBE_UNKNOWN && kept != now;
}

static void read_one(const struct ms_doctor_facts *facts, const char *name,
                     struct ms_doctor_remembered *out)
{
    struct ms_remembered_answer answer = {.code = MS_PROBE_NOT_RUN_CODE};
    struct ms_doctor_kept kept = {.device = device_of(facts, name)};
    (void)ms_remembered_read(&out->folder, name, &answer, &kept.trouble);
    const enum ms_probe_answer says = ms_probe_answer_of(answer.code);
    const bool wrong =
        !kept.trouble && kept.device >= 0 && contradicts(&facts->devices[kept.device], says);
    if (!kept.trouble && !wrong && says != MS_PROBE_NO) {
        return;
    }
    const time_t since = (time_t)(answer.when_ns / (int64_t)MS_NS_PER_S);
    struct tm utc = {0};
    (void)gmtime_r(&since, &utc);
    (void)strftime(kept.since, sizeof(kept.since), "%Y-%m-%d %H:%M UTC", &utc);
    (void)snprintf(kept.name, sizeof(kept.name), "%s", name);
    kept.code = answer.code;
    kept.removed = wrong || kept.trouble;
    if (kept.removed) {
        ms_remembered_forget(&out->folder, name);
    }
    if (out->count < MS_DOCTOR_KEPT_MAX) {
        out->list[out->count++] = kept;
    }
}

static void read_all(const struct ms_doctor_facts *facts, struct ms_doctor_remembered *out)
{
    int folder = openat(out->folder.folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = folder >= 0 ? fdopendir(folder) : NULL;
    if (!list) {
        if (folder >= 0) {
            (void)close(folder);
        }
        return;
    }
    for (struct dirent *entry = readdir(list); entry; entry = readdir(list)) {
        if (ms_remembered_is_key(entry->d_name)) {
            read_one(facts, entry->d_name, out);
        }
    }
    (void)closedir(list);
}

void ms_doctor_read_remembered(const struct ms_doctor_facts *facts, char *const *environment,
                               bool forget, struct ms_doctor_remembered *out)
{
    out->count = out->forgotten = 0;
    out->forget = forget;
    ms_remembered_open(&out->folder, environment, false);
    if (out->folder.state == MS_REMEMBERED_OPEN) {
        if (forget) {
            out->forgotten = ms_remembered_forget_all(&out->folder);
        } else {
            read_all(facts, out);
        }
    }
    ms_remembered_close(&out->folder);
}
