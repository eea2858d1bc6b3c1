/* SPDX-License-Identifier: Apache-2.0 */
/* Every event of a trace that can be read, in order. */
#ifndef MEMSHIM_TESTS_PROCESS_TRACE_EVENTS_H
#define MEMSHIM_TESTS_PROCESS_TRACE_EVENTS_H

#include <stdbool.h>

#include "allocator/base/event.h"
#include "report/model/model.h"

/* False, and a line on stderr, where the file at `path` cannot be read or is damaged. */
bool trace_events(const struct ms_model *model, const char *path,
                  void (*say)(const struct ms_model *model, const struct ms_event *event));

#endif
