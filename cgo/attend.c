// attend.c: see attend.h. Here: what the agent says, what threads say at the gate, and when to
// look; drain.c has what is looked at.
#include "attend.h"

#include <string.h>

#include "client.h"
#include "drain.h"

#define GATED_MS_MAX 30000u  // where the agent has named no longest wait
#define PR_SET_TIMERSLACK_KEY 29

int weir_attend_agent_alive(void *argument) {
    const struct weir_state *state = ((struct weir_time *)argument)->state;
    const struct weir_control_page *page = __atomic_load_n(&state->control, __ATOMIC_ACQUIRE);
    return __atomic_load_n(&state->link_up, __ATOMIC_ACQUIRE) && page &&
           !__atomic_load_n(&page->ended, __ATOMIC_ACQUIRE);
}

int weir_attend_say(struct weir_time *time, enum weir_msg_type type, uint32_t gpu, uint32_t lease,
                    uint32_t waiting) {
    struct weir_state *state = time->state;
    struct weir_turn turn = {
        .header = {(uint16_t)type, sizeof(turn), 0},
        .gpu = gpu,
        .lease = lease >> 1,
        .waiting = waiting,
    };
    if (weir_lock(&state->lock))
        return -EDEADLK;
    int up = (int)state->link_up, fd = state->fd;
    uint64_t cookie = state->cookie;
    weir_unlock(&state->lock);
    return up ? weir_client_send(fd, cookie, &turn) : -ENOTCONN;
}

uint64_t weir_attend_want(void *argument, uint32_t gpu, uint32_t lease) {
    struct weir_time *time = argument;
    uint32_t *wanted = &time->gpus[gpu].wanted;
    const struct weir_control_page *page = time->state->control;
    weir_timed_set_active(time, gpu);
    weir_window_waited();
    if (__atomic_exchange_n(wanted, lease, __ATOMIC_SEQ_CST) != lease &&
        weir_attend_say(time, WEIR_MSG_WANT, gpu, lease, 0) < 0)
        __atomic_store_n(wanted, 0, __ATOMIC_SEQ_CST);  // with the next wait
    uint32_t ms = __atomic_load_n(&page->gpus[gpu].wait_ms_max, __ATOMIC_RELAXED);
    return ms ? ms : GATED_MS_MAX;
}

static void attend_to(struct weir_attended *a) {
    a->on = 1;
    a->drained = 0;
    a->due_ns = a->rest_ns = 0;
}

int weir_attend_look(struct weir_state *state, const struct weir_turn *turn) {
    if (turn->gpu >= state->gpu_count || turn->gpu >= WEIR_GPUS_MAX)
        return -EPROTO;
    struct weir_time *time = weir_time_make(state);
    if (time)
        attend_to(&time->attended[turn->gpu]);
    return 0;
}

void weir_attend_begin(struct weir_state *state) {
    struct weir_time *time = __atomic_load_n(&state->time, __ATOMIC_SEQ_CST);
    if (!time)
        return;
    weir_time_bind(state);
    for (uint32_t i = 0; i < WEIR_GPUS_MAX; i++) {
        struct weir_attended *a = &time->attended[i];
        __atomic_store_n(&time->gpus[i].wanted, 0, __ATOMIC_SEQ_CST);
        a->lease = a->quiet = a->drained = a->opened = 0;
        if (!a->on && !weir_drain_is_outstanding(time, i))
            continue;
        attend_to(a);
        weir_timed_set_active(time, i);
    }
}

void weir_attend_end(struct weir_state *state) {
    const struct weir_control_page *page = __atomic_load_n(&state->control, __ATOMIC_ACQUIRE);
    if (!page || !__atomic_load_n(&state->time, __ATOMIC_SEQ_CST))
        return;
    for (uint32_t i = 0; i < WEIR_GPUS_MAX; i++)
        weir_sys_futex_wake_shared(&page->gpus[i].lease, INT32_MAX);
}

// The first time that there is anything to attend to.
static void prepare(struct weir_time *time) {
    time->registered = 1;
    weir_syscall(SYS_prctl, PR_SET_TIMERSLACK_KEY, 1, 0, 0, 0, 0);
    weir_gate_register(&time->gate);
}

uint64_t weir_attend(struct weir_state *state) {
    struct weir_time *time = __atomic_load_n(&state->time, __ATOMIC_ACQUIRE);
    uint64_t next_ns = UINT64_MAX, now_ns = 0;
    for (uint32_t i = 0; time && i < WEIR_GPUS_MAX; i++) {
        struct weir_attended *a = &time->attended[i];
        if (!a->on)
            continue;
        if (!time->registered)
            prepare(time);
        now_ns = now_ns ? now_ns : weir_busy_clock();
        if (now_ns >= a->due_ns)
            a->due_ns = weir_drain_step(time, i, now_ns);
        next_ns = a->on && a->due_ns < next_ns ? a->due_ns : next_ns;
    }
    if (next_ns == UINT64_MAX)
        return next_ns;
    now_ns = weir_busy_clock();
    return next_ns > now_ns ? next_ns - now_ns : 0;
}
