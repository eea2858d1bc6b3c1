/* SPDX-License-Identifier: Apache-2.0 */
/* A program that asks the pool for blocks, as an actor of the random test. See program.h. */
#include "program.h"

#include <string.h>

void program_begin(struct program *program, struct stage *stage, uint64_t seed,
                   uint64_t largest_bytes)
{
    memset(program, 0, sizeof(*program));
    program->stage = stage;
    program->dice.state = seed;
    program->largest_bytes = largest_bytes;
    program->next_tag = seed << 32 | (uint64_t)1 << 62;
    program->most_blocks = PROGRAM_BLOCKS;
}

static uint64_t roll(struct program *program, uint64_t below)
{
    return draw(&program->dice, below);
}

static unsigned some_place(struct program *program)
{
    return (unsigned)roll(program, STREAMS);
}

static void work(struct program *program, struct program_block *block, unsigned place,
                 ms_addr_t addr, uint64_t bytes)
{
    struct stage *stage = program->stage;
    uint64_t duration_ns = roll(program, 4) == 0 ? MS_DRY_UNTIL_TOLD : roll(program, 100000);
    stage_work(stage, stage->stream[place], block->info.id, addr, bytes, duration_ns);
    block->used |= 1u << place;
}

/* Whatever this stream does with the block comes after the block is its. */
static void come_after_birth(struct program *program, const struct program_block *block,
                             unsigned place)
{
    if (block->born != ON_DEVICE) {
        stage_follow(program->stage, program->stage->stream[place], 1u << block->born);
    }
}

static const struct program_tensor *tensor_in(struct program *program, uint64_t block_id)
{
    for (size_t k = 0; k < program->tensors; k++) {
        if (program->tensor[k].block_id == block_id && !program->tensor[k].stranded) {
            return &program->tensor[k];
        }
    }
    return NULL;
}

/* Work on some of a block; in an arena only live tensors may be touched. */
static void use(struct program *program, struct program_block *block)
{
    unsigned place = some_place(program);
    ms_addr_t addr = block->info.addr;
    uint64_t bytes = block->info.bytes;
    if (block->info.arena) {
        const struct program_tensor *tensor = tensor_in(program, block->info.id);
        if (tensor == NULL) {
            return;
        }
        addr = tensor->addr;
        bytes = tensor->bytes;
    }
    come_after_birth(program, block, place);
    uint64_t offset = roll(program, bytes);
    work(program, block, place, addr + offset, roll(program, bytes - offset) + 1);
}

/* ---- blocks */

static uint64_t some_size(struct program *program)
{
    switch (roll(program, 8)) {
    case 0:
    case 1:
    case 2:
        return roll(program, 4 * KIB) + 1;
    case 3:
    case 4:
        return roll(program, 300 * KIB) + 1;
    case 5:
        return roll(program, 3 * MIB) + 1;
    case 6:
        return (roll(program, 6) + 1) * GRANULE - roll(program, 2) * 512;
    default:
        return roll(program, program->largest_bytes) + 1;
    }
}

static void refused(struct program *program, const struct ms_request *request, ms_status_t status)
{
    struct stage *stage = program->stage;
    atomic_fetch_add(&stage->refused, 1);
    if (status != MS_ERR_NO_MEMORY && !stage_excuses(stage, status)) {
        model_wrong(&stage->model, "%lu bytes: status %d", (unsigned long)request->bytes, status);
    }
    if (request->may_wait && stage_promises(stage, request->bytes)) {
        model_wrong(&stage->model, "%lu bytes refused, %lu free in the budget, %lu reclaimable",
                    (unsigned long)request->bytes,
                    (unsigned long)ms_budget_free_bytes(&stage->budget),
                    (unsigned long)model_reclaimable_bytes(&stage->model));
    }
}

static void allocate(struct program *program)
{
    struct stage *stage = program->stage;
    unsigned born = roll(program, 3) == 0 ? ON_DEVICE : some_place(program);
    struct ms_request request = {.bytes = some_size(program),
                                 .stream =
                                     born == ON_DEVICE ? MS_STREAM_DEVICE : stage->stream[born],
                                 .site = (uint32_t)roll(program, 1000),
                                 .may_wait = !stage->capturing && roll(program, 4) != 0};
    struct program_block *block = &program->block[program->blocks];
    *block = (struct program_block){.born = born};
    ms_status_t status = ms_pool_alloc(stage->pool, &request, &block->info);
    if (status != MS_OK) {
        refused(program, &request, status);
        program->shrinks = 1 + roll(program, 8);
        return;
    }
    atomic_fetch_add(&stage->served, 1);
    program->blocks++;
    stage_add_block(stage, &request, &block->info);
    /* At once on its own stream, and for the device's blocks on any: the pool's promise. */
    unsigned place = born == ON_DEVICE ? some_place(program) : born;
    work(program, block, place, block->info.addr, block->info.bytes);
    stage_write(stage, block->info.addr, block->info.bytes, block->info.id);
}

static void forget_tensor(struct program *program, size_t at)
{
    const struct program_tensor *tensor = &program->tensor[at];
    model_touch(&program->stage->model, tensor->stranded ? MODEL_STRANDED : MODEL_LIVE,
                tensor->addr, tensor->bytes, -1);
    program->tensor[at] = program->tensor[--program->tensors];
}

static void bury(struct program *program, size_t at)
{
    struct stage *stage = program->stage;
    struct program_tensor dead = program->tensor[at];
    if (!dead.stranded) {
        stage_expect(stage, dead.addr, dead.bytes, dead.tag);
    }
    forget_tensor(program, at);
    ms_status_t status = ms_arenas_freed(stage->arenas, dead.addr, dead.bytes,
                                         stage_total(stage, -(int64_t)dead.bytes));
    if (status != MS_OK && !stage_excuses(stage, status)) {
        model_wrong(&stage->model, "a death is answered with %d", status);
    }
}

/* The tensors of a block that goes: some programs report their deaths, others do not. */
static void leave_tensors(struct program *program, const struct program_block *block, bool report)
{
    for (size_t k = 0; k < program->tensors;) {
        if (program->tensor[k].block_id != block->info.id) {
            k++;
        } else if (report) {
            bury(program, k);
        } else {
            (void)stage_total(program->stage, -(int64_t)program->tensor[k].bytes);
            forget_tensor(program, k);
        }
    }
}

static void release(struct program *program, size_t at)
{
    struct stage *stage = program->stage;
    struct program_block block = program->block[at];
    const struct ms_block_info *info = &block.info;
    ms_stream_t stream = MS_STREAM_DEVICE;
    if (roll(program, 3) != 0) {
        /* Also in the order of a stream that is gone by now. */
        bool own = info->stream != MS_STREAM_DEVICE && roll(program, 4) != 0;
        stream = own ? info->stream : stage->stream[some_place(program)];
        stage_follow(stage, stream, block.used | (block.born == ON_DEVICE ? 0 : 1u << block.born));
    }
    if (!info->arena) {
        stage_expect(stage, info->addr, info->bytes, info->id);
    }
    leave_tensors(program, &block, stage->config.crowded || roll(program, 2) == 0);
    model_touch(&stage->model, block.info.arena ? MODEL_ARENA : MODEL_LIVE, info->addr, info->bytes,
                -1);
    for (unsigned k = 0; k < block.kept; k++) {
        model_touch(&stage->model, MODEL_KEPT, info->addr, info->bytes, -1);
    }
    if (info->pinned) {
        model_touch(&stage->model, MODEL_PINNED, info->addr, info->bytes, -1);
    }
    model_remove_block(&stage->model, info->addr);
    program->block[at] = program->block[--program->blocks];
    ms_status_t status = ms_pool_free(stage->pool, info->addr, stream);
    if (status != MS_OK) {
        model_wrong(&stage->model, "free of %#lx: status %d", (unsigned long)info->addr, status);
    }
    if (!stage->config.crowded) {
        ms_arenas_block_gone(stage->arenas, info->addr, info->bytes);
        status =
            roll(program, 16) == 0 ? ms_pool_free(stage->pool, info->addr, stream) : MS_ERR_INVALID;
        if (status != MS_ERR_INVALID && !stage->model.plain) {
            model_wrong(&stage->model, "a second free: status %d", status);
        }
    }
}

static void keep(struct program *program, struct program_block *block)
{
    block->kept++;
    model_touch(&program->stage->model, MODEL_KEPT, block->info.addr, block->info.bytes, 1);
}

static void look_up(struct program *program, struct program_block *block)
{
    struct stage *stage = program->stage;
    struct ms_block_info *info = &block->info;
    struct ms_block_info found;
    ms_addr_t addr = info->addr + roll(program, info->bytes);
    if (roll(program, 20) == 0) {
        ms_status_t status = ms_pool_pin(stage->pool, addr);
        if (status == MS_OK && !info->pinned) {
            info->pinned = true;
            keep(program, block);
            model_touch(&stage->model, MODEL_PINNED, info->addr, info->bytes, 1);
        }
    }
    (void)ms_pool_touch(stage->pool, addr, roll(program, 2) * (info->addr + info->bytes - addr));
    if (ms_pool_find(stage->pool, addr, &found) != MS_OK || found.id != info->id ||
        found.addr != info->addr || found.bytes != info->bytes || found.pinned != info->pinned ||
        found.arena != info->arena) {
        model_wrong(&stage->model, "%#lx is not found in its block", (unsigned long)addr);
    }
    ms_addr_t past = info->addr + info->bytes;
    if (!stage->config.crowded && !model_is_block(&stage->model, past) &&
        ms_pool_find(stage->pool, past, &found) == MS_OK) {
        model_wrong(&stage->model, "%#lx, past a block's end, is found", (unsigned long)past);
    }
}

/* ---- tensors in blocks */

static bool clashes(const struct program *program, ms_addr_t addr, uint64_t bytes)
{
    for (size_t k = 0; k < program->tensors; k++) {
        const struct program_tensor *other = &program->tensor[k];
        if (addr < other->addr + other->bytes && other->addr < addr + bytes) {
            return true;
        }
    }
    return false;
}

static void become_arena(struct program *program, struct program_block *block)
{
    struct model *model = &program->stage->model;
    const struct ms_block_info *info = &block->info;
    if (!info->arena) {
        block->info.arena = true;
        model_touch(model, MODEL_ARENA, info->addr, info->bytes, 1);
        model_touch(model, MODEL_LIVE, info->addr, info->bytes, -1);
    }
    if (program->stage->capturing && !block->frozen) {
        block->frozen = true;
        keep(program, block);
    }
}

static void lie(struct program *program, ms_addr_t addr, uint64_t bytes)
{
    struct stage *stage = program->stage;
    ms_status_t status = MS_OK;
    if (clashes(program, addr, bytes)) {
        status = ms_arenas_allocated(stage->arenas, addr, bytes, 1, UINT64_MAX);
    } else {
        status = ms_arenas_freed(stage->arenas, addr, bytes, UINT64_MAX);
    }
    if (status != MS_ERR_INVALID) {
        model_wrong(&stage->model, "a report that cannot be true is answered with %d", status);
    }
    atomic_fetch_add(&stage->invalid_reports, 1);
    stage->model.nothing_taken = true;
}

static void bear(struct program *program, struct program_block *block)
{
    struct stage *stage = program->stage;
    const struct ms_block_info *info = &block->info;
    uint64_t offset = roll(program, info->bytes);
    /* Most frameworks align; others may not. */
    offset -= roll(program, 4) == 0 ? 0 : offset % 256;
    uint64_t bytes = roll(program, info->bytes - offset) + 1;
    ms_addr_t addr = info->addr + offset;
    if (stage->tells_lies && roll(program, 20) == 0) {
        lie(program, addr, bytes);
        return;
    }
    if (program->tensors == PROGRAM_TENSORS || clashes(program, addr, bytes)) {
        return;
    }
    /* First, for the pool may take what this leaves free already in the call that says so. */
    become_arena(program, block);
    ms_status_t status =
        ms_arenas_allocated(stage->arenas, addr, bytes, 1, stage_total(stage, (int64_t)bytes));
    bool backed = status == MS_OK;
    if (!backed && !stage_excuses(stage, status)) {
        model_wrong(&stage->model, "a birth in a block is answered with %d", status);
    }
    model_touch(&stage->model, backed ? MODEL_LIVE : MODEL_STRANDED, addr, bytes, 1);
    program->tensor[program->tensors++] = (struct program_tensor){.addr = addr,
                                                                  .bytes = bytes,
                                                                  .block_id = info->id,
                                                                  .tag = program->next_tag,
                                                                  .stranded = !backed};
    if (backed) {
        stage_write(stage, addr, bytes, program->next_tag);
    }
    program->next_tag++;
    atomic_fetch_add(&stage->allocations, 1);
    if (backed && !stage_accessible(stage, addr, bytes)) {
        model_wrong(&stage->model, "a tensor is born at %#lx, which is not accessible",
                    (unsigned long)addr);
    }
}

/* ---- steps */

void program_step(struct program *program)
{
    uint64_t kind = roll(program, 100);
    size_t at = program->blocks == 0 ? 0 : roll(program, program->blocks);
    if (program->blocks > 0 && program->shrinks > 0) {
        program->shrinks--;
        release(program, at);
    } else if (program->blocks == 0 || (kind < 42 && program->blocks < program->most_blocks)) {
        allocate(program);
    } else if (kind < 80) {
        release(program, at);
    } else if (kind < 88) {
        use(program, &program->block[at]);
    } else if (kind < 92) {
        look_up(program, &program->block[at]);
    } else if (kind < 96) {
        bear(program, &program->block[at]);
    } else if (program->tensors > 0) {
        bury(program, roll(program, program->tensors));
    }
}

void program_leave(struct program *program)
{
    while (program->blocks > 0) {
        release(program, program->blocks - 1);
    }
}
