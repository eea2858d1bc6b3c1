/* dlsym and dlvsym, which memshim exports: exact names of the driver interface get their hook,
 * everything else is the C library's business, reached by a tail jump. */
#ifndef MEMSHIM_SHIM_DLSYM_H
#define MEMSHIM_SHIM_DLSYM_H

/* The next dlsym after ours: the C library's, or that of another preloaded library. Never null. */
void *ms_real_dlsym(void *handle, const char *name);

#endif
