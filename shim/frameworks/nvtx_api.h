/* SPDX-License-Identifier: Apache-2.0 */
/* The part of NVTX's tool interface that memshim uses, as in NVTX 3's headers:
 * nvtxDetail/nvtxTypes.h (tables, ids, function types) and nvToolsExt.h (attributes). Declared here
 * because the build does not need these headers. */
#ifndef MEMSHIM_SHIM_FRAMEWORKS_NVTX_API_H
#define MEMSHIM_SHIM_FRAMEWORKS_NVTX_API_H

#include <stddef.h>
#include <stdint.h>

/* NvtxGetExportTableFunc_t: each compiled-in copy of NVTX has one. */
typedef const void *(*nvtx_export_table_t)(uint32_t table);

enum nvtx_table { NVTX_TABLE_CALLBACKS = 1, NVTX_TABLE_VERSION = 3 };
enum nvtx_module { NVTX_MODULE_CORE = 1, NVTX_MODULE_CORE2 = 5 };

typedef void (*nvtx_function_t)(void);

/* NvtxExportTableCallbacks. The result is an array of pointers to the pointers through which a
 * program's calls go; ids below *size exist, 0 is none. */
struct nvtx_callbacks {
    size_t struct_size;
    int (*module_table)(int module, nvtx_function_t ***table, unsigned int *size);
};

/* NvtxExportTableVersionInfo. A tool states the version that it was made for. */
struct nvtx_version {
    size_t struct_size;
    uint32_t version;
    uint32_t reserved0;
    void (*set_injection_version)(uint32_t version);
};
#define NVTX_VERSION_OURS 3u

/* NvtxCallbackIdCore, NvtxCallbackIdCore2: the callbacks that memshim answers. */
enum nvtx_core {
    NVTX_CORE_RANGE_START_EX = 4,
    NVTX_CORE_RANGE_START_A = 5,
    NVTX_CORE_RANGE_START_W = 6,
    NVTX_CORE_RANGE_END = 7,
    NVTX_CORE_RANGE_PUSH_EX = 8,
    NVTX_CORE_RANGE_PUSH_A = 9,
    NVTX_CORE_RANGE_PUSH_W = 10,
    NVTX_CORE_RANGE_POP = 11
};
enum nvtx_core2 {
    NVTX_CORE2_RANGE_START_EX = 2,
    NVTX_CORE2_RANGE_END = 3,
    NVTX_CORE2_RANGE_PUSH_EX = 4,
    NVTX_CORE2_RANGE_POP = 5,
    NVTX_CORE2_REGISTER_STRING_A = 10,
    NVTX_CORE2_REGISTER_STRING_W = 11,
    NVTX_CORE2_DOMAIN_CREATE_A = 12,
    NVTX_CORE2_DOMAIN_CREATE_W = 13
};

enum nvtx_color { NVTX_COLOR_ARGB = 1 };
enum nvtx_message { NVTX_MESSAGE_ASCII = 1, NVTX_MESSAGE_UNICODE = 2, NVTX_MESSAGE_REGISTERED = 3 };

/* nvtxEventAttributes_v2. `size` is that of the caller's version. */
struct nvtx_attributes {
    uint16_t version;
    uint16_t size;
    uint32_t category;
    int32_t color_type; /* enum nvtx_color */
    uint32_t color;     /* 0xAARRGGBB */
    int32_t payload_type;
    int32_t reserved0;
    uint64_t payload;
    int32_t message_type; /* enum nvtx_message */
    union {
        const char *ascii;
        const wchar_t *unicode;
        const void *registered; /* the tool's handle for a registered string */
    } message;
};

/* A tool's entry (NvtxInitializeInjectionNvtxFunc_t), which each copy of NVTX in the process calls.
 * Returns 1 if that copy is to use its tables as they are now, 0 if all its calls are to do
 * nothing. */
__attribute__((visibility("default"))) int InitializeInjectionNvtx2(nvtx_export_table_t tables);

typedef uint64_t nvtx_range_t;
typedef const void
    *nvtx_domain_t; /* the tool's handle for a domain; null: the one without a name */

#endif
