/* SPDX-License-Identifier: Apache-2.0 */
/* The index of live tensors: a hash table, boundary bits in each granule, and a tree: see
 * tensors.h. */
#include "allocator/arenas/tensors_hot.h"
#include "allocator/pool_state.h"

enum {
    FIRST_SLOTS = 1024,
    MOVE_AT_A_TIME = 8 /* slots of the old table, with each allocation */
};

/* ---- hashed */

/* An emptied slot stays empty: every entry that belongs before it has passed through it. */
static void move_some(struct ms_tensors *tensors)
{
    struct ms_table *old = &tensors->old;
    for (int k = 0; k < MOVE_AT_A_TIME && tensors->moved < old->room; k++) {
        struct ms_tensor *slot = ms_table_at(old, sizeof *slot, tensors->moved);
        while (slot->addr != 0) {
            ms_tensors_put(&tensors->table, slot);
            ms_table_remove(old, sizeof *slot, slot);
        }
        tensors->moved++;
    }
    if (old->used == 0) {
        ms_table_free(old, sizeof(struct ms_tensor));
    }
}

/* Doubles the table. If the host has no memory, searches only take longer, while there is room at
 * all. */
static bool grow(struct ms_tensors *tensors)
{
    struct ms_table larger;
    if (tensors->old.room == 0 &&
        ms_table_make(&larger, sizeof(struct ms_tensor), tensors->table.room * 2)) {
        tensors->old = tensors->table;
        tensors->table = larger;
        tensors->moved = 0;
    }
    return tensors->table.used + tensors->old.used < tensors->table.room / 8 * 7;
}

bool ms_tensors_make_room(struct ms_tensors *tensors)
{
    if (tensors->table.used >= tensors->table.room / 2 && !grow(tensors)) {
        return false;
    }
    if (tensors->old.room != 0) {
        move_some(tensors);
    }
    return true;
}

static const struct ms_tensor *hash_find(const struct ms_tensors *tensors, ms_addr_t addr)
{
    const struct ms_tensor *tensor = ms_tensors_in_table(&tensors->table, addr);
    const bool moving = tensor == NULL && tensors->old.room != 0;
    return moving ? ms_tensors_in_table(&tensors->old, addr) : tensor;
}

/* ---- the tree */

struct leaf {
    struct ms_tensor tensor;
    struct ms_treap_node node;
};

static struct leaf *leaf_of(struct ms_treap_node *node)
{
    return node == NULL ? NULL : MS_CONTAINER_OF(node, struct leaf, node);
}

static inline struct ms_treap_key key_of(const struct ms_treap_node *node)
{
    const struct leaf *leaf = MS_CONTAINER_OF(node, struct leaf, node);
    return (struct ms_treap_key){.major = leaf->tensor.addr};
}

static struct leaf *tree_at_least(const struct ms_tensors *tensors, ms_addr_t addr)
{
    struct ms_treap_key key = {.major = addr};
    return leaf_of(ms_treap_at_least(tensors->tree, key, key_of));
}

bool ms_tensors_tree_overlap(const struct ms_tensors *tensors, ms_addr_t addr, uint64_t bytes)
{
    struct ms_treap_key end = {.major = addr + bytes};
    const struct leaf *last = leaf_of(ms_treap_below(tensors->tree, end, key_of));
    return last != NULL && last->tensor.addr + last->tensor.bytes > addr;
}

static bool tree_add(struct ms_tensors *tensors, const struct ms_tensor *tensor)
{
    struct leaf *leaf = ms_slab_take(&tensors->slab);
    if (leaf == NULL) {
        return false;
    }
    leaf->tensor = *tensor;
    ms_treap_insert(&tensors->tree, &leaf->node, key_of);
    return true;
}

bool ms_tensors_take_from_tree(struct ms_tensors *tensors, ms_addr_t addr, struct ms_tensor *out)
{
    struct leaf *leaf = tree_at_least(tensors, addr);
    if (leaf == NULL || leaf->tensor.addr != addr) {
        return false;
    }
    ms_treap_remove(&tensors->tree, &leaf->node, key_of);
    *out = leaf->tensor;
    ms_slab_give(&tensors->slab, leaf);
    return true;
}

/* ---- both */

bool ms_tensors_init(struct ms_tensors *tensors)
{
    *tensors = (struct ms_tensors){0};
    ms_slab_init(&tensors->slab, sizeof(struct leaf));
    return ms_table_make(&tensors->table, sizeof(struct ms_tensor), FIRST_SLOTS);
}

void ms_tensors_destroy(struct ms_tensors *tensors)
{
    ms_table_free(&tensors->table, sizeof(struct ms_tensor));
    ms_table_free(&tensors->old, sizeof(struct ms_tensor));
    ms_slab_destroy(&tensors->slab);
}

/* ---- marks */

static inline unsigned highest_bit(uint64_t word)
{
    return 63 - (unsigned)__builtin_clzll(word);
}

/* The highest mark that the summary's bit stands for. False: they are all gone. */
static bool highest_of_bit(const struct ms_segment *segment, uint64_t slot, uint64_t bit,
                           uint64_t *out)
{
    uint64_t words = (uint64_t)1 << (ms_marks_bit_shift(segment) - 6);
    uint64_t first = ((slot << 8) + bit) * words;
    for (uint64_t word = first + words; word-- > first;) {
        if (segment->marks[word] != 0) {
            *out = word * 64 + highest_bit(segment->marks[word]);
            return true;
        }
    }
    return false;
}

/* The highest mark in the granule's words before those of the bit. */
static bool last_mark_before(const struct ms_segment *segment, uint64_t slot, uint64_t bit,
                             uint64_t *out)
{
    uint64_t *summary = segment->granules[slot].summary;
    uint64_t k = bit / 64;
    uint64_t bits = summary[k] & (((uint64_t)1 << (bit % 64)) - 1);
    for (;;) {
        while (bits == 0 && k > 0) {
            bits = summary[--k];
        }
        if (bits == 0) {
            return false;
        }
        unsigned highest = highest_bit(bits);
        if (highest_of_bit(segment, slot, k * 64 + highest, out)) {
            return true;
        }
        bits &= ~((uint64_t)1 << highest);
        summary[k] &= ~((uint64_t)1 << highest);
    }
}

/* The highest mark at or below `at` in its granule. False: there is none. */
static inline bool last_mark(const struct ms_segment *segment, uint64_t at, uint64_t *out)
{
    uint64_t word = at / 64;
    uint64_t marks = segment->marks[word] & (UINT64_MAX >> (63 - at % 64));
    uint64_t words = (uint64_t)1 << (ms_marks_bit_shift(segment) - 6);
    while (marks == 0 && (word & (words - 1)) != 0) {
        marks = segment->marks[--word];
    }
    if (marks != 0) {
        *out = word * 64 + highest_bit(marks);
        return true;
    }
    return last_mark_before(segment, at >> ms_marks_granule_shift(segment),
                            at >> ms_marks_bit_shift(segment) & 255, out);
}

/* Likewise over several granules, down to the mark `floor`. */
static bool last_mark_down_to(const struct ms_segment *segment, uint64_t floor, uint64_t at,
                              uint64_t *out)
{
    while (!last_mark(segment, at, out)) {
        uint64_t first = at >> ms_marks_granule_shift(segment) << ms_marks_granule_shift(segment);
        if (first <= floor) {
            return false;
        }
        at = first - 1;
    }
    return *out >= floor;
}

/* ---- overlap */

bool ms_marks_overlap(const struct ms_segment *segment, const struct ms_spot *spot)
{
    const uint64_t first = ms_begin_mark(spot->first);
    uint64_t last = ms_end_mark(spot->last), found = 0;
    /* In all granules but the first, any tensor that begins or reaches there within the range
     * overlaps. */
    for (uint64_t slot = spot->last_slot; slot > spot->first_slot; slot--) {
        if (segment->granules[slot].spanned || last_mark(segment, last, &found)) {
            return true;
        }
        last = (slot << ms_marks_granule_shift(segment)) - 1;
    }
    if (segment->granules[spot->first_slot].tensors == 0) {
        return false;
    }
    if (!last_mark(segment, last, &found)) {
        return segment->granules[spot->first_slot].spanned;
    }
    /* It lies inside the range, or is the beginning of a tensor that has not ended before it. */
    return found >= first || found % 2 == 0;
}

/* Within one unit only the exact bytes decide. */
static bool bytes_overlap(const struct ms_tensors *tensors, const struct ms_segment *segment,
                          ms_addr_t addr, uint64_t bytes)
{
    const struct ms_tensor *below = ms_tensors_below(tensors, segment, segment->base, addr + bytes);
    return below != NULL && below->addr + below->bytes > addr;
}

ms_status_t ms_tensors_add_to_tree(struct ms_tensors *tensors, const struct ms_segment *segment,
                                   const struct ms_tensor *tensor)
{
    if (segment != NULL && bytes_overlap(tensors, segment, tensor->addr, tensor->bytes)) {
        return MS_ERR_INVALID;
    }
    return tree_add(tensors, tensor) ? MS_OK : MS_ERR_NO_MEMORY;
}

const struct ms_tensor *ms_tensors_below(const struct ms_tensors *tensors,
                                         const struct ms_segment *segment, ms_addr_t floor,
                                         ms_addr_t addr)
{
    uint64_t found = 0;
    if (addr <= floor) {
        return NULL;
    }
    uint64_t least = ms_begin_mark(floor - segment->base);
    if (!last_mark_down_to(segment, least, ms_begin_mark(addr - 1 - segment->base), &found)) {
        return NULL;
    }
    if (found % 2 != 0 &&
        (found == least || !last_mark_down_to(segment, least, found - 1, &found))) {
        return NULL; /* it began further below */
    }
    return hash_find(tensors, segment->base + found / 2 * MS_TENSOR_UNIT_BYTES);
}

const struct ms_tensor *ms_tensors_any_in(const struct ms_tensors *tensors,
                                          const struct ms_segment *segment, ms_addr_t addr,
                                          uint64_t bytes)
{
    const struct ms_tensor *tensor = NULL;
    if (segment != NULL) {
        tensor = ms_tensors_below(tensors, segment, addr, addr + bytes);
    }
    if (tensor != NULL) {
        return tensor;
    }
    tensor = ms_tensors_in_tree(tensors, addr);
    return tensor != NULL && tensor->addr - addr < bytes ? tensor : NULL;
}

const struct ms_tensor *ms_tensors_over(const struct ms_tensors *tensors,
                                        const struct ms_segment *segment, ms_addr_t addr)
{
    const struct leaf *leaf =
        leaf_of(ms_treap_below(tensors->tree, (struct ms_treap_key){.major = addr}, key_of));
    const struct ms_tensor *tensor = leaf != NULL ? &leaf->tensor : NULL;
    if ((tensor == NULL || addr - tensor->addr >= tensor->bytes) && segment != NULL) {
        tensor = ms_tensors_below(tensors, segment, segment->base, addr);
    }
    return tensor != NULL && addr - tensor->addr < tensor->bytes ? tensor : NULL;
}

const struct ms_tensor *ms_tensors_in_tree(const struct ms_tensors *tensors, ms_addr_t addr)
{
    const struct leaf *leaf = tree_at_least(tensors, addr);
    return leaf == NULL ? NULL : &leaf->tensor;
}
