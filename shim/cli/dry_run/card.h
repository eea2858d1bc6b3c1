/* SPDX-License-Identifier: Apache-2.0 */
/* The card that --gpu names. */
#ifndef MEMSHIM_SHIM_CLI_DRY_RUN_CARD_H
#define MEMSHIM_SHIM_CLI_DRY_RUN_CARD_H

#include <stdbool.h>

#include "report/fit/cards.h"

/* A card by its name in cards.def; by a size, which means an H100 with that much memory; or by a
 * file of lines `KEY VALUE`: name, memory, context, capability, processors, bus, of which memory is
 * required. False, after an error message. */
bool ms_dry_card_take(const char *text, struct ms_card *card);

#endif
