/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An ordered tree (a treap) of nodes that live inside their owners. Keys are pairs of 64-bit
 * numbers, compared key first, then tie; equal pairs may not be inserted twice. No allocation, no
 * lock of its own: the caller holds sim_lock.
 */
#ifndef SIMGPU_TREE_H
#define SIMGPU_TREE_H

#include <stddef.h>
#include <stdint.h>

struct sim_node {
    struct sim_node *left, *right;
    uint64_t key, tie;
    uint32_t weight;
};

struct sim_tree {
    struct sim_node *root;
};

#define SIM_OWNER(node, type, member) ((type *)((char *)(node)-offsetof(type, member)))

/* The caller has set the node's key and tie. */
void sim_tree_insert(struct sim_tree *tree, struct sim_node *node);
void sim_tree_remove(struct sim_tree *tree, struct sim_node *node);

/* The last node with (key, tie) <= the pair given, or NULL. */
struct sim_node *sim_tree_floor(const struct sim_tree *tree, uint64_t key, uint64_t tie);
/* The first node with (key, tie) >= the pair given, or NULL. */
struct sim_node *sim_tree_ceiling(const struct sim_tree *tree, uint64_t key, uint64_t tie);

static inline struct sim_node *sim_tree_first(const struct sim_tree *tree)
{
    return sim_tree_ceiling(tree, 0, 0);
}

static inline struct sim_node *sim_tree_next(const struct sim_tree *tree,
                                             const struct sim_node *node)
{
    return node->tie == UINT64_MAX ? sim_tree_ceiling(tree, node->key + 1, 0)
                                   : sim_tree_ceiling(tree, node->key, node->tie + 1);
}

#endif
