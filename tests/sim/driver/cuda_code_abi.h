// cuda_code_abi.h: the driver API's libraries, linker, attributes of functions, forms of launches
// and occupancy. Included by cuda_abi.h, whose head says where it is from.
#ifndef SIM_CUDA_CODE_ABI_H
#define SIM_CUDA_CODE_ABI_H

typedef struct CUlinkState_st *CUlinkState;

// ---- Modules and functions ----

enum { CU_MODULE_EAGER_LOADING = 1, CU_MODULE_LAZY_LOADING = 2 };
typedef enum {
    CU_FUNCTION_LOADING_STATE_UNLOADED = 0,
    CU_FUNCTION_LOADING_STATE_LOADED = 1,
} CUfunctionLoadingState;

CUresult cuModuleGetLoadingMode(int *mode);
CUresult cuModuleLoadFatBinary(CUmodule *module, const void *image);
CUresult cuModuleGetFunctionCount(unsigned int *count, CUmodule module);
CUresult cuModuleEnumerateFunctions(CUfunction *functions, unsigned int most, CUmodule module);
CUresult cuModuleGetTexRef(CUtexref *reference, CUmodule module, const char *name);
CUresult cuModuleGetSurfRef(CUsurfref *reference, CUmodule module, const char *name);

CUresult cuFuncGetModule(CUmodule *module, CUfunction function);
CUresult cuFuncGetName(const char **name, CUfunction function);
CUresult cuFuncGetParamInfo(CUfunction function, size_t index, size_t *offset, size_t *bytes);
CUresult cuFuncIsLoaded(CUfunctionLoadingState *state, CUfunction function);
CUresult cuFuncLoad(CUfunction function);
CUresult cuFuncSetCacheConfig(CUfunction function, int config);

// ---- Libraries and kernels ----

typedef enum {
    CU_LIBRARY_HOST_UNIVERSAL_FUNCTION_AND_DATA_TABLE = 0,
    CU_LIBRARY_BINARY_IS_PRESERVED = 1,
} CUlibraryOption;

CUresult cuLibraryLoadData(CUlibrary *library, const void *image, CUjit_option *options,
                           void **values, unsigned int count, CUlibraryOption *library_options,
                           void **library_values, unsigned int library_count);
CUresult cuLibraryLoadFromFile(CUlibrary *library, const char *path, CUjit_option *options,
                               void **values, unsigned int count, CUlibraryOption *library_options,
                               void **library_values, unsigned int library_count);
CUresult cuLibraryUnload(CUlibrary library);
CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name);
CUresult cuLibraryGetKernelCount(unsigned int *count, CUlibrary library);
CUresult cuLibraryEnumerateKernels(CUkernel *kernels, unsigned int most, CUlibrary library);
CUresult cuLibraryGetModule(CUmodule *module, CUlibrary library);
CUresult cuLibraryGetGlobal(CUdeviceptr *address, size_t *bytes, CUlibrary library,
                            const char *name);
CUresult cuLibraryGetManaged(CUdeviceptr *address, size_t *bytes, CUlibrary library,
                             const char *name);
CUresult cuLibraryGetUnifiedFunction(void **function, CUlibrary library, const char *name);

CUresult cuKernelGetFunction(CUfunction *function, CUkernel kernel);
CUresult cuKernelGetLibrary(CUlibrary *library, CUkernel kernel);
CUresult cuKernelGetName(const char **name, CUkernel kernel);
CUresult cuKernelGetParamInfo(CUkernel kernel, size_t index, size_t *offset, size_t *bytes);
CUresult cuKernelGetAttribute(int *value, CUfunction_attribute attribute, CUkernel kernel,
                              CUdevice device);
CUresult cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel kernel,
                              CUdevice device);
CUresult cuKernelSetCacheConfig(CUkernel kernel, int config, CUdevice device);

// ---- Linking ----

typedef enum {
    CU_JIT_INPUT_CUBIN = 0,
    CU_JIT_INPUT_PTX = 1,
    CU_JIT_INPUT_FATBINARY = 2,
    CU_JIT_INPUT_OBJECT = 3,
    CU_JIT_INPUT_LIBRARY = 4,
    CU_JIT_INPUT_NVVM = 5,
} CUjitInputType;

CUresult cuLinkCreate_v2(unsigned int count, CUjit_option *options, void **values,
                         CUlinkState *state);
CUresult cuLinkAddData_v2(CUlinkState state, CUjitInputType type, void *data, size_t bytes,
                          const char *name, unsigned int count, CUjit_option *options,
                          void **values);
CUresult cuLinkAddFile_v2(CUlinkState state, CUjitInputType type, const char *path,
                          unsigned int count, CUjit_option *options, void **values);
CUresult cuLinkComplete(CUlinkState state, void **image, size_t *bytes);
CUresult cuLinkDestroy(CUlinkState state);

// ---- Launches ----

typedef struct {
    CUfunction function;
    unsigned int gridDimX, gridDimY, gridDimZ;
    unsigned int blockDimX, blockDimY, blockDimZ;
    unsigned int sharedMemBytes;
    CUstream hStream;
    void **kernelParams;
} CUDA_LAUNCH_PARAMS;

enum {
    CUDA_COOPERATIVE_LAUNCH_MULTI_DEVICE_NO_PRE_LAUNCH_SYNC = 1,
    CUDA_COOPERATIVE_LAUNCH_MULTI_DEVICE_NO_POST_LAUNCH_SYNC = 2,
};

CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig *config, CUfunction function, void **params,
                               void **extra);
CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                                   unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                                   unsigned int block_z, unsigned int shared_bytes, CUstream stream,
                                   void **params);
CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *launches, unsigned int count,
                                              unsigned int flags);
CUresult cuFuncSetBlockShape(CUfunction function, int x, int y, int z);
CUresult cuFuncSetSharedSize(CUfunction function, unsigned int bytes);
CUresult cuParamSetSize(CUfunction function, unsigned int bytes);
CUresult cuParamSeti(CUfunction function, int offset, unsigned int value);
CUresult cuParamSetf(CUfunction function, int offset, float value);
CUresult cuParamSetv(CUfunction function, int offset, void *data, unsigned int bytes);
CUresult cuParamSetTexRef(CUfunction function, int unit, CUtexref reference);
CUresult cuLaunch(CUfunction function);
CUresult cuLaunchGrid(CUfunction function, int width, int height);
CUresult cuLaunchGridAsync(CUfunction function, int width, int height, CUstream stream);

// ---- Occupancy ----

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction function, int threads,
                                                     size_t dynamic_bytes);
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, CUfunction function,
                                                              int threads, size_t dynamic_bytes,
                                                              unsigned int flags);
CUresult cuOccupancyMaxPotentialBlockSize(int *grid, int *block, CUfunction function,
                                          CUoccupancyB2DSize dynamic_for, size_t dynamic_bytes,
                                          int limit);
CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int *grid, int *block, CUfunction function,
                                                   CUoccupancyB2DSize dynamic_for,
                                                   size_t dynamic_bytes, int limit,
                                                   unsigned int flags);
CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t *bytes, CUfunction function, int blocks,
                                                 int threads);
CUresult cuOccupancyMaxPotentialClusterSize(int *size, CUfunction function,
                                            const CUlaunchConfig *config);
CUresult cuOccupancyMaxActiveClusters(int *clusters, CUfunction function,
                                      const CUlaunchConfig *config);

#endif
