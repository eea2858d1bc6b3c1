/* SPDX-License-Identifier: Apache-2.0 */
/* What memshim doctor asks of the driver and the devices, each part in a process that is thrown
 * away: a device may fault over it, or hang. */
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
    bool handle_fd, handle_fabric; /* chunks can be exported as */
    bool rdma_offered;             /* GPUDirect RDMA of mapped memory */
    bool host_offered;             /* host-located chunks */
    int32_t host_node;             /* NUMA node they lie on, -1: anywhere */
    int32_t host_code; /* of host_offered: what a real access came to (shim/tables/probe_codes.h) */

    bool entered; /* a context could be made */
    uint8_t rdma; /* enum ms_doctor_answer: a chunk with that flag can be made and mapped */
    uint64_t down_bytes_per_s, up_bytes_per_s; /* device to host chunk, and back; 0: not measured */
    uint8_t managed, pinned; /* enum ms_doctor_answer: the device wrote and read such memory */
};

struct ms_doctor_facts {
    int32_t load; /* enum ms_cli_load; -1: the process that asked did not come back */
    int32_t init_result;
    char init_name[64];   /* as the driver names it, or empty */
    int32_t cuda_version; /* 1000 x major + 10 x minor */
    int32_t device_count;
    bool functions[MS_HOOK_COUNT]; /* that this driver has */
    struct ms_doctor_device devices[MS_DEVICES_MAX];
};

/* Fills *facts, which the caller frees with munmap: no more than 10 s for each device and question.
 * Null where there is no memory for it. This process has not used the driver, and still has not. */
struct ms_doctor_facts *ms_doctor_ask_driver(void);

#endif
