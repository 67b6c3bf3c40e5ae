// copy_test.c: copies between host memory, device memory and arrays, in all forms, over random
// shapes, against a plain model: after each round every byte is compared. The seed is printed;
// WEIR_TEST_SEED repeats it.
#define _GNU_SOURCE
#include "test_driver.h"

#include <time.h>

static uint64_t state;

static uint32_t below(uint32_t bound) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return bound ? (uint32_t)((state >> 11) % bound) : 0;
}

// Something with memory, and what must be in it.
enum kind { HOST, DEVICE, MANAGED, ARRAY };

struct thing {
    enum kind kind;
    CUDA_ARRAY3D_DESCRIPTOR descriptor;  // of an array
    CUarray array;
    CUmipmappedArray mipmap;  // that the array is a level of
    CUdeviceptr address;
    uint8_t *model;
    size_t bytes;
    size_t element, row, rows, slices;  // of an array
};

#define THINGS 12
static struct thing things[THINGS];

static void fill(struct thing *t) {
    t->model = malloc(t->bytes);
    for (size_t i = 0; i < t->bytes; i++)
        t->model[i] = (uint8_t)below(256);
}

// Brings the model's bytes to a thing, or its bytes back.
static void move_all(struct thing *t, uint8_t *host, bool up) {
    CUDA_MEMCPY3D c = {.WidthInBytes = t->row, .Height = t->rows, .Depth = t->slices};
    if (t->kind != ARRAY) {
        OK(up ? cuMemcpy(t->address, (uintptr_t)host, t->bytes)
              : cuMemcpy((uintptr_t)host, t->address, t->bytes));
        return;
    }
    CUmemorytype array = CU_MEMORYTYPE_ARRAY, memory = CU_MEMORYTYPE_HOST;
    c.dstMemoryType = up ? array : memory;
    c.srcMemoryType = up ? memory : array;
    c.dstArray = c.srcArray = t->array;
    c.srcHost = c.dstHost = host;
    c.srcPitch = c.dstPitch = t->row;
    c.srcHeight = c.dstHeight = t->rows;
    OK(cuMemcpy3D_v2(&c));
}

static void make_array(struct thing *t) {
    static const CUarray_format formats[] = {CU_AD_FORMAT_UNSIGNED_INT8, CU_AD_FORMAT_HALF,
                                             CU_AD_FORMAT_FLOAT};
    unsigned shape = below(4), format = below(3), channels = 1u << below(3);
    CUDA_ARRAY3D_DESCRIPTOR *d = &t->descriptor;
    *d = (CUDA_ARRAY3D_DESCRIPTOR){.Width = 1 + below(200),
                                   .Height = shape ? 1 + below(30) : 0,
                                   .Depth = shape > 1 ? 1 + below(7) : 0,
                                   .Format = formats[format],
                                   .NumChannels = channels,
                                   .Flags = shape == 3 ? CUDA_ARRAY3D_LAYERED : 0};
    if (below(4) == 0) {  // a level of a mipmapped array
        OK(cuMipmappedArrayCreate(&t->mipmap, d, 3));
        unsigned level = below(2);
        if (cuMipmappedArrayGetLevel(&t->array, t->mipmap, level))
            OK(cuMipmappedArrayGetLevel(&t->array, t->mipmap, 0));
        OK(cuArray3DGetDescriptor_v2(d, t->array));
    } else {
        OK(cuArray3DCreate_v2(&t->array, d));
    }
    t->element = (1u << format) * channels;
    t->row = d->Width * t->element;
    t->rows = d->Height ? d->Height : 1;
    t->slices = d->Depth ? d->Depth : 1;
    t->bytes = t->row * t->rows * t->slices;
}

static void make_thing(struct thing *t, enum kind kind) {
    void *host;
    *t = (struct thing){.kind = kind, .bytes = 1000 + below(60000)};
    if (kind == ARRAY)
        make_array(t);
    else if (kind == DEVICE)
        t->address = alloc(t->bytes);
    else if (kind == MANAGED)
        OK(cuMemAllocManaged(&t->address, t->bytes, CU_MEM_ATTACH_GLOBAL));
    else {
        host = malloc(t->bytes);
        t->address = (uintptr_t)host;
    }
    fill(t);
    move_all(t, t->model, true);
}

static void drop_thing(struct thing *t) {
    if (t->mipmap)
        OK(cuMipmappedArrayDestroy(t->mipmap));
    else if (t->kind == ARRAY)
        OK(cuArrayDestroy(t->array));
    else if (t->kind == HOST)
        free((void *)(uintptr_t)t->address);
    else
        OK(cuMemFree_v2(t->address));
    free(t->model);
    t->model = NULL;
}

// ---- One side of a copy in a thing, and where it is in the model ----

struct side {
    struct thing *thing;
    size_t x, y, z, pitch, height;
};

static uint8_t *at(const struct side *s, size_t y, size_t z) {
    return s->thing->model + ((s->z + z) * s->height + s->y + y) * s->pitch + s->x;
}

// Whether the shape fits, and a place where it does.
static bool place(struct side *s, struct thing *t, size_t width, size_t rows, size_t planes) {
    *s = (struct side){.thing = t};
    if (t->kind == ARRAY) {
        if (width > t->row || rows > t->rows || planes > t->slices || width % t->element)
            return false;
        s->pitch = t->row;
        s->height = t->rows;
        s->x = below((uint32_t)((t->row - width) / t->element + 1)) * t->element;
        s->y = below((uint32_t)(t->rows - rows + 1));
        s->z = below((uint32_t)(t->slices - planes + 1));
        return true;
    }
    s->x = below(20), s->y = below(3), s->z = below(2);
    s->pitch = width + s->x + below(9);
    s->height = rows + s->y + below(3);
    size_t last = ((s->z + planes - 1) * s->height + s->y + rows - 1) * s->pitch + s->x + width;
    return last <= t->bytes;
}

static void copy_model(const struct side *to, const struct side *from, size_t width, size_t rows,
                       size_t planes) {
    for (size_t z = 0; z < planes; z++)
        for (size_t y = 0; y < rows; y++)
            memmove(at(to, y, z), at(from, y, z), width);
}

static CUmemorytype type_of(const struct thing *t) {
    if (t->kind == ARRAY)
        return CU_MEMORYTYPE_ARRAY;
    if (below(3) == 0)
        return CU_MEMORYTYPE_UNIFIED;
    return t->kind == HOST ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
}

// ---- The forms ----

static CUstream streams[3];

static void copy_3d(const struct side *to, const struct side *from, size_t width, size_t rows,
                    size_t planes) {
    CUDA_MEMCPY3D c = {.srcXInBytes = from->x,
                       .srcY = from->y,
                       .srcZ = from->z,
                       .srcMemoryType = type_of(from->thing),
                       .srcHost = (void *)(uintptr_t)from->thing->address,
                       .srcDevice = from->thing->address,
                       .srcArray = from->thing->array,
                       .srcPitch = from->pitch,
                       .srcHeight = from->height,
                       .dstXInBytes = to->x,
                       .dstY = to->y,
                       .dstZ = to->z,
                       .dstMemoryType = type_of(to->thing),
                       .dstHost = (void *)(uintptr_t)to->thing->address,
                       .dstDevice = to->thing->address,
                       .dstArray = to->thing->array,
                       .dstPitch = to->pitch,
                       .dstHeight = to->height,
                       .WidthInBytes = width,
                       .Height = rows,
                       .Depth = planes};
    switch (below(4)) {
    case 0:
        OK(cuMemcpy3D_v2(&c));
        break;
    case 1:
        OK(cuMemcpy3DAsync_v2(&c, streams[0]));
        break;
    default:
        c.reserved0 = c.reserved1 = primary;
        OK(below(2) ? cuMemcpy3DPeer(&c) : cuMemcpy3DPeerAsync(&c, streams[0]));
    }
}

static void copy_2d(const struct side *to, const struct side *from, size_t width, size_t rows) {
    CUDA_MEMCPY2D c = {.srcXInBytes = from->x,
                       .srcY = from->y + from->z * from->height,
                       .srcMemoryType = type_of(from->thing),
                       .srcHost = (void *)(uintptr_t)from->thing->address,
                       .srcDevice = from->thing->address,
                       .srcArray = from->thing->array,
                       .srcPitch = from->pitch,
                       .dstXInBytes = to->x,
                       .dstY = to->y + to->z * to->height,
                       .dstMemoryType = type_of(to->thing),
                       .dstHost = (void *)(uintptr_t)to->thing->address,
                       .dstDevice = to->thing->address,
                       .dstArray = to->thing->array,
                       .dstPitch = to->pitch,
                       .WidthInBytes = width,
                       .Height = rows};
    switch (below(3)) {
    case 0:
        OK(cuMemcpy2D_v2(&c));
        break;
    case 1:
        OK(cuMemcpy2DUnaligned_v2(&c));
        break;
    default:
        OK(cuMemcpy2DAsync_v2(&c, streams[0]));
    }
}

// One row: where an array's row is its first, there are forms of that alone.
static void copy_row(const struct side *to, const struct side *from, size_t width) {
    const struct thing *t = to->thing, *f = from->thing;
    CUdeviceptr to_at = t->address + (to->z * to->height + to->y) * to->pitch + to->x;
    CUdeviceptr from_at = f->address + (from->z * from->height + from->y) * from->pitch + from->x;
    void *to_host = (void *)(uintptr_t)to_at, *from_host = (void *)(uintptr_t)from_at;
    bool now = below(2);
    if (t->kind == ARRAY && f->kind == ARRAY)
        OK(cuMemcpyAtoA_v2(t->array, to->x, f->array, from->x, width));
    else if (t->kind == ARRAY && f->kind == HOST)
        OK(now ? cuMemcpyHtoA_v2(t->array, to->x, from_host, width)
               : cuMemcpyHtoAAsync_v2(t->array, to->x, from_host, width, streams[0]));
    else if (f->kind == ARRAY && t->kind == HOST)
        OK(now ? cuMemcpyAtoH_v2(to_host, f->array, from->x, width)
               : cuMemcpyAtoHAsync_v2(to_host, f->array, from->x, width, streams[0]));
    else if (t->kind == ARRAY)
        OK(cuMemcpyDtoA_v2(t->array, to->x, from_at, width));
    else if (f->kind == ARRAY)
        OK(cuMemcpyAtoD_v2(to_at, f->array, from->x, width));
    else
        OK(now ? cuMemcpy(to_at, from_at, width)
               : cuMemcpyAsync(to_at, from_at, width, streams[0]));
}

static bool first_row(const struct side *s) {
    return s->thing->kind != ARRAY || (s->y == 0 && s->z == 0);
}

static bool overlaps(const struct side *a, const struct side *b) {
    return a->thing == b->thing;
}

static bool one_copy(void) {
    struct thing *t = &things[below(THINGS)], *f = &things[below(THINGS)];
    if (t->kind == ARRAY && f->kind == ARRAY && t->element != f->element)
        return false;
    size_t element = t->kind == ARRAY ? t->element : f->kind == ARRAY ? f->element : 1;
    size_t width = (1 + below(40)) * element, rows = 1, planes = 1;
    unsigned form = below(3);
    if (form > 0)
        rows = 1 + below(12);
    if (form > 1)
        planes = 1 + below(4);
    struct side to, from;
    if (!place(&to, t, width, rows, planes) || !place(&from, f, width, rows, planes) ||
        overlaps(&to, &from))
        return false;
    if (form == 0 && first_row(&to) && first_row(&from))
        copy_row(&to, &from, width);
    else if (form == 1 && (t->kind != ARRAY || to.z == 0) && (f->kind != ARRAY || from.z == 0))
        copy_2d(&to, &from, width, rows);
    else
        copy_3d(&to, &from, width, rows, planes);
    copy_model(&to, &from, width, rows, planes);
    return true;
}

static void compare_all(void) {
    for (unsigned i = 0; i < THINGS; i++) {
        uint8_t *got = malloc(things[i].bytes);
        move_all(&things[i], got, false);
        CHECK(!memcmp(got, things[i].model, things[i].bytes));
        free(got);
    }
}

static void random_copies(void) {
    uint64_t before = free_bytes();
    unsigned done = 0;
    OK(cuStreamCreate(&streams[0], CU_STREAM_DEFAULT));  // in order with the default stream
    for (unsigned i = 0; i < THINGS; i++)
        make_thing(&things[i], i < 8 ? ARRAY : (enum kind)(i % 4 == 3 ? DEVICE : i % 4));
    for (unsigned round = 0; round < 60; round++) {
        for (unsigned i = 0; i < 60; i++)
            done += one_copy();
        compare_all();
        unsigned victim = below(THINGS);
        enum kind kind = things[victim].kind;
        drop_thing(&things[victim]);
        make_thing(&things[victim], kind);
    }
    for (unsigned i = 0; i < THINGS; i++)
        drop_thing(&things[i]);
    OK(cuStreamDestroy_v2(streams[0]));
    CHECK_EQ(free_bytes(), before);
    printf("  %u copies\n", done);
    CHECK(done > 300);
}

// ---- What is refused ----

static CUarray make(CUDA_ARRAY3D_DESCRIPTOR d) {
    CUarray array;
    OK(cuArray3DCreate_v2(&array, &d));
    return array;
}

static void bad_copies(void) {
    CUarray array = make((CUDA_ARRAY3D_DESCRIPTOR){64, 8, 0, CU_AD_FORMAT_FLOAT, 1, 0});
    CUarray bytes = make((CUDA_ARRAY3D_DESCRIPTOR){64, 8, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1, 0});
    uint8_t host[4096] = {0};
    CHECK_EQ(cuMemcpyHtoA_v2(array, 4, host, 253), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemcpyHtoA_v2(array, 2, host, 4), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemcpyHtoA_v2(array, 0, host, 3), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemcpyHtoA_v2(array, SIZE_MAX - 3, host, 8), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemcpyHtoA_v2(NULL, 0, host, 4), CUDA_ERROR_INVALID_HANDLE);
    CHECK_EQ(cuMemcpyAtoA_v2(bytes, 0, array, 0, 16), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemcpyAtoD_v2((uintptr_t)host, array, 0, 16), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemcpyAtoH_v2(host, array, 0, 0));
    CUDA_MEMCPY2D c = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                       .srcHost = host,
                       .srcPitch = 256,
                       .dstMemoryType = CU_MEMORYTYPE_ARRAY,
                       .dstArray = array,
                       .WidthInBytes = 256,
                       .Height = 8};
    OK(cuMemcpy2D_v2(&c));
    c.dstY = 1;
    CHECK_EQ(cuMemcpy2D_v2(&c), CUDA_ERROR_INVALID_VALUE);
    c.dstY = 0, c.dstMemoryType = (CUmemorytype)9;
    CHECK_EQ(cuMemcpy2D_v2(&c), CUDA_ERROR_INVALID_VALUE);
    CUDA_MEMCPY3D d = {.srcMemoryType = CU_MEMORYTYPE_ARRAY,
                       .srcArray = array,
                       .dstMemoryType = CU_MEMORYTYPE_HOST,
                       .dstHost = host,
                       .dstPitch = 256,
                       .dstHeight = 8,
                       .WidthInBytes = 256,
                       .Height = 8,
                       .Depth = 1,
                       .srcLOD = 1};
    CHECK_EQ(cuMemcpy3D_v2(&d), CUDA_ERROR_INVALID_VALUE);
    d.srcLOD = 0;
    OK(cuMemcpy3D_v2(&d));
    CHECK_EQ(cuMemcpy3DPeer(&d), CUDA_ERROR_INVALID_CONTEXT);  // of the array: none is named
    d.reserved0 = primary;
    CHECK_EQ(cuMemcpy3D_v2(&d), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemcpy3DPeer(&d));
    CHECK_EQ(cuMemcpy3D_v2(NULL), CUDA_ERROR_INVALID_VALUE);
    OK(cuArrayDestroy(array));
    CHECK_EQ(cuMemcpy3DPeer(&d), CUDA_ERROR_INVALID_HANDLE);
    OK(cuArrayDestroy(bytes));
}

// An array is of its context; between two contexts the peer form copies.
static void between_contexts(void) {
    CUDA_ARRAY3D_DESCRIPTOR shape = {64, 8, 0, CU_AD_FORMAT_FLOAT, 1, 0};
    CUarray here = make(shape), there;
    CUcontext other;
    float in[512], out[512] = {0};
    for (unsigned i = 0; i < 512; i++)
        in[i] = (float)i;
    OK(cuDevicePrimaryCtxRetain(&other, 1));
    OK(cuCtxPushCurrent_v2(other));
    there = make(shape);
    CHECK_EQ(cuMemcpyHtoA_v2(here, 0, in, 256), CUDA_ERROR_INVALID_HANDLE);
    OK(cuCtxPopCurrent_v2(NULL));
    CUDA_MEMCPY3D c = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                       .srcHost = in,
                       .srcPitch = 256,
                       .srcHeight = 8,
                       .dstMemoryType = CU_MEMORYTYPE_ARRAY,
                       .dstArray = here,
                       .WidthInBytes = 256,
                       .Height = 8,
                       .Depth = 1};
    OK(cuMemcpy3D_v2(&c));
    c.srcMemoryType = CU_MEMORYTYPE_ARRAY, c.srcArray = here, c.reserved0 = primary;
    c.dstArray = there, c.reserved1 = primary;
    CHECK_EQ(cuMemcpy3DPeer(&c), CUDA_ERROR_INVALID_HANDLE);
    c.reserved1 = other;
    OK(cuMemcpy3DPeer(&c));
    OK(cuCtxPushCurrent_v2(other));
    c = (CUDA_MEMCPY3D){.srcMemoryType = CU_MEMORYTYPE_ARRAY,
                        .srcArray = there,
                        .dstMemoryType = CU_MEMORYTYPE_HOST,
                        .dstHost = out,
                        .dstPitch = 256,
                        .dstHeight = 8,
                        .WidthInBytes = 256,
                        .Height = 8,
                        .Depth = 1};
    OK(cuMemcpy3D_v2(&c));
    CHECK(!memcmp(in, out, sizeof in));
    OK(cuCtxPopCurrent_v2(NULL));
    OK(cuDevicePrimaryCtxRelease_v2(1));
    OK(cuArrayDestroy(here));
}

// The forms of before CUDA 3.2, as far as they need no address of 32 bits.
static void old_forms(void) {
    CUarray array = make((CUDA_ARRAY3D_DESCRIPTOR){64, 2, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1, 0});
    CUarray other = make((CUDA_ARRAY3D_DESCRIPTOR){64, 2, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1, 0});
    uint8_t in[128], out[128] = {0};
    for (unsigned i = 0; i < 128; i++)
        in[i] = (uint8_t)i;
    CUDA_MEMCPY2D_v1 c = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                          .srcHost = in,
                          .srcPitch = 64,
                          .dstMemoryType = CU_MEMORYTYPE_ARRAY,
                          .dstArray = array,
                          .WidthInBytes = 64,
                          .Height = 2};
    OK(cuMemcpy2D(&c));
    OK(cuMemcpyAtoA(other, 0, array, 0, 64));
    OK(cuMemcpyAtoH(out, other, 8, 8));
    CHECK_EQ(out[7], 15);
    OK(cuMemcpyHtoA(other, 0, in + 64, 64));
    CUDA_MEMCPY3D_v1 d = {.srcMemoryType = CU_MEMORYTYPE_ARRAY,
                          .srcArray = other,
                          .dstMemoryType = CU_MEMORYTYPE_HOST,
                          .dstHost = out,
                          .dstPitch = 64,
                          .dstHeight = 1,
                          .WidthInBytes = 64,
                          .Height = 1,
                          .Depth = 1};
    OK(cuMemcpy3D(&d));
    CHECK(!memcmp(out, in + 64, 64));
    OK(cuArrayDestroy(array));
    OK(cuArrayDestroy(other));
}

int main(int argc, char **argv) {
    const char *seed = getenv("WEIR_TEST_SEED");
    state = seed ? strtoull(seed, NULL, 0) : (uint64_t)time(NULL) * 2654435761u;
    state = state ? state : 1;
    printf("WEIR_TEST_SEED=%llu\n", (unsigned long long)state);
    start_driver();
    static const struct test tests[] = {
        TEST(random_copies),
        TEST(bad_copies),
        TEST(between_contexts),
        TEST(old_forms),
    };
    int rc = RUN(tests);
    stop_driver();
    return rc;
}
