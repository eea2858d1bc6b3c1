/* Questions that can only be put to the driver where that may do harm: in a throw-away process. */
#ifndef MEMSHIM_SHIM_PROBE_H
#define MEMSHIM_SHIM_PROBE_H

/* How the process ends that finds out (`memshim probe-...`, shim/cli/probe.c). */
#define MS_PROBE_YES     0
#define MS_PROBE_NO      3
#define MS_PROBE_UNKNOWN 4 /* there was no device, or no memory, to try it on */

/* Runs `memshim NAME ARGUMENT` (argument may be null), without this library, and waits for it: 21 s
 * at most. Yes and no are remembered under `key`, a file name; null: never. The place is memshim/
 * in XDG_CACHE_HOME, which must be there, else .cache/memshim in HOME, which must be there; where
 * both are missing nothing is. Any thread; the program's signals and children are as they were. */
int ms_probe(const char *name, const char *argument, const char *key);

#endif
