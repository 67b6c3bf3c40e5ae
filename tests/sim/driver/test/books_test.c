// books_test.c: random sequences of whatever takes device memory by way of contexts: contexts and
// green contexts, modules, libraries, arrays, mipmapped arrays, limits. After each call the card's
// free bytes are what a model says, and whether a call fits is what the model says; at the end all
// is back. The seed is printed; WEIR_TEST_SEED repeats it.
#define _GNU_SOURCE
#include "test_driver.h"

#include <time.h>

#define CONTEXTS 4
#define ITEMS 60
#define LIBRARIES 4
#define CARD (64 * MIB)
#define CONTEXT_BYTES (2 * MIB)

static uint64_t state;

static uint32_t below(uint32_t bound) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return bound ? (uint32_t)((state >> 11) % bound) : 0;
}

static uint64_t granules(uint64_t bytes) {
    return (bytes + SIM_GRANULE - 1) / SIM_GRANULE * SIM_GRANULE;
}

// ---- The model ----

enum kind { NOTHING, MODULE, ARRAY, MIPMAP, PLAIN };

struct item {
    enum kind kind;
    uint64_t bytes;
    union {
        CUmodule module;
        CUarray array;
        CUmipmappedArray mipmap;
        CUdeviceptr plain;
    };
};

struct context {
    CUcontext handle;  // NULL: none
    CUgreenCtx green;
    CUdevice device;
    struct item items[ITEMS];
    uint64_t limits[3];  // what each takes
    bool has[LIBRARIES];
};

static struct context contexts[CONTEXTS];
static struct {
    CUlibrary handle;  // NULL: none
    uint64_t bytes;
} libraries[LIBRARIES];
static uint64_t used[2], standing[2];  // by us, and before the test
static unsigned given, refused;

static void expect(const struct context *c, CUresult rc, uint64_t bytes) {
    bool fits = standing[c->device] + used[c->device] + bytes <= CARD;
    CHECK_EQ(rc, fits ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
    if (fits)
        used[c->device] += bytes;
    *(fits ? &given : &refused) += 1;
}

static void compare(void) {
    for (CUdevice device = 0; device < 2; device++) {
        size_t free_now, total;
        CUcontext context;
        OK(cuDevicePrimaryCtxRetain(&context, device));
        OK(cuCtxPushCurrent_v2(context));
        OK(cuMemGetInfo_v2(&free_now, &total));
        OK(cuCtxPopCurrent_v2(NULL));
        OK(cuDevicePrimaryCtxRelease_v2(device));
        CHECK_EQ(CARD - free_now, standing[device] + used[device]);
    }
}

// ---- Code ----

// A text of random length with some variables; what it takes.
static uint64_t write_code(char *text, size_t room) {
    static const char head[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
                               ".visible .entry nothing() { ret; }\n";
    size_t at = sizeof head - 1, variables = below(5);
    uint64_t bytes = 0;
    memcpy(text, head, at);
    for (size_t i = 0; i < variables; i++) {
        unsigned size = 1 + below(below(4) ? 2000 : 2000000);
        const char *space = below(3) ? "global" : "const";
        at += (size_t)snprintf(text + at, room - at, ".visible .%s .align 4 .b8 v%zu[%u];\n", space,
                               i, size);
        bytes += granules(size);
    }
    size_t comment = below(3000);
    at += (size_t)snprintf(text + at, room - at, "//");
    memset(text + at, 'x', comment);
    at += comment;
    text[at] = 0;
    return bytes + granules(at);
}

static char text[8192];

// ---- Calls ----

static struct item *free_item(struct context *c) {
    struct item *item = &c->items[below(ITEMS)];
    return item->kind == NOTHING ? item : NULL;
}

static void make_item(struct context *c, struct item *item) {
    *item = (struct item){.kind = (enum kind)(1 + below(4))};
    CUDA_ARRAY3D_DESCRIPTOR d = {
        1 + below(700), below(2) ? 1 + below(700) : 0, 0, CU_AD_FORMAT_FLOAT, 1u << below(3), 0};
    uint64_t texel = 4 * d.NumChannels, sum = 0, rows = d.Height ? d.Height : 1;
    CUresult rc = CUDA_SUCCESS;
    if (item->kind == MODULE) {
        item->bytes = write_code(text, sizeof text);
        rc = cuModuleLoadData(&item->module, text);
    } else if (item->kind == ARRAY) {
        item->bytes = granules(d.Width * rows * texel);
        rc = cuArray3DCreate_v2(&item->array, &d);
    } else if (item->kind == MIPMAP) {
        for (unsigned i = 0; i == 0 || (i < 3 && (d.Width >> i || d.Height >> i)); i++)
            sum += (d.Width >> i ? d.Width >> i : 1) * (rows >> i ? rows >> i : 1) * texel;
        item->bytes = granules(sum);
        rc = cuMipmappedArrayCreate(&item->mipmap, &d, 3);
    } else {
        size_t bytes = 1 + below(2000000);
        item->bytes = granules(bytes);
        rc = cuMemAlloc_v2(&item->plain, bytes);
    }
    expect(c, rc, item->bytes);
    if (rc)
        item->kind = NOTHING;
}

static void drop_item(struct context *c, struct item *item) {
    if (item->kind == MODULE)
        OK(cuModuleUnload(item->module));
    else if (item->kind == ARRAY)
        OK(cuArrayDestroy(item->array));
    else if (item->kind == MIPMAP)
        OK(cuMipmappedArrayDestroy(item->mipmap));
    else
        OK(cuMemFree_v2(item->plain));
    used[c->device] -= item->bytes;
    item->kind = NOTHING;
}

static void set_limit(struct context *c) {
    static const size_t standard[] = {1024, 1 << 20, 8 << 20};
    unsigned limit = below(3);
    size_t value = limit ? below(16 << 20) : below(1200);
    uint64_t extra = value > standard[limit] ? value - standard[limit] : 0;
    uint64_t bytes = granules(limit ? extra : extra * 56 * 2048), before = c->limits[limit];
    used[c->device] -= before;
    CUresult rc = cuCtxSetLimit((CUlimit)limit, value);
    expect(c, rc, bytes);
    if (rc)
        used[c->device] += before;
    else
        c->limits[limit] = bytes;
}

static void use_library(struct context *c) {
    unsigned i = below(LIBRARIES);
    CUmodule module;
    if (!libraries[i].handle) {
        libraries[i].bytes = write_code(text, sizeof text);
        OK(cuLibraryLoadData(&libraries[i].handle, text, NULL, NULL, 0, NULL, NULL, 0));
    } else if (below(3)) {
        CUresult rc = cuLibraryGetModule(&module, libraries[i].handle);
        expect(c, rc, c->has[i] ? 0 : libraries[i].bytes);
        c->has[i] |= !rc;
    } else {
        OK(cuLibraryUnload(libraries[i].handle));
        libraries[i].handle = NULL;
        for (unsigned k = 0; k < CONTEXTS; k++) {
            if (contexts[k].handle && contexts[k].has[i])
                used[contexts[k].device] -= libraries[i].bytes;
            contexts[k].has[i] = false;
        }
    }
}

static void make_context(struct context *c) {
    *c = (struct context){.device = (CUdevice)below(2)};
    CUresult rc;
    if (below(3)) {
        rc = cuCtxCreate_v2(&c->handle, 0, c->device);
        if (!rc)
            OK(cuCtxPopCurrent_v2(NULL));
    } else {
        CUdevResource resource;
        CUdevResourceDesc description;
        OK(cuDeviceGetDevResource(c->device, &resource, CU_DEV_RESOURCE_TYPE_SM));
        OK(cuDevResourceGenerateDesc(&description, &resource, 1));
        rc = cuGreenCtxCreate(&c->green, description, c->device, CU_GREEN_CTX_DEFAULT_STREAM);
        if (!rc)
            OK(cuCtxFromGreenCtx(&c->handle, c->green));
    }
    expect(c, rc, CONTEXT_BYTES);
    if (rc)
        c->handle = NULL;
}

// All that a context has goes with it.
static void drop_context(struct context *c) {
    used[c->device] -= CONTEXT_BYTES + c->limits[0] + c->limits[1] + c->limits[2];
    for (unsigned i = 0; i < ITEMS; i++)
        if (c->items[i].kind)
            used[c->device] -= c->items[i].bytes;
    for (unsigned i = 0; i < LIBRARIES; i++)
        if (c->has[i])
            used[c->device] -= libraries[i].bytes;
    OK(c->green ? cuGreenCtxDestroy(c->green) : cuCtxDestroy_v2(c->handle));
    c->handle = NULL;
}

static void random_call(void) {
    struct context *c = &contexts[below(CONTEXTS)];
    if (!c->handle) {
        make_context(c);
        return;
    }
    if (below(60) == 0) {
        drop_context(c);
        return;
    }
    OK(cuCtxPushCurrent_v2(c->handle));
    struct item *item = &c->items[below(ITEMS)];
    unsigned what = below(10);
    if (what == 0)
        set_limit(c);
    else if (what == 1)
        use_library(c);
    else if (item->kind)
        drop_item(c, item);
    else if ((item = free_item(c)))
        make_item(c, item);
    OK(cuCtxPopCurrent_v2(NULL));
}

static void random_calls(void) {
    CUcontext other;
    OK(cuDevicePrimaryCtxRetain(&other, 1));  // so that asking for its free bytes costs nothing
    standing[0] = CARD - free_bytes();
    standing[1] = CONTEXT_BYTES;
    compare();
    for (unsigned i = 0; i < 6000; i++) {
        random_call();
        compare();
    }
    printf("  %u calls given, %u refused\n", given, refused);
    CHECK(given > 1000 && refused > 50);
    for (unsigned i = 0; i < CONTEXTS; i++)
        if (contexts[i].handle)
            drop_context(&contexts[i]);
    for (unsigned i = 0; i < LIBRARIES; i++)
        if (libraries[i].handle)
            OK(cuLibraryUnload(libraries[i].handle));
    CHECK_EQ(used[0], 0);
    CHECK_EQ(used[1], 0);
    compare();
    OK(cuDevicePrimaryCtxRelease_v2(1));
}

int main(int argc, char **argv) {
    const char *seed = getenv("WEIR_TEST_SEED");
    state = seed ? strtoull(seed, NULL, 0) : (uint64_t)time(NULL) * 2654435761u;
    state = state ? state : 1;
    printf("WEIR_TEST_SEED=%llu\n", (unsigned long long)state);
    unsetenv("CUDA_MODULE_LOADING");
    start_driver();
    static const struct test tests[] = {
        TEST(random_calls),
    };
    int rc = RUN(tests);
    stop_driver();
    return rc;
}
