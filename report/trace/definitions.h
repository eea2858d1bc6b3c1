/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of a call site, as the trace defines them: the payloads of ms_trace_define.
 *
 * A site is the interned pair of stacks, native and Python, that asked for memory, with the kind of
 * thread and its tag at that moment. Stacks are prefix trees: a node is a frame and its caller, so
 * a stack is named by its innermost node. Ids count from 1, by kind; 0 is none. A definition comes
 * after those that it names, and before every event that names it. The structs lie in the trace as
 * they are (little-endian); strings follow them, without a terminating zero byte.
 *
 * Nothing is resolved here: addresses are those of the module's file, and the report finds lines,
 * if need be on another machine. */
#ifndef MEMSHIM_REPORT_TRACE_DEFINITIONS_H
#define MEMSHIM_REPORT_TRACE_DEFINITIONS_H

#include <stddef.h>
#include <stdint.h>

#define MS_BUILD_ID_BYTES       32u
#define MS_DEFINITION_MAX_BYTES 65536u /* of one payload */

enum ms_definition_kind {
    MS_DEFINE_MODULE = 1, /* struct ms_module_definition, path */
    MS_DEFINE_NATIVE,     /* struct ms_native_definition: a node of the native tree */
    MS_DEFINE_CODE,       /* struct ms_code_definition, file, function, line table */
    MS_DEFINE_PYTHON,     /* struct ms_python_definition: a node of the Python tree */
    MS_DEFINE_TAG,        /* struct ms_tag_definition, name: a node of the tags' tree */
    MS_DEFINE_SITE,       /* struct ms_site_definition */
    MS_DEFINE_SAMPLING,   /* struct ms_sampling_definition; from here on */
    MS_DEFINE_KIND_COUNT
};

/* A file that was mapped as code. Loading the same path again makes another module. */
struct ms_module_definition {
    uint32_t id;
    uint32_t build_id_bytes; /* 0: none */
    uint8_t build_id[MS_BUILD_ID_BYTES];
    uint64_t base;  /* where the file's address 0 lay in the process */
    uint64_t bytes; /* of addresses that it covers there */
};

struct ms_native_definition {
    uint32_t id, caller; /* caller: node; 0: the outermost frame that is known */
    uint32_t module;     /* 0: no file (code made at run time); then address is the process's */
    uint32_t exact;      /* 1: the address itself was interrupted; 0: it is a return address, so the
                            call ends right before it */
    uint64_t address;    /* in the module's own addresses, as its symbol table has them */
};

/* A Python function. `table` is its co_linetable (3.10 and later) or co_lnotab (3.9) as it is. */
struct ms_code_definition {
    uint32_t id;
    uint32_t version; /* of the interpreter: major << 8 | minor */
    uint32_t first_line;
    uint32_t file_bytes, function_bytes, table_bytes; /* of UTF-8, or of the bytes as they were */
};

enum ms_python_flag {
    MS_PYTHON_ENTRY = 1 /* the first frame of a call into the interpreter: it stands for the native
                           frame that runs it and for all nodes up to it */
};

struct ms_python_definition {
    uint32_t id, caller;  /* caller: node */
    uint32_t code;        /* 0: a frame that could not be read */
    uint32_t instruction; /* its byte offset in the code */
    uint32_t flags;       /* enum ms_python_flag */
};

/* A name that the program gave a phase (memshim_tag_push, a pushed NVTX range). */
struct ms_tag_definition {
    uint32_t id, outer; /* outer: the tag inside which this one was pushed */
    uint32_t color;     /* 0xAARRGGBB, 0: none given */
    uint32_t name_bytes;
};

enum ms_thread_kind {
    MS_THREAD_OTHER,   /* it has no Python frames */
    MS_THREAD_PYTHON,  /* it has */
    MS_THREAD_BACKWARD /* one of PyTorch's autograd workers */
};

enum ms_site_flag {
    MS_SITE_NATIVE_CUT = 1,  /* deeper than MEMSHIM_STACK_DEPTH: outermost frames are missing */
    MS_SITE_NATIVE_LOST = 2, /* code without unwind tables: outer frames are missing */
    MS_SITE_PYTHON_CUT = 4,
    MS_SITE_PYTHON_LOST = 8, /* frames that did not look like frames */
    MS_SITE_SAMPLED_OUT = 16 /* the one site of everything that sampling passed over */
};

struct ms_site_definition {
    uint32_t id;
    uint32_t native, python, tag; /* innermost nodes; 0: none */
    uint32_t thread;              /* enum ms_thread_kind */
    uint32_t flags;               /* enum ms_site_flag */
};

/* An allocation of b bytes got a site with probability p(b) = 1 - exp(-b / mean_bytes),
 * independently of all others. The rest have the site of MS_SITE_SAMPLED_OUT. So over allocations
 * with a site, the sum of b / p(b) estimates the bytes of all without bias, and the sum of 1 / p(b)
 * their number. The square of the first one's standard error is the sum of (1 - p(b)) * (b /
 * p(b))^2, also over those with a site. */
struct ms_sampling_definition {
    uint64_t mean_bytes;
};

#endif
