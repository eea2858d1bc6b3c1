/* SPDX-License-Identifier: Apache-2.0 */
/* A program that marks its phases with NVTX, built from NVIDIA's own headers: nvtx_job NAME, or
 * nvtx_job library PATH, which says what a library's range gives. */
#include <dlfcn.h>
#include <nvtx3/nvToolsExt.h>
#include <string.h>
#include <wchar.h>

#include "driver.h"
#include "say.h"

#define NVTX_ATTRIBUTES(type, field, value)                         \
    ((nvtxEventAttributes_t){.version = NVTX_VERSION,               \
                             .size = NVTX_EVENT_ATTRIB_STRUCT_SIZE, \
                             .colorType = NVTX_COLOR_ARGB,          \
                             .color = 0xff112233,                   \
                             .messageType = (type),                 \
                             .message.field = (value)})

static struct driver cu;
static CUcontext context;

static void allocate(size_t kib)
{
    CUdeviceptr block;
    MUST(cu.cuMemAlloc(&block, kib * KIB));
    MUST(cu.cuMemFree(block));
}

static void ranges(void)
{
    nvtxEventAttributes_t plain = NVTX_ATTRIBUTES(NVTX_MESSAGE_TYPE_ASCII, ascii, "colored");
    nvtxEventAttributes_t wide =
        NVTX_ATTRIBUTES(NVTX_MESSAGE_TYPE_UNICODE, unicode, L"\x20ac \x1f600 \xd800");
    cu = driver_use(&context);
    nvtxMarkA("mark");
    EXPECT(nvtxRangePushA("outer") == 0);
    allocate(1);
    EXPECT(nvtxRangePushEx(&plain) == 1);
    EXPECT(nvtxRangePushW(L"w\xe9") == 2);
    EXPECT(nvtxRangePushEx(&wide) == 3);
    EXPECT(nvtxRangePop() == 3);
    EXPECT(nvtxRangePop() == 2);
    allocate(2);
    EXPECT(nvtxRangePop() == 1);
    EXPECT(nvtxRangePop() == 0);
    EXPECT(nvtxRangePop() < 0);
    nvtxRangeId_t first = nvtxRangeStartA("whole");
    nvtxRangeId_t second = nvtxRangeStartEx(&plain);
    EXPECT(first != second);
    allocate(3);
    nvtxRangeEnd(first);
    nvtxRangeEnd(second);
    nvtxRangeEnd(12345);
}

/* Each domain nests by itself. */
static void domains(void)
{
    cu = driver_use(&context);
    nvtxDomainHandle_t one = nvtxDomainCreateA("one");
    nvtxDomainHandle_t two = nvtxDomainCreateW(L"tw\xf6");
    nvtxStringHandle_t text = nvtxDomainRegisterStringA(one, "registered");
    nvtxStringHandle_t wide = nvtxDomainRegisterStringW(two, L"wide");
    nvtxEventAttributes_t in_one = NVTX_ATTRIBUTES(NVTX_MESSAGE_TYPE_REGISTERED, registered, text);
    nvtxEventAttributes_t in_two = NVTX_ATTRIBUTES(NVTX_MESSAGE_TYPE_REGISTERED, registered, wide);
    EXPECT(one != NULL && two != NULL && one != two && nvtxDomainCreateA("one") == one);
    EXPECT(nvtxDomainRangePushEx(one, &in_one) == 0);
    EXPECT(nvtxDomainRangePushEx(two, &in_two) == 0);
    EXPECT(nvtxDomainRangePushEx(one, &in_one) == 1);
    allocate(1);
    EXPECT(nvtxDomainRangePop(two) == 0);
    EXPECT(nvtxDomainRangePop(two) < 0);
    allocate(2);
    EXPECT(nvtxDomainRangePop(one) == 1);
    EXPECT(nvtxDomainRangePop(one) == 0);
    EXPECT(nvtxRangePop() < 0);
    nvtxDomainRangeEnd(one, nvtxDomainRangeStartEx(one, &in_one));
    nvtxDomainDestroy(one);
}

static void steps(void)
{
    nvtxEventAttributes_t step = NVTX_ATTRIBUTES(NVTX_MESSAGE_TYPE_ASCII, ascii, "step");
    cu = driver_use(&context);
    nvtxRangePushA("steps");
    for (int i = 0; i < 3; i++) {
        nvtxRangePushA("step");
        nvtxRangePop();
    }
    nvtxRangePushEx(&step);
    nvtxRangePop();
    nvtxRangePop();
}

static void bad_input(void)
{
    nvtxEventAttributes_t attributes =
        NVTX_ATTRIBUTES(NVTX_MESSAGE_TYPE_REGISTERED, registered, (nvtxStringHandle_t)0x7);
    cu = driver_use(&context);
    EXPECT(nvtxRangePushA(NULL) == 0);
    EXPECT(nvtxRangePushW(NULL) == 1);
    EXPECT(nvtxRangePushEx(NULL) == 2);
    EXPECT(nvtxRangePushEx(&attributes) == 3);
    attributes.messageType = 77;
    EXPECT(nvtxRangePushEx(&attributes) == 4);
    attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
    attributes.size = 8; /* less than the fields that hold a message */
    EXPECT(nvtxRangePushEx(&attributes) == 5);
    EXPECT(nvtxDomainRangePushEx((nvtxDomainHandle_t)0x1234567, &attributes) == 6);
    (void)nvtxDomainCreateA(NULL);
    (void)nvtxDomainRegisterStringA(NULL, NULL);
    for (int level = 6; level >= 0; level--) {
        EXPECT(nvtxRangePop() == level);
    }
}

static void no_device(void)
{
    nvtxRangePushA("alone");
    nvtxRangePop();
}

/* What a range gives where no tool listens. */
static void unheard(void)
{
    EXPECT(nvtxRangePushA("alone") == NVTX_NO_PUSH_POP_TRACKING);
}

static int library(const char *path)
{
    int (*mark_phase)(void);
    void *opened = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    void *address = opened != NULL ? dlsym(opened, "mark_phase") : NULL;
    EXPECT(address != NULL);
    memcpy(&mark_phase, &address, sizeof(address));
    (void)printf("%d\n", mark_phase());
    return 0;
}

int main(int count, char **arguments)
{
    if (count == 3 && strcmp(arguments[1], "library") == 0) {
        return library(arguments[2]);
    }
    static const struct {
        const char *name;
        void (*run)(void);
    } scenarios[] = {{"ranges", ranges},       {"domains", domains},     {"steps", steps},
                     {"bad-input", bad_input}, {"no-device", no_device}, {"unheard", unheard}};
    EXPECT(count == 2);
    for (size_t i = 0; i < sizeof(scenarios) / sizeof(scenarios[0]); i++) {
        if (strcmp(scenarios[i].name, arguments[1]) == 0) {
            scenarios[i].run();
            return 0;
        }
    }
    return 2;
}
