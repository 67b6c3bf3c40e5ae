// cuda_context_abi.h: the driver API's less usual ways to make contexts, and green contexts.
// Included by cuda_abi.h, whose head says where it is from.
#ifndef SIM_CUDA_CONTEXT_ABI_H
#define SIM_CUDA_CONTEXT_ABI_H

typedef enum { CU_EXEC_AFFINITY_TYPE_SM_COUNT = 0 } CUexecAffinityType;

typedef struct {
    CUexecAffinityType type;
    union {
        struct {
            unsigned int val;
        } smCount;
    } param;
} CUexecAffinityParam;

typedef struct {
    CUexecAffinityParam *execAffinityParams;
    int numExecAffinityParams;
    void *cigParams;
} CUctxCreateParams;

CUresult cuCtxCreate(CUcontext *context, unsigned int flags, CUdevice device);
CUresult cuCtxCreate_v3(CUcontext *context, CUexecAffinityParam *affinity, int count,
                        unsigned int flags, CUdevice device);
CUresult cuCtxCreate_v4(CUcontext *context, CUctxCreateParams *params, unsigned int flags,
                        CUdevice device);
CUresult cuCtxAttach(CUcontext *context, unsigned int flags);
CUresult cuCtxDetach(CUcontext context);
CUresult cuCtxGetId(CUcontext context, unsigned long long *id);
CUresult cuCtxGetApiVersion(CUcontext context, unsigned int *version);
CUresult cuCtxGetFlags(unsigned int *flags);
CUresult cuCtxSetFlags(unsigned int flags);
CUresult cuCtxGetCacheConfig(int *config);
CUresult cuCtxSetCacheConfig(int config);
CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest);
CUresult cuCtxResetPersistingL2Cache(void);
CUresult cuCtxGetExecAffinity(CUexecAffinityParam *affinity, CUexecAffinityType type);
CUresult cuDeviceGetExecAffinitySupport(int *supported, CUexecAffinityType type, CUdevice device);

CUresult cuCoredumpGetAttribute(int setting, void *value, size_t *size);
CUresult cuCoredumpSetAttribute(int setting, void *value, size_t *size);
CUresult cuCoredumpGetAttributeGlobal(int setting, void *value, size_t *size);
CUresult cuCoredumpSetAttributeGlobal(int setting, void *value, size_t *size);

// ---- Green contexts ----

typedef struct CUgreenCtx_st *CUgreenCtx;
typedef struct CUdevResourceDesc_st *CUdevResourceDesc;

typedef enum { CU_DEV_RESOURCE_TYPE_INVALID = 0, CU_DEV_RESOURCE_TYPE_SM = 1 } CUdevResourceType;

typedef struct {
    CUdevResourceType type;
    unsigned char internal[92];  // the driver's own
    union {
        struct {
            unsigned int smCount;
        } sm;
        unsigned char room[48];
    };
} CUdevResource;

enum {
    CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING = 1,
    CU_DEV_SM_RESOURCE_SPLIT_MAX_POTENTIAL_CLUSTER_SIZE = 2,
};
enum { CU_GREEN_CTX_DEFAULT_STREAM = 1 };

CUresult cuDeviceGetDevResource(CUdevice device, CUdevResource *resource, CUdevResourceType type);
CUresult cuCtxGetDevResource(CUcontext context, CUdevResource *resource, CUdevResourceType type);
CUresult cuGreenCtxGetDevResource(CUgreenCtx green, CUdevResource *resource,
                                  CUdevResourceType type);
CUresult cuDevSmResourceSplitByCount(CUdevResource *groups, unsigned int *count,
                                     const CUdevResource *input, CUdevResource *remaining,
                                     unsigned int flags, unsigned int least);
CUresult cuDevResourceGenerateDesc(CUdevResourceDesc *description, CUdevResource *resources,
                                   unsigned int count);
CUresult cuGreenCtxCreate(CUgreenCtx *green, CUdevResourceDesc description, CUdevice device,
                          unsigned int flags);
CUresult cuGreenCtxDestroy(CUgreenCtx green);
CUresult cuCtxFromGreenCtx(CUcontext *context, CUgreenCtx green);
CUresult cuGreenCtxStreamCreate(CUstream *stream, CUgreenCtx green, unsigned int flags,
                                int priority);
CUresult cuGreenCtxRecordEvent(CUgreenCtx green, CUevent event);
CUresult cuGreenCtxWaitEvent(CUgreenCtx green, CUevent event);
CUresult cuCtxRecordEvent(CUcontext context, CUevent event);
CUresult cuCtxWaitEvent(CUcontext context, CUevent event);
CUresult cuStreamGetGreenCtx(CUstream stream, CUgreenCtx *green);
CUresult cuStreamGetCtx_v2(CUstream stream, CUcontext *context, CUgreenCtx *green);

#endif
