/* SPDX-License-Identifier: Apache-2.0 */
/* What events take in traces: bytes of the windows' records, over how many records they are.
 *
 *   trace_bytes TRACE... */
#include <inttypes.h>
#include <stdio.h>

#include "report/read/reader.h"

static bool say(const char *path)
{
    static struct ms_reader reader;
    char why[512];
    uint64_t bytes = 0, events = 0;
    if (!ms_reader_open(&reader, path, why, sizeof(why))) {
        (void)fprintf(stderr, "trace_bytes: %s\n", why);
        return false;
    }
    for (size_t i = 0; i < ms_reader_count(&reader.windows); i++) {
        const struct ms_extent_place *window = ms_reader_place(&reader.windows, i);
        bytes += window->committed_bytes;
        events += window->count;
    }
    (void)printf("%10" PRIu64 " events %8.2f bytes each  %s\n", events,
                 events != 0 ? (double)bytes / (double)events : 0.0, path);
    ms_reader_close(&reader);
    return true;
}

int main(int argc, char **argv)
{
    bool read = argc > 1;
    for (int i = 1; i < argc; i++) {
        read = say(argv[i]) && read;
    }
    return read ? 0 : 1;
}
