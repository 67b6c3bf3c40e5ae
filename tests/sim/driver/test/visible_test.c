// visible_test.c: CUDA_VISIBLE_DEVICES. Each list is tried by a child of its own.
#define _GNU_SOURCE
#include "../cuda_abi.h"
#include "test.h"
#include "test_machine.h"

#include <sys/wait.h>
#include <unistd.h>

#define OK(call) CHECK_EQ(call, CUDA_SUCCESS)
#define GPUS 4

static struct sim_machine *machine;

// A list, and the GPUs of the machine that it makes the devices. Their UUIDs begin with GPU-10,
// GPU-11, GPU-1212 and GPU-1213.
static const struct {
    const char *list;
    int count, cards[GPUS];
} cases[] = {
    {"0,1,2,3", 4, {0, 1, 2, 3}},
    {"3", 1, {3}},
    {"2,0", 2, {2, 0}},
    {" 1 , 3 ", 2, {1, 3}},
    {"+1,2rest", 2, {1, 2}},
    {"1,4,0", 1, {1}},
    {"1,-1,0", 1, {1}},
    {"1,,0", 1, {1}},
    {"1,", 1, {1}},
    {"4294967296", 0, {0}},
    {"1,2,1", 0, {0}},
    {"1,2,4,1", 2, {1, 2}},
    {"-1", 0, {0}},
    {"", 0, {0}},
    {" ", 0, {0}},
    {"none", 0, {0}},
    {"GPU-11111111-1111-1111-1111-111111111111", 1, {1}},
    {"GPU-11111111-1111-1111-1111-1111111111111", 0, {0}},
    {"GPU-11,GPU-10101010-1", 2, {1, 0}},
    {"GPU-11,GPU-12", 1, {1}},
    {"GPU-1212,GPU-1213,GPU-1", 2, {2, 3}},
    {"GPU-11,0", 2, {1, 0}},
    {"GPU-11,0,GPU-111", 0, {0}},
    {"GPU-", 0, {0}},
    {"gpu-11", 0, {0}},
};

// What a GPU of the machine has in use must be seen on it alone.
static void use(int card, CUdevice device) {
    CUcontext context;
    CUdeviceptr at;
    CUdevice same;
    size_t left, total;
    char bus[16];
    int ordinal;
    OK(cuCtxCreate_v2(&context, 0, device));
    OK(cuMemAlloc_v2(&at, MIB));
    for (unsigned i = 0; i < GPUS; i++) {
        struct sim_gpu_state state;
        CHECK_EQ(sim_machine_gpu(machine, i, &state), 0);
        CHECK_EQ(state.used_bytes, i == (unsigned)card ? 3 * MIB : 0);
    }
    OK(cuMemGetInfo_v2(&left, &total));
    CHECK_EQ(total, (64 + (unsigned)card) * MIB);
    CHECK_EQ(left, total - 3 * MIB);
    OK(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, at));
    CHECK_EQ(ordinal, device);
    OK(cuMemsetD8_v2(at, 1, MIB));
    OK(cuCtxGetDevice(&same));
    CHECK_EQ(same, device);
    OK(cuDeviceGetPCIBusId(bus, sizeof bus, device));
    OK(cuDeviceGetByPCIBusId(&same, bus));
    CHECK_EQ(same, device);
    OK(cuCtxDestroy_v2(context));
}

static void see(unsigned number) {
    int count, hidden = GPUS;
    CUdevice device;
    CUuuid uuid;
    setenv("CUDA_VISIBLE_DEVICES", cases[number].list, 1);
    OK(cuDriverGetVersion(&count));  // which maps the machine before
    CHECK_EQ(cuInit(0), cases[number].count ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE);
    if (!cases[number].count)
        return;
    OK(cuDeviceGetCount(&count));
    CHECK_EQ(count, cases[number].count);
    CHECK_EQ(cuDeviceGet(&device, count), CUDA_ERROR_INVALID_DEVICE);
    for (int i = 0; i < count; i++) {
        OK(cuDeviceGetUuid(&uuid, i));
        CHECK(!memcmp(uuid.bytes, sim_machine_config(machine)->gpus[cases[number].cards[i]].uuid,
                      sizeof uuid.bytes));
        hidden = cases[number].cards[i] == 0 ? 0 : hidden;
        use(cases[number].cards[i], i);
    }
    CHECK_EQ(cuDeviceGetByPCIBusId(&device, "3b:0.0"),
             hidden ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS);
}

static void lists(void) {
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int status;
        pid_t child = fork();
        CHECK(child >= 0);
        if (!child) {
            // It looks at the machine by a mapping of its own: a fork takes none along.
            char path[4096];
            CHECK_EQ(sim_machine_path(path, sizeof path), 0);
            CHECK_EQ(sim_machine_open(path, &machine), 0);
            see(i);
            _exit(0);
        }
        CHECK_EQ(waitpid(child, &status, 0), child);
        if (status)
            fprintf(stderr, "CUDA_VISIBLE_DEVICES='%s'\n", cases[i].list);
        CHECK_EQ(status, 0);
    }
}

int main(int argc, char **argv) {
    struct sim_config config = test_config();
    config.gpu_count = GPUS;
    for (unsigned i = 0; i < GPUS; i++) {
        config.gpus[i] = config.gpus[0];
        memset(config.gpus[i].uuid, 0x10 + (int)(i < 3 ? i : 2), sizeof config.gpus[i].uuid);
        config.gpus[i].pci_bus = 0x3b + i;
        config.gpus[i].memory_bytes = (64 + i) * MIB;
    }
    config.gpus[3].uuid[1] = 0x13;
    sim_machine_close(test_machine(&config));
    static const struct test tests[] = {TEST(lists)};
    int rc = RUN(tests);
    test_machine_remove();
    return rc;
}
