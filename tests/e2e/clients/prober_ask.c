// prober_ask.c: what the driver says of one allocation, and what it lets one do with it. Numbers
// that an address or the order of calls is in are given relative to the allocation's own, so that
// answers about two allocations can be compared.
#include "prober.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const struct {
    CUpointer_attribute attribute;
    const char *name;
    size_t bytes;
} attributes[] = {
    {CU_POINTER_ATTRIBUTE_CONTEXT, "context", 8},
    {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, "type", 4},
    {CU_POINTER_ATTRIBUTE_DEVICE_POINTER, "device-pointer", 8},
    {CU_POINTER_ATTRIBUTE_HOST_POINTER, "host-pointer", 8},
    {CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, "sync", 4},
    {CU_POINTER_ATTRIBUTE_BUFFER_ID, "id", 8},
    {CU_POINTER_ATTRIBUTE_IS_MANAGED, "managed", 4},
    {CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, "ordinal", 4},
    {CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, "start", 8},
    {CU_POINTER_ATTRIBUTE_RANGE_SIZE, "size", 8},
    {CU_POINTER_ATTRIBUTE_MAPPED, "mapped", 4},
    {CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, "handle-types", 8},
    {CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE, "rdma", 4},
    {CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, "access", 4},
    {CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, "pool", 8},
};

enum { COUNT = sizeof(attributes) / sizeof(*attributes) };

// The value, or how it lies to what is known.
static void say(unsigned i, CUresult code, uint64_t value, const struct memory *memory) {
    CUcontext context = NULL;
    cuCtxGetCurrent(&context);
    printf(" %s=", attributes[i].name);
    if (code)
        printf("error%d", code);
    else if (attributes[i].attribute == CU_POINTER_ATTRIBUTE_BUFFER_ID)
        printf(value ? "some" : "none");
    else if (value && value == (uint64_t)(uintptr_t)context)
        printf("context");
    else if (value >= memory->at && value < memory->at + memory->bytes)
        printf("+%" PRIu64, (uint64_t)(value - memory->at));
    else
        printf("%" PRIu64, value);
}

// All attributes of an address in the middle, one by one, then together.
static void ask_attributes(const struct memory *memory) {
    uint64_t values[COUNT] = {0};
    void *pointers[COUNT];
    CUpointer_attribute names[COUNT];
    CUdeviceptr middle = memory->at + memory->bytes / 2;
    printf("ok");
    for (unsigned i = 0; i < COUNT; i++) {
        uint64_t value = 0;
        CUresult code = cuPointerGetAttribute(&value, attributes[i].attribute, middle);
        say(i, code, value, memory);
        names[i] = attributes[i].attribute;
        pointers[i] = &values[i];
    }
    CUresult code = cuPointerGetAttributes(COUNT, names, pointers, middle);
    printf(" together=%d", code);
    for (unsigned i = 0; i < COUNT; i++)
        say(i, code, values[i], memory);
    printf("\n");
}

static void ask_legacy(const struct memory *memory) {
    unsigned capable = 2;
    CUresult code = cuPointerGetAttribute(&capable, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
                                          memory->at);
    printf("ok %d %u\n", code, capable);
}

static void ask_range(const struct memory *memory) {
    CUdeviceptr base = 0;
    size_t bytes = 0;
    CUresult code = cuMemGetAddressRange_v2(&base, &bytes, memory->at + memory->bytes - 1);
    printf("ok %d %" PRId64 " %zu\n", code, (int64_t)(base - memory->at), bytes);
}

// What only managed memory can.
static void ask_managed(const struct memory *memory) {
    CUmemLocation there = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
    uint64_t data[4] = {0};
    size_t sizes[1] = {4};
    void *pointers[1] = {data};
    printf("ok prefetch=%d", cuMemPrefetchAsync(memory->at, memory->bytes, 0, NULL));
    printf(" prefetch2=%d", cuMemPrefetchAsync_v2(memory->at, memory->bytes, there, 0, NULL));
    for (int advice = 1; advice <= 6; advice++)
        printf(" advice%d=%d", advice, cuMemAdvise(memory->at, memory->bytes, advice, 0));
    printf(" advice2=%d", cuMemAdvise_v2(memory->at, memory->bytes, 3, there));
    for (int attribute = 1; attribute <= 4; attribute++)
        printf(" range%d=%d", attribute,
               cuMemRangeGetAttribute(data, 4, attribute, memory->at, memory->bytes));
    int first = 1;
    printf(" ranges=%d",
           cuMemRangeGetAttributes(pointers, sizes, &first, 1, memory->at, memory->bytes));
    printf(" attach=%d\n", cuStreamAttachMemAsync(NULL, memory->at, 0, 1));
}

static void ask_ipc(const struct memory *memory) {
    CUipcMemHandle handle;
    prober_answer(cuIpcGetMemHandle(&handle, memory->at));
}

static void ask_handle(const struct memory *memory) {
    int fd = -1;
    prober_answer(cuMemGetHandleForAddressRange(&fd, memory->at, memory->bytes,
                                                CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
}

static void ask_wait_value(const struct memory *memory) {
    prober_answer(cuStreamWaitValue32_v2(NULL, memory->at, 0, 0));  // >= 0: holds
}

static void ask_write_value(const struct memory *memory) {
    prober_answer(cuStreamWriteValue64_v2(NULL, memory->at, 1, 0));
}

static void ask_batch(const struct memory *memory) {
    CUstreamBatchMemOpParams op;
    memset(&op, 0, sizeof op);
    op.value.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    op.value.address = memory->at;
    prober_answer(cuStreamBatchMemOp_v2(NULL, 1, &op, 0));
}

// ---- Uses of all of it that are no kernels ----

static void set(const struct memory *memory) {
    CUresult code = cuMemsetD8_v2(memory->at, 7, memory->bytes);
    prober_answer(code ? code : cuCtxSynchronize());
}

// A copy from the host in one of four streams, in turn, that nobody waits for.
static void push(const struct memory *memory) {
    static CUstream streams[4];
    static char block[1 << 20];
    static unsigned turn;
    CUstream *stream = &streams[turn++ % 4];
    CUresult code = *stream ? CUDA_SUCCESS : cuStreamCreate(stream, CU_STREAM_NON_BLOCKING);
    for (size_t from = 0; from + sizeof(block) <= memory->bytes && !code; from += sizeof(block))
        code = cuMemcpyHtoDAsync_v2(memory->at + from, block, sizeof(block), *stream);
    prober_answer(code);
}

const struct prober_command prober_asks[] = {
    {"set", set},
    {"push", push},
    {"attributes", ask_attributes},
    {"legacy", ask_legacy},
    {"range", ask_range},
    {"managed", ask_managed},
    {"ipc", ask_ipc},
    {"handle", ask_handle},
    {"wait-value", ask_wait_value},
    {"write-value", ask_write_value},
    {"batch", ask_batch},
    {NULL, NULL},
};
