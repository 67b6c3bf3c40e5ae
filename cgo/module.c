// module.c: loading and unloading of code, as programs reach it. What an image takes is read from
// it and charged before the driver sees it (code.h).
#include "code.h"
#include "hooks.h"

static CUresult settle(struct weir_loading *loading, CUresult result, const CUmodule *module) {
    return weir_module_end(loading, result, result ? NULL : *module);
}

CUresult weir_cuModuleLoad(CUmodule *module, const char *path) {
    struct weir_loading loading;
    CUresult result = weir_module_begin(&loading, NULL, module ? path : NULL);
    if (result != CUDA_SUCCESS)
        return result;
    result = WEIR_REAL(cuModuleLoad)(module, weir_image_file_path(&loading.file, path));
    return settle(&loading, result, module);
}

CUresult weir_cuModuleLoadData(CUmodule *module, const void *image) {
    struct weir_loading loading;
    CUresult result = weir_module_begin(&loading, module ? image : NULL, NULL);
    return result ? result : settle(&loading, WEIR_REAL(cuModuleLoadData)(module, image), module);
}

CUresult weir_cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned count, int *options,
                                 void **values) {
    struct weir_loading loading;
    CUresult result = weir_module_begin(&loading, module ? image : NULL, NULL);
    if (result != CUDA_SUCCESS)
        return result;
    result = WEIR_REAL(cuModuleLoadDataEx)(module, image, count, options, values);
    return settle(&loading, result, module);
}

CUresult weir_cuModuleLoadFatBinary(CUmodule *module, const void *image) {
    struct weir_loading loading;
    CUresult result = weir_module_begin(&loading, module ? image : NULL, NULL);
    if (result != CUDA_SUCCESS)
        return result;
    return settle(&loading, WEIR_REAL(cuModuleLoadFatBinary)(module, image), module);
}

CUresult weir_cuModuleUnload(CUmodule module) {
    struct weir_unloading unloading;
    weir_unload_begin(&unloading, (uint64_t)(uintptr_t)module);
    CUresult result = WEIR_REAL(cuModuleUnload)(module);
    weir_unload_end(&unloading, result);
    return result;
}

CUresult weir_cuLibraryLoadData(CUlibrary *library, const void *image, int *jit_options,
                                void **jit_values, unsigned jit_count, int *options, void **values,
                                unsigned count) {
    struct weir_loading loading;
    CUresult result = weir_library_begin(&loading, library ? image : NULL, NULL);
    if (result != CUDA_SUCCESS)
        return result;
    result = WEIR_REAL(cuLibraryLoadData)(library, image, jit_options, jit_values, jit_count,
                                          options, values, count);
    return weir_library_end(&loading, result, result ? NULL : *library);
}

CUresult weir_cuLibraryLoadFromFile(CUlibrary *library, const char *path, int *jit_options,
                                    void **jit_values, unsigned jit_count, int *options,
                                    void **values, unsigned count) {
    struct weir_loading loading;
    CUresult result = weir_library_begin(&loading, NULL, library ? path : NULL);
    if (result != CUDA_SUCCESS)
        return result;
    result = WEIR_REAL(cuLibraryLoadFromFile)(library, weir_image_file_path(&loading.file, path),
                                              jit_options, jit_values, jit_count, options, values,
                                              count);
    return weir_library_end(&loading, result, result ? NULL : *library);
}

CUresult weir_cuLibraryUnload(CUlibrary library) {
    struct weir_unloading unloading;
    weir_unload_begin(&unloading, (uint64_t)(uintptr_t)library);
    CUresult result = WEIR_REAL(cuLibraryUnload)(library);
    weir_unload_end(&unloading, result);
    return result;
}
