// cuda_array_abi.h: the driver API's arrays, textures and surfaces. Included by cuda_abi.h, whose
// head says where it is from.
#ifndef SIM_CUDA_ARRAY_ABI_H
#define SIM_CUDA_ARRAY_ABI_H

typedef struct CUmipmappedArray_st *CUmipmappedArray;
typedef struct CUtexref_st *CUtexref;
typedef struct CUsurfref_st *CUsurfref;
typedef unsigned long long CUtexObject;
typedef unsigned long long CUsurfObject;

typedef enum {
    CU_AD_FORMAT_UNSIGNED_INT8 = 0x01,
    CU_AD_FORMAT_UNSIGNED_INT16 = 0x02,
    CU_AD_FORMAT_UNSIGNED_INT32 = 0x03,
    CU_AD_FORMAT_SIGNED_INT8 = 0x08,
    CU_AD_FORMAT_SIGNED_INT16 = 0x09,
    CU_AD_FORMAT_SIGNED_INT32 = 0x0a,
    CU_AD_FORMAT_HALF = 0x10,
    CU_AD_FORMAT_FLOAT = 0x20,
    CU_AD_FORMAT_BC1_UNORM = 0x91,
    CU_AD_FORMAT_BC1_UNORM_SRGB = 0x92,
    CU_AD_FORMAT_BC2_UNORM = 0x93,
    CU_AD_FORMAT_BC2_UNORM_SRGB = 0x94,
    CU_AD_FORMAT_BC3_UNORM = 0x95,
    CU_AD_FORMAT_BC3_UNORM_SRGB = 0x96,
    CU_AD_FORMAT_BC4_UNORM = 0x97,
    CU_AD_FORMAT_BC4_SNORM = 0x98,
    CU_AD_FORMAT_BC5_UNORM = 0x99,
    CU_AD_FORMAT_BC5_SNORM = 0x9a,
    CU_AD_FORMAT_BC6H_UF16 = 0x9b,
    CU_AD_FORMAT_BC6H_SF16 = 0x9c,
    CU_AD_FORMAT_BC7_UNORM = 0x9d,
    CU_AD_FORMAT_BC7_UNORM_SRGB = 0x9e,
    CU_AD_FORMAT_NV12 = 0xb0,
    CU_AD_FORMAT_UNORM_INT8X1 = 0xc0,
    CU_AD_FORMAT_UNORM_INT8X2 = 0xc1,
    CU_AD_FORMAT_UNORM_INT8X4 = 0xc2,
    CU_AD_FORMAT_UNORM_INT16X1 = 0xc3,
    CU_AD_FORMAT_UNORM_INT16X2 = 0xc4,
    CU_AD_FORMAT_UNORM_INT16X4 = 0xc5,
    CU_AD_FORMAT_SNORM_INT8X1 = 0xc6,
    CU_AD_FORMAT_SNORM_INT8X2 = 0xc7,
    CU_AD_FORMAT_SNORM_INT8X4 = 0xc8,
    CU_AD_FORMAT_SNORM_INT16X1 = 0xc9,
    CU_AD_FORMAT_SNORM_INT16X2 = 0xca,
    CU_AD_FORMAT_SNORM_INT16X4 = 0xcb,
} CUarray_format;

enum {
    CUDA_ARRAY3D_LAYERED = 0x01,
    CUDA_ARRAY3D_SURFACE_LDST = 0x02,
    CUDA_ARRAY3D_CUBEMAP = 0x04,
    CUDA_ARRAY3D_TEXTURE_GATHER = 0x08,
    CUDA_ARRAY3D_DEPTH_TEXTURE = 0x10,
    CUDA_ARRAY3D_COLOR_ATTACHMENT = 0x20,
    CUDA_ARRAY3D_SPARSE = 0x40,
    CUDA_ARRAY3D_DEFERRED_MAPPING = 0x80,
};

typedef struct {
    size_t Width, Height;
    CUarray_format Format;
    unsigned int NumChannels;
} CUDA_ARRAY_DESCRIPTOR;

typedef struct {
    size_t Width, Height, Depth;
    CUarray_format Format;
    unsigned int NumChannels;
    unsigned int Flags;
} CUDA_ARRAY3D_DESCRIPTOR;

// The forms of the first CUDA versions.
typedef struct {
    unsigned int Width, Height;
    CUarray_format Format;
    unsigned int NumChannels;
} CUDA_ARRAY_DESCRIPTOR_v1;

typedef struct {
    unsigned int Width, Height, Depth;
    CUarray_format Format;
    unsigned int NumChannels;
    unsigned int Flags;
} CUDA_ARRAY3D_DESCRIPTOR_v1;

typedef struct {
    struct {
        unsigned int width, height, depth;
    } tileExtent;
    unsigned int miptailFirstLevel;
    unsigned long long miptailSize;
    unsigned int flags;
    unsigned int reserved[4];
} CUDA_ARRAY_SPARSE_PROPERTIES;

typedef struct {
    size_t size, alignment;
    unsigned int reserved[4];
} CUDA_ARRAY_MEMORY_REQUIREMENTS;

typedef enum {
    CU_RESOURCE_TYPE_ARRAY = 0,
    CU_RESOURCE_TYPE_MIPMAPPED_ARRAY = 1,
    CU_RESOURCE_TYPE_LINEAR = 2,
    CU_RESOURCE_TYPE_PITCH2D = 3,
} CUresourcetype;

typedef struct {
    CUresourcetype resType;
    union {
        struct {
            CUarray hArray;
        } array;
        struct {
            CUmipmappedArray hMipmappedArray;
        } mipmap;
        struct {
            CUdeviceptr devPtr;
            CUarray_format format;
            unsigned int numChannels;
            size_t sizeInBytes;
        } linear;
        struct {
            CUdeviceptr devPtr;
            CUarray_format format;
            unsigned int numChannels;
            size_t width, height, pitchInBytes;
        } pitch2D;
        struct {
            int reserved[32];
        } reserved;
    } res;
    unsigned int flags;
} CUDA_RESOURCE_DESC;

enum {
    CU_TR_ADDRESS_MODE_WRAP = 0,
    CU_TR_ADDRESS_MODE_CLAMP = 1,
    CU_TR_ADDRESS_MODE_MIRROR = 2,
    CU_TR_ADDRESS_MODE_BORDER = 3,
};
enum { CU_TR_FILTER_MODE_POINT = 0, CU_TR_FILTER_MODE_LINEAR = 1 };
enum {
    CU_TRSF_READ_AS_INTEGER = 0x01,
    CU_TRSF_NORMALIZED_COORDINATES = 0x02,
    CU_TRSF_SRGB = 0x10,
    CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION = 0x20,
    CU_TRSF_SEAMLESS_CUBEMAP = 0x40,
};
enum { CU_TRSA_OVERRIDE_FORMAT = 1, CU_PARAM_TR_DEFAULT = -1 };

typedef struct {
    int addressMode[3];
    int filterMode;
    unsigned int flags;
    unsigned int maxAnisotropy;
    int mipmapFilterMode;
    float mipmapLevelBias, minMipmapLevelClamp, maxMipmapLevelClamp;
    float borderColor[4];
    int reserved[12];
} CUDA_TEXTURE_DESC;

#define CU_RES_VIEW_FORMAT_MOST 0x22  // the last of the formats; 0: none

typedef struct {
    int format;
    size_t width, height, depth;
    unsigned int firstMipmapLevel, lastMipmapLevel, firstLayer, lastLayer;
    unsigned int reserved[16];
} CUDA_RESOURCE_VIEW_DESC;

// Copies as before CUDA 3.2.
typedef struct {
    unsigned int srcXInBytes, srcY;
    CUmemorytype srcMemoryType;
    const void *srcHost;
    unsigned int srcDevice;
    CUarray srcArray;
    unsigned int srcPitch;
    unsigned int dstXInBytes, dstY;
    CUmemorytype dstMemoryType;
    void *dstHost;
    unsigned int dstDevice;
    CUarray dstArray;
    unsigned int dstPitch;
    unsigned int WidthInBytes, Height;
} CUDA_MEMCPY2D_v1;

typedef struct {
    unsigned int srcXInBytes, srcY, srcZ, srcLOD;
    CUmemorytype srcMemoryType;
    const void *srcHost;
    unsigned int srcDevice;
    CUarray srcArray;
    void *reserved0;
    unsigned int srcPitch, srcHeight;
    unsigned int dstXInBytes, dstY, dstZ, dstLOD;
    CUmemorytype dstMemoryType;
    void *dstHost;
    unsigned int dstDevice;
    CUarray dstArray;
    void *reserved1;
    unsigned int dstPitch, dstHeight;
    unsigned int WidthInBytes, Height, Depth;
} CUDA_MEMCPY3D_v1;

CUresult cuArrayCreate_v2(CUarray *array, const CUDA_ARRAY_DESCRIPTOR *descriptor);
CUresult cuArrayCreate(CUarray *array, const CUDA_ARRAY_DESCRIPTOR_v1 *descriptor);
CUresult cuArray3DCreate_v2(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *descriptor);
CUresult cuArray3DCreate(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR_v1 *descriptor);
CUresult cuArrayDestroy(CUarray array);
CUresult cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR *descriptor, CUarray array);
CUresult cuArrayGetDescriptor(CUDA_ARRAY_DESCRIPTOR_v1 *descriptor, CUarray array);
CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR *descriptor, CUarray array);
CUresult cuArray3DGetDescriptor(CUDA_ARRAY3D_DESCRIPTOR_v1 *descriptor, CUarray array);
CUresult cuArrayGetPlane(CUarray *plane, CUarray array, unsigned int index);
CUresult cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *requirements, CUarray array,
                                      CUdevice device);
CUresult cuArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES *properties, CUarray array);
CUresult cuMipmappedArrayCreate(CUmipmappedArray *mipmap, const CUDA_ARRAY3D_DESCRIPTOR *descriptor,
                                unsigned int levels);
CUresult cuMipmappedArrayDestroy(CUmipmappedArray mipmap);
CUresult cuMipmappedArrayGetLevel(CUarray *level, CUmipmappedArray mipmap, unsigned int index);
CUresult cuMipmappedArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *requirements,
                                               CUmipmappedArray mipmap, CUdevice device);
CUresult cuMipmappedArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES *properties,
                                             CUmipmappedArray mipmap);
CUresult cuDeviceGetTexture1DLinearMaxWidth(size_t *width, CUarray_format format,
                                            unsigned int channels, CUdevice device);

CUresult cuMemcpyAtoA_v2(CUarray to, size_t to_at, CUarray from, size_t from_at, size_t bytes);
CUresult cuMemcpyAtoD_v2(CUdeviceptr to, CUarray from, size_t from_at, size_t bytes);
CUresult cuMemcpyDtoA_v2(CUarray to, size_t to_at, CUdeviceptr from, size_t bytes);
CUresult cuMemcpyAtoH_v2(void *to, CUarray from, size_t from_at, size_t bytes);
CUresult cuMemcpyHtoA_v2(CUarray to, size_t to_at, const void *from, size_t bytes);
CUresult cuMemcpyAtoA(CUarray to, unsigned int to_at, CUarray from, unsigned int from_at,
                      unsigned int bytes);
CUresult cuMemcpyAtoH(void *to, CUarray from, unsigned int from_at, unsigned int bytes);
CUresult cuMemcpyHtoA(CUarray to, unsigned int to_at, const void *from, unsigned int bytes);
CUresult cuMemcpy2D(const CUDA_MEMCPY2D_v1 *copy);
CUresult cuMemcpy3D(const CUDA_MEMCPY3D_v1 *copy);
CUresult cuMemcpyAtoHAsync_v2(void *to, CUarray from, size_t from_at, size_t bytes,
                              CUstream stream);
CUresult cuMemcpyHtoAAsync_v2(CUarray to, size_t to_at, const void *from, size_t bytes,
                              CUstream stream);

CUresult cuTexObjectCreate(CUtexObject *object, const CUDA_RESOURCE_DESC *resource,
                           const CUDA_TEXTURE_DESC *texture, const CUDA_RESOURCE_VIEW_DESC *view);
CUresult cuTexObjectDestroy(CUtexObject object);
CUresult cuTexObjectGetResourceDesc(CUDA_RESOURCE_DESC *resource, CUtexObject object);
CUresult cuTexObjectGetTextureDesc(CUDA_TEXTURE_DESC *texture, CUtexObject object);
CUresult cuTexObjectGetResourceViewDesc(CUDA_RESOURCE_VIEW_DESC *view, CUtexObject object);
CUresult cuSurfObjectCreate(CUsurfObject *object, const CUDA_RESOURCE_DESC *resource);
CUresult cuSurfObjectDestroy(CUsurfObject object);
CUresult cuSurfObjectGetResourceDesc(CUDA_RESOURCE_DESC *resource, CUsurfObject object);

CUresult cuTexRefCreate(CUtexref *reference);
CUresult cuTexRefDestroy(CUtexref reference);
CUresult cuTexRefSetArray(CUtexref reference, CUarray array, unsigned int flags);
CUresult cuTexRefGetArray(CUarray *array, CUtexref reference);
CUresult cuTexRefSetMipmappedArray(CUtexref reference, CUmipmappedArray mipmap, unsigned int flags);
CUresult cuTexRefGetMipmappedArray(CUmipmappedArray *mipmap, CUtexref reference);
CUresult cuTexRefSetAddress_v2(size_t *byte_offset, CUtexref reference, CUdeviceptr address,
                               size_t bytes);
CUresult cuTexRefSetAddress2D_v3(CUtexref reference, const CUDA_ARRAY_DESCRIPTOR *descriptor,
                                 CUdeviceptr address, size_t pitch);
CUresult cuTexRefGetAddress_v2(CUdeviceptr *address, CUtexref reference);
CUresult cuTexRefSetFormat(CUtexref reference, CUarray_format format, int channels);
CUresult cuTexRefGetFormat(CUarray_format *format, int *channels, CUtexref reference);
CUresult cuTexRefSetAddressMode(CUtexref reference, int dimension, int mode);
CUresult cuTexRefGetAddressMode(int *mode, CUtexref reference, int dimension);
CUresult cuTexRefSetFilterMode(CUtexref reference, int mode);
CUresult cuTexRefGetFilterMode(int *mode, CUtexref reference);
CUresult cuTexRefSetMipmapFilterMode(CUtexref reference, int mode);
CUresult cuTexRefGetMipmapFilterMode(int *mode, CUtexref reference);
CUresult cuTexRefSetMipmapLevelBias(CUtexref reference, float bias);
CUresult cuTexRefGetMipmapLevelBias(float *bias, CUtexref reference);
CUresult cuTexRefSetMipmapLevelClamp(CUtexref reference, float least, float most);
CUresult cuTexRefGetMipmapLevelClamp(float *least, float *most, CUtexref reference);
CUresult cuTexRefSetMaxAnisotropy(CUtexref reference, unsigned int most);
CUresult cuTexRefGetMaxAnisotropy(int *most, CUtexref reference);
CUresult cuTexRefSetBorderColor(CUtexref reference, float *color);
CUresult cuTexRefGetBorderColor(float *color, CUtexref reference);
CUresult cuTexRefSetFlags(CUtexref reference, unsigned int flags);
CUresult cuTexRefGetFlags(unsigned int *flags, CUtexref reference);
CUresult cuSurfRefSetArray(CUsurfref reference, CUarray array, unsigned int flags);
CUresult cuSurfRefGetArray(CUarray *array, CUsurfref reference);

#endif
