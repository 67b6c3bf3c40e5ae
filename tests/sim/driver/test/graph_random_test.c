// graph_random_test.c: random graphs, built from nodes and by capture: both compute what the order
// of the nodes says, and the machine's times respect every edge. SEED repeats them.
#define _GNU_SOURCE
#include "test_graph.h"

#include <time.h>

#define GRAPHS 1000u
#define NODES_MAX 24u
#define DEPS_MAX 3u
#define STREAMS 4u

// mix(p, to, a, b, c, k): p[to] = k + 3 p[a] + 5 p[b] + 7 p[c].
static const char mix_kernel[] =
    ".version 6.0\n.target sm_70\n.address_size 64\n"
    ".visible .entry mix(.param .u64 p, .param .u32 to, .param .u32 a, .param .u32 b,\n"
    "  .param .u32 c, .param .u32 k) {\n"
    "  .reg .u64 %rd<4>; .reg .u32 %r<8>;\n"
    "  ld.param.u64 %rd1,[p]; ld.param.u32 %r1,[k];\n"
    "  ld.param.u32 %r2,[a]; mul.wide.u32 %rd2,%r2,4; add.u64 %rd2,%rd1,%rd2;\n"
    "  ld.global.u32 %r3,[%rd2]; mad.lo.u32 %r1,%r3,3,%r1;\n"
    "  ld.param.u32 %r2,[b]; mul.wide.u32 %rd2,%r2,4; add.u64 %rd2,%rd1,%rd2;\n"
    "  ld.global.u32 %r3,[%rd2]; mad.lo.u32 %r1,%r3,5,%r1;\n"
    "  ld.param.u32 %r2,[c]; mul.wide.u32 %rd2,%r2,4; add.u64 %rd2,%rd1,%rd2;\n"
    "  ld.global.u32 %r3,[%rd2]; mad.lo.u32 %r1,%r3,7,%r1;\n"
    "  ld.param.u32 %r2,[to]; mul.wide.u32 %rd2,%r2,4; add.u64 %rd2,%rd1,%rd2;\n"
    "  st.global.u32 [%rd2],%r1; ret; }\n";

enum kind { MIX, SET, COPY, HOST, KINDS };

// A node: what it computes from the results of those that it depends on. Result `NODES_MAX` is
// always zero.
struct plan_node {
    enum kind kind;
    uint32_t constant;
    unsigned deps[DEPS_MAX];
    unsigned dep_count;
};

struct plan {
    unsigned count;
    struct plan_node nodes[NODES_MAX];
};

static CUfunction mix;
static uint32_t *results;  // host memory that kernels reach
static uint64_t seed;

static uint64_t draw(void) {
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed;
}

static void make_plan(struct plan *plan) {
    plan->count = 2 + (unsigned)(draw() % (NODES_MAX - 1));
    for (unsigned i = 0; i < plan->count; i++) {
        struct plan_node *node = &plan->nodes[i];
        *node = (struct plan_node){.kind = draw() % KINDS, .constant = (uint32_t)draw() | 1};
        for (unsigned j = 0; j < DEPS_MAX && i; j++) {
            unsigned dep = (unsigned)(draw() % i);
            bool have = draw() % 3 == 0;
            for (unsigned k = 0; k < node->dep_count; k++)
                have |= node->deps[k] == dep;
            if (!have)
                node->deps[node->dep_count++] = dep;
        }
    }
}

static unsigned dep_of(const struct plan_node *node, unsigned i) {
    return i < node->dep_count ? node->deps[i] : NODES_MAX;
}

static uint32_t combine(const uint32_t *values, const struct plan_node *node) {
    return node->constant + 3 * values[dep_of(node, 0)] + 5 * values[dep_of(node, 1)] +
           7 * values[dep_of(node, 2)];
}

static uint32_t computed(const uint32_t *values, const struct plan_node *node) {
    if (node->kind == SET)
        return node->constant;
    return node->kind == COPY ? values[dep_of(node, 0)] : combine(values, node);
}

// Host functions know their node by its address.
static struct plan current;

static void host_node(void *user) {
    const struct plan_node *node = user;
    results[node - current.nodes] = combine(results, node);
}

static void check_results(void) {
    uint32_t wanted[NODES_MAX + 1] = {0};
    for (unsigned i = 0; i < current.count; i++)
        wanted[i] = computed(wanted, &current.nodes[i]);
    for (unsigned i = 0; i < current.count; i++)
        CHECK_EQ(results[i], wanted[i]);
}

static void run_twice(void) {
    instantiate();
    for (unsigned i = 0; i < 2; i++) {
        memset(results, 0, (NODES_MAX + 1) * 4);
        launch_and_wait();
        check_results();
    }
    drop();
}

// ---- From nodes ----

static CUgraphNode build_node(unsigned i, const CUgraphNode *deps, size_t count) {
    struct plan_node *node = &current.nodes[i];
    CUdeviceptr base = (uintptr_t)results;
    unsigned a = dep_of(node, 0), b = dep_of(node, 1), c = dep_of(node, 2);
    void *args[] = {&base, &i, &a, &b, &c, &node->constant};
    CUDA_KERNEL_NODE_PARAMS kernel = {.func = mix,
                                      .gridDimX = 1,
                                      .gridDimY = 1,
                                      .gridDimZ = 1,
                                      .blockDimX = 1,
                                      .blockDimY = 1,
                                      .blockDimZ = 1,
                                      .kernelParams = args};
    CUDA_HOST_NODE_PARAMS host = {host_node, node};
    CUgraphNode made;
    switch (node->kind) {
    case SET:
        return set_node(deps, count, base + 4 * i, node->constant);
    case COPY: {
        CUDA_MEMCPY3D copy = copy_of(base + 4 * i, base + 4 * a, 4);
        copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
        OK(cuGraphAddMemcpyNode(&made, graph, deps, count, &copy, primary));
        return made;
    }
    case HOST:
        OK(cuGraphAddHostNode(&made, graph, deps, count, &host));
        return made;
    default:
        OK(cuGraphAddKernelNode(&made, graph, deps, count, &kernel));
        return made;
    }
}

static void build(void) {
    CUgraphNode nodes[NODES_MAX], deps[DEPS_MAX];
    OK(cuGraphCreate(&graph, 0));
    for (unsigned i = 0; i < current.count; i++) {
        const struct plan_node *node = &current.nodes[i];
        for (unsigned j = 0; j < node->dep_count; j++)
            deps[j] = nodes[node->deps[j]];
        nodes[i] = build_node(i, deps, node->dep_count);
    }
}

// ---- By capture ----

static CUstream streams[STREAMS];
static CUevent events[NODES_MAX + STREAMS];

static void capture_node(unsigned i, CUstream in) {
    struct plan_node *node = &current.nodes[i];
    CUdeviceptr base = (uintptr_t)results;
    unsigned a = dep_of(node, 0), b = dep_of(node, 1), c = dep_of(node, 2);
    void *args[] = {&base, &i, &a, &b, &c, &node->constant};
    switch (node->kind) {
    case SET:
        OK(cuMemsetD32Async(base + 4 * i, node->constant, 1, in));
        break;
    case COPY:
        OK(cuMemcpyAsync(base + 4 * i, base + 4 * a, 4, in));
        break;
    case HOST:
        OK(cuLaunchHostFunc(in, host_node, node));
        break;
    default:
        launch(mix, 1, 1, in, args);
    }
}

static void capture(void) {
    OK(cuStreamBeginCapture_v2(streams[0], CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    OK(cuEventRecord(events[0], streams[0]));
    for (unsigned i = 1; i < STREAMS; i++)
        OK(cuStreamWaitEvent(streams[i], events[0], 0));
    for (unsigned i = 0; i < current.count; i++) {
        const struct plan_node *node = &current.nodes[i];
        CUstream in = streams[draw() % STREAMS];
        for (unsigned j = 0; j < node->dep_count; j++)
            OK(cuStreamWaitEvent(in, events[node->deps[j]], 0));
        capture_node(i, in);
        OK(cuEventRecord(events[i], in));
    }
    for (unsigned i = 1; i < STREAMS; i++) {
        OK(cuEventRecord(events[NODES_MAX], streams[i]));
        OK(cuStreamWaitEvent(streams[0], events[NODES_MAX], 0));
    }
    OK(cuStreamEndCapture(streams[0], &graph));
}

static void results_agree(void) {
    printf("  seed %llu\n", (unsigned long long)seed);
    fflush(stdout);
    for (unsigned i = 0; i < GRAPHS; i++) {
        make_plan(&current);
        build();
        run_twice();
        capture();
        run_twice();
    }
}

// ---- Times ----

// Each node takes a time of its own, and an event says when it has ended: what it depends on had
// ended by then, and before that time.
static void times_respect_edges(void) {
    printf("  seed %llu\n", (unsigned long long)seed);
    fflush(stdout);
    CUevent ended[NODES_MAX];
    for (unsigned i = 0; i < NODES_MAX; i++)
        OK(cuEventCreate(&ended[i], CU_EVENT_DEFAULT));
    for (unsigned round = 0; round < 50; round++) {
        CUgraphNode nodes[NODES_MAX], deps[DEPS_MAX], record;
        uint64_t cost[NODES_MAX];
        make_plan(&current);
        OK(cuGraphCreate(&graph, 0));
        for (unsigned i = 0; i < current.count; i++) {
            const struct plan_node *node = &current.nodes[i];
            for (unsigned j = 0; j < node->dep_count; j++)
                deps[j] = nodes[node->deps[j]];
            cost[i] = 1000 + draw() % 200000;
            nodes[i] = spin_node(deps, node->dep_count, cost[i]);
            OK(cuGraphAddEventRecordNode(&record, graph, &nodes[i], 1, ended[i]));
        }
        instantiate();
        launch_and_wait();
        for (unsigned i = 0; i < current.count; i++)
            for (unsigned j = 0; j < current.nodes[i].dep_count; j++) {
                float ms;
                OK(cuEventElapsedTime(&ms, ended[current.nodes[i].deps[j]], ended[i]));
                CHECK((double)ms * 1e6 >= (double)cost[i] - 100);
            }
        drop();
    }
    for (unsigned i = 0; i < NODES_MAX; i++)
        OK(cuEventDestroy_v2(ended[i]));
}

int main(int argc, char **argv) {
    start_graphs();
    const char *given = getenv("SEED");
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    seed = given ? strtoull(given, NULL, 10) : (uint64_t)now.tv_nsec | 1;
    CUmodule module;
    OK(cuModuleLoadData(&module, mix_kernel));
    OK(cuModuleGetFunction(&mix, module, "mix"));
    OK(cuMemHostAlloc((void **)&results, 4096, 0));
    for (unsigned i = 0; i < STREAMS; i++)
        OK(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
    for (unsigned i = 0; i < NODES_MAX + STREAMS; i++)
        OK(cuEventCreate(&events[i], CU_EVENT_DISABLE_TIMING));
    static const struct test tests[] = {
        TEST(results_agree),
        TEST(times_respect_edges),
    };
    int rc = RUN(tests);
    stop_driver();
    return rc;
}
