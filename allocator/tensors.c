#include "allocator/tensors.h"

enum {
    FIRST_SLOTS = 4096,
    MOVE_AT_A_TIME = 8 /* slots of the old table, with each birth */
};

/* ---- hashed */

static inline uint64_t home_of(const struct ms_tensor_table *table, ms_addr_t addr)
{
    uint64_t mixed = addr / MS_TENSOR_UNIT_BYTES * 0x9e3779b97f4a7c15u;
    return (mixed ^ (mixed >> 32)) & (table->slots - 1);
}

static bool table_make(struct ms_tensor_table *table, uint64_t slots)
{
    *table = (struct ms_tensor_table){.slot = ms_pages_map_dense(slots * sizeof(struct ms_tensor)),
                                      .slots = slots};
    return table->slot != NULL;
}

static void table_drop(struct ms_tensor_table *table)
{
    if (table->slot != NULL) {
        ms_pages_unmap(table->slot, table->slots * sizeof(struct ms_tensor));
    }
    *table = (struct ms_tensor_table){0};
}

static inline struct ms_tensor *table_find(const struct ms_tensor_table *table, ms_addr_t addr)
{
    if (table->used == 0) {
        return NULL;
    }
    uint64_t at = home_of(table, addr);
    while (table->slot[at].addr != 0) {
        if (table->slot[at].addr == addr) {
            return &table->slot[at];
        }
        at = (at + 1) & (table->slots - 1);
    }
    return NULL;
}

static inline void table_put(struct ms_tensor_table *table, const struct ms_tensor *tensor)
{
    uint64_t at = home_of(table, tensor->addr);
    while (table->slot[at].addr != 0) {
        at = (at + 1) & (table->slots - 1);
    }
    table->slot[at] = *tensor;
    table->used++;
}

/* Empties the slot; those behind it that a search would miss then move up. */
static inline void table_remove(struct ms_tensor_table *table, struct ms_tensor *tensor)
{
    uint64_t mask = table->slots - 1;
    uint64_t gap = (uint64_t)(tensor - table->slot);
    uint64_t at = (gap + 1) & mask;
    while (table->slot[at].addr != 0) {
        uint64_t home = home_of(table, table->slot[at].addr);
        /* It may lie no earlier than its home. */
        if (((at - home) & mask) >= ((at - gap) & mask)) {
            table->slot[gap] = table->slot[at];
            gap = at;
        }
        at = (at + 1) & mask;
    }
    table->slot[gap].addr = 0;
    table->used--;
}

/* An emptied slot stays empty: whatever belongs before it has moved through it. */
static void move_some(struct ms_tensors *tensors)
{
    struct ms_tensor_table *old = &tensors->old;
    for (int k = 0; k < MOVE_AT_A_TIME && tensors->moved < old->slots; k++) {
        struct ms_tensor *slot = &old->slot[tensors->moved];
        while (slot->addr != 0) {
            table_put(&tensors->table, slot);
            table_remove(old, slot);
        }
        tensors->moved++;
    }
    if (old->used == 0) {
        table_drop(old);
    }
}

/* Twice as large. A host without memory only means longer searches, while there is room at all. */
static bool grow(struct ms_tensors *tensors)
{
    struct ms_tensor_table larger;
    if (tensors->old.slot == NULL && table_make(&larger, tensors->table.slots * 2)) {
        tensors->old = tensors->table;
        tensors->table = larger;
        tensors->moved = 0;
    }
    return tensors->table.used + tensors->old.used < tensors->table.slots / 8 * 7;
}

static bool hash_add(struct ms_tensors *tensors, const struct ms_tensor *tensor)
{
    if (tensors->table.used >= tensors->table.slots / 2 && !grow(tensors)) {
        return false;
    }
    if (tensors->old.slot != NULL) {
        move_some(tensors);
    }
    table_put(&tensors->table, tensor);
    return true;
}

static bool hash_take(struct ms_tensors *tensors, ms_addr_t addr, struct ms_tensor *out)
{
    struct ms_tensor_table *table = &tensors->table;
    struct ms_tensor *tensor = table_find(table, addr);
    if (tensor == NULL) {
        table = &tensors->old;
        tensor = table_find(table, addr);
    }
    if (tensor == NULL) {
        return false;
    }
    *out = *tensor;
    table_remove(table, tensor);
    return true;
}

static const struct ms_tensor *hash_find(const struct ms_tensors *tensors, ms_addr_t addr)
{
    const struct ms_tensor *tensor = table_find(&tensors->table, addr);
    return tensor != NULL ? tensor : table_find(&tensors->old, addr);
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

static bool tree_overlap(const struct ms_tensors *tensors, ms_addr_t addr, uint64_t bytes)
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

static bool tree_take(struct ms_tensors *tensors, ms_addr_t addr, struct ms_tensor *out)
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
    return table_make(&tensors->table, FIRST_SLOTS);
}

void ms_tensors_destroy(struct ms_tensors *tensors)
{
    table_drop(&tensors->table);
    table_drop(&tensors->old);
    ms_slab_destroy(&tensors->slab);
}

static inline bool in_hash(const struct ms_starts *marks, ms_addr_t addr)
{
    return marks != NULL && addr % MS_TENSOR_UNIT_BYTES == 0;
}

/* Where a tensor's marks stand: even where it begins, odd where its last unit is. */
static inline uint64_t begin_mark(ms_addr_t base, ms_addr_t addr)
{
    return (addr - base) / MS_TENSOR_UNIT_BYTES * 2;
}

static inline uint64_t end_mark(ms_addr_t base, ms_addr_t addr, uint64_t bytes)
{
    return (addr - base + bytes - 1) / MS_TENSOR_UNIT_BYTES * 2 + 1;
}

bool ms_tensors_overlap(const struct ms_tensors *tensors, const struct ms_starts *marks,
                        ms_addr_t base, ms_addr_t addr, uint64_t bytes)
{
    if (tensors->tree != NULL && tree_overlap(tensors, addr, bytes)) {
        return true;
    }
    uint64_t last = 0;
    if (marks == NULL || !ms_starts_at_or_below(marks, end_mark(base, addr, bytes), &last)) {
        return false;
    }
    /* Begin and end marks take turns: the last one before the range tells what it lies in. */
    if (last >= begin_mark(base, addr)) {
        const struct ms_tensor *in = NULL;
        if (addr % MS_TENSOR_UNIT_BYTES == 0) {
            return true;
        }
        /* Inside one unit only the bytes themselves tell. */
        in = ms_tensors_below(tensors, marks, base, addr + bytes);
        return in != NULL && in->addr + in->bytes > addr;
    }
    return last % 2 == 0;
}

bool ms_tensors_add(struct ms_tensors *tensors, struct ms_starts *marks, ms_addr_t base,
                    const struct ms_tensor *tensor)
{
    if (!in_hash(marks, tensor->addr)) {
        return tree_add(tensors, tensor);
    }
    if (!hash_add(tensors, tensor)) {
        return false;
    }
    ms_starts_set(marks, begin_mark(base, tensor->addr));
    ms_starts_set(marks, end_mark(base, tensor->addr, tensor->bytes));
    return true;
}

bool ms_tensors_take(struct ms_tensors *tensors, struct ms_starts *marks, ms_addr_t base,
                     ms_addr_t addr, struct ms_tensor *out)
{
    if (in_hash(marks, addr) && hash_take(tensors, addr, out)) {
        ms_starts_clear(marks, begin_mark(base, addr));
        ms_starts_clear(marks, end_mark(base, addr, out->bytes));
        return true;
    }
    /* Also one that was born before its segment was known. */
    return tensors->tree != NULL && tree_take(tensors, addr, out);
}

const struct ms_tensor *ms_tensors_below(const struct ms_tensors *tensors,
                                         const struct ms_starts *marks, ms_addr_t base,
                                         ms_addr_t addr)
{
    uint64_t mark = 0;
    if (addr == base || !ms_starts_at_or_below(marks, begin_mark(base, addr - 1), &mark)) {
        return NULL;
    }
    if (mark % 2 != 0) {
        (void)ms_starts_at_or_below(marks, mark - 1, &mark); /* where it began */
    }
    return hash_find(tensors, base + mark / 2 * MS_TENSOR_UNIT_BYTES);
}

const struct ms_tensor *ms_tensors_any_in(const struct ms_tensors *tensors,
                                          const struct ms_starts *marks, ms_addr_t base,
                                          ms_addr_t addr, uint64_t bytes)
{
    const struct ms_tensor *tensor =
        marks == NULL ? NULL : ms_tensors_below(tensors, marks, base, addr + bytes);
    if (tensor != NULL && tensor->addr >= addr) {
        return tensor;
    }
    tensor = ms_tensors_in_tree(tensors, addr);
    return tensor != NULL && tensor->addr - addr < bytes ? tensor : NULL;
}

const struct ms_tensor *ms_tensors_in_tree(const struct ms_tensors *tensors, ms_addr_t addr)
{
    const struct leaf *leaf = tree_at_least(tensors, addr);
    return leaf == NULL ? NULL : &leaf->tensor;
}
