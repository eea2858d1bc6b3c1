/* SPDX-License-Identifier: Apache-2.0 */
/* A table from 64-bit ids to 32-bit numbers. */
#ifndef MEMSHIM_ALLOCATOR_BASE_CONTAINERS_NUMBERS_H
#define MEMSHIM_ALLOCATOR_BASE_CONTAINERS_NUMBERS_H

#include <stdbool.h>
#include <stdint.h>

#define MS_NUMBER_NONE UINT32_MAX

struct ms_numbers;

/* Null where memory runs out. */
struct ms_numbers *ms_numbers_new(void);
void ms_numbers_delete(struct ms_numbers *numbers); /* null: nothing */

/* Gives the id this number, which is not MS_NUMBER_NONE. False: memory ran out. */
bool ms_numbers_put(struct ms_numbers *numbers, uint64_t id, uint32_t number);

/* MS_NUMBER_NONE: the id has no number. */
uint32_t ms_numbers_get(const struct ms_numbers *numbers, uint64_t id);
void ms_numbers_remove(struct ms_numbers *numbers, uint64_t id);

#endif
