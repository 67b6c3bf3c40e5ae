// flow_knot.c: loads whose submitted work waits for work that they submit later, so that a drain
// between the two comes to nothing by itself.
//
// Of each round the first part is submitted, `gap` us go by, then the second, and all is waited
// for; a round counts as one launch. Kinds of knot:
//   1  kernels on two GPUs wait for each other: GPU `gpu` and the next one
//   2  a kernel waits for a write of memory that follows a kernel of another stream
//   3  a host function wants a lock that another thread holds while it launches
//   4  a graph is captured (in `mode`) while other threads launch, and, where the mode lets them,
//      query events
#define _GNU_SOURCE
#include "flow.h"

enum { KNOT_GPUS = 1, KNOT_WRITE = 2, KNOT_LOCK = 3, KNOT_CAPTURE = 4, CAPTURED = 4 };

// What a round is made of: two places, which may be the same, a stream and a word in each.
struct knot {
    struct act *act;
    struct place *here, *there;
    CUstream first, second;
    CUdeviceptr words;  // two
    pthread_mutex_t lock;
    pthread_t other;
};

static bool at(struct knot *k, const struct place *place) {
    return flow_good(k->act, cuCtxSetCurrent(place->context));
}

static bool spin(struct knot *k, const struct place *place, CUstream stream) {
    return flow_good(k->act, flow_spin(place, stream, false, k->act->load.cost));
}

static bool await_word(struct knot *k, CUstream stream, unsigned word, uint32_t value) {
    return flow_good(k->act, cuStreamWaitValue32_v2(stream, k->words + word * 4, value,
                                                    CU_STREAM_WAIT_VALUE_GEQ));
}

static bool write_word(struct knot *k, CUstream stream, unsigned word, uint32_t value) {
    return flow_good(k->act, cuStreamWriteValue32_v2(stream, k->words + word * 4, value, 0));
}

static bool done(struct knot *k, CUstream stream) {
    return flow_good(k->act, cuStreamSynchronize(stream));
}

// The first GPU's kernel waits for the second's, and what the second does then for the first's.
static bool round_of_gpus(struct knot *k, uint32_t i) {
    if (!await_word(k, k->first, 0, i) || !spin(k, k->here, k->first) ||
        !write_word(k, k->first, 1, i))
        return false;
    flow_sleep_us(k->act->load.gap);
    bool good = at(k, k->there) && spin(k, k->there, k->second) && write_word(k, k->second, 0, i) &&
                await_word(k, k->second, 1, i) && spin(k, k->there, k->second) &&
                done(k, k->second);
    return good && at(k, k->here) && done(k, k->first);
}

static bool round_of_writes(struct knot *k, uint32_t i) {
    if (!await_word(k, k->first, 0, i) || !spin(k, k->here, k->first))
        return false;
    flow_sleep_us(k->act->load.gap);
    return spin(k, k->here, k->second) && write_word(k, k->second, 0, i) && done(k, k->first);
}

static void need_lock(void *knot) {
    struct knot *k = knot;
    pthread_mutex_lock(&k->lock);
    pthread_mutex_unlock(&k->lock);
}

static bool round_of_locks(struct knot *k) {
    return spin(k, k->here, k->first) &&
           flow_good(k->act, cuLaunchHostFunc(k->first, need_lock, k)) &&
           spin(k, k->here, k->first) && done(k, k->first);
}

// The thread that launches under the lock.
static void *lock_and_launch(void *knot) {
    struct knot *k = knot;
    bool good = at(k, k->here);
    while (good && !flow_stops(k->act)) {
        pthread_mutex_lock(&k->lock);
        good = spin(k, k->here, k->second);
        pthread_mutex_unlock(&k->lock);
        flow_sleep_us(k->act->load.gap);
    }
    return NULL;
}

static bool round_of_captures(struct knot *k) {
    struct act *act = k->act;
    CUgraph graph;
    CUgraphExec exec;
    if (!flow_good(act, cuStreamBeginCapture_v2(k->first, (CUstreamCaptureMode)act->load.mode)))
        return false;
    for (int i = 0; i < CAPTURED; i++)
        spin(k, k->here, k->first);
    flow_sleep_us(act->load.gap);
    return flow_good(act, cuStreamEndCapture(k->first, &graph)) &&
           flow_good(act, cuGraphInstantiateWithFlags(&exec, graph, 0)) &&
           flow_good(act, cuGraphLaunch(exec, k->first)) && done(k, k->first) &&
           flow_good(act, cuGraphExecDestroy(exec)) && flow_good(act, cuGraphDestroy(graph));
}

// The thread beside a capture: it never waits for the GPU, which a capture of the whole process
// forbids, as it forbids asking for an event.
static void *launch_and_watch(void *knot) {
    struct knot *k = knot;
    CUevent event;
    bool asks = k->act->load.mode != CU_STREAM_CAPTURE_MODE_GLOBAL;
    bool good = at(k, k->here) && flow_good(k->act, cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    while (good && !flow_stops(k->act)) {
        good = spin(k, k->here, k->second) && flow_good(k->act, cuEventRecord(event, k->second));
        for (int i = 0; i < 8 && good; i++) {
            CUresult code = asks ? cuEventQuery(event) : CUDA_SUCCESS;
            good = code == CUDA_ERROR_NOT_READY || flow_good(k->act, code);
            flow_sleep_us(k->act->load.cost / 4000);  // twice as long in all as a kernel takes
        }
    }
    return NULL;
}

static bool prepare(struct knot *k) {
    struct act *act = k->act;
    bool good =
        flow_good(act, cuMemAlloc_v2(&k->words, 8)) &&
        flow_good(act, cuMemsetD32_v2(k->words, 0, 2)) &&
        flow_good(act, cuStreamCreate(&k->first, CU_STREAM_NON_BLOCKING)) && at(k, k->there) &&
        flow_good(act, cuStreamCreate(&k->second, CU_STREAM_NON_BLOCKING)) && at(k, k->here);
    if (good && act->load.knot == KNOT_LOCK)
        good = !pthread_create(&k->other, NULL, lock_and_launch, k);
    if (good && act->load.knot == KNOT_CAPTURE)
        good = !pthread_create(&k->other, NULL, launch_and_watch, k);
    return good;
}

static bool play_round(struct knot *k, uint32_t i) {
    switch (k->act->load.knot) {
    case KNOT_GPUS:
        return round_of_gpus(k, i);
    case KNOT_WRITE:
        return round_of_writes(k, i);
    case KNOT_LOCK:
        return round_of_locks(k);
    default:
        return round_of_captures(k);
    }
}

void flow_knot(struct act *act) {
    struct place *here = &places[act->load.gpu];
    struct place *there = act->load.knot == KNOT_GPUS ? here + 1 : here;
    struct knot k = {.act = act, .here = here, .there = there, .lock = PTHREAD_MUTEX_INITIALIZER};
    bool good = prepare(&k);
    for (uint32_t i = 1; good && !flow_stops(act); i++) {
        uint64_t begun = flow_now_ns();
        good = play_round(&k, i);
        if (good)
            flow_count(act, begun);
    }
    if (!good)
        __atomic_store_n(&act->stop, true, __ATOMIC_RELEASE);
    if (k.other)
        pthread_join(k.other, NULL);
}
