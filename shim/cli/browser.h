/* SPDX-License-Identifier: Apache-2.0 */
/* Opens a file in the browser of the person who runs the command. */
#ifndef MEMSHIM_SHIM_CLI_BROWSER_H
#define MEMSHIM_SHIM_CLI_BROWSER_H

#include <stdbool.h>
#include <stddef.h>

/* Starts the first program of BROWSER (a list with colons), otherwise xdg-open, with the
 * path as its only argument, and waits for at most two seconds to see whether it fails. False, and
 * a clause in `why`. */
bool ms_browser_open(const char *path, char *why, size_t why_bytes);

#endif
