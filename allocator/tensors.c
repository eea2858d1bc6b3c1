#include "allocator/tensors.h"

/* ---- hashed: by linear hashing, as blocks are (index.c) */

static uint64_t directory_buckets(int k)
{
    return k == 0 ? MS_TENSORS_FIRST_BUCKETS : (uint64_t)MS_TENSORS_FIRST_BUCKETS << (k - 1);
}

static struct ms_tensor **bucket_at(const struct ms_tensors *tensors, uint64_t bucket)
{
    if (bucket < MS_TENSORS_FIRST_BUCKETS) {
        return &tensors->directory[0][bucket];
    }
    int k = 64 - __builtin_clzll(bucket / MS_TENSORS_FIRST_BUCKETS);
    return &tensors->directory[k][bucket - directory_buckets(k)];
}

static uint64_t hash_of(ms_addr_t addr)
{
    uint64_t mixed = addr / MS_TENSOR_UNIT_BYTES * 0x9e3779b97f4a7c15u;
    return mixed ^ (mixed >> 32);
}

static struct ms_tensor **bucket_of(const struct ms_tensors *tensors, ms_addr_t addr)
{
    uint64_t hash = hash_of(addr);
    uint64_t bucket = hash & (2 * tensors->power - 1);
    if (bucket >= tensors->buckets) {
        bucket = hash & (tensors->power - 1);
    }
    return bucket_at(tensors, bucket);
}

/* Splits one bucket in two. A host without memory only means longer chains. */
static void grow(struct ms_tensors *tensors)
{
    uint64_t power = tensors->power;
    uint64_t added = tensors->buckets;
    int k = 64 - __builtin_clzll(added / MS_TENSORS_FIRST_BUCKETS);
    if (tensors->directory[k] == NULL) {
        tensors->directory[k] = ms_pages_map_dense(ms_pointers_bytes(directory_buckets(k)));
        if (tensors->directory[k] == NULL) {
            return;
        }
    }
    struct ms_tensor **low = bucket_at(tensors, added - power);
    struct ms_tensor **high = bucket_at(tensors, added);
    struct ms_tensor *chain = *low;
    *low = NULL;
    while (chain != NULL) {
        struct ms_tensor *next = chain->next;
        struct ms_tensor **to = (hash_of(chain->addr) & (2 * power - 1)) == added ? high : low;
        chain->next = *to;
        *to = chain;
        chain = next;
    }
    tensors->buckets = added + 1;
    if (tensors->buckets == 2 * power) {
        tensors->power = 2 * power;
    }
}

static struct ms_tensor *hash_find(const struct ms_tensors *tensors, ms_addr_t addr)
{
    struct ms_tensor *tensor = *bucket_of(tensors, addr);
    while (tensor != NULL && tensor->addr != addr) {
        tensor = tensor->next;
    }
    return tensor;
}

static void hash_insert(struct ms_tensors *tensors, struct ms_tensor *tensor)
{
    if (tensors->hashed >= tensors->buckets) {
        grow(tensors);
    }
    struct ms_tensor **bucket = bucket_of(tensors, tensor->addr);
    tensor->next = *bucket;
    *bucket = tensor;
    tensors->hashed++;
}

static struct ms_tensor *hash_take(struct ms_tensors *tensors, ms_addr_t addr)
{
    struct ms_tensor **link = bucket_of(tensors, addr);
    while (*link != NULL && (*link)->addr != addr) {
        link = &(*link)->next;
    }
    struct ms_tensor *tensor = *link;
    if (tensor != NULL) {
        *link = tensor->next;
        tensors->hashed--;
    }
    return tensor;
}

/* ---- the tree */

static struct ms_tensor *tensor_of(struct ms_treap_node *node)
{
    return node == NULL ? NULL : MS_CONTAINER_OF(node, struct ms_tensor, node);
}

static inline struct ms_treap_key key_of(const struct ms_treap_node *node)
{
    const struct ms_tensor *tensor = MS_CONTAINER_OF(node, struct ms_tensor, node);
    return (struct ms_treap_key){.major = tensor->addr};
}

static struct ms_tensor *tree_at_least(const struct ms_tensors *tensors, ms_addr_t addr)
{
    struct ms_treap_key key = {.major = addr};
    return tensor_of(ms_treap_at_least(tensors->tree, key, key_of));
}

static struct ms_tensor *tree_below(const struct ms_tensors *tensors, ms_addr_t addr)
{
    struct ms_treap_key key = {.major = addr};
    return tensor_of(ms_treap_below(tensors->tree, key, key_of));
}

/* ---- both */

bool ms_tensors_init(struct ms_tensors *tensors)
{
    *tensors =
        (struct ms_tensors){.buckets = MS_TENSORS_FIRST_BUCKETS, .power = MS_TENSORS_FIRST_BUCKETS};
    ms_slab_init(&tensors->slab, sizeof(struct ms_tensor));
    tensors->directory[0] = ms_pages_map(ms_pointers_bytes(directory_buckets(0)));
    return tensors->directory[0] != NULL;
}

void ms_tensors_destroy(struct ms_tensors *tensors)
{
    for (int k = 0; k < MS_TENSORS_DIRECTORY; k++) {
        if (tensors->directory[k] != NULL) {
            ms_pages_unmap(tensors->directory[k], ms_pointers_bytes(directory_buckets(k)));
        }
    }
    ms_slab_destroy(&tensors->slab);
}

static bool in_hash(const struct ms_starts *starts, ms_addr_t addr)
{
    return starts != NULL && addr % MS_TENSOR_UNIT_BYTES == 0;
}

static uint64_t position_of(ms_addr_t base, ms_addr_t addr)
{
    return (addr - base) / MS_TENSOR_UNIT_BYTES;
}

const struct ms_tensor *ms_tensors_below(const struct ms_tensors *tensors,
                                         const struct ms_starts *starts, ms_addr_t base,
                                         ms_addr_t addr)
{
    uint64_t position = 0;
    if (addr == base || !ms_starts_at_or_below(starts, position_of(base, addr - 1), &position)) {
        return NULL;
    }
    return hash_find(tensors, base + position * MS_TENSOR_UNIT_BYTES);
}

bool ms_tensors_overlap(const struct ms_tensors *tensors, const struct ms_starts *starts,
                        ms_addr_t base, ms_addr_t addr, uint64_t bytes)
{
    const struct ms_tensor *last =
        starts == NULL ? NULL : ms_tensors_below(tensors, starts, base, addr + bytes);
    if (last != NULL && last->addr + last->bytes > addr) {
        return true;
    }
    last = tensors->tree == NULL ? NULL : tree_below(tensors, addr + bytes);
    return last != NULL && last->addr + last->bytes > addr;
}

struct ms_tensor *ms_tensors_add(struct ms_tensors *tensors, struct ms_starts *starts,
                                 ms_addr_t base, ms_addr_t addr, uint64_t bytes, uint64_t id)
{
    struct ms_tensor *tensor = ms_slab_take(&tensors->slab);
    if (tensor == NULL) {
        return NULL;
    }
    tensor->addr = addr;
    tensor->bytes = bytes;
    tensor->id = id;
    tensor->counted = false;
    if (in_hash(starts, addr)) {
        hash_insert(tensors, tensor);
        ms_starts_set(starts, position_of(base, addr));
    } else {
        ms_treap_insert(&tensors->tree, &tensor->node, key_of);
    }
    return tensor;
}

bool ms_tensors_take(struct ms_tensors *tensors, struct ms_starts *starts, ms_addr_t base,
                     ms_addr_t addr, struct ms_tensor *out)
{
    struct ms_tensor *tensor = NULL;
    if (in_hash(starts, addr)) {
        tensor = hash_take(tensors, addr);
        if (tensor != NULL) {
            ms_starts_clear(starts, position_of(base, addr));
        }
    }
    if (tensor == NULL && tensors->tree != NULL) {
        /* Also one that was born before its segment was known. */
        tensor = tree_at_least(tensors, addr);
        tensor = tensor != NULL && tensor->addr == addr ? tensor : NULL;
        if (tensor != NULL) {
            ms_treap_remove(&tensors->tree, &tensor->node, key_of);
        }
    }
    if (tensor == NULL) {
        return false;
    }
    *out = *tensor;
    ms_slab_give(&tensors->slab, tensor);
    return true;
}

const struct ms_tensor *ms_tensors_any_in(const struct ms_tensors *tensors,
                                          const struct ms_starts *starts, ms_addr_t base,
                                          ms_addr_t addr, uint64_t bytes)
{
    const struct ms_tensor *tensor =
        starts == NULL ? NULL : ms_tensors_below(tensors, starts, base, addr + bytes);
    if (tensor != NULL && tensor->addr >= addr) {
        return tensor;
    }
    tensor = tree_at_least(tensors, addr);
    return tensor != NULL && tensor->addr - addr < bytes ? tensor : NULL;
}

const struct ms_tensor *ms_tensors_in_tree(const struct ms_tensors *tensors, ms_addr_t addr)
{
    return tree_at_least(tensors, addr);
}
