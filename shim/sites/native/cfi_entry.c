/* SPDX-License-Identifier: Apache-2.0 */
/* Finds and opens an entry of the call frame information. */
#include "shim/sites/native/cfi_entry.h"

/* Opens a CIE or FDE: the bytes after its length. */
static struct ms_cfi_reader open_entry(const uint8_t *at)
{
    struct ms_cfi_reader length = {at, at + 4, false};
    uint32_t bytes = (uint32_t)ms_cfi_fixed(&length, 4);
    if (bytes == 0 || bytes == UINT32_MAX) { /* the end, or a 64-bit length */
        return (struct ms_cfi_reader){at, at, true};
    }
    return (struct ms_cfi_reader){length.at, length.at + bytes, false};
}

static void read_augmentation(struct ms_cfi_entry *entry, struct ms_cfi_reader *in,
                              const char *letters)
{
    uint64_t bytes = ms_cfi_uleb(in);
    if (bytes > (size_t)(in->end - in->at)) {
        in->bad = true;
        return;
    }
    struct ms_cfi_reader data = {in->at, in->at + bytes, false};
    for (; *letters != '\0'; letters++) {
        switch (*letters) {
        case 'R':
            entry->encoding = (uint8_t)ms_cfi_fixed(&data, 1);
            break;
        case 'P': {
            uint8_t encoding = (uint8_t)ms_cfi_fixed(&data, 1);
            (void)ms_cfi_pointer(&data, encoding & MS_POINTER_FORMAT);
            break;
        }
        case 'L':
            (void)ms_cfi_fixed(&data, 1);
            break;
        case 'S':
            entry->signal = true;
            break;
        default:
            data.bad = true;
        }
    }
    in->bad = in->bad || data.bad;
    in->at += bytes;
}

static bool read_common(struct ms_cfi_entry *entry, const uint8_t *at)
{
    struct ms_cfi_reader *in = &entry->common;
    *in = open_entry(at);
    bool is_common = ms_cfi_fixed(in, 4) == 0;
    uint64_t version = ms_cfi_fixed(in, 1);
    const char *letters = (const char *)in->at;
    while (ms_cfi_fixed(in, 1) != 0 && !in->bad) {
    }
    entry->code_align = ms_cfi_uleb(in);
    entry->data_align = ms_cfi_sleb(in);
    uint64_t column = version == 1 ? ms_cfi_fixed(in, 1) : ms_cfi_uleb(in);
    entry->sized = letters[0] == 'z';
    if (!in->bad && entry->sized) {
        read_augmentation(entry, in, letters + 1);
    } else if (letters[0] != '\0') {
        in->bad = true;
    }
    return is_common && !in->bad && (version == 1 || version == 3) && column == MS_REGISTER_RETURN;
}

bool ms_cfi_read_entry(struct ms_cfi_entry *entry, const uint8_t *at)
{
    struct ms_cfi_reader *in = &entry->own;
    *entry = (struct ms_cfi_entry){.own = open_entry(at)};
    const uint8_t *here = in->at;
    uint32_t back = (uint32_t)ms_cfi_fixed(in, 4);
    if (in->bad || back == 0 || !read_common(entry, here - back)) {
        return false;
    }
    entry->begin = ms_cfi_pointer(in, entry->encoding);
    entry->bytes = ms_cfi_pointer(in, entry->encoding & MS_POINTER_FORMAT);
    if (entry->sized) {
        uint64_t skip = ms_cfi_uleb(in);
        in->bad = in->bad || skip > (size_t)(in->end - in->at);
        in->at += in->bad ? 0 : skip;
    }
    return !in->bad && (entry->encoding & MS_POINTER_INDIRECT) == 0;
}

struct cfi_row { /* of the search table; both relative to the start of .eh_frame_hdr */
    int32_t code, entry;
};

bool ms_cfi_find_entry(const uint8_t *tables, uint64_t address, const uint8_t **at)
{
    /* the version, then the encodings of the pointer to .eh_frame, of the count and of the table */
    struct ms_cfi_reader in = {tables + 4, tables + 24, false};
    if (tables[0] != 1 || tables[2] != MS_POINTER_UDATA4 ||
        tables[3] != (MS_POINTER_TABLE_RELATIVE | MS_POINTER_SDATA4) ||
        tables[1] == MS_POINTER_OMITTED) {
        return false;
    }
    (void)ms_cfi_pointer(&in, tables[1]);
    uint32_t below = 0, above = (uint32_t)ms_cfi_fixed(&in, 4);
    const struct cfi_row *rows = (const struct cfi_row *)in.at;
    const int64_t wanted = (int64_t)(address - (uintptr_t)tables);
    if (in.bad) {
        return false;
    }
    while (below < above) { /* finds the last row that begins at or before the address */
        uint32_t middle = below + (above - below) / 2;
        if (rows[middle].code <= wanted) {
            below = middle + 1;
        } else {
            above = middle;
        }
    }
    *at = below > 0 ? tables + rows[below - 1].entry : NULL;
    return true;
}
