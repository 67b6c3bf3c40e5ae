// array_test.c: arrays, mipmapped arrays, textures and surfaces.
#define _GNU_SOURCE
#include "test_driver.h"

static uint64_t granules(uint64_t bytes) {
    return (bytes + SIM_GRANULE - 1) / SIM_GRANULE * SIM_GRANULE;
}

static CUarray make(CUDA_ARRAY3D_DESCRIPTOR d) {
    CUarray array;
    OK(cuArray3DCreate_v2(&array, &d));
    return array;
}

// What one creation takes of the card.
static uint64_t taken(CUDA_ARRAY3D_DESCRIPTOR d) {
    uint64_t before = free_bytes();
    CUarray array = make(d);
    uint64_t bytes = before - free_bytes();
    OK(cuArrayDestroy(array));
    CHECK_EQ(free_bytes(), before);
    return bytes;
}

static CUresult refusal(CUDA_ARRAY3D_DESCRIPTOR d) {
    CUarray array = (CUarray)&array;
    CUresult rc = cuArray3DCreate_v2(&array, &d);
    CHECK(rc != CUDA_SUCCESS && array == (CUarray)&array);
    return rc;
}

// ---- Shapes and what they take ----

static const struct {
    CUarray_format format;
    unsigned bytes;
} plain_formats[] = {
    {CU_AD_FORMAT_UNSIGNED_INT8, 1},  {CU_AD_FORMAT_UNSIGNED_INT16, 2},
    {CU_AD_FORMAT_UNSIGNED_INT32, 4}, {CU_AD_FORMAT_SIGNED_INT8, 1},
    {CU_AD_FORMAT_SIGNED_INT16, 2},   {CU_AD_FORMAT_SIGNED_INT32, 4},
    {CU_AD_FORMAT_HALF, 2},           {CU_AD_FORMAT_FLOAT, 4},
};
#define FORMATS (sizeof plain_formats / sizeof plain_formats[0])

static void formats_take_their_bytes(void) {
    for (size_t f = 0; f < FORMATS; f++)
        for (unsigned channels = 1; channels <= 4; channels *= 2) {
            uint64_t texel = plain_formats[f].bytes * channels;
            CUDA_ARRAY3D_DESCRIPTOR d = {101, 0, 0, plain_formats[f].format, channels, 0};
            CHECK_EQ(taken(d), granules(101 * texel));
            d.Height = 37;
            CHECK_EQ(taken(d), granules(101 * 37 * texel));
            d.Depth = 5;
            CHECK_EQ(taken(d), granules(101 * 37 * 5 * texel));
        }
    CHECK_EQ(taken((CUDA_ARRAY3D_DESCRIPTOR){100, 50, 0, CU_AD_FORMAT_NV12, 3, 0}), granules(7500));
    CHECK_EQ(taken((CUDA_ARRAY3D_DESCRIPTOR){9, 9, 0, CU_AD_FORMAT_BC1_UNORM, 4, 0}), 512);
    CHECK_EQ(taken((CUDA_ARRAY3D_DESCRIPTOR){401, 41, 0, CU_AD_FORMAT_BC7_UNORM, 4, 0}),
             granules(101 * 11 * 16));
    CHECK_EQ(taken((CUDA_ARRAY3D_DESCRIPTOR){300, 0, 0, CU_AD_FORMAT_SNORM_INT16X4, 4, 0}),
             granules(2400));
}

static void layered_and_cubes(void) {
    CUDA_ARRAY3D_DESCRIPTOR d = {64, 0, 7, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_LAYERED};
    CHECK_EQ(taken(d), granules(64 * 7 * 4));
    d.Height = 32;
    CHECK_EQ(taken(d), granules(64 * 32 * 7 * 4));
    d = (CUDA_ARRAY3D_DESCRIPTOR){32, 32, 6, CU_AD_FORMAT_HALF, 4, CUDA_ARRAY3D_CUBEMAP};
    CHECK_EQ(taken(d), 32 * 32 * 6 * 8);
    d.Depth = 12;
    CHECK_EQ(refusal(d), CUDA_ERROR_INVALID_VALUE);
    d.Flags |= CUDA_ARRAY3D_LAYERED;
    CHECK_EQ(taken(d), 32 * 32 * 12 * 8);
    d.Depth = 7;
    CHECK_EQ(refusal(d), CUDA_ERROR_INVALID_VALUE);
    d = (CUDA_ARRAY3D_DESCRIPTOR){32, 16, 6, CU_AD_FORMAT_HALF, 4, CUDA_ARRAY3D_CUBEMAP};
    CHECK_EQ(refusal(d), CUDA_ERROR_INVALID_VALUE);
    d = (CUDA_ARRAY3D_DESCRIPTOR){64, 0, 0, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_LAYERED};
    CHECK_EQ(refusal(d), CUDA_ERROR_INVALID_VALUE);
    d = (CUDA_ARRAY3D_DESCRIPTOR){64, 8, 0, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_TEXTURE_GATHER};
    CHECK_EQ(taken(d), 64 * 8 * 4);
    d.Depth = 2;
    CHECK_EQ(refusal(d), CUDA_ERROR_INVALID_VALUE);
}

static void bad_arrays(void) {
    CUarray array;
    CUDA_ARRAY3D_DESCRIPTOR good = {16, 16, 0, CU_AD_FORMAT_FLOAT, 1, 0}, d = good;
    CHECK_EQ(cuArray3DCreate_v2(NULL, &good), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuArray3DCreate_v2(&array, NULL), CUDA_ERROR_INVALID_VALUE);
    d.NumChannels = 3;
    CHECK_EQ(refusal(d), CUDA_ERROR_INVALID_VALUE);
    d = good, d.Width = 0;
    CHECK_EQ(refusal(d), CUDA_ERROR_INVALID_VALUE);
    d = good, d.Format = (CUarray_format)0x77;
    CHECK_EQ(refusal(d), CUDA_ERROR_INVALID_VALUE);
    d = good, d.Height = 0, d.Depth = 3;
    CHECK_EQ(refusal(d), CUDA_ERROR_INVALID_VALUE);
    d = good, d.Width = 131073;
    CHECK_EQ(refusal(d), CUDA_ERROR_INVALID_VALUE);
    d = good, d.Flags = CUDA_ARRAY3D_SPARSE;
    CHECK_EQ(refusal(d), CUDA_ERROR_INVALID_VALUE);
    d = good, d.Flags = CUDA_ARRAY3D_DEFERRED_MAPPING;
    CHECK_EQ(refusal(d), CUDA_ERROR_INVALID_VALUE);
    // Surfaces of one dimension are shorter than textures.
    d = (CUDA_ARRAY3D_DESCRIPTOR){40000, 0, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1, 0};
    CHECK_EQ(taken(d), granules(40000));
    d.Flags = CUDA_ARRAY3D_SURFACE_LDST;
    CHECK_EQ(refusal(d), CUDA_ERROR_INVALID_VALUE);
    // More than the card has: nothing is taken.
    uint64_t before = free_bytes();
    d = (CUDA_ARRAY3D_DESCRIPTOR){8192, 8192, 0, CU_AD_FORMAT_FLOAT, 1, 0};
    CHECK_EQ(refusal(d), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQ(free_bytes(), before);
}

static void descriptors(void) {
    CUDA_ARRAY_DESCRIPTOR flat = {33, 9, CU_AD_FORMAT_SIGNED_INT16, 2};
    CUDA_ARRAY_DESCRIPTOR_v1 old = {33, 9, CU_AD_FORMAT_SIGNED_INT16, 2}, old_got;
    CUDA_ARRAY3D_DESCRIPTOR got;
    CUDA_ARRAY3D_DESCRIPTOR_v1 old3 = {8, 4, 2, CU_AD_FORMAT_FLOAT, 4, CUDA_ARRAY3D_SURFACE_LDST};
    CUDA_ARRAY3D_DESCRIPTOR_v1 old3_got;
    CUDA_ARRAY_DESCRIPTOR flat_got;
    uint64_t before = free_bytes();
    CUarray array, second, third;
    OK(cuArrayCreate_v2(&array, &flat));
    OK(cuArrayCreate(&second, &old));
    OK(cuArray3DCreate(&third, &old3));
    CHECK_EQ(before - free_bytes(), 2 * granules(33 * 9 * 4) + granules(8 * 4 * 2 * 16));
    OK(cuArray3DGetDescriptor_v2(&got, array));
    CHECK(got.Width == 33 && got.Height == 9 && got.Depth == 0 && got.NumChannels == 2 &&
          got.Format == CU_AD_FORMAT_SIGNED_INT16 && got.Flags == 0);
    OK(cuArrayGetDescriptor_v2(&flat_got, second));
    CHECK(flat_got.Width == 33 && flat_got.Height == 9 && flat_got.NumChannels == 2);
    OK(cuArrayGetDescriptor(&old_got, array));
    CHECK(old_got.Width == 33 && old_got.Height == 9 && old_got.NumChannels == 2);
    OK(cuArray3DGetDescriptor(&old3_got, third));
    CHECK(!memcmp(&old3_got, &old3, sizeof old3));
    CHECK_EQ(cuArrayGetDescriptor_v2(NULL, array), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuArrayGetDescriptor_v2(&flat_got, (CUarray)&got), CUDA_ERROR_INVALID_HANDLE);
    OK(cuArrayDestroy(array));
    OK(cuArrayDestroy(second));
    OK(cuArrayDestroy(third));
    CHECK_EQ(cuArrayDestroy(array), CUDA_ERROR_INVALID_HANDLE);
    CHECK_EQ(cuArrayDestroy(NULL), CUDA_ERROR_INVALID_HANDLE);
    CHECK_EQ(free_bytes(), before);
}

static void planes(void) {
    CUarray array = make((CUDA_ARRAY3D_DESCRIPTOR){64, 32, 0, CU_AD_FORMAT_NV12, 3, 0});
    CUarray plane[2], again;
    CUDA_ARRAY3D_DESCRIPTOR d;
    uint64_t before = free_bytes();
    for (unsigned i = 0; i < 2; i++) {
        OK(cuArrayGetPlane(&plane[i], array, i));
        OK(cuArray3DGetDescriptor_v2(&d, plane[i]));
        CHECK(d.Width == (i ? 32 : 64) && d.Height == (i ? 16 : 32) && d.NumChannels == 1 + i &&
              d.Format == CU_AD_FORMAT_UNSIGNED_INT8);
    }
    OK(cuArrayGetPlane(&again, array, 1));
    CHECK(again == plane[1]);
    CHECK_EQ(free_bytes(), before);
    CHECK_EQ(cuArrayGetPlane(&again, array, 2), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuArrayDestroy(plane[0]), CUDA_ERROR_INVALID_HANDLE);
    // What the planes hold is the whole array's.
    uint8_t out[64 * 32] = {0}, in[64 * 48];
    CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_ARRAY,
                          .srcArray = array,
                          .dstMemoryType = CU_MEMORYTYPE_HOST,
                          .dstHost = in,
                          .dstPitch = 64,
                          .WidthInBytes = 64,
                          .Height = 48};
    memset(out, 7, sizeof out);
    OK(cuMemcpyHtoA_v2(plane[1], 2, out, 62));
    OK(cuMemcpy2D_v2(&copy));
    CHECK_EQ(in[64 * 32 + 2], 7);
    CHECK_EQ(in[64 * 32 + 63], 7);
    OK(cuArrayDestroy(array));
    CHECK_EQ(cuArray3DGetDescriptor_v2(&d, plane[1]), CUDA_ERROR_INVALID_HANDLE);
    array = make((CUDA_ARRAY3D_DESCRIPTOR){64, 32, 0, CU_AD_FORMAT_FLOAT, 1, 0});
    CHECK_EQ(cuArrayGetPlane(&again, array, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuArrayDestroy(array));
}

static void not_sparse_not_deferred(void) {
    CUDA_ARRAY_SPARSE_PROPERTIES sparse;
    CUDA_ARRAY_MEMORY_REQUIREMENTS needs;
    CUDA_ARRAY3D_DESCRIPTOR d = {64, 32, 0, CU_AD_FORMAT_FLOAT, 1, 0};
    CUarray array = make(d);
    CUmipmappedArray mipmap;
    size_t width;
    OK(cuMipmappedArrayCreate(&mipmap, &d, 3));
    CHECK_EQ(cuArrayGetSparseProperties(&sparse, array), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuArrayGetSparseProperties(&sparse, NULL), CUDA_ERROR_INVALID_HANDLE);
    CHECK_EQ(cuArrayGetMemoryRequirements(&needs, array, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuArrayGetMemoryRequirements(&needs, array, 9), CUDA_ERROR_INVALID_DEVICE);
    CHECK_EQ(cuMipmappedArrayGetSparseProperties(&sparse, mipmap), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMipmappedArrayGetMemoryRequirements(&needs, mipmap, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMipmappedArrayGetMemoryRequirements(&needs, NULL, 0), CUDA_ERROR_INVALID_HANDLE);
    OK(cuMipmappedArrayDestroy(mipmap));
    OK(cuArrayDestroy(array));
    OK(cuDeviceGetTexture1DLinearMaxWidth(&width, CU_AD_FORMAT_FLOAT, 4, 0));
    CHECK(width > 0);
    CHECK_EQ(cuDeviceGetTexture1DLinearMaxWidth(&width, CU_AD_FORMAT_FLOAT, 3, 0),
             CUDA_ERROR_INVALID_VALUE);
}

// ---- Mipmapped arrays ----

static void mipmaps(void) {
    CUDA_ARRAY3D_DESCRIPTOR d = {100, 30, 0, CU_AD_FORMAT_FLOAT, 2, 0}, level;
    uint64_t before = free_bytes(), sum = 0;
    CUmipmappedArray mipmap;
    CUarray array, again;
    OK(cuMipmappedArrayCreate(&mipmap, &d, 99));  // more than there can be: as many as there can
    for (unsigned i = 0; i < 7; i++) {
        uint64_t width = 100 >> i ? 100 >> i : 1, height = 30 >> i ? 30 >> i : 1;
        sum += width * height * 8;
        OK(cuMipmappedArrayGetLevel(&array, mipmap, i));
        OK(cuArray3DGetDescriptor_v2(&level, array));
        CHECK(level.Width == width && level.Height == height && level.Depth == 0);
        OK(cuMipmappedArrayGetLevel(&again, mipmap, i));
        CHECK(again == array);
        CHECK_EQ(cuArrayDestroy(array), CUDA_ERROR_INVALID_HANDLE);
    }
    CHECK_EQ(cuMipmappedArrayGetLevel(&array, mipmap, 7), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(before - free_bytes(), granules(sum));
    OK(cuMipmappedArrayDestroy(mipmap));
    CHECK_EQ(cuMipmappedArrayDestroy(mipmap), CUDA_ERROR_INVALID_HANDLE);
    CHECK_EQ(cuArray3DGetDescriptor_v2(&level, again), CUDA_ERROR_INVALID_HANDLE);
    // Layers stay as many; a volume gets flatter.
    d = (CUDA_ARRAY3D_DESCRIPTOR){16, 8, 5, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_LAYERED};
    OK(cuMipmappedArrayCreate(&mipmap, &d, 2));
    CHECK_EQ(before - free_bytes(), granules((16 * 8 * 5 + 8 * 4 * 5) * 4));
    OK(cuMipmappedArrayDestroy(mipmap));
    d.Flags = 0;
    OK(cuMipmappedArrayCreate(&mipmap, &d, 2));
    CHECK_EQ(before - free_bytes(), granules((16 * 8 * 5 + 8 * 4 * 2) * 4));
    OK(cuMipmappedArrayDestroy(mipmap));
    d.Width = 8000, d.Height = 4000, d.Depth = 0;
    CHECK_EQ(cuMipmappedArrayCreate(&mipmap, &d, 1), CUDA_ERROR_OUT_OF_MEMORY);
    d.NumChannels = 3;
    CHECK_EQ(cuMipmappedArrayCreate(&mipmap, &d, 1), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMipmappedArrayCreate(NULL, &d, 1), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(free_bytes(), before);
}

// Levels lie beside each other without touching.
static void levels_keep_their_data(void) {
    CUDA_ARRAY3D_DESCRIPTOR d = {37, 0, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1, 0};
    CUmipmappedArray mipmap;
    CUarray level[6];
    uint8_t row[37];
    OK(cuMipmappedArrayCreate(&mipmap, &d, 6));
    for (unsigned i = 0; i < 6; i++) {
        OK(cuMipmappedArrayGetLevel(&level[i], mipmap, i));
        memset(row, (int)i + 1, sizeof row);
        OK(cuMemcpyHtoA_v2(level[i], 0, row, 37 >> i));
    }
    for (unsigned i = 0; i < 6; i++) {
        OK(cuMemcpyAtoH_v2(row, level[i], 0, 37 >> i));
        for (unsigned x = 0; x < 37u >> i; x++)
            CHECK_EQ(row[x], i + 1);
        CHECK_EQ(cuMemcpyAtoH_v2(row, level[i], 0, (37 >> i) + 1), CUDA_ERROR_INVALID_VALUE);
    }
    OK(cuMipmappedArrayDestroy(mipmap));
}

// What a context has ends with it.
static void end_with_their_context(void) {
    uint64_t before = free_bytes();
    CUcontext context;
    CUDA_ARRAY3D_DESCRIPTOR d = {64, 64, 0, CU_AD_FORMAT_FLOAT, 1, 0};
    CUmipmappedArray mipmap;
    OK(cuCtxCreate_v2(&context, 0, 0));
    CUarray array = make(d);
    OK(cuMipmappedArrayCreate(&mipmap, &d, 4));
    OK(cuCtxDestroy_v2(context));
    CHECK_EQ(free_bytes(), before);
    CHECK_EQ(cuArrayDestroy(array), CUDA_ERROR_INVALID_HANDLE);
    CHECK_EQ(cuMipmappedArrayDestroy(mipmap), CUDA_ERROR_INVALID_HANDLE);
}

// ---- Textures and surfaces ----

static void texture_objects(void) {
    CUDA_ARRAY3D_DESCRIPTOR d = {64, 64, 4, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_LAYERED};
    CUarray array = make(d);
    CUDA_RESOURCE_DESC resource = {.res.array.hArray = array}, resource_got;
    CUDA_TEXTURE_DESC sampling = {.addressMode = {1, 2, 3}, .flags = 2}, sampling_got;
    CUDA_RESOURCE_VIEW_DESC view = {.width = 64, .height = 64, .lastLayer = 3}, view_got;
    CUtexObject plain, viewed;
    uint64_t before = free_bytes();
    OK(cuTexObjectCreate(&plain, &resource, &sampling, NULL));
    OK(cuTexObjectCreate(&viewed, &resource, &sampling, &view));
    CHECK_EQ(free_bytes(), before);
    OK(cuTexObjectGetResourceDesc(&resource_got, viewed));
    CHECK(resource_got.res.array.hArray == array);
    OK(cuTexObjectGetTextureDesc(&sampling_got, plain));
    CHECK(!memcmp(&sampling_got, &sampling, sizeof sampling));
    OK(cuTexObjectGetResourceViewDesc(&view_got, viewed));
    CHECK_EQ(view_got.lastLayer, 3);
    CHECK_EQ(cuTexObjectGetResourceViewDesc(&view_got, plain), CUDA_ERROR_INVALID_VALUE);
    view.lastLayer = 4;
    CHECK_EQ(cuTexObjectCreate(&viewed, &resource, &sampling, &view), CUDA_ERROR_INVALID_VALUE);
    sampling.addressMode[1] = 4;
    CHECK_EQ(cuTexObjectCreate(&viewed, &resource, &sampling, NULL), CUDA_ERROR_INVALID_VALUE);
    resource.res.array.hArray = NULL;
    sampling.addressMode[1] = 0;
    CHECK_EQ(cuTexObjectCreate(&viewed, &resource, &sampling, NULL), CUDA_ERROR_INVALID_VALUE);
    OK(cuTexObjectDestroy(plain));
    CHECK_EQ(cuTexObjectDestroy(plain), CUDA_ERROR_INVALID_VALUE);
    OK(cuArrayDestroy(array));
}

static void textures_of_linear_memory(void) {
    CUDA_TEXTURE_DESC sampling = {0};
    CUtexObject object;
    CUdeviceptr at = alloc(64 * 1024);
    CUDA_RESOURCE_DESC linear = {.resType = CU_RESOURCE_TYPE_LINEAR,
                                 .res.linear = {at, CU_AD_FORMAT_FLOAT, 4, 64 * 1024}};
    CUDA_RESOURCE_DESC pitched = {.resType = CU_RESOURCE_TYPE_PITCH2D,
                                  .res.pitch2D = {at, CU_AD_FORMAT_FLOAT, 1, 100, 128, 512}};
    OK(cuTexObjectCreate(&object, &linear, &sampling, NULL));
    OK(cuTexObjectDestroy(object));
    OK(cuTexObjectCreate(&object, &pitched, &sampling, NULL));
    OK(cuTexObjectDestroy(object));
    linear.res.linear.sizeInBytes++;
    CHECK_EQ(cuTexObjectCreate(&object, &linear, &sampling, NULL), CUDA_ERROR_INVALID_VALUE);
    linear.res.linear.sizeInBytes = 1024;
    linear.res.linear.devPtr = at + 4;
    CHECK_EQ(cuTexObjectCreate(&object, &linear, &sampling, NULL), CUDA_ERROR_INVALID_VALUE);
    pitched.res.pitch2D.pitchInBytes = 400;
    CHECK_EQ(cuTexObjectCreate(&object, &pitched, &sampling, NULL), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemFree_v2(at));
}

static void surface_objects(void) {
    CUDA_ARRAY3D_DESCRIPTOR d = {64, 64, 0, CU_AD_FORMAT_FLOAT, 1, 0};
    CUarray plain = make(d);
    d.Flags = CUDA_ARRAY3D_SURFACE_LDST;
    CUarray array = make(d);
    CUDA_RESOURCE_DESC resource = {.res.array.hArray = plain};
    CUsurfObject surface;
    CHECK_EQ(cuSurfObjectCreate(&surface, &resource), CUDA_ERROR_INVALID_VALUE);
    resource.res.array.hArray = array;
    OK(cuSurfObjectCreate(&surface, &resource));
    OK(cuSurfObjectGetResourceDesc(&resource, surface));
    CHECK(resource.res.array.hArray == array);
    CHECK_EQ(cuTexObjectDestroy(surface), CUDA_ERROR_INVALID_VALUE);
    OK(cuSurfObjectDestroy(surface));
    CHECK_EQ(cuSurfObjectDestroy(surface), CUDA_ERROR_INVALID_VALUE);
    OK(cuArrayDestroy(array));
    OK(cuArrayDestroy(plain));
}

static void texture_references(void) {
    CUtexref ref;
    CUarray array = make((CUDA_ARRAY3D_DESCRIPTOR){64, 8, 0, CU_AD_FORMAT_HALF, 2, 0}), got;
    CUarray_format format;
    CUdeviceptr at = alloc(4096), address;
    int value, channels;
    size_t offset;
    float color[4] = {1, 2, 3, 4}, color_got[4], least, most;
    OK(cuTexRefCreate(&ref));
    OK(cuTexRefSetArray(ref, array, CU_TRSA_OVERRIDE_FORMAT));
    CHECK_EQ(cuTexRefSetArray(ref, array, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuTexRefSetArray(ref, NULL, CU_TRSA_OVERRIDE_FORMAT), CUDA_ERROR_INVALID_HANDLE);
    OK(cuTexRefGetArray(&got, ref));
    CHECK(got == array);
    OK(cuTexRefGetFormat(&format, &channels, ref));
    CHECK(format == CU_AD_FORMAT_HALF && channels == 2);
    CHECK_EQ(cuTexRefGetAddress_v2(&address, ref), CUDA_ERROR_INVALID_VALUE);
    OK(cuTexRefSetAddress_v2(&offset, ref, at + 100, 1000));
    CHECK_EQ(offset, 100);
    OK(cuTexRefGetAddress_v2(&address, ref));
    CHECK_EQ(address, at);
    CHECK_EQ(cuTexRefSetAddress_v2(NULL, ref, at + 100, 1000), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuTexRefGetArray(&got, ref), CUDA_ERROR_INVALID_VALUE);
    OK(cuTexRefSetAddressMode(ref, 2, CU_TR_ADDRESS_MODE_MIRROR));
    OK(cuTexRefGetAddressMode(&value, ref, 2));
    CHECK_EQ(value, CU_TR_ADDRESS_MODE_MIRROR);
    CHECK_EQ(cuTexRefSetAddressMode(ref, 3, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuTexRefSetMipmapLevelClamp(ref, 1, 5));
    OK(cuTexRefGetMipmapLevelClamp(&least, &most, ref));
    CHECK(least == 1 && most == 5);
    OK(cuTexRefSetBorderColor(ref, color));
    OK(cuTexRefGetBorderColor(color_got, ref));
    CHECK(!memcmp(color, color_got, sizeof color));
    CHECK_EQ(cuTexRefSetFlags(ref, 1u << 31), CUDA_ERROR_INVALID_VALUE);
    OK(cuTexRefDestroy(ref));
    CHECK_EQ(cuTexRefDestroy(ref), CUDA_ERROR_INVALID_HANDLE);
    OK(cuMemFree_v2(at));
    OK(cuArrayDestroy(array));
}

int main(int argc, char **argv) {
    start_driver();
    static const struct test tests[] = {
        TEST(formats_take_their_bytes),
        TEST(layered_and_cubes),
        TEST(bad_arrays),
        TEST(descriptors),
        TEST(planes),
        TEST(not_sparse_not_deferred),
        TEST(mipmaps),
        TEST(levels_keep_their_data),
        TEST(end_with_their_context),
        TEST(texture_objects),
        TEST(textures_of_linear_memory),
        TEST(surface_objects),
        TEST(texture_references),
    };
    int rc = RUN(tests);
    stop_driver();
    return rc;
}
