/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the program in .eh_frame that describes the frame at an instruction (DWARF 5, section 6.4),
 * and turns the result into a rule. Supports only what fits a rule. */
#include "shim/sites/native/cfi_entry.h"
#include "shim/sites/native/unwind_rule.h"

#define STATES_MAX 8 /* of DW_CFA_remember_state */
#define WORD_BYTES 8

enum operation {
    OP_DEREF = 0x06,
    OP_PLUS_CONSTANT = 0x23,
    OP_FROM_BP = 0x70 + MS_REGISTER_BP,
    OP_FROM_SP = 0x70 + MS_REGISTER_SP
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

struct saved {
    enum { KEPT, AT_CFA, AT_BP, LOST_VALUE, ELSEWHERE } how;
    int64_t offset_bytes;
};

struct unwind_state {
    enum { CFA_FROM_REGISTER, CFA_INDIRECT, CFA_OTHERWISE } how;
    uint64_t base; /* register */
    int64_t offset_bytes, add_bytes;
    struct saved bp, returns;
    bool sp_unusual; /* the caller's stack pointer is not the CFA */
};

struct machine {
    const struct ms_cfi_entry *entry;
    struct unwind_state now, initial, remembered[STATES_MAX];
    unsigned remembered_count;
    uint64_t at, wanted; /* addresses of code */
};

static void save(struct machine *machine, uint64_t reg, struct saved saved)
{
    if (reg == MS_REGISTER_BP) {
        machine->now.bp = saved;
    } else if (reg == MS_REGISTER_RETURN) {
        machine->now.returns = saved;
    } else if (reg == MS_REGISTER_SP) {
        machine->now.sp_unusual = saved.how != KEPT;
    }
}

static void save_offset(struct machine *machine, uint64_t reg, int64_t factored)
{
    save(machine, reg, (struct saved){AT_CFA, factored * machine->entry->data_align});
}

static void restore(struct machine *machine, uint64_t reg)
{
    if (reg == MS_REGISTER_BP) {
        machine->now.bp = machine->initial.bp;
    } else if (reg == MS_REGISTER_RETURN) {
        machine->now.returns = machine->initial.returns;
    } else if (reg == MS_REGISTER_SP) {
        machine->now.sp_unusual = machine->initial.sp_unusual;
    }
}

static struct ms_cfi_reader read_block(struct ms_cfi_reader *in)
{
    uint64_t bytes = ms_cfi_uleb(in);
    if (bytes > (size_t)(in->end - in->at)) {
        in->bad = true;
        return (struct ms_cfi_reader){in->at, in->at, true};
    }
    struct ms_cfi_reader block = {in->at, in->at + bytes, false};
    in->at += bytes;
    return block;
}

/* CFA = *(rbp or rsp + n) + m. Compilers write it where they realign the stack; people write it
 * where they keep the old stack pointer on the new stack. */
static void define_by_expression(struct unwind_state *now, struct ms_cfi_reader code)
{
    uint64_t base = ms_cfi_fixed(&code, 1);
    int64_t offset_bytes = ms_cfi_sleb(&code);
    uint64_t deref = ms_cfi_fixed(&code, 1);
    uint64_t add_bytes = 0;
    if (code.at < code.end && !code.bad) {
        code.bad = ms_cfi_fixed(&code, 1) != OP_PLUS_CONSTANT;
        add_bytes = ms_cfi_uleb(&code);
    }
    bool known = (base == OP_FROM_BP || base == OP_FROM_SP) && deref == OP_DEREF && !code.bad &&
                 code.at == code.end;
    now->how = known ? CFA_INDIRECT : CFA_OTHERWISE;
    now->base = base == OP_FROM_BP ? MS_REGISTER_BP : MS_REGISTER_SP;
    now->offset_bytes = offset_bytes;
    now->add_bytes = (int64_t)add_bytes;
}

static struct saved saved_by_expression(struct ms_cfi_reader code)
{
    uint64_t base = ms_cfi_fixed(&code, 1);
    int64_t offset_bytes = ms_cfi_sleb(&code);
    bool known = base == OP_FROM_BP && !code.bad && code.at == code.end;
    return (struct saved){known ? AT_BP : ELSEWHERE, offset_bytes};
}

static void define(struct unwind_state *now, uint64_t base, int64_t offset_bytes)
{
    now->how = CFA_FROM_REGISTER;
    now->base = base;
    now->offset_bytes = offset_bytes;
}

static void remember_or_restore(struct machine *machine, struct ms_cfi_reader *in, bool remember)
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
static void do_register(struct machine *machine, struct ms_cfi_reader *in, uint8_t code)
{
    uint64_t reg = code == CFA_GNU_ARGS_SIZE || code == CFA_NOP ? 0 : ms_cfi_uleb(in);
    switch (code) {
    case CFA_NOP:
        break;
    case CFA_GNU_ARGS_SIZE:
        (void)ms_cfi_uleb(in);
        break;
    case CFA_OFFSET_EXTENDED:
        save_offset(machine, reg, (int64_t)ms_cfi_uleb(in));
        break;
    case CFA_OFFSET_EXTENDED_SF:
        save_offset(machine, reg, ms_cfi_sleb(in));
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
        (void)ms_cfi_uleb(in);
        save(machine, reg, (struct saved){ELSEWHERE, 0});
        break;
    case CFA_VAL_OFFSET_SF:
        (void)ms_cfi_sleb(in);
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

/* Instructions about the CFA and the whole state. */
static void do_one(struct machine *machine, struct ms_cfi_reader *in, uint8_t code)
{
    struct unwind_state *now = &machine->now;
    const uint64_t code_align = machine->entry->code_align;
    switch (code) {
    case CFA_SET_LOC:
        machine->at = ms_cfi_pointer(in, machine->entry->encoding);
        break;
    case CFA_ADVANCE_LOC1:
        machine->at += ms_cfi_fixed(in, 1) * code_align;
        break;
    case CFA_ADVANCE_LOC2:
        machine->at += ms_cfi_fixed(in, 2) * code_align;
        break;
    case CFA_ADVANCE_LOC4:
        machine->at += ms_cfi_fixed(in, 4) * code_align;
        break;
    case CFA_REMEMBER_STATE:
    case CFA_RESTORE_STATE:
        remember_or_restore(machine, in, code == CFA_REMEMBER_STATE);
        break;
    case CFA_DEF_CFA: {
        uint64_t base = ms_cfi_uleb(in);
        define(now, base, (int64_t)ms_cfi_uleb(in));
        break;
    }
    case CFA_DEF_CFA_SF: {
        uint64_t base = ms_cfi_uleb(in);
        define(now, base, ms_cfi_sleb(in) * machine->entry->data_align);
        break;
    }
    case CFA_DEF_CFA_REGISTER:
        define(now, ms_cfi_uleb(in), now->offset_bytes);
        break;
    case CFA_DEF_CFA_OFFSET:
        define(now, now->base, (int64_t)ms_cfi_uleb(in));
        break;
    case CFA_DEF_CFA_OFFSET_SF:
        define(now, now->base, ms_cfi_sleb(in) * machine->entry->data_align);
        break;
    case CFA_DEF_CFA_EXPRESSION:
        define_by_expression(now, read_block(in));
        break;
    default:
        do_register(machine, in, code);
    }
}

/* Runs until the program passes the wanted address. False for an unknown instruction. */
static bool run(struct machine *machine, struct ms_cfi_reader in)
{
    while (in.at < in.end && !in.bad && machine->at <= machine->wanted) {
        const uint8_t code = (uint8_t)ms_cfi_fixed(&in, 1);
        const uint8_t operand = code & 0x3f;
        switch (code & 0xc0) {
        case CFA_ADVANCE_LOC:
            machine->at += operand * machine->entry->code_align;
            break;
        case CFA_OFFSET:
            save_offset(machine, operand, (int64_t)ms_cfi_uleb(&in));
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

/* --- As a rule -------------------------------------------------------------------------------- */

static bool fits(int64_t bytes, int bits)
{
    const int64_t bound = (int64_t)WORD_BYTES << (bits - 1);
    return bytes % WORD_BYTES == 0 && bytes >= -bound && bytes < bound;
}

static union ms_rule rule_of(const struct unwind_state *state)
{
    const union ms_rule unusual = {.kind = MS_RULE_UNUSUAL};
    if (state->returns.how == LOST_VALUE) {
        return (union ms_rule){.kind = MS_RULE_OUTERMOST};
    }
    if (state->returns.how != AT_CFA || state->returns.offset_bytes != -WORD_BYTES ||
        state->bp.how == ELSEWHERE || state->how == CFA_OTHERWISE || state->sp_unusual ||
        (state->base != MS_REGISTER_BP && state->base != MS_REGISTER_SP) ||
        !fits(state->offset_bytes, 24) || !fits(state->add_bytes, 9) ||
        !fits(state->bp.offset_bytes, 24)) {
        return unusual;
    }
    return (union ms_rule){.kind = state->how == CFA_INDIRECT ? MS_RULE_INDIRECT : MS_RULE_PLAIN,
                           .from_bp = state->base == MS_REGISTER_BP,
                           .saves_bp = state->bp.how == AT_CFA || state->bp.how == AT_BP,
                           .bp_from_bp = state->bp.how == AT_BP,
                           .uses_bp = state->base == MS_REGISTER_BP || state->bp.how == AT_BP,
                           .cfa_words = state->offset_bytes / WORD_BYTES,
                           .add_words = state->add_bytes / WORD_BYTES,
                           .bp_words = state->bp.offset_bytes / WORD_BYTES};
}

union ms_rule ms_rule_read(const uint8_t *tables, uint64_t address)
{
    const union ms_rule none = {.kind = MS_RULE_NONE}, unusual = {.kind = MS_RULE_UNUSUAL};
    const uint8_t *at;
    struct ms_cfi_entry entry;
    if (!ms_cfi_find_entry(tables, address, &at)) {
        return unusual;
    }
    if (at == NULL) {
        return none;
    }
    if (!ms_cfi_read_entry(&entry, at)) {
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
