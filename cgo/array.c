// array.c: arrays and mipmapped arrays. They are charged by their contents in bytes, all levels
// together, rounded up to WEIR_CHARGE_UNIT, or by what the driver says that they take where it
// does.
//
// Sparse and deferred-mapped arrays have no memory of their own: what is mapped into them was
// charged when it was created. Levels and planes belong to the array that they are of.
#include "charge.h"
#include "hooks.h"

// What one texel takes, in bits. A format that is not known counts as one of 32 bits a channel.
static uint64_t texel_bits(unsigned format, unsigned channels) {
    switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
        return 8ull * channels;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
        return 16ull * channels;
    case CU_AD_FORMAT_UNORM_INT8X1:
    case CU_AD_FORMAT_SNORM_INT8X1:
        return 8;
    case CU_AD_FORMAT_NV12:
        return 12;
    case CU_AD_FORMAT_UNORM_INT8X2:
    case CU_AD_FORMAT_SNORM_INT8X2:
    case CU_AD_FORMAT_UNORM_INT16X1:
    case CU_AD_FORMAT_SNORM_INT16X1:
    case CU_AD_FORMAT_NV16:
    case CU_AD_FORMAT_YUY2:
        return 16;
    case CU_AD_FORMAT_P010:
    case CU_AD_FORMAT_P016:
    case CU_AD_FORMAT_Y444_PLANAR8:
        return 24;
    case CU_AD_FORMAT_UNORM_INT8X4:
    case CU_AD_FORMAT_SNORM_INT8X4:
    case CU_AD_FORMAT_UNORM_INT16X2:
    case CU_AD_FORMAT_SNORM_INT16X2:
    case CU_AD_FORMAT_UNORM_INT_101010_2:
        return 32;
    case CU_AD_FORMAT_Y444_PLANAR10:
        return 48;
    case CU_AD_FORMAT_UNORM_INT16X4:
    case CU_AD_FORMAT_SNORM_INT16X4:
    case CU_AD_FORMAT_Y416:
        return 64;
    default:
        return format >= CU_AD_FORMAT_P210 && format <= CU_AD_FORMAT_Y410 ? 32 : 32ull * channels;
    }
}

// What a block of 4 x 4 texels takes in a compressed format, in bits; 0 for any other format.
static uint64_t block_bits(unsigned format) {
    if (format < CU_AD_FORMAT_BC1_UNORM || format > CU_AD_FORMAT_BC7_UNORM_SRGB)
        return 0;
    int is_half = format <= CU_AD_FORMAT_BC1_UNORM_SRGB || format == CU_AD_FORMAT_BC4_UNORM ||
                  format == CU_AD_FORMAT_BC4_SNORM;
    return is_half ? 64 : 128;
}

static uint64_t at_least_1(uint64_t length) {
    return length ? length : 1;
}

// What one level takes; more than any device has where that cannot be said in 64 bits.
static uint64_t level_bytes(uint64_t width, uint64_t height, uint64_t depth, unsigned format,
                            unsigned channels) {
    uint64_t bits = block_bits(format), sum;
    if (bits) {
        width = width / 4 + (width % 4 != 0);
        height = height / 4 + (height % 4 != 0);
    } else {
        bits = texel_bits(format, channels);
    }
    if (__builtin_mul_overflow(bits, at_least_1(width), &sum) ||
        __builtin_mul_overflow(sum, at_least_1(height), &sum) ||
        __builtin_mul_overflow(sum, at_least_1(depth), &sum))
        return UINT64_MAX;
    return sum / 8 + (sum % 8 != 0);
}

static uint64_t halved(uint64_t length, unsigned times) {
    return at_least_1(length >> times);
}

// What `levels` levels take together: each has half the width, height and (unless it is one of
// layers) depth of the one before.
static uint64_t array_bytes(const CUDA_ARRAY3D_DESCRIPTOR *array, unsigned levels) {
    int layered = (array->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) != 0;
    uint64_t sum = 0;
    for (unsigned i = 0; i < levels && i < 64; i++) {
        uint64_t width = halved(array->Width, i), height = halved(array->Height, i);
        uint64_t depth = layered ? at_least_1(array->Depth) : halved(array->Depth, i);
        uint64_t bytes = level_bytes(width, height, depth, array->Format, array->NumChannels);
        if (__builtin_add_overflow(sum, bytes, &sum))
            return UINT64_MAX;
        if (width == 1 && height == 1 && (layered || depth == 1))
            break;
    }
    return sum;
}

static int has_memory(unsigned flags) {
    return !(flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING));
}

// Where the driver tells, it is right.
static uint64_t told_bytes(CUresult told, const CUDA_ARRAY_MEMORY_REQUIREMENTS *requirements,
                           uint64_t bytes) {
    return told == CUDA_SUCCESS && requirements->size ? requirements->size : bytes;
}

static CUresult destroy_array(uint64_t handle) {
    return WEIR_REAL(cuArrayDestroy)((CUarray)(uintptr_t)handle);
}

// After an array was made, or not.
static CUresult array_made(struct weir_charge *charge, CUresult result, const CUarray *array,
                           uint64_t bytes) {
    CUDA_ARRAY_MEMORY_REQUIREMENTS requirements = {0};
    if (!charge->state || result != CUDA_SUCCESS)
        return weir_charge_end_as(charge, result, WEIR_KEY_ARRAY, 0, 0, destroy_array);
    CUresult told =
        WEIR_REAL(cuArrayGetMemoryRequirements)(&requirements, *array, (CUdevice)charge->gpu);
    return weir_charge_end_as(charge, result, WEIR_KEY_ARRAY, (uint64_t)(uintptr_t)*array,
                              told_bytes(told, &requirements, bytes), destroy_array);
}

CUresult weir_cuArrayCreate_v2(CUarray *array, const CUDA_ARRAY_DESCRIPTOR *made) {
    struct weir_charge charge;
    if (!array || !made)
        return WEIR_REAL(cuArrayCreate_v2)(array, made);
    uint64_t bytes = level_bytes(made->Width, made->Height, 0, made->Format, made->NumChannels);
    CUresult result = weir_charge_begin(&charge, WEIR_KIND_ARRAY, bytes);
    if (result != CUDA_SUCCESS)
        return result;
    return array_made(&charge, WEIR_REAL(cuArrayCreate_v2)(array, made), array, bytes);
}

CUresult weir_cuArrayCreate(CUarray *array, const CUDA_ARRAY_DESCRIPTOR_v1 *made) {
    struct weir_charge charge;
    if (!array || !made)
        return WEIR_REAL(cuArrayCreate)(array, made);
    uint64_t bytes = level_bytes(made->Width, made->Height, 0, made->Format, made->NumChannels);
    CUresult result = weir_charge_begin(&charge, WEIR_KIND_ARRAY, bytes);
    if (result != CUDA_SUCCESS)
        return result;
    return array_made(&charge, WEIR_REAL(cuArrayCreate)(array, made), array, bytes);
}

CUresult weir_cuArray3DCreate_v2(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *made) {
    struct weir_charge charge;
    if (!array || !made || !has_memory(made->Flags))
        return WEIR_REAL(cuArray3DCreate_v2)(array, made);
    uint64_t bytes = array_bytes(made, 1);
    CUresult result = weir_charge_begin(&charge, WEIR_KIND_ARRAY, bytes);
    if (result != CUDA_SUCCESS)
        return result;
    return array_made(&charge, WEIR_REAL(cuArray3DCreate_v2)(array, made), array, bytes);
}

CUresult weir_cuArray3DCreate(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR_v1 *made) {
    struct weir_charge charge;
    if (!array || !made || !has_memory(made->Flags))
        return WEIR_REAL(cuArray3DCreate)(array, made);
    uint64_t bytes =
        level_bytes(made->Width, made->Height, made->Depth, made->Format, made->NumChannels);
    CUresult result = weir_charge_begin(&charge, WEIR_KIND_ARRAY, bytes);
    if (result != CUDA_SUCCESS)
        return result;
    return array_made(&charge, WEIR_REAL(cuArray3DCreate)(array, made), array, bytes);
}

CUresult weir_cuArrayDestroy(CUarray array) {
    struct weir_discharge discharge;
    uint64_t key = weir_key(WEIR_KEY_ARRAY, (uint64_t)(uintptr_t)array);
    CUresult result = weir_discharge_begin(&discharge, key);
    if (result != CUDA_SUCCESS)
        return result;
    result = WEIR_REAL(cuArrayDestroy)(array);
    weir_discharge_end(&discharge, result, key);
    return result;
}

static CUresult destroy_mipmap(uint64_t handle) {
    return WEIR_REAL(cuMipmappedArrayDestroy)((CUmipmappedArray)(uintptr_t)handle);
}

CUresult weir_cuMipmappedArrayCreate(CUmipmappedArray *array, const CUDA_ARRAY3D_DESCRIPTOR *made,
                                     unsigned levels) {
    struct weir_charge charge;
    CUDA_ARRAY_MEMORY_REQUIREMENTS requirements = {0};
    if (!array || !made || !has_memory(made->Flags))
        return WEIR_REAL(cuMipmappedArrayCreate)(array, made, levels);
    uint64_t bytes = array_bytes(made, levels);
    CUresult result = weir_charge_begin(&charge, WEIR_KIND_ARRAY, bytes);
    if (result != CUDA_SUCCESS)
        return result;
    result = WEIR_REAL(cuMipmappedArrayCreate)(array, made, levels);
    if (!charge.state || result != CUDA_SUCCESS)
        return weir_charge_end_as(&charge, result, WEIR_KEY_MIPMAP, 0, 0, destroy_mipmap);
    CUresult told = WEIR_REAL(cuMipmappedArrayGetMemoryRequirements)(&requirements, *array,
                                                                     (CUdevice)charge.gpu);
    return weir_charge_end_as(&charge, result, WEIR_KEY_MIPMAP, (uint64_t)(uintptr_t)*array,
                              told_bytes(told, &requirements, bytes), destroy_mipmap);
}

CUresult weir_cuMipmappedArrayDestroy(CUmipmappedArray array) {
    struct weir_discharge discharge;
    uint64_t key = weir_key(WEIR_KEY_MIPMAP, (uint64_t)(uintptr_t)array);
    CUresult result = weir_discharge_begin(&discharge, key);
    if (result != CUDA_SUCCESS)
        return result;
    result = WEIR_REAL(cuMipmappedArrayDestroy)(array);
    weir_discharge_end(&discharge, result, key);
    return result;
}
