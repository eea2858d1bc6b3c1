/* SPDX-License-Identifier: Apache-2.0 */
/* The functions that NVTX calls when ranges begin and end, and their injection. */
#include "shim/frameworks/nvtx.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <wchar.h>

#include "shim/driver/caller.h"
#include "shim/frameworks/nvtx_api.h"
#include "shim/frameworks/nvtx_names.h"
#include "shim/policy/status.h"
#include "shim/sites/tag_names.h"
#include "shim/sites/tags.h"

/* --- Ranges ------------------------------------------------------------------------------------
 */

/* The name of a range: "domain: message", or the message alone in the domain without a name. */
struct label {
    const char *text; /* not owned, or `built` */
    size_t bytes;     /* 0: no name */
    uint32_t color;
    bool step;
    char built[MS_NVTX_DOMAIN_BYTES + 2 + MS_TAG_NAME_BYTES + 1];
};

/* A message in UTF-8; null if there is none. A wide one is converted into `room`. */
static const char *message_of(const struct nvtx_attributes *attributes, char *room,
                              size_t room_bytes)
{
    switch (attributes->message_type) {
    case NVTX_MESSAGE_ASCII:
        return attributes->message.ascii;
    case NVTX_MESSAGE_UNICODE:
        if (attributes->message.unicode == NULL) {
            return NULL;
        }
        ms_nvtx_narrow(attributes->message.unicode, room, room_bytes);
        return room;
    case NVTX_MESSAGE_REGISTERED:
        return ms_nvtx_registered(attributes->message.registered);
    default:
        return NULL;
    }
}

static void name_it(uint16_t domain, const struct nvtx_attributes *attributes, struct label *label)
{
    char wide[MS_TAG_NAME_BYTES + 1];
    label->text = "";
    label->bytes = 0;
    label->color = 0;
    label->step = false;
    if (attributes == NULL || attributes->size < sizeof(*attributes)) {
        return;
    }
    const char *message = message_of(attributes, wide, sizeof(wide));
    if (message == NULL || message[0] == '\0') {
        return;
    }
    label->color = attributes->color_type == NVTX_COLOR_ARGB ? attributes->color : 0;
    label->step = strcmp(message, "step") == 0;
    label->text = message;
    label->bytes = strnlen(message, MS_TAG_NAME_BYTES + 1);
    if (domain != 0 || message == wide) {
        label->text = label->built;
        label->bytes = (size_t)snprintf(label->built, sizeof(label->built), "%s%s%.*s",
                                        ms_nvtx_domain_name(domain), domain != 0 ? ": " : "",
                                        (int)label->bytes, message);
    }
}

static int push(uint16_t domain, const struct nvtx_attributes *attributes)
{
    struct label label;
    name_it(domain, attributes, &label);
    if (label.step) {
        ms_step(MS_STEP_NVTX);
        ms_status_step();
    }
    return ms_tag_push((uint16_t)(MS_TAG_NVTX + domain), label.text, label.bytes, label.color);
}

/* A range's id contains its tag, so that ending it needs no table. */
static nvtx_range_t start(uint16_t domain, const struct nvtx_attributes *attributes)
{
    static _Atomic uint32_t started;
    struct label label;
    name_it(domain, attributes, &label);
    if (label.step) {
        ms_step(MS_STEP_NVTX);
        ms_status_step();
    }
    uint64_t tag = ms_tag_start(label.text, label.bytes, label.color);
    return tag << 32 | (atomic_fetch_add_explicit(&started, 1, memory_order_relaxed) + 1u);
}

static struct nvtx_attributes of_text(const char *message)
{
    return (struct nvtx_attributes){.size = sizeof(struct nvtx_attributes),
                                    .message_type = NVTX_MESSAGE_ASCII,
                                    .message.ascii = message};
}

static struct nvtx_attributes of_wide(const wchar_t *message)
{
    return (struct nvtx_attributes){.size = sizeof(struct nvtx_attributes),
                                    .message_type = NVTX_MESSAGE_UNICODE,
                                    .message.unicode = message};
}

/* --- Functions for NVTX, in the order of its headers ------------------------------------------ */

static nvtx_range_t range_start_ex(const struct nvtx_attributes *attributes)
{
    return start(0, attributes);
}

static nvtx_range_t range_start_a(const char *message)
{
    const struct nvtx_attributes attributes = of_text(message);
    return start(0, &attributes);
}

static nvtx_range_t range_start_w(const wchar_t *message)
{
    const struct nvtx_attributes attributes = of_wide(message);
    return start(0, &attributes);
}

static void range_end(nvtx_range_t range)
{
    ms_tag_end((uint32_t)(range >> 32));
}

static int range_push_ex(const struct nvtx_attributes *attributes)
{
    return push(0, attributes);
}

static int range_push_a(const char *message)
{
    const struct nvtx_attributes attributes = of_text(message);
    return push(0, &attributes);
}

static int range_push_w(const wchar_t *message)
{
    const struct nvtx_attributes attributes = of_wide(message);
    return push(0, &attributes);
}

static int range_pop(void)
{
    return ms_tag_pop(MS_TAG_NVTX);
}

static nvtx_range_t domain_range_start_ex(nvtx_domain_t domain,
                                          const struct nvtx_attributes *attributes)
{
    return start(ms_nvtx_domain(domain), attributes);
}

static void domain_range_end(nvtx_domain_t domain, nvtx_range_t range)
{
    (void)domain;
    range_end(range);
}

static int domain_range_push_ex(nvtx_domain_t domain, const struct nvtx_attributes *attributes)
{
    return push(ms_nvtx_domain(domain), attributes);
}

static int domain_range_pop(nvtx_domain_t domain)
{
    return ms_tag_pop((uint16_t)(MS_TAG_NVTX + ms_nvtx_domain(domain)));
}

/* --- Injection ---------------------------------------------------------------------------------
 */

struct nvtx_answer {
    unsigned int id;
    nvtx_function_t function;
};

/* NVTX turns functions that are left out into calls that do nothing. */
static bool fill(const struct nvtx_callbacks *callbacks, int module,
                 const struct nvtx_answer *answers, size_t count)
{
    nvtx_function_t **table = NULL;
    unsigned int size = 0;
    if (callbacks->module_table(module, &table, &size) == 0 || table == NULL) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        if (answers[i].id < size && table[answers[i].id] != NULL) {
            *table[answers[i].id] = answers[i].function;
        }
    }
    return true;
}

int InitializeInjectionNvtx2(nvtx_export_table_t tables)
{
#define ANSWER(id, function)              \
    {                                     \
        (id), (nvtx_function_t)(function) \
    }
    static const struct nvtx_answer core[] = {
        ANSWER(NVTX_CORE_RANGE_START_EX, range_start_ex),
        ANSWER(NVTX_CORE_RANGE_START_A, range_start_a),
        ANSWER(NVTX_CORE_RANGE_START_W, range_start_w),
        ANSWER(NVTX_CORE_RANGE_END, range_end),
        ANSWER(NVTX_CORE_RANGE_PUSH_EX, range_push_ex),
        ANSWER(NVTX_CORE_RANGE_PUSH_A, range_push_a),
        ANSWER(NVTX_CORE_RANGE_PUSH_W, range_push_w),
        ANSWER(NVTX_CORE_RANGE_POP, range_pop),
    };
    static const struct nvtx_answer core2[] = {
        ANSWER(NVTX_CORE2_RANGE_START_EX, domain_range_start_ex),
        ANSWER(NVTX_CORE2_RANGE_END, domain_range_end),
        ANSWER(NVTX_CORE2_RANGE_PUSH_EX, domain_range_push_ex),
        ANSWER(NVTX_CORE2_RANGE_POP, domain_range_pop),
        ANSWER(NVTX_CORE2_REGISTER_STRING_A, ms_nvtx_register_string_a),
        ANSWER(NVTX_CORE2_REGISTER_STRING_W, ms_nvtx_register_string_w),
        ANSWER(NVTX_CORE2_DOMAIN_CREATE_A, ms_nvtx_domain_create_a),
        ANSWER(NVTX_CORE2_DOMAIN_CREATE_W, ms_nvtx_domain_create_w),
    };
#undef ANSWER
    const struct nvtx_version *version = tables(NVTX_TABLE_VERSION);
    const struct nvtx_callbacks *callbacks = tables(NVTX_TABLE_CALLBACKS);
    if (callbacks == NULL || callbacks->struct_size < sizeof(*callbacks)) {
        return 0;
    }
    if (version != NULL && version->struct_size >= sizeof(*version)) {
        version->set_injection_version(NVTX_VERSION_OURS);
    }
    bool core_filled = fill(callbacks, NVTX_MODULE_CORE, core, sizeof(core) / sizeof(core[0]));
    bool core2_filled = fill(callbacks, NVTX_MODULE_CORE2, core2, sizeof(core2) / sizeof(core2[0]));
    return core_filled || core2_filled ? 1 : 0;
}

/* NVIDIA's own libraries mark each call of their interfaces: thousands of ranges a step, which name
 * no phase of the program. They get no tool, so that their marks cost what they always do. */
char *ms_nvtx_path(const void *caller)
{
    Dl_info self;
    enum ms_library library = ms_library_at(caller);
    if (library == MS_LIBRARY_NCCL || library == MS_LIBRARY_CUDA ||
        dladdr((const void *)(uintptr_t)ms_nvtx_path, &self) == 0) {
        return NULL;
    }
    return (char *)(uintptr_t)self.dli_fname; /* the loader's string, which stays valid */
}
