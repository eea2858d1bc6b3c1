#include "shim/sites/native.h"

#include <elf.h>
#include <link.h>

#include "shim/sites/modules.h"
#include "shim/sites/unwind_library.h"

/* The linker's name for where this library begins. */
extern const ElfW(Ehdr) own_header __asm__("__ehdr_start") __attribute__((visibility("hidden")));

#define OWN_MAX 32u /* of the shim's own frames on top */

static _Thread_local __attribute__((tls_model("initial-exec"))) uint64_t *mine;
static _Thread_local __attribute__((tls_model("initial-exec")))
uint64_t frames[MS_STACK_DEPTH_MAX + OWN_MAX];

static uintptr_t own_text, own_text_bytes;

static void find_own_text(void)
{
    const uintptr_t base = (uintptr_t)&own_header;
    const ElfW(Phdr) *segments = (const ElfW(Phdr) *)(base + own_header.e_phoff);
    for (int i = 0; i < own_header.e_phnum; i++) {
        if (segments[i].p_type == PT_LOAD && (segments[i].p_flags & PF_X) != 0) {
            own_text = base + segments[i].p_vaddr;
            own_text_bytes = segments[i].p_memsz;
        }
    }
}

static bool is_own(uint64_t address)
{
    return address - own_text < own_text_bytes;
}

void ms_native_prepare(void)
{
    find_own_text();
    ms_modules_prepare();
    (void)ms_unwind_library_open();
}

const char *ms_native_refusal(void)
{
    return ms_unwind_library_is_open() ? NULL : "libunwind.so.8 was not found: no native stacks";
}

static uint64_t hash_of(const uint64_t *addresses, uint32_t count)
{
    uint64_t hash = count;
    for (uint32_t i = count; i > 0; i--) {
        hash = (hash ^ addresses[i - 1]) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 32;
    }
    return hash;
}

void ms_native_capture(uint32_t depth, struct ms_native_stack *out)
{
    *out = (struct ms_native_stack){.addresses = frames, .generation = ms_modules_now() >> 16};
    if (!ms_unwind_library_is_open()) {
        out->lost = true;
        return;
    }
    mine = frames;
    struct ms_unwind_walk walk = {.addresses = mine, .most = depth + OWN_MAX};
    ms_unwind_library_walk(&walk);
    uint32_t own = 0;
    while (own < walk.count && is_own(mine[own])) {
        own++;
    }
    out->addresses = mine + own;
    out->cut = walk.count - own > depth;
    out->count = out->cut ? depth : walk.count - own;
    out->lost = !out->cut && !walk.ended;
    out->hash = hash_of(out->addresses, out->count);
}
