/* SPDX-License-Identifier: Apache-2.0 */
/* Live blocks by the address that they begin at: a hash table, see range.h. */
#include "allocator/base/containers/pages.h"
#include "allocator/space/range.h"

/* Buckets of directory entry k: the first has the first ones, each other doubles the table. */
static uint64_t directory_buckets(int k)
{
    return k == 0 ? MS_INDEX_FIRST_BUCKETS : (uint64_t)MS_INDEX_FIRST_BUCKETS << (k - 1);
}

static struct ms_range **bucket_at(const struct ms_block_index *index, uint64_t bucket)
{
    if (bucket < MS_INDEX_FIRST_BUCKETS) {
        return &index->directory[0][bucket];
    }
    int k = 64 - __builtin_clzll(bucket / MS_INDEX_FIRST_BUCKETS);
    return &index->directory[k][bucket - directory_buckets(k)];
}

static uint64_t hash_of(ms_addr_t addr)
{
    uint64_t mixed = (addr >> 9) * 0x9e3779b97f4a7c15u;
    return mixed ^ (mixed >> 32);
}

/* Linear hashing: with b buckets and the power of two p <= b < 2p, buckets below b - p have been
 * split by one more bit of the hash than the others. */
static struct ms_range **bucket_of(const struct ms_block_index *index, ms_addr_t addr)
{
    uint64_t hash = hash_of(addr);
    uint64_t bucket = hash & (2 * index->power - 1);
    if (bucket >= index->buckets) {
        bucket = hash & (index->power - 1);
    }
    return bucket_at(index, bucket);
}

bool ms_index_init(struct ms_block_index *index)
{
    *index =
        (struct ms_block_index){.buckets = MS_INDEX_FIRST_BUCKETS, .power = MS_INDEX_FIRST_BUCKETS};
    index->directory[0] = ms_pages_map_dense(ms_pointers_bytes(directory_buckets(0)));
    return index->directory[0] != NULL;
}

void ms_index_destroy(struct ms_block_index *index)
{
    for (int k = 0; k < MS_INDEX_DIRECTORY; k++) {
        if (index->directory[k] != NULL) {
            ms_pages_unmap(index->directory[k], ms_pointers_bytes(directory_buckets(k)));
        }
    }
    *index = (struct ms_block_index){0};
}

/* Splits one bucket in two. If the host has no memory, chains only get longer. */
static void grow(struct ms_block_index *index)
{
    uint64_t power = index->power;
    uint64_t added = index->buckets;
    int k = 64 - __builtin_clzll(added / MS_INDEX_FIRST_BUCKETS);
    if (index->directory[k] == NULL) {
        index->directory[k] = ms_pages_map_dense(ms_pointers_bytes(directory_buckets(k)));
        if (index->directory[k] == NULL) {
            return;
        }
    }
    struct ms_range **low = bucket_at(index, added - power);
    struct ms_range **high = bucket_at(index, added);
    struct ms_range *chain = *low;
    *low = NULL;
    while (chain != NULL) {
        struct ms_range *next = chain->live.index_next;
        struct ms_range **to = (hash_of(chain->addr) & (2 * power - 1)) == added ? high : low;
        chain->live.index_next = *to;
        *to = chain;
        chain = next;
    }
    index->buckets = added + 1;
    if (index->buckets == 2 * power) {
        index->power = 2 * power;
    }
}

void ms_index_insert(struct ms_block_index *index, struct ms_range *range)
{
    if (index->entries >= index->buckets) {
        grow(index);
    }
    struct ms_range **bucket = bucket_of(index, range->addr);
    range->live.index_next = *bucket;
    *bucket = range;
    index->entries++;
}

struct ms_range *ms_index_find(const struct ms_block_index *index, ms_addr_t addr)
{
    struct ms_range *range = *bucket_of(index, addr);
    while (range != NULL && range->addr != addr) {
        range = range->live.index_next;
    }
    return range;
}

struct ms_range *ms_index_take(struct ms_block_index *index, ms_addr_t addr)
{
    struct ms_range **link = bucket_of(index, addr);
    while (*link != NULL && (*link)->addr != addr) {
        link = &(*link)->live.index_next;
    }
    struct ms_range *range = *link;
    if (range != NULL) {
        *link = range->live.index_next;
        index->entries--;
    }
    return range;
}
