// windowset_face.go: lanes that share a window's events, for Go tests.

package library

// #include "timed.h"
// #include <pthread.h>
//
// static void *tell_tid(void *tid) {
//     *(uint32_t *)tid = (uint32_t)weir_syscall(SYS_gettid, 0, 0, 0, 0, 0, 0);
//     return NULL;
// }
//
// // A thread that has ended.
// static uint32_t ended_tid(void) {
//     pthread_t thread;
//     uint32_t tid = 0;
//     if (pthread_create(&thread, NULL, tell_tid, &tid) != 0)
//         return 0;
//     pthread_join(thread, NULL);
//     while (!weir_gate_has_ended(tid))
//         weir_sys_sleep_ms(1);
//     return tid;
// }
//
// // After how much work a lane has an event, with so many lanes that have launched just now: those of
// // this thread, those of one that has ended, and of streams that are gone. The last `busy` are not
// // done. The helper has looked so often.
// static uint64_t step_with(uint32_t own, uint32_t ended, uint32_t gone, uint32_t busy,
//                           uint32_t looks) {
//     struct weir_state *state = weir_sys_map(sizeof(*state));
//     struct weir_control_page *page = weir_sys_map(sizeof(*page));
//     struct weir_time *time = weir_sys_map(sizeof(*time));
//     if (!state || !page || !time)
//         return 0;
//     const uint64_t now_ns = 1000000000u;
//     uint32_t tid, ended_is = ended_tid(), all = own + ended + gone;
//     tell_tid(&tid);
//     state->control = page;
//     time->state = state;
//     time->numbers[0] = 1;
//     page->gpus[0].window_us = 4000;
//     for (uint32_t i = 0; i < all; i++) {
//         struct weir_busy_lane *lane = &time->busy.lanes[i];
//         lane->thread = 64;
//         lane->tid = i >= own && i < own + ended ? ended_is : tid;
//         lane->ended = i >= own + ended;
//         lane->launches = 10;
//         lane->done = i < all - busy ? 10 : 9;
//         lane->trail.still_ns = now_ns;
//     }
//     time->busy.lanes_used = all;
//     for (uint32_t i = 0; i < looks; i++)
//         weir_window_set(time, 0, 1, now_ns);
//     uint64_t step_ns = time->gpus[0].step_ns;
//     weir_sys_unmap(time, sizeof(*time));
//     weir_sys_unmap(page, sizeof(*page));
//     weir_sys_unmap(state, sizeof(*state));
//     return step_ns;
// }
import "C"

import "time"

func stepWith(own, ended, gone, busy, looks uint32) time.Duration {
	return time.Duration(C.step_with(C.uint32_t(own), C.uint32_t(ended), C.uint32_t(gone), C.uint32_t(busy),
		C.uint32_t(looks)))
}
