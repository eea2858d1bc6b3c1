/* Memory for many small things that stay where they are and go all at once. Pages of its own, not
 * the application's heap. */
#ifndef MEMSHIM_REPORT_SLABS_H
#define MEMSHIM_REPORT_SLABS_H

#include <stddef.h>

#define MS_SLAB_BYTES (256u << 10)

struct ms_slabs {
    struct ms_slab *newest;
};

/* Zeroed, aligned for any number; null where memory ran out, or bytes is more than a slab has. */
void *ms_slabs_take(struct ms_slabs *slabs, size_t bytes);

/* The text, ended by a zero byte; null likewise. */
char *ms_slabs_copy(struct ms_slabs *slabs, const char *text);

void ms_slabs_free(struct ms_slabs *slabs);

#endif
