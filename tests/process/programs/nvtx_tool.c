/* A tool of somebody else's: it takes every copy of NVTX, says so, and answers nothing. As a
 * library it is loaded; linked into a program it is found by the pointer. */
#include <stdio.h>

__attribute__((visibility("default"))) int
InitializeInjectionNvtx2(const void *(*tables)(unsigned));

int InitializeInjectionNvtx2(const void *(*tables)(unsigned))
{
    (void)tables;
    (void)puts("another tool was asked");
    return 1;
}

typedef int (*entry_t)(const void *(*tables)(unsigned));
__attribute__((visibility("default"))) extern entry_t InitializeInjectionNvtx2_fnptr;
entry_t InitializeInjectionNvtx2_fnptr = InitializeInjectionNvtx2;
