/* SPDX-License-Identifier: Apache-2.0 */
/* Modules, libraries and their kernels; simgpu.h describes the images. See module.h. */
#include "module.h"

#include "context.h"
#include "device.h"
#include "entry.h"
#include "image.h"
#include "memory.h"

#include <stdlib.h>
#include <string.h>

static CUlibrary first_library;

/* The code for this device in a program's binary: the newest architecture that is not newer than
 * the device, among those for which libraries are usually compiled. CUB looks for the answer in the
 * list for which it was compiled, and fails if it is not there. */
static int compiled_architecture(void)
{
    static const int usual[] = {120, 100, 90, 86, 80, 75, 70, 60, 50};
    int capability = (int)(sim_settings.capability_major * 10 + sim_settings.capability_minor);
    for (size_t i = 0; i < sizeof usual / sizeof usual[0]; i++) {
        if (usual[i] <= capability) {
            return usual[i];
        }
    }
    return capability;
}

/* Attributes of a kernel of a recent compiler for the simulated device. */
static void default_attributes(int *attributes)
{
    int architecture = compiled_architecture();
    memset(attributes, 0, sizeof(int) * CU_FUNC_ATTRIBUTE_MAX);
    attributes[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK] = 1024;
    attributes[CU_FUNC_ATTRIBUTE_NUM_REGS] = 32;
    attributes[CU_FUNC_ATTRIBUTE_PTX_VERSION] = architecture;
    attributes[CU_FUNC_ATTRIBUTE_BINARY_VERSION] = architecture;
    attributes[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES] = 49152;
    attributes[CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT] = -1;
}

/* ---- modules --------------------------------------------------------------------------------- */

static CUresult new_module(CUcontext context, struct sim_image *image, CUmodule *result)
{
    sim_pass_time_us(sim_settings.module_us);
    if (!context->active) {
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    }
    CUresult status = sim_account_charge(context->device->index, sim_settings.module_bytes);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    CUmodule module = sim_object_new(&sim_modules);
    if (!module) {
        sim_account_uncharge(context->device->index, sim_settings.module_bytes);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    module->context = sim_context_retain(context);
    module->image = sim_image_retain(image);
    module->next = context->modules;
    context->modules = module;
    *result = module;
    return CUDA_SUCCESS;
}

static CUresult load(CUmodule *result, const void *data)
{
    SIM_CURRENT(context);
    if (!result || !data) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct sim_image *image = sim_image_parse(data);
    if (!image) {
        return CUDA_ERROR_INVALID_IMAGE;
    }
    CUresult status = new_module(context, image, result);
    sim_image_release(image);
    return status;
}

CUresult cuModuleLoad(CUmodule *module, const char *fname)
{
    SIM_ENTER(cuModuleLoad);
    SIM_CURRENT(context);
    (void)context;
    bool named = fname && *fname;
    char *data = named ? sim_image_read(fname) : NULL;
    if (!data) {
        return named ? CUDA_ERROR_FILE_NOT_FOUND : CUDA_ERROR_INVALID_VALUE;
    }
    CUresult status = load(module, data);
    free(data);
    return status;
}

CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    SIM_ENTER(cuModuleLoadData);
    return load(module, image);
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int numOptions,
                            CUjit_option *options, void **optionValues)
{
    SIM_ENTER(cuModuleLoadDataEx);
    return load(module, image);
}

CUresult cuModuleLoadFatBinary(CUmodule *module, const void *fatCubin)
{
    SIM_ENTER(cuModuleLoadFatBinary);
    return load(module, fatCubin);
}

static void unload(CUmodule module)
{
    CUmodule *link = &module->context->modules;
    while (*link != module) {
        link = &(*link)->next;
    }
    *link = module->next;
    for (CUfunction function = module->functions, next; function; function = next) {
        next = function->next;
        sim_account_uncharge(module->context->device->index, function->charged_bytes);
        sim_object_free(&sim_functions_kind, function);
    }
    for (struct sim_global *global = module->globals, *next; global; global = next) {
        next = global->next;
        sim_range_free(global->range);
        free(global);
    }
    sim_account_uncharge(module->context->device->index, sim_settings.module_bytes);
    sim_image_release(module->image);
    sim_context_release(module->context);
    sim_object_free(&sim_modules, module);
}

CUresult sim_function_launched(CUfunction function)
{
    if (function->launched) {
        return CUDA_SUCCESS;
    }
    int device = function->module->context->device->index;
    CUresult status = sim_account_charge(device, sim_settings.first_launch_bytes);
    if (status == CUDA_SUCCESS) {
        function->launched = true;
        function->charged_bytes = sim_settings.first_launch_bytes;
        sim_pass_time_us(sim_settings.first_launch_us);
    }
    return status;
}

CUresult cuModuleUnload(CUmodule hmod)
{
    SIM_ENTER(cuModuleUnload);
    if (!sim_object_is(&sim_modules, hmod) || hmod->library) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    unload(hmod);
    return CUDA_SUCCESS;
}

void sim_modules_unload_all(CUcontext context)
{
    while (context->modules) {
        unload(context->modules);
    }
}

CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode *mode)
{
    SIM_ENTER(cuModuleGetLoadingMode);
    if (!mode) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *mode = CU_MODULE_LAZY_LOADING;
    return CUDA_SUCCESS;
}

/* ---- functions and globals of a module --------------------------------------------------------
 */

static CUfunction function_in(CUmodule module, const struct sim_symbol *symbol)
{
    for (CUfunction function = module->functions; function; function = function->next) {
        if (function->symbol == symbol) {
            return function;
        }
    }
    CUfunction function = sim_object_new(&sim_functions_kind);
    if (function) {
        function->module = module;
        function->symbol = symbol;
        default_attributes(function->attributes);
        function->next = module->functions;
        module->functions = function;
    }
    return function;
}

CUresult cuModuleGetFunction(CUfunction *hfunc, CUmodule hmod, const char *name)
{
    SIM_ENTER(cuModuleGetFunction);
    if (!sim_object_is(&sim_modules, hmod)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (!hfunc || !name) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const struct sim_symbol *symbol = sim_image_kernel(hmod->image, name);
    if (!symbol) {
        return CUDA_ERROR_NOT_FOUND;
    }
    *hfunc = function_in(hmod, symbol);
    return *hfunc ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuModuleGetFunctionCount(unsigned int *count, CUmodule mod)
{
    SIM_ENTER(cuModuleGetFunctionCount);
    if (!sim_object_is(&sim_modules, mod)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (!count) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *count = sim_image_kernel_count(mod->image);
    return CUDA_SUCCESS;
}

CUresult cuModuleEnumerateFunctions(CUfunction *functions, unsigned int numFunctions, CUmodule mod)
{
    SIM_ENTER(cuModuleEnumerateFunctions);
    if (!sim_object_is(&sim_modules, mod)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    unsigned count = 0;
    for (const struct sim_symbol *symbol = mod->image->symbols; symbol && count < numFunctions;
         symbol = symbol->next) {
        if (!symbol->is_global) {
            functions[count++] = function_in(mod, symbol);
        }
    }
    return CUDA_SUCCESS;
}

static CUresult global_in(CUmodule module, const char *name, CUdeviceptr *address, size_t *bytes)
{
    const struct sim_symbol *symbol = sim_image_global(module->image, name);
    if (!symbol) {
        return CUDA_ERROR_NOT_FOUND;
    }
    struct sim_global *global = module->globals;
    while (global && strcmp(global->name, name) != 0) {
        global = global->next;
    }
    if (!global) {
        global = calloc(1, sizeof *global);
        if (!global) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        CUresult status =
            sim_device_memory_new(module->context, symbol->global_bytes, &global->range);
        if (status != CUDA_SUCCESS) {
            free(global);
            return status;
        }
        global->range->of_library = true;
        global->name = symbol->name;
        global->next = module->globals;
        module->globals = global;
    }
    if (address) {
        *address = (CUdeviceptr)global->range->address;
    }
    if (bytes) {
        *bytes = symbol->global_bytes;
    }
    return CUDA_SUCCESS;
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr *dptr, size_t *bytes, CUmodule hmod, const char *name)
{
    SIM_ENTER(cuModuleGetGlobal_v2);
    if (!sim_object_is(&sim_modules, hmod)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    return name ? global_in(hmod, name, dptr, bytes) : CUDA_ERROR_INVALID_VALUE;
}

/* ---- libraries --------------------------------------------------------------------------------
 */

static CUresult load_library(CUlibrary *result, const void *code)
{
    struct sim_image *image = sim_image_parse(code);
    CUlibrary library = image ? sim_object_new(&sim_libraries) : NULL;
    if (!library) {
        if (image) {
            sim_image_release(image);
        }
        return image ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_IMAGE;
    }
    library->image = image;
    library->next = first_library;
    first_library = library;
    *result = library;
    return CUDA_SUCCESS;
}

CUresult cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *jitOptions,
                           void **jitOptionsValues, unsigned int numJitOptions,
                           CUlibraryOption *libraryOptions, void **libraryOptionValues,
                           unsigned int numLibraryOptions)
{
    SIM_JUDGE(library && code, CUDA_ERROR_INVALID_VALUE);
    SIM_ENTER(cuLibraryLoadData);
    return load_library(library, code);
}

CUresult cuLibraryLoadFromFile(CUlibrary *library, const char *fileName, CUjit_option *jitOptions,
                               void **jitOptionsValues, unsigned int numJitOptions,
                               CUlibraryOption *libraryOptions, void **libraryOptionValues,
                               unsigned int numLibraryOptions)
{
    SIM_JUDGE(library && fileName, CUDA_ERROR_INVALID_VALUE);
    SIM_ENTER(cuLibraryLoadFromFile);
    char *data = sim_image_read(fileName);
    if (!data) {
        return *fileName ? CUDA_ERROR_FILE_NOT_FOUND : CUDA_ERROR_INVALID_VALUE;
    }
    CUresult status = load_library(library, data);
    free(data);
    return status;
}

CUresult cuLibraryUnload(CUlibrary library)
{
    SIM_JUDGE(library, CUDA_ERROR_INVALID_HANDLE);
    SIM_ENTER(cuLibraryUnload);
    if (!sim_object_is(&sim_libraries, library)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    for (CUcontext context = sim_first_context(); context; context = context->next) {
        for (CUmodule module = context->modules, next; module; module = next) {
            next = module->next;
            if (module->library == library) {
                unload(module);
            }
        }
    }
    for (CUkernel kernel = library->kernels, next; kernel; kernel = next) {
        next = kernel->next;
        sim_object_free(&sim_kernels, kernel);
    }
    CUlibrary *link = &first_library;
    while (*link != library) {
        link = &(*link)->next;
    }
    *link = library->next;
    sim_image_release(library->image);
    sim_object_free(&sim_libraries, library);
    return CUDA_SUCCESS;
}

/* A library's part in a context is made at its first use. */
static CUresult module_of(CUlibrary library, CUcontext context, CUmodule *result)
{
    for (CUmodule module = context->modules; module; module = module->next) {
        if (module->library == library) {
            *result = module;
            return CUDA_SUCCESS;
        }
    }
    CUresult status = new_module(context, library->image, result);
    if (status == CUDA_SUCCESS) {
        (*result)->library = library;
    }
    return status;
}

static CUkernel kernel_in(CUlibrary library, const struct sim_symbol *symbol)
{
    for (CUkernel kernel = library->kernels; kernel; kernel = kernel->next) {
        if (kernel->symbol == symbol) {
            return kernel;
        }
    }
    CUkernel kernel = sim_object_new(&sim_kernels);
    if (kernel) {
        kernel->library = library;
        kernel->symbol = symbol;
        default_attributes(kernel->attributes);
        kernel->next = library->kernels;
        library->kernels = kernel;
    }
    return kernel;
}

CUresult cuLibraryGetKernel(CUkernel *pKernel, CUlibrary library, const char *name)
{
    SIM_JUDGE(pKernel && name, CUDA_ERROR_INVALID_VALUE);
    SIM_JUDGE(library, CUDA_ERROR_INVALID_HANDLE);
    SIM_ENTER(cuLibraryGetKernel);
    if (!sim_object_is(&sim_libraries, library)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    const struct sim_symbol *symbol = sim_image_kernel(library->image, name);
    if (!symbol) {
        return CUDA_ERROR_NOT_FOUND;
    }
    *pKernel = kernel_in(library, symbol);
    return *pKernel ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuLibraryGetKernelCount(unsigned int *count, CUlibrary lib)
{
    SIM_ENTER(cuLibraryGetKernelCount);
    if (!sim_object_is(&sim_libraries, lib)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (!count) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *count = sim_image_kernel_count(lib->image);
    return CUDA_SUCCESS;
}

CUresult cuLibraryEnumerateKernels(CUkernel *kernels, unsigned int numKernels, CUlibrary lib)
{
    SIM_JUDGE(kernels, CUDA_ERROR_INVALID_VALUE);
    SIM_JUDGE(lib, CUDA_ERROR_INVALID_HANDLE);
    SIM_ENTER(cuLibraryEnumerateKernels);
    if (!sim_object_is(&sim_libraries, lib)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    unsigned count = 0;
    for (const struct sim_symbol *symbol = lib->image->symbols; symbol && count < numKernels;
         symbol = symbol->next) {
        if (!symbol->is_global) {
            kernels[count++] = kernel_in(lib, symbol);
        }
    }
    return CUDA_SUCCESS;
}

CUresult cuLibraryGetModule(CUmodule *pMod, CUlibrary library)
{
    SIM_ENTER(cuLibraryGetModule);
    SIM_CURRENT(context);
    if (!sim_object_is(&sim_libraries, library)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    return pMod ? module_of(library, context, pMod) : CUDA_ERROR_INVALID_VALUE;
}

static CUresult library_global(CUdeviceptr *address, size_t *bytes, CUlibrary library,
                               const char *name)
{
    SIM_CURRENT(context);
    if (!sim_object_is(&sim_libraries, library)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (!name) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUmodule module;
    CUresult status = module_of(library, context, &module);
    return status == CUDA_SUCCESS ? global_in(module, name, address, bytes) : status;
}

CUresult cuLibraryGetGlobal(CUdeviceptr *dptr, size_t *bytes, CUlibrary library, const char *name)
{
    SIM_ENTER(cuLibraryGetGlobal);
    return library_global(dptr, bytes, library, name);
}

/* Images of the simulated GPU declare no managed variables. */
CUresult cuLibraryGetManaged(CUdeviceptr *dptr, size_t *bytes, CUlibrary library, const char *name)
{
    SIM_ENTER(cuLibraryGetManaged);
    return sim_object_is(&sim_libraries, library) ? CUDA_ERROR_NOT_FOUND
                                                  : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuLibraryGetUnifiedFunction(void **fptr, CUlibrary library, const char *symbol)
{
    SIM_ENTER(cuLibraryGetUnifiedFunction);
    return sim_object_is(&sim_libraries, library) ? CUDA_ERROR_NOT_FOUND
                                                  : CUDA_ERROR_INVALID_HANDLE;
}

/* ---- kernels ----------------------------------------------------------------------------------
 */

static CUresult function_of_kernel(CUkernel kernel, CUcontext context, CUfunction *result)
{
    CUmodule module;
    CUresult status = module_of(kernel->library, context, &module);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    *result = function_in(module, kernel->symbol);
    if (!*result) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (!(*result)->kernel) {
        (*result)->kernel = kernel;
        memcpy((*result)->attributes, kernel->attributes, sizeof kernel->attributes);
    }
    return CUDA_SUCCESS;
}

CUfunction sim_function_of(CUfunction handle, CUcontext context)
{
    if (sim_object_is(&sim_functions_kind, handle)) {
        return handle;
    }
    CUfunction found = NULL;
    if (sim_object_is(&sim_kernels, handle) &&
        function_of_kernel((CUkernel)handle, context, &found) == CUDA_SUCCESS) {
        return found;
    }
    return NULL;
}

CUresult cuKernelGetFunction(CUfunction *pFunc, CUkernel kernel)
{
    SIM_JUDGE(pFunc, CUDA_ERROR_INVALID_VALUE);
    SIM_JUDGE(kernel, CUDA_ERROR_INVALID_HANDLE);
    SIM_ENTER(cuKernelGetFunction);
    if (!sim_object_is(&sim_kernels, kernel)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    SIM_CURRENT(context);
    return function_of_kernel(kernel, context, pFunc);
}

#if CUDA_VERSION >= 12050
CUresult cuKernelGetLibrary(CUlibrary *pLib, CUkernel kernel)
{
    SIM_ENTER(cuKernelGetLibrary);
    if (!sim_object_is(&sim_kernels, kernel)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (!pLib) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *pLib = kernel->library;
    return CUDA_SUCCESS;
}
#endif

CUresult cuFuncGetModule(CUmodule *hmod, CUfunction hfunc)
{
    SIM_ENTER(cuFuncGetModule);
    if (!sim_object_is(&sim_functions_kind, hfunc)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (!hmod) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *hmod = hfunc->module;
    return CUDA_SUCCESS;
}
