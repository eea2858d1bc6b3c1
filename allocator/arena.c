#include "allocator/arena.h"

#include <stdio.h>

#include "allocator/pool_internal.h"

struct tensor {
    struct ms_treap_node node;
    ms_addr_t addr;
    uint64_t bytes;
    uint64_t id;
};

struct ms_arenas {
    uint8_t device;
    ms_pool_t *pool; /* null where there is none */
    struct ms_event_sink sink;
    ms_lock_t lock;                /* taken before the pool's state lock, never after */
    struct ms_treap_node *tensors; /* by address; they never overlap */
    struct ms_slab slab;
    uint64_t next_id, end_id;
    struct ms_arenas_stats stats;
};

enum { IDS_AT_A_TIME = 1024 };

static struct tensor *tensor_of(struct ms_treap_node *node)
{
    return node == NULL ? NULL : MS_CONTAINER_OF(node, struct tensor, node);
}

static inline struct ms_treap_key key_of(const struct ms_treap_node *node)
{
    const struct tensor *tensor = MS_CONTAINER_OF(node, struct tensor, node);
    return (struct ms_treap_key){.major = tensor->addr};
}

ms_status_t ms_arenas_create(uint8_t device, ms_pool_t *pool, struct ms_event_sink sink,
                             ms_arenas_t **out)
{
    struct ms_arenas *arenas = ms_pages_map(sizeof(*arenas));
    if (arenas == NULL) {
        return MS_ERR_NO_MEMORY;
    }
    arenas->device = device;
    arenas->pool = pool;
    arenas->sink = sink;
    ms_slab_init(&arenas->slab, sizeof(struct tensor));
    *out = arenas;
    return MS_OK;
}

void ms_arenas_destroy(ms_arenas_t *arenas)
{
    if (arenas != NULL) {
        ms_slab_destroy(&arenas->slab);
        ms_pages_unmap(arenas, sizeof(*arenas));
    }
}

static void tell(struct ms_arenas *arenas, enum ms_event_kind kind, const struct tensor *tensor,
                 uint32_t site, uint64_t block_id)
{
    if (arenas->sink.emit != NULL) {
        arenas->sink.emit(arenas->sink.ctx, &(struct ms_event){.kind = (uint8_t)kind,
                                                               .device = arenas->device,
                                                               .owner = MS_OWNER_POOL,
                                                               .site = site,
                                                               .id = tensor->id,
                                                               .addr = tensor->addr,
                                                               .bytes = tensor->bytes,
                                                               .aux = block_id});
    }
}

static bool overlaps(struct ms_arenas *arenas, ms_addr_t addr, uint64_t bytes)
{
    struct ms_treap_key end = {.major = addr + bytes};
    const struct tensor *last = tensor_of(ms_treap_below(arenas->tensors, end, key_of));
    return last != NULL && last->addr + last->bytes > addr;
}

/* MS_ERR_NOT_READY at the first report whose total is not our sum, else MS_OK. */
static ms_status_t compare_total(struct ms_arenas *arenas, uint64_t total_bytes)
{
    if (total_bytes == UINT64_MAX || total_bytes == arenas->stats.live_bytes ||
        arenas->stats.mismatched) {
        return MS_OK;
    }
    arenas->stats.mismatched = true;
    return MS_ERR_NOT_READY;
}

static ms_status_t born(struct ms_arenas *arenas, ms_addr_t addr, uint64_t bytes, uint32_t site,
                        uint64_t total_bytes)
{
    if (bytes == 0 || addr > UINT64_MAX - bytes || overlaps(arenas, addr, bytes)) {
        arenas->stats.invalid_reports++;
        return MS_ERR_INVALID;
    }
    struct tensor *tensor = ms_slab_take(&arenas->slab);
    if (tensor == NULL) {
        return MS_ERR_NO_MEMORY;
    }
    if (arenas->next_id == arenas->end_id) {
        arenas->next_id = ms_ids_take(IDS_AT_A_TIME);
        arenas->end_id = arenas->next_id + IDS_AT_A_TIME;
    }
    *tensor = (struct tensor){.addr = addr, .bytes = bytes, .id = arenas->next_id++};
    ms_treap_insert(&arenas->tensors, &tensor->node, key_of);
    struct ms_arenas_stats *stats = &arenas->stats;
    stats->births++;
    stats->live_tensors++;
    stats->live_bytes += bytes;
    if (stats->live_bytes > stats->peak_live_bytes) {
        stats->peak_live_bytes = stats->live_bytes;
    }
    struct ms_block_info block = {0};
    if (arenas->pool != NULL) {
        /* Not in the pool: memory that the program mapped itself, and the block's id stays 0. */
        (void)ms_pool_mark_arena(arenas->pool, addr, &block);
    }
    tell(arenas, MS_EVENT_TENSOR_BORN, tensor, site, block.id);
    return compare_total(arenas, total_bytes);
}

ms_status_t ms_arenas_born(ms_arenas_t *arenas, ms_addr_t addr, uint64_t bytes, uint32_t site,
                           uint64_t total_bytes)
{
    ms_lock_acquire(&arenas->lock);
    ms_status_t status = born(arenas, addr, bytes, site, total_bytes);
    ms_lock_release(&arenas->lock);
    return status;
}

static void bury(struct ms_arenas *arenas, struct tensor *tensor)
{
    ms_treap_remove(&arenas->tensors, &tensor->node, key_of);
    arenas->stats.deaths++;
    arenas->stats.live_tensors--;
    arenas->stats.live_bytes -= tensor->bytes;
    tell(arenas, MS_EVENT_TENSOR_DIED, tensor, 0, 0);
    ms_slab_give(&arenas->slab, tensor);
}

ms_status_t ms_arenas_died(ms_arenas_t *arenas, ms_addr_t addr, uint64_t bytes,
                           uint64_t total_bytes)
{
    (void)bytes; /* the birth's size is the one that was counted */
    struct ms_treap_key key = {.major = addr};
    ms_lock_acquire(&arenas->lock);
    struct tensor *tensor = tensor_of(ms_treap_at_least(arenas->tensors, key, key_of));
    ms_status_t status = MS_ERR_INVALID;
    if (tensor != NULL && tensor->addr == addr) {
        bury(arenas, tensor);
        status = compare_total(arenas, total_bytes);
    } else {
        arenas->stats.invalid_reports++;
    }
    ms_lock_release(&arenas->lock);
    return status;
}

void ms_arenas_block_gone(ms_arenas_t *arenas, ms_addr_t addr, uint64_t bytes)
{
    struct ms_treap_key key = {.major = addr};
    ms_lock_acquire(&arenas->lock);
    for (;;) {
        struct tensor *tensor = tensor_of(ms_treap_at_least(arenas->tensors, key, key_of));
        if (tensor == NULL || tensor->addr - addr >= bytes) {
            break;
        }
        bury(arenas, tensor);
    }
    ms_lock_release(&arenas->lock);
}

void ms_arenas_stats(ms_arenas_t *arenas, struct ms_arenas_stats *out)
{
    ms_lock_acquire(&arenas->lock);
    *out = arenas->stats;
    ms_lock_release(&arenas->lock);
}

static const char *first_violation(struct ms_arenas *arenas)
{
    uint64_t tensors = 0;
    uint64_t bytes = 0;
    struct ms_treap_key key = {0};
    const struct tensor *tensor = tensor_of(ms_treap_at_least(arenas->tensors, key, key_of));
    while (tensor != NULL) {
        tensors++;
        bytes += tensor->bytes;
        key.major = tensor->addr + 1;
        const struct tensor *next = tensor_of(ms_treap_at_least(arenas->tensors, key, key_of));
        if (next != NULL && tensor->addr + tensor->bytes > next->addr) {
            return "two live tensors overlap";
        }
        tensor = next;
    }
    const struct ms_arenas_stats *stats = &arenas->stats;
    if (tensors != stats->live_tensors || stats->births - stats->deaths != tensors) {
        return "the number of live tensors is not births less deaths";
    }
    if (bytes != stats->live_bytes || bytes > stats->peak_live_bytes) {
        return "live bytes do not add up";
    }
    return NULL;
}

bool ms_arenas_is_valid(ms_arenas_t *arenas, char *why, size_t why_bytes)
{
    ms_lock_acquire(&arenas->lock);
    const char *violation = first_violation(arenas);
    ms_lock_release(&arenas->lock);
    if (violation != NULL && why != NULL && why_bytes > 0) {
        (void)snprintf(why, why_bytes, "%s", violation);
    }
    return violation == NULL;
}

void ms_arenas_fork_prepare(ms_arenas_t *arenas)
{
    ms_lock_acquire(&arenas->lock);
}

void ms_arenas_fork_parent(ms_arenas_t *arenas)
{
    ms_lock_release(&arenas->lock);
}

void ms_arenas_fork_child(ms_arenas_t *arenas)
{
    ms_lock_reset(&arenas->lock);
}
