/* SPDX-License-Identifier: Apache-2.0 */
/* An ordered tree, intrusive, two pointers a node: a treap whose priorities are a hash of the
 * node's address, so that it needs neither balance fields nor parent pointers.
 *
 * A tree is a `struct ms_treap_node *root` (null: empty) and a key function, inlined into every
 * use. Keys are pairs and must be unique within one tree. All operations are O(log n). */
#ifndef MEMSHIM_ALLOCATOR_BASE_CONTAINERS_TREAP_H
#define MEMSHIM_ALLOCATOR_BASE_CONTAINERS_TREAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ms_treap_node {
    struct ms_treap_node *left, *right;
};

struct ms_treap_key {
    uint64_t major, minor;
};

typedef struct ms_treap_key (*ms_treap_key_fn)(const struct ms_treap_node *node);

#define MS_CONTAINER_OF(node, type, member) \
    ((type *)(void *)((char *)(node)-offsetof(type, member)))

static inline bool ms_treap_less(struct ms_treap_key a, struct ms_treap_key b)
{
    return a.major != b.major ? a.major < b.major : a.minor < b.minor;
}

static inline uint64_t ms_treap_priority(const struct ms_treap_node *node)
{
    uint64_t mixed = (uint64_t)(uintptr_t)node * 0x9e3779b97f4a7c15u;
    return mixed ^ (mixed >> 29);
}

static inline __attribute__((always_inline)) void
ms_treap_insert(struct ms_treap_node **root, struct ms_treap_node *node, ms_treap_key_fn key)
{
    struct ms_treap_key wanted = key(node);
    uint64_t priority = ms_treap_priority(node);
    struct ms_treap_node **link = root;
    while (*link != NULL && ms_treap_priority(*link) > priority) {
        link = ms_treap_less(wanted, key(*link)) ? &(*link)->left : &(*link)->right;
    }
    /* The subtree below splits by key into the new node's two sides. */
    struct ms_treap_node *rest = *link;
    struct ms_treap_node **lower = &node->left;
    struct ms_treap_node **upper = &node->right;
    *link = node;
    while (rest != NULL) {
        if (ms_treap_less(wanted, key(rest))) {
            *upper = rest;
            upper = &rest->left;
            rest = rest->left;
        } else {
            *lower = rest;
            lower = &rest->right;
            rest = rest->right;
        }
    }
    *lower = NULL;
    *upper = NULL;
}

/* The node must be in the tree. */
static inline __attribute__((always_inline)) void
ms_treap_remove(struct ms_treap_node **root, struct ms_treap_node *node, ms_treap_key_fn key)
{
    struct ms_treap_key wanted = key(node);
    struct ms_treap_node **link = root;
    while (*link != node) {
        link = ms_treap_less(wanted, key(*link)) ? &(*link)->left : &(*link)->right;
    }
    struct ms_treap_node *lower = node->left;
    struct ms_treap_node *upper = node->right;
    while (lower != NULL && upper != NULL) {
        if (ms_treap_priority(lower) > ms_treap_priority(upper)) {
            *link = lower;
            link = &lower->right;
            lower = lower->right;
        } else {
            *link = upper;
            link = &upper->left;
            upper = upper->left;
        }
    }
    *link = lower != NULL ? lower : upper;
}

/* The first node whose key is not less than `bound`; null where there is none. */
static inline __attribute__((always_inline)) struct ms_treap_node *
ms_treap_at_least(struct ms_treap_node *root, struct ms_treap_key bound, ms_treap_key_fn key)
{
    struct ms_treap_node *found = NULL;
    while (root != NULL) {
        if (ms_treap_less(key(root), bound)) {
            root = root->right;
        } else {
            found = root;
            root = root->left;
        }
    }
    return found;
}

/* The last node whose key is less than `bound`; null where there is none. */
static inline __attribute__((always_inline)) struct ms_treap_node *
ms_treap_below(struct ms_treap_node *root, struct ms_treap_key bound, ms_treap_key_fn key)
{
    struct ms_treap_node *found = NULL;
    while (root != NULL) {
        if (ms_treap_less(key(root), bound)) {
            found = root;
            root = root->right;
        } else {
            root = root->left;
        }
    }
    return found;
}

static inline struct ms_treap_node *ms_treap_last(struct ms_treap_node *root)
{
    while (root != NULL && root->right != NULL) {
        root = root->right;
    }
    return root;
}

#endif
