/* SPDX-License-Identifier: Apache-2.0 */
/* An ordered tree (a treap) of nodes that live inside their owners. See tree.h. */
#include "tree.h"

#include <stdbool.h>

static bool before(const struct sim_node *a, uint64_t key, uint64_t tie)
{
    return a->key < key || (a->key == key && a->tie < tie);
}

/* xorshift: the weights need only be uncorrelated with the keys. */
static uint32_t next_weight(void)
{
    static uint32_t state = 2463534242u;
    state ^= state << 13;
    state ^= state >> 17;
    state ^= state << 5;
    return state;
}

static void split(struct sim_node *root, uint64_t key, uint64_t tie, struct sim_node **low,
                  struct sim_node **high)
{
    while (root) {
        if (before(root, key, tie)) {
            *low = root;
            low = &root->right;
            root = root->right;
        } else {
            *high = root;
            high = &root->left;
            root = root->left;
        }
    }
    *low = NULL;
    *high = NULL;
}

void sim_tree_insert(struct sim_tree *tree, struct sim_node *node)
{
    node->weight = next_weight();
    struct sim_node **link = &tree->root;
    while (*link && (*link)->weight >= node->weight) {
        link = before(*link, node->key, node->tie) ? &(*link)->right : &(*link)->left;
    }
    split(*link, node->key, node->tie, &node->left, &node->right);
    *link = node;
}

void sim_tree_remove(struct sim_tree *tree, struct sim_node *node)
{
    struct sim_node **link = &tree->root;
    while (*link != node) {
        link = before(*link, node->key, node->tie) ? &(*link)->right : &(*link)->left;
    }
    struct sim_node *low = node->left, *high = node->right;
    while (low && high) {
        if (low->weight >= high->weight) {
            *link = low;
            link = &low->right;
            low = low->right;
        } else {
            *link = high;
            link = &high->left;
            high = high->left;
        }
    }
    *link = low ? low : high;
    node->left = node->right = NULL;
}

struct sim_node *sim_tree_floor(const struct sim_tree *tree, uint64_t key, uint64_t tie)
{
    struct sim_node *best = NULL;
    for (struct sim_node *at = tree->root; at;) {
        if (before(at, key, tie) || (at->key == key && at->tie == tie)) {
            best = at;
            at = at->right;
        } else {
            at = at->left;
        }
    }
    return best;
}

struct sim_node *sim_tree_ceiling(const struct sim_tree *tree, uint64_t key, uint64_t tie)
{
    struct sim_node *best = NULL;
    for (struct sim_node *at = tree->root; at;) {
        if (before(at, key, tie)) {
            at = at->right;
        } else {
            best = at;
            at = at->left;
        }
    }
    return best;
}
