/* SPDX-License-Identifier: Apache-2.0 */
/* Call frame information: the binary search table of .eh_frame_hdr, and the small machine whose
 * program in .eh_frame says how a frame looks at an instruction (DWARF 5, section 6.4; Linux
 * Standard Base, "Exception Frames"). Only what fits a rule is followed; the tables are those of
 * code that runs, and are believed. */
#include <string.h>

#include "shim/sites/unwind_rule.h"

#define STATES_MAX 8 /* of DW_CFA_remember_state */
#define WORD_BYTES 8

enum { REGISTER_BP = 6, REGISTER_SP = 7, REGISTER_RETURN = 16 };

enum pointer_encoding {
    POINTER_ABSOLUTE = 0x00,
    POINTER_UDATA2 = 0x02,
    POINTER_UDATA4 = 0x03,
    POINTER_UDATA8 = 0x04,
    POINTER_SDATA2 = 0x0a,
    POINTER_SDATA4 = 0x0b,
    POINTER_SDATA8 = 0x0c,
    POINTER_FORMAT = 0x0f,
    POINTER_PC_RELATIVE = 0x10,
    POINTER_TABLE_RELATIVE = 0x30,
    POINTER_BASE = 0x70,
    POINTER_INDIRECT = 0x80,
    POINTER_OMITTED = 0xff
};

enum operation {
    OP_DEREF = 0x06,
    OP_PLUS_CONSTANT = 0x23,
    OP_FROM_BP = 0x70 + REGISTER_BP,
    OP_FROM_SP = 0x70 + REGISTER_SP
};

enum instruction {
    CFA_ADVANCE_LOC = 0x40, /* operand in the lower six bits */
    CFA_OFFSET = 0x80,      /* likewise */
    CFA_RESTORE = 0xc0,     /* likewise */
    CFA_NOP = 0x00,
    CFA_SET_LOC = 0x01,
    CFA_ADVANCE_LOC1 = 0x02,
    CFA_ADVANCE_LOC2 = 0x03,
    CFA_ADVANCE_LOC4 = 0x04,
    CFA_OFFSET_EXTENDED = 0x05,
    CFA_RESTORE_EXTENDED = 0x06,
    CFA_UNDEFINED = 0x07,
    CFA_SAME_VALUE = 0x08,
    CFA_REGISTER = 0x09,
    CFA_REMEMBER_STATE = 0x0a,
    CFA_RESTORE_STATE = 0x0b,
    CFA_DEF_CFA = 0x0c,
    CFA_DEF_CFA_REGISTER = 0x0d,
    CFA_DEF_CFA_OFFSET = 0x0e,
    CFA_DEF_CFA_EXPRESSION = 0x0f,
    CFA_EXPRESSION = 0x10,
    CFA_OFFSET_EXTENDED_SF = 0x11,
    CFA_DEF_CFA_SF = 0x12,
    CFA_DEF_CFA_OFFSET_SF = 0x13,
    CFA_VAL_OFFSET = 0x14,
    CFA_VAL_OFFSET_SF = 0x15,
    CFA_VAL_EXPRESSION = 0x16,
    CFA_GNU_ARGS_SIZE = 0x2e
};

/* --- Reading ----------------------------------------------------------------------------------
 */

struct reader {
    const uint8_t *at, *end;
    bool bad; /* came to the end, or met what it does not know */
};

static uint64_t read_fixed(struct reader *in, size_t bytes)
{
    uint64_t value = 0;
    if ((size_t)(in->end - in->at) < bytes) {
        in->bad = true;
        return 0;
    }
    memcpy(&value, in->at, bytes);
    in->at += bytes;
    return value;
}

static uint64_t read_uleb(struct reader *in)
{
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        uint64_t byte = read_fixed(in, 1);
        value |= (byte & 0x7f) << shift;
        if ((byte & 0x80) == 0) {
            return value;
        }
    }
    in->bad = true;
    return value;
}

static int64_t read_sleb(struct reader *in)
{
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        uint64_t byte = read_fixed(in, 1);
        value |= (byte & 0x7f) << shift;
        if ((byte & 0x80) == 0) {
            const unsigned used = shift + 7;
            if ((byte & 0x40) != 0 && used < 64) {
                value |= ~UINT64_C(0) << used;
            }
            return (int64_t)value;
        }
    }
    in->bad = true;
    return 0;
}

/* A pointer that is absolute or relative to where it lies. */
static uint64_t read_pointer(struct reader *in, uint8_t encoding)
{
    const uint64_t here = (uintptr_t)in->at;
    const uint8_t base = encoding & POINTER_BASE;
    uint64_t value = 0;
    switch (encoding & POINTER_FORMAT) {
    case POINTER_ABSOLUTE:
    case POINTER_UDATA8:
    case POINTER_SDATA8:
        value = read_fixed(in, 8);
        break;
    case POINTER_UDATA4:
        value = read_fixed(in, 4);
        break;
    case POINTER_SDATA4:
        value = (uint64_t)(int64_t)(int32_t)read_fixed(in, 4);
        break;
    case POINTER_UDATA2:
        value = read_fixed(in, 2);
        break;
    case POINTER_SDATA2:
        value = (uint64_t)(int64_t)(int16_t)read_fixed(in, 2);
        break;
    default:
        in->bad = true;
    }
    if (base != 0 && base != POINTER_PC_RELATIVE) {
        in->bad = true;
    }
    return base == POINTER_PC_RELATIVE ? here + value : value;
}

/* --- Which entry ------------------------------------------------------------------------------
 */

struct entry { /* a frame description (FDE) and the common part it names (CIE) */
    struct reader common, own;
    uint64_t begin, bytes; /* of the code it describes */
    uint64_t code_align;
    int64_t data_align;
    uint8_t encoding;
    bool sized, signal;
};

/* Of a CIE or FDE: what follows its length. */
static struct reader open_entry(const uint8_t *at)
{
    struct reader length = {at, at + 4, false};
    uint32_t bytes = (uint32_t)read_fixed(&length, 4);
    if (bytes == 0 || bytes == UINT32_MAX) { /* the end; a 64-bit length */
        return (struct reader){at, at, true};
    }
    return (struct reader){length.at, length.at + bytes, false};
}

static void read_augmentation(struct entry *entry, struct reader *in, const char *letters)
{
    uint64_t bytes = read_uleb(in);
    if (bytes > (size_t)(in->end - in->at)) {
        in->bad = true;
        return;
    }
    struct reader data = {in->at, in->at + bytes, false};
    for (; *letters != '\0'; letters++) {
        switch (*letters) {
        case 'R':
            entry->encoding = (uint8_t)read_fixed(&data, 1);
            break;
        case 'P': {
            uint8_t encoding = (uint8_t)read_fixed(&data, 1);
            (void)read_pointer(&data, encoding & POINTER_FORMAT);
            break;
        }
        case 'L':
            (void)read_fixed(&data, 1);
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

static bool read_common(struct entry *entry, const uint8_t *at)
{
    struct reader *in = &entry->common;
    *in = open_entry(at);
    bool is_common = read_fixed(in, 4) == 0;
    uint64_t version = read_fixed(in, 1);
    const char *letters = (const char *)in->at;
    while (read_fixed(in, 1) != 0 && !in->bad) {
    }
    entry->code_align = read_uleb(in);
    entry->data_align = read_sleb(in);
    uint64_t column = version == 1 ? read_fixed(in, 1) : read_uleb(in);
    entry->sized = letters[0] == 'z';
    if (!in->bad && entry->sized) {
        read_augmentation(entry, in, letters + 1);
    } else if (letters[0] != '\0') {
        in->bad = true;
    }
    return is_common && !in->bad && (version == 1 || version == 3) && column == REGISTER_RETURN;
}

static bool read_entry(struct entry *entry, const uint8_t *at)
{
    struct reader *in = &entry->own;
    *entry = (struct entry){.own = open_entry(at)};
    const uint8_t *here = in->at;
    uint32_t back = (uint32_t)read_fixed(in, 4);
    if (in->bad || back == 0 || !read_common(entry, here - back)) {
        return false;
    }
    entry->begin = read_pointer(in, entry->encoding);
    entry->bytes = read_pointer(in, entry->encoding & POINTER_FORMAT);
    if (entry->sized) {
        uint64_t skip = read_uleb(in);
        in->bad = in->bad || skip > (size_t)(in->end - in->at);
        in->at += in->bad ? 0 : skip;
    }
    return !in->bad && (entry->encoding & POINTER_INDIRECT) == 0;
}

struct row { /* of the search table; both relative to where .eh_frame_hdr begins */
    int32_t code, entry;
};

/* False: not a table as every linker makes it. *at: null where no entry can cover the address. */
static bool find_entry(const uint8_t *tables, uint64_t address, const uint8_t **at)
{
    /* version, then how the pointer to .eh_frame, the count and the table are encoded */
    struct reader in = {tables + 4, tables + 24, false};
    if (tables[0] != 1 || tables[2] != POINTER_UDATA4 ||
        tables[3] != (POINTER_TABLE_RELATIVE | POINTER_SDATA4) || tables[1] == POINTER_OMITTED) {
        return false;
    }
    (void)read_pointer(&in, tables[1]);
    uint32_t below = 0, above = (uint32_t)read_fixed(&in, 4);
    const struct row *rows = (const struct row *)in.at;
    const int64_t wanted = (int64_t)(address - (uintptr_t)tables);
    if (in.bad) {
        return false;
    }
    while (below < above) { /* the last row that begins at or before the address */
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

/* --- What it says -----------------------------------------------------------------------------
 */

struct saved {
    enum { KEPT, AT_CFA, AT_BP, LOST_VALUE, ELSEWHERE } how;
    int64_t offset_bytes;
};

struct state {
    enum { CFA_FROM_REGISTER, CFA_INDIRECT, CFA_OTHERWISE } how;
    uint64_t base; /* register */
    int64_t offset_bytes, add_bytes;
    struct saved bp, returns;
    bool sp_unusual; /* the caller's stack pointer is something else than the CFA */
};

struct machine {
    const struct entry *entry;
    struct state now, initial, remembered[STATES_MAX];
    unsigned remembered_count;
    uint64_t at, wanted; /* addresses of code */
};

static void save(struct machine *machine, uint64_t reg, struct saved saved)
{
    if (reg == REGISTER_BP) {
        machine->now.bp = saved;
    } else if (reg == REGISTER_RETURN) {
        machine->now.returns = saved;
    } else if (reg == REGISTER_SP) {
        machine->now.sp_unusual = saved.how != KEPT;
    }
}

static void save_offset(struct machine *machine, uint64_t reg, int64_t factored)
{
    save(machine, reg, (struct saved){AT_CFA, factored * machine->entry->data_align});
}

static void restore(struct machine *machine, uint64_t reg)
{
    if (reg == REGISTER_BP) {
        machine->now.bp = machine->initial.bp;
    } else if (reg == REGISTER_RETURN) {
        machine->now.returns = machine->initial.returns;
    } else if (reg == REGISTER_SP) {
        machine->now.sp_unusual = machine->initial.sp_unusual;
    }
}

static struct reader read_block(struct reader *in)
{
    uint64_t bytes = read_uleb(in);
    if (bytes > (size_t)(in->end - in->at)) {
        in->bad = true;
        return (struct reader){in->at, in->at, true};
    }
    struct reader block = {in->at, in->at + bytes, false};
    in->at += bytes;
    return block;
}

/* CFA = *(rbp or rsp + n) + m. Compilers write it where they realign the stack, people where they
 * keep the old stack pointer on the new stack. */
static void define_by_expression(struct state *now, struct reader code)
{
    uint64_t base = read_fixed(&code, 1);
    int64_t offset_bytes = read_sleb(&code);
    uint64_t deref = read_fixed(&code, 1);
    uint64_t add_bytes = 0;
    if (code.at < code.end && !code.bad) {
        code.bad = read_fixed(&code, 1) != OP_PLUS_CONSTANT;
        add_bytes = read_uleb(&code);
    }
    bool known = (base == OP_FROM_BP || base == OP_FROM_SP) && deref == OP_DEREF && !code.bad &&
                 code.at == code.end;
    now->how = known ? CFA_INDIRECT : CFA_OTHERWISE;
    now->base = base == OP_FROM_BP ? REGISTER_BP : REGISTER_SP;
    now->offset_bytes = offset_bytes;
    now->add_bytes = (int64_t)add_bytes;
}

static struct saved saved_by_expression(struct reader code)
{
    uint64_t base = read_fixed(&code, 1);
    int64_t offset_bytes = read_sleb(&code);
    bool known = base == OP_FROM_BP && !code.bad && code.at == code.end;
    return (struct saved){known ? AT_BP : ELSEWHERE, offset_bytes};
}

static void define(struct state *now, uint64_t base, int64_t offset_bytes)
{
    now->how = CFA_FROM_REGISTER;
    now->base = base;
    now->offset_bytes = offset_bytes;
}

static void remember_or_restore(struct machine *machine, struct reader *in, bool remember)
{
    if (remember && machine->remembered_count < STATES_MAX) {
        machine->remembered[machine->remembered_count++] = machine->now;
    } else if (!remember && machine->remembered_count > 0) {
        machine->now = machine->remembered[--machine->remembered_count];
    } else {
        in->bad = true;
    }
}

/* Instructions about one register, or about none. */
static void do_register(struct machine *machine, struct reader *in, uint8_t code)
{
    uint64_t reg = code == CFA_GNU_ARGS_SIZE || code == CFA_NOP ? 0 : read_uleb(in);
    switch (code) {
    case CFA_NOP:
        break;
    case CFA_GNU_ARGS_SIZE:
        (void)read_uleb(in);
        break;
    case CFA_OFFSET_EXTENDED:
        save_offset(machine, reg, (int64_t)read_uleb(in));
        break;
    case CFA_OFFSET_EXTENDED_SF:
        save_offset(machine, reg, read_sleb(in));
        break;
    case CFA_RESTORE_EXTENDED:
        restore(machine, reg);
        break;
    case CFA_UNDEFINED:
        save(machine, reg, (struct saved){LOST_VALUE, 0});
        break;
    case CFA_SAME_VALUE:
        save(machine, reg, (struct saved){KEPT, 0});
        break;
    case CFA_REGISTER:
    case CFA_VAL_OFFSET:
        (void)read_uleb(in);
        save(machine, reg, (struct saved){ELSEWHERE, 0});
        break;
    case CFA_VAL_OFFSET_SF:
        (void)read_sleb(in);
        save(machine, reg, (struct saved){ELSEWHERE, 0});
        break;
    case CFA_EXPRESSION:
        save(machine, reg, saved_by_expression(read_block(in)));
        break;
    case CFA_VAL_EXPRESSION:
        (void)read_block(in);
        save(machine, reg, (struct saved){ELSEWHERE, 0});
        break;
    default:
        in->bad = true;
    }
}

/* Instructions about the CFA and the state as a whole. */
static void do_one(struct machine *machine, struct reader *in, uint8_t code)
{
    struct state *now = &machine->now;
    const uint64_t code_align = machine->entry->code_align;
    switch (code) {
    case CFA_SET_LOC:
        machine->at = read_pointer(in, machine->entry->encoding);
        break;
    case CFA_ADVANCE_LOC1:
        machine->at += read_fixed(in, 1) * code_align;
        break;
    case CFA_ADVANCE_LOC2:
        machine->at += read_fixed(in, 2) * code_align;
        break;
    case CFA_ADVANCE_LOC4:
        machine->at += read_fixed(in, 4) * code_align;
        break;
    case CFA_REMEMBER_STATE:
    case CFA_RESTORE_STATE:
        remember_or_restore(machine, in, code == CFA_REMEMBER_STATE);
        break;
    case CFA_DEF_CFA: {
        uint64_t base = read_uleb(in);
        define(now, base, (int64_t)read_uleb(in));
        break;
    }
    case CFA_DEF_CFA_SF: {
        uint64_t base = read_uleb(in);
        define(now, base, read_sleb(in) * machine->entry->data_align);
        break;
    }
    case CFA_DEF_CFA_REGISTER:
        define(now, read_uleb(in), now->offset_bytes);
        break;
    case CFA_DEF_CFA_OFFSET:
        define(now, now->base, (int64_t)read_uleb(in));
        break;
    case CFA_DEF_CFA_OFFSET_SF:
        define(now, now->base, read_sleb(in) * machine->entry->data_align);
        break;
    case CFA_DEF_CFA_EXPRESSION:
        define_by_expression(now, read_block(in));
        break;
    default:
        do_register(machine, in, code);
    }
}

/* Until the program passes the address that is asked about. False where it is not understood. */
static bool run(struct machine *machine, struct reader in)
{
    while (in.at < in.end && !in.bad && machine->at <= machine->wanted) {
        const uint8_t code = (uint8_t)read_fixed(&in, 1);
        const uint8_t operand = code & 0x3f;
        switch (code & 0xc0) {
        case CFA_ADVANCE_LOC:
            machine->at += operand * machine->entry->code_align;
            break;
        case CFA_OFFSET:
            save_offset(machine, operand, (int64_t)read_uleb(&in));
            break;
        case CFA_RESTORE:
            restore(machine, operand);
            break;
        default:
            do_one(machine, &in, code);
        }
    }
    return !in.bad;
}

/* --- As a rule --------------------------------------------------------------------------------
 */

static bool fits(int64_t bytes, int bits)
{
    const int64_t bound = (int64_t)WORD_BYTES << (bits - 1);
    return bytes % WORD_BYTES == 0 && bytes >= -bound && bytes < bound;
}

static union ms_rule rule_of(const struct state *state)
{
    const union ms_rule unusual = {.kind = MS_RULE_UNUSUAL};
    if (state->returns.how == LOST_VALUE) {
        return (union ms_rule){.kind = MS_RULE_OUTERMOST};
    }
    if (state->returns.how != AT_CFA || state->returns.offset_bytes != -WORD_BYTES ||
        state->bp.how == ELSEWHERE || state->how == CFA_OTHERWISE || state->sp_unusual ||
        (state->base != REGISTER_BP && state->base != REGISTER_SP) ||
        !fits(state->offset_bytes, 24) || !fits(state->add_bytes, 9) ||
        !fits(state->bp.offset_bytes, 24)) {
        return unusual;
    }
    return (union ms_rule){.kind = state->how == CFA_INDIRECT ? MS_RULE_INDIRECT : MS_RULE_PLAIN,
                           .from_bp = state->base == REGISTER_BP,
                           .saves_bp = state->bp.how == AT_CFA || state->bp.how == AT_BP,
                           .bp_from_bp = state->bp.how == AT_BP,
                           .uses_bp = state->base == REGISTER_BP || state->bp.how == AT_BP,
                           .cfa_words = state->offset_bytes / WORD_BYTES,
                           .add_words = state->add_bytes / WORD_BYTES,
                           .bp_words = state->bp.offset_bytes / WORD_BYTES};
}

union ms_rule ms_rule_read(const uint8_t *tables, uint64_t address)
{
    const union ms_rule none = {.kind = MS_RULE_NONE}, unusual = {.kind = MS_RULE_UNUSUAL};
    const uint8_t *at;
    struct entry entry;
    if (!find_entry(tables, address, &at)) {
        return unusual;
    }
    if (at == NULL) {
        return none;
    }
    if (!read_entry(&entry, at)) {
        return unusual;
    }
    if (address - entry.begin >= entry.bytes) {
        return none;
    }
    if (entry.signal) {
        return (union ms_rule){.kind = MS_RULE_SIGNAL};
    }
    struct machine machine = {.entry = &entry, .wanted = UINT64_MAX};
    if (!run(&machine, entry.common)) {
        return unusual;
    }
    machine.initial = machine.now;
    machine.at = entry.begin;
    machine.wanted = address;
    return run(&machine, entry.own) ? rule_of(&machine.now) : unusual;
}
