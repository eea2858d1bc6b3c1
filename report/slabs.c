#include "report/slabs.h"

#include <string.h>
#include <sys/mman.h>

#define ALIGN_BYTES 8u

struct ms_slab {
    struct ms_slab *older;
    size_t used;
};

static struct ms_slab *new_slab(struct ms_slabs *slabs)
{
    struct ms_slab *slab =
        mmap(NULL, MS_SLAB_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (slab == MAP_FAILED) {
        return NULL;
    }
    slab->older = slabs->newest;
    slab->used = sizeof(*slab);
    slabs->newest = slab;
    return slab;
}

void *ms_slabs_take(struct ms_slabs *slabs, size_t bytes)
{
    const size_t rounded = (bytes + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
    struct ms_slab *slab = slabs->newest;

    if (bytes > MS_SLAB_BYTES - sizeof(*slab)) {
        return NULL;
    }
    if (!slab || slab->used + rounded > MS_SLAB_BYTES) {
        slab = new_slab(slabs);
    }
    if (!slab) {
        return NULL;
    }

    void *taken = (char *)slab + slab->used;

    slab->used += rounded;
    return taken;
}

char *ms_slabs_copy(struct ms_slabs *slabs, const char *text)
{
    const size_t bytes = strlen(text) + 1;
    char *copy = ms_slabs_take(slabs, bytes);

    return copy ? memcpy(copy, text, bytes) : NULL;
}

void ms_slabs_free(struct ms_slabs *slabs)
{
    while (slabs->newest) {
        struct ms_slab *older = slabs->newest->older;

        munmap(slabs->newest, MS_SLAB_BYTES);
        slabs->newest = older;
    }
}
