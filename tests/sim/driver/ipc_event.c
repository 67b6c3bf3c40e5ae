// ipc_event.c: events that several processes record and wait for.
//
// Such an event is a signal of the machine (signals.c there): a word that says which operation
// recorded it last, of whatever process. That operation ends once the data before it have been
// moved, not just when its time has come: so whoever has waited for its end finds the data of the
// other process. It is waited for by looking at it again and again, as nothing wakes another
// process.
#include "driver.h"

#include <string.h>
#include <time.h>

#define MAGIC 0x45495357u  // "WSIE"
// Between two looks; it doubles from the first to the last.
#define PAUSE_NS_MIN 20000u
#define PAUSE_NS_MAX 1000000u

// What a handle holds.
struct event_name {
    uint32_t magic;
    uint32_t reserved;
    struct sim_signal_name signal;
};

struct look {
    struct sim_dep work;
    uint64_t pause_ns;
};

static bool at_once(struct task *task, uint64_t *wait_ns) {
    (void)task, (void)wait_ns;
    return true;
}

static bool ended(struct task *task, uint64_t *wait_ns) {
    struct look *look = (struct look *)task->params;
    if (sim_work_ended(driver.machine, look->work))
        return true;
    *wait_ns = look->pause_ns;
    if (look->pause_ns < PAUSE_NS_MAX)
        look->pause_ns *= 2;
    return false;
}

static CUresult submit_step(struct stream *stream, bool (*step)(struct task *, uint64_t *),
                            const struct look *look, uint64_t *seq) {
    struct task *task = task_make(TASK_STEP, stream->context, sizeof *look);
    if (!task)
        return CUDA_ERROR_OUT_OF_MEMORY;
    task->step.step = step;
    memcpy(task->params, look, sizeof *look);
    CUresult rc = submit(stream, SIM_ENGINE_HOST, 0, task, NULL, seq);
    worker_wake();
    return rc;
}

// The operation that recorded it last; seq 0: none, or the event is gone.
static struct sim_dep recording_of(const struct event *event) {
    struct sim_dep work = {0, 0};
    return sim_signal_look(driver.machine, &event->signal, &work) ? (struct sim_dep){0, 0} : work;
}

CUresult ipc_event_record(struct event *event, struct stream *stream) {
    struct context *context = stream->context;
    struct look look = {.pause_ns = PAUSE_NS_MIN};
    uint64_t seq, id = event->id;
    CUresult rc = submit_step(stream, at_once, &look, &seq);
    if (rc)
        return rc;
    if (!event->object.live || event->id != id ||
        sim_signal_record(driver.machine, &event->signal, context->machine, seq))
        return CUDA_ERROR_INVALID_HANDLE;  // it is gone, here or where it was made
    event_recorded(event, context, seq);
    return CUDA_SUCCESS;
}

CUresult ipc_event_await(struct event *event, struct stream *stream) {
    struct look look = {.work = recording_of(event), .pause_ns = PAUSE_NS_MIN};
    uint64_t seq;
    if (driver.by_machine[look.work.context] && look.work.seq)  // ours
        return submit(stream, SIM_ENGINE_NONE, 0, NULL, &look.work, &seq);
    if (sim_work_ended(driver.machine, look.work))
        return CUDA_SUCCESS;
    return submit_step(stream, ended, &look, &seq);
}

static CUresult query(struct sim_dep work) {
    struct context *context = driver.by_machine[work.context];
    if (context && work.seq)
        return op_query(context, work.seq);
    return sim_work_ended(driver.machine, work) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult ipc_event_query(struct event *event) {
    return query(recording_of(event));
}

CUresult ipc_event_synchronize(struct event *event) {
    struct sim_dep work = recording_of(event);
    struct context *context = driver.by_machine[work.context];
    if (context && work.seq)
        return op_wait(context, work.seq);
    uint64_t pause_ns = PAUSE_NS_MIN;
    CUresult rc;
    while ((rc = query(work)) == CUDA_ERROR_NOT_READY) {
        pthread_mutex_unlock(&driver.lock);
        nanosleep(&(struct timespec){.tv_nsec = (long)pause_ns}, NULL);
        pthread_mutex_lock(&driver.lock);
        pause_ns = pause_ns < PAUSE_NS_MAX ? pause_ns * 2 : pause_ns;
    }
    return rc;
}

// ---- Handles ----

API cuIpcGetEventHandle(CUipcEventHandle *handle, CUevent event_handle) {
    CUresult rc = driver_enter();
    if (rc)
        return rc;
    const struct event *event = event_get(event_handle);
    if (!handle)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    if (!event || !event->signal.id || event->imported)
        return driver_leave(CUDA_ERROR_INVALID_HANDLE);
    struct event_name name = {.magic = MAGIC, .signal = event->signal};
    memset(handle, 0, sizeof *handle);
    memcpy(handle, &name, sizeof name);
    return driver_leave(CUDA_SUCCESS);
}

// Whether this process made it.
static bool is_ours(const struct sim_signal_name *signal) {
    struct event *event;
    for (uint32_t i = 0; (event = pool_next(&driver.events, &i)); i++)
        if (event->signal.id == signal->id && !event->imported)
            return true;
    return false;
}

API cuIpcOpenEventHandle(CUevent *out, CUipcEventHandle handle) {
    struct context *context;
    CUresult rc = context_enter(&context);
    if (rc)
        return rc;
    struct event_name name;
    struct sim_dep work;
    memcpy(&name, &handle, sizeof name);
    if (!out)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    if (name.magic != MAGIC || sim_signal_look(driver.machine, &name.signal, &work))
        return driver_leave(CUDA_ERROR_INVALID_HANDLE);
    if (is_ours(&name.signal))
        return driver_leave(CUDA_ERROR_INVALID_CONTEXT);
    struct event *event = pool_take(&driver.events);
    if (!event)
        return driver_leave(CUDA_ERROR_OUT_OF_MEMORY);
    event->id = ++driver.ids;
    event->context = context;
    event->flags = CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING;
    event->signal = name.signal;
    event->imported = true;
    *out = (CUevent)event;
    return driver_leave(CUDA_SUCCESS);
}
