/* SPDX-License-Identifier: Apache-2.0 */
/* The fields from which a Python stack is read, for each version of CPython on a 64-bit machine, in
 * builds with the GIL. Offsets in bytes.
 *
 * 3.9 to 3.12: from Include/cpython/{pystate,frameobject,code,unicodeobject}.h and
 * Include/internal/pycore_frame.h; they did not change within a minor version. 3.13 and 3.14
 * provide the offsets themselves: _PyRuntime begins with struct _Py_DebugOffsets. */
#ifndef MEMSHIM_SHIM_TABLES_PYTHON_LAYOUT_H
#define MEMSHIM_SHIM_TABLES_PYTHON_LAYOUT_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* The same in all versions: PyObject, PyVarObject, PyBytesObject, PyASCIIObject. */
#define MS_PYTHON_TYPE        8u  /* of PyObject: ob_type */
#define MS_PYTHON_SIZE        16u /* of PyVarObject: ob_size */
#define MS_PYTHON_BYTES       32u /* of PyBytesObject: ob_sval */
#define MS_PYTHON_TEXT_LENGTH 16u /* of PyASCIIObject: in characters */
#define MS_PYTHON_TEXT_STATE  32u

#define MS_PYTHON_READ_BYTES 160u /* the most that is read of one frame or code object */

enum ms_python_chain {
    MS_PYTHON_OBJECTS, /* frame objects; each is one C call of the interpreter's loop */
    MS_PYTHON_MARKED,  /* a frame has a mark if it is the first of a C call */
    MS_PYTHON_SHIMS    /* a frame of C's lies before the first frame of a C call */
};

struct ms_python_layout {
    uint16_t version; /* major << 8 | minor */
    uint8_t chain;    /* enum ms_python_chain */
    uint8_t scale;    /* OBJECTS: bytes per unit of `instruction` */
    bool cframe;      /* the thread points to its frame through a _PyCFrame */
    bool active;      /* GILState's thread state is the one that the thread last ran with, even in a
                         sub-interpreter; otherwise it is the thread's first */
    struct {
        uint16_t frame; /* to the innermost frame, or to its _PyCFrame */
        uint16_t id;    /* pthread_t */
    } thread;
    uint16_t cframe_frame;
    struct {
        uint16_t bytes; /* how much of a frame is read, from its beginning */
        uint16_t code, previous;
        uint16_t instruction; /* OBJECTS: an int, -1 before the first; otherwise a pointer to it */
        uint16_t entry;       /* MARKED: a byte, not 0 in the first; SHIMS: a byte, 3 or more in C's
                                 frames */
    } frame;
    struct {
        uint16_t bytes; /* how much of a code object is read */
        uint16_t first_line, file, function, table;
        uint16_t body;  /* differs if the code differs: its bytes object, or its length */
        uint16_t begin; /* the first instruction; unused with OBJECTS */
    } code;
    struct {
        uint16_t ascii, compact, data; /* where the characters are: here; here; behind a pointer */
    } text;
};

/* Eight or four bytes of an object. */
static inline uint64_t ms_python_word(const char *object, uint32_t offset)
{
    uint64_t value;
    memcpy(&value, object + offset, sizeof(value));
    return value;
}

static inline uint32_t ms_python_half(const char *object, uint32_t offset)
{
    uint32_t value;
    memcpy(&value, object + offset, sizeof(value));
    return value;
}

/* The address in a frame's reference to its code: 3.14 tags references in their low bits. */
static inline uint64_t ms_python_code_address(uint64_t reference)
{
    return reference & ~UINT64_C(7);
}

/* Whether a frame is one of C's, by its byte `entry`. */
static inline bool ms_python_is_shim(const struct ms_python_layout *layout, uint8_t entry)
{
    enum { FIRST_OWNER_IN_C = 3 }; /* FRAME_OWNED_BY_CSTACK, from 3.14 on ..._BY_INTERPRETER */
    return layout->chain == MS_PYTHON_SHIMS && entry >= FIRST_OWNER_IN_C;
}

/* The layout of a version. runtime: the address of _PyRuntime. False: the version is unknown, or
 * _PyRuntime does not have the expected contents. */
bool ms_python_layout(uint32_t version, const void *runtime, struct ms_python_layout *out);

/* Whether the layout is known for a version (major << 8 | minor), in builds with the GIL. */
bool ms_python_version_known(uint32_t version);

#endif
