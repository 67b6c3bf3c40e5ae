// mempool_model_test.c: memory pools of the simulated driver under random sequences on several
// streams and threads, against a model. SEED repeats them.
#define _GNU_SOURCE
#include "test_mempool.h"

#include <pthread.h>
#include <time.h>

#define STREAMS 4u
#define LIVE_MAX 40u

struct model {
    CUmemoryPool pool;
    CUstream streams[STREAMS];
    uint64_t seed;
    struct {
        CUdeviceptr at;
        uint64_t bytes;
        unsigned stream;
        uint32_t mark;
    } live[LIVE_MAX];
    unsigned count;
    uint64_t used, used_high;
};

static uint64_t draw(uint64_t *seed) {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return *seed;
}

static uint64_t rounded(uint64_t bytes) {
    return (bytes + GRANULE - 1) / GRANULE * GRANULE;
}

static void model_take(struct model *m) {
    uint64_t bytes = 4 + draw(&m->seed) % (draw(&m->seed) % 8 ? 20000 : 3 * CHUNK);
    unsigned stream = draw(&m->seed) % STREAMS, i = m->count;
    CUresult rc = cuMemAllocFromPoolAsync(&m->live[i].at, bytes, m->pool, m->streams[stream]);
    if (rc == CUDA_ERROR_OUT_OF_MEMORY)
        return;  // by the others; whether it had to be is seen at the end
    CHECK_EQ(rc, CUDA_SUCCESS);
    for (unsigned j = 0; j < m->count; j++)  // no two overlap
        CHECK(m->live[i].at + bytes <= m->live[j].at ||
              m->live[j].at + m->live[j].bytes <= m->live[i].at);
    m->live[i].bytes = bytes;
    m->live[i].stream = stream;
    m->live[i].mark = (uint32_t)draw(&m->seed);
    OK(cuMemsetD32Async(m->live[i].at, m->live[i].mark, bytes / 4, m->streams[stream]));
    m->count++;
    m->used += rounded(bytes);
    m->used_high = m->used > m->used_high ? m->used : m->used_high;
}

// Looks whether the data are still there, and frees.
static void model_give(struct model *m) {
    unsigned i = draw(&m->seed) % m->count;
    CUstream stream = m->streams[m->live[i].stream];
    uint32_t ends[2];
    CUdeviceptr at = m->live[i].at, last = at + (m->live[i].bytes / 4 - 1) * 4;
    OK(cuMemcpyDtoHAsync_v2(&ends[0], at, 4, stream));
    OK(cuMemcpyDtoHAsync_v2(&ends[1], last, 4, stream));
    CHECK_EQ(ends[0], m->live[i].mark);  // pageable memory: the copies are done
    CHECK_EQ(ends[1], m->live[i].mark);
    if (draw(&m->seed) % 4)
        spin_for(draw(&m->seed) % 100000, stream);
    OK(draw(&m->seed) % 8 ? cuMemFreeAsync(at, stream) : cuMemFree_v2(at));
    m->used -= rounded(m->live[i].bytes);
    m->live[i] = m->live[--m->count];
}

static void model_step(struct model *m) {
    uint64_t what = draw(&m->seed) % 100;
    if (what < 50 && m->count < LIVE_MAX)
        model_take(m);
    else if (what < 90 && m->count)
        model_give(m);
    else if (what < 94)
        OK(cuStreamSynchronize(m->streams[draw(&m->seed) % STREAMS]));
    else if (what < 97)
        OK(cuMemPoolTrimTo(m->pool, draw(&m->seed) % (8 * CHUNK)));
    else
        set_bytes(m->pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, draw(&m->seed) % (6 * CHUNK));
}

static void model_begin(struct model *m, uint64_t seed) {
    *m = (struct model){.pool = make_pool(0), .seed = seed};
    for (unsigned i = 0; i < STREAMS; i++)
        m->streams[i] = make_stream();
}

static void model_end(struct model *m) {
    while (m->count)
        model_give(m);
    for (unsigned i = 0; i < STREAMS; i++) {
        OK(cuStreamSynchronize(m->streams[i]));
        OK(cuStreamDestroy_v2(m->streams[i]));
    }
    CHECK_EQ(used(m->pool), 0);
    OK(cuMemPoolTrimTo(m->pool, 0));
    CHECK_EQ(reserved(m->pool), 0);
    OK(cuMemPoolDestroy(m->pool));
}

static uint64_t random_seed(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    const char *given = getenv("SEED");
    uint64_t seed = given ? strtoull(given, NULL, 10) : (uint64_t)now.tv_nsec | 1;
    printf("  seed %llu\n", (unsigned long long)seed);
    fflush(stdout);
    return seed;
}

// After every step the attributes are the model's, and the machine's books what is reserved.
static void one_thread_model(void) {
    uint64_t before = free_bytes();
    struct model m;
    model_begin(&m, random_seed());
    for (unsigned i = 0; i < 3000; i++) {
        model_step(&m);
        uint64_t now = reserved(m.pool);
        CHECK_EQ(used(m.pool), m.used);
        CHECK_EQ(attribute(m.pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH), m.used_high);
        CHECK_EQ(now % CHUNK, 0);
        CHECK(now >= m.used);
        CHECK(attribute(m.pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) >= now);
        CHECK_EQ(before - free_bytes(), now);
    }
    model_end(&m);
    CHECK_EQ(free_bytes(), before);
}

static void *model_thread(void *seed) {
    struct model m;
    OK(cuCtxSetCurrent(primary));
    model_begin(&m, (uint64_t)(uintptr_t)seed);
    for (unsigned i = 0; i < 500; i++) {
        model_step(&m);
        CHECK_EQ(used(m.pool), m.used);
        CHECK_EQ(reserved(m.pool) % CHUNK, 0);
    }
    model_end(&m);
    return NULL;
}

static void many_threads_model(void) {
    pthread_t threads[6];
    uint64_t before = free_bytes(), seed = random_seed();
    for (unsigned i = 0; i < 6; i++)
        CHECK(!pthread_create(&threads[i], NULL, model_thread,
                              (void *)(uintptr_t)(seed * (2 * i + 1) | 1)));
    for (unsigned i = 0; i < 6; i++)
        CHECK(!pthread_join(threads[i], NULL));
    OK(cuCtxSynchronize());
    CHECK_EQ(free_bytes(), before);
}

// One pool, one stream each: pairs in great number leave nothing behind.
static void *pair_thread(void *pool) {
    OK(cuCtxSetCurrent(primary));
    CUstream stream = make_stream();
    for (unsigned i = 0; i < 2000; i++) {
        CUdeviceptr at = take(pool, 1 + i % 5000, stream);
        OK(cuMemFreeAsync(at, stream));
    }
    OK(cuStreamSynchronize(stream));
    OK(cuStreamDestroy_v2(stream));
    return NULL;
}

static void pairs(void) {
    pthread_t threads[8];
    uint64_t before = free_bytes();
    CUmemoryPool pool = make_pool(0);
    for (unsigned i = 0; i < 8; i++)
        CHECK(!pthread_create(&threads[i], NULL, pair_thread, pool));
    for (unsigned i = 0; i < 8; i++)
        CHECK(!pthread_join(threads[i], NULL));
    CHECK(attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) <= 8 * CHUNK);
    CHECK_EQ(used(pool), 0);
    OK(cuCtxSynchronize());
    OK(cuMemPoolDestroy(pool));
    CHECK_EQ(free_bytes(), before);
}

int main(int argc, char **argv) {
    start_driver();
    static const struct test tests[] = {
        TEST(one_thread_model),
        TEST(many_threads_model),
        TEST(pairs),
    };
    int rc = RUN(tests);
    stop_driver();
    return rc;
}
