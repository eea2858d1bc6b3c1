/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Settings of the simulated GPU: the SIMGPU_* variables of the environment, as simgpu.h lists them.
 * A bad value is reported on stderr, once, and the default is kept.
 */
#ifndef SIMGPU_SETTINGS_H
#define SIMGPU_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

#define SIM_MAX_DEVICES 16

struct sim_settings {
    const char *name;
    uint64_t devices;
    uint64_t memory_bytes;
    uint64_t processors; /* multiprocessors per device */
    uint64_t context_bytes;
    uint64_t module_bytes;
    uint64_t graph_bytes;
    uint64_t capability_major, capability_minor;
    uint64_t driver_version;
    uint64_t delay_low_us, delay_high_us;
    uint64_t destroy_us;
    uint64_t context_us, module_us, first_launch_us;
    uint64_t first_launch_bytes;
    uint64_t peer_us;
    uint64_t queue; /* operations in a stream's queue; 0: no limit */
    uint64_t seed;
    enum { SIM_VALUES_MEMORY, SIM_VALUES_ZEROS, SIM_VALUES_RANDOM } values;
    bool late; /* the host sees that work has ended only after it has waited for it */
    bool strict;
    bool contents;
    uint64_t latency; /* a factor; 0: memory calls take no time */
    bool vmm;
    bool host_numa;
    bool rdma;
    bool dma_buf;
    bool peers;
    bool multicast;
    const char *fail;   /* "" if unset */
    const char *other;  /* likewise */
    const char *shared; /* file name; "" if unset */
};

extern struct sim_settings sim_settings;

/* Parses a size such as 24GiB, 512MiB or 4096; false for anything else. */
bool sim_parse_bytes(const char *text, uint64_t *bytes);

/* Reads the environment. Called once, before anything else. */
void sim_settings_read(void);

/* Reads it again if this process was forked from the one that read it. cuInit calls this: a child
 * of a process that has not used the driver is an ordinary process. */
void sim_settings_of_child(void);

#endif
