/* SPDX-License-Identifier: Apache-2.0 */
/* The parsers that options.def names, one for each option. Each is pure: it writes the value into
 * *out; it returns false for a text that the option does not take, and then changes nothing. No
 * lock, no allocation. The text is borrowed for as long as *out is used. */
#ifndef MEMSHIM_SHIM_TABLES_OPTION_PARSERS_H
#define MEMSHIM_SHIM_TABLES_OPTION_PARSERS_H

#include "shim/tables/options.h"

#define MS_OPTION_VALUE_CHARACTERS 256 /* of one item of a list, including its zero byte */

#define MS_OPTION(name, fallback, allowed, meaning, parser) \
    bool parser(const char *text, struct ms_options *out);
#define MS_SCRIPT_OPTION(name, fallback, meaning)
#include "shim/tables/options.def"

#endif
