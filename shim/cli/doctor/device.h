/* SPDX-License-Identifier: Apache-2.0 */
/* What memshim doctor asks the driver and the devices, each part in a throw-away process: a device
 * may fault or hang over it. */
#ifndef MEMSHIM_SHIM_CLI_DOCTOR_DEVICE_H
#define MEMSHIM_SHIM_CLI_DOCTOR_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "shim/cli/doctor/driver.h"
#include "shim/tables/hook_table.h"
#include "shim/tables/options.h"

enum ms_doctor_answer { MS_DOCTOR_UNKNOWN, MS_DOCTOR_NO, MS_DOCTOR_YES };

struct ms_doctor_device {
    int32_t ordinal;
    char name[128];
    char uuid[MS_CLI_UUID_TEXT_BYTES];
    char pci[MS_CLI_PCI_BYTES];
    uint64_t total_bytes;
    bool mapping; /* virtual memory management */
    uint64_t granule_bytes;
    bool handle_fd, handle_fabric; /* chunks can be exported in this form */
    bool rdma_offered;             /* GPUDirect RDMA of mapped memory */
    bool host_offered;             /* host-located chunks */
    int32_t host_node;             /* NUMA node on which they lie; -1: any */
    int32_t host_code;             /* the result of a real access to what host_offered claims
                                      (shim/tables/probe_codes.h) */

    bool entered; /* a context could be made */
    uint8_t rdma; /* enum ms_doctor_answer: a chunk with that flag can be made and mapped */
    uint64_t down_bytes_per_s, up_bytes_per_s; /* device to host chunk, and back; 0: not measured */
    uint8_t managed, pinned; /* enum ms_doctor_answer: the device wrote and read such memory */
};

struct ms_doctor_facts {
    int32_t load; /* enum ms_cli_load; -1: the process that asked did not end normally */
    int32_t init_result;
    char init_name[64];   /* the driver's name for the error, or empty */
    int32_t cuda_version; /* 1000 x major + 10 x minor */
    int32_t device_count;
    bool functions[MS_HOOK_COUNT]; /* functions that this driver has */
    struct ms_doctor_device devices[MS_DEVICES_MAX];
};

/* Fills *facts, which the caller frees with munmap; takes at most 10 s for each device and
 * question. Null: no memory. This process must not have used the driver, and does not use it
 * here. */
struct ms_doctor_facts *ms_doctor_ask_driver(void);

#endif
