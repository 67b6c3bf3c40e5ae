// busyguess_face.go: launches of kernels that are not known well, for Go tests.

package library

// #include "drain.h"
// #include "hooks.h"
// #include "timed.h"
//
// #define CONTEXT ((CUcontext)0x1000)
// #define STREAM ((CUstream)0x2000)
// #define TID 7u
//
// struct guesses {
//     uint64_t looked, guesses, unknown, expected_ns, work_ns;
// };
//
// static struct weir_busy_kind kind_of(uint64_t number) {
//     return weir_busy_kind(0x10000 + number * 256, 1, 1, 0);
// }
//
// // Launches so many kernels in turn, the first of which is known well only as `clean` says, and is
// // expected to take so long (0: it is not known); the others are. No event can be recorded in their
// // stream. What became of the first one, which was first launched that long ago.
// static struct guesses guess_many(uint64_t launches, uint64_t kernels, uint64_t expected_ns,
//                                  uint64_t since_ns) {
//     struct guesses made = {0};
//     struct weir_busy *busy = weir_busy_open();
//     struct weir_busy_lane *lane =
//         busy ? weir_busy_lane_find(busy, 64, CONTEXT, 0, STREAM) : NULL;
//     if (!lane)
//         return made;
//     lane->muted = 1;
//     for (uint64_t i = 0; i < kernels; i++) {
//         struct weir_busy_key *known = weir_busy_key_enter(busy, kind_of(i).key);
//         known->expected_ns = i ? 1000 : expected_ns;
//         known->roughly_ns = known->expected_ns;
//         known->clean = known->sure = i > 0;
//         known->since_ns = weir_busy_clock() - since_ns;
//     }
//     const struct weir_busy_key *first = weir_busy_known(busy, kind_of(0).key);
//     for (uint64_t i = 0; i < launches; i++) {
//         struct weir_busy_kind kind = kind_of(i % kernels);
//         made.looked += !weir_busy_known(busy, kind.key)->expected_ns ||
//                        lane->launches >= lane->look_at;
//         struct weir_busy_launch launch = weir_busy_begin_in(busy, lane, kind);
//         weir_busy_end(busy, &launch, CUDA_SUCCESS);
//     }
//     made.guesses = first->guesses;
//     made.unknown = first->unknown;
//     made.expected_ns = first->expected_ns;
//     made.work_ns = lane->work_ns;
//     weir_sys_unmap(busy, sizeof(*busy));
//     return made;
// }
//
// // ---- A driver that has done everything at once ----
//
// static uint32_t queries;
//
// static CUresult make_event(CUevent *event, unsigned flags) {
//     (void)flags;
//     *event = (CUevent)0x3000;
//     return CUDA_SUCCESS;
// }
//
// static CUresult record(CUevent event, CUstream stream) {
//     (void)event, (void)stream;
//     return CUDA_SUCCESS;
// }
//
// static CUresult elapsed(float *milliseconds, CUevent start, CUevent end) {
//     (void)start, (void)end;
//     *milliseconds = 60000;  // so that no pause of this thread is long beside it
//     return CUDA_SUCCESS;
// }
//
// static CUresult query(CUstream stream) {
//     (void)stream;
//     queries++;
//     return CUDA_SUCCESS;
// }
//
// static CUresult refuse(void) {
//     return CUDA_ERROR_NOT_FOUND;
// }
//
// static const struct {
//     enum weir_fn fn;
//     void *function;
// } stand_ins[] = {
//     {WEIR_FN_cuEventCreate, make_event},
//     {WEIR_FN_cuEventRecord, record},
//     {WEIR_FN_cuEventElapsedTime, elapsed},
//     {WEIR_FN_cuStreamQuery, query},
//     {WEIR_FN_cuMemHostAlloc, refuse},
//     {WEIR_FN_cuThreadExchangeStreamCaptureMode, refuse},
// };
// enum { STAND_INS = sizeof(stand_ins) / sizeof(*stand_ins) };
//
// static void exchange_driver(void *found[STAND_INS], int back) {
//     for (int i = 0; i < STAND_INS; i++) {
//         void *now = weir_real_table[stand_ins[i].fn];
//         weir_real_table[stand_ins[i].fn] = back ? found[i] : stand_ins[i].function;
//         found[i] = now;
//     }
// }
//
// // Whether a kernel is known well after so many launches in the default stream of all threads, while
// // one launch in this thread's own is not known to be done.
// static int is_learned_beside_own(uint64_t launches) {
//     void *found[STAND_INS];
//     struct weir_busy *busy = weir_busy_open();
//     if (!busy)
//         return 0;
//     CUstream own_stream = (CUstream)(uintptr_t)CU_STREAM_PER_THREAD;
//     CUstream stream = (CUstream)(uintptr_t)CU_STREAM_LEGACY;
//     struct weir_busy_lane *own = weir_busy_lane_find(busy, 64, CONTEXT, 0, own_stream);
//     struct weir_busy_lane *lane = weir_busy_lane_find(busy, 64, CONTEXT, 0, stream);
//     exchange_driver(found, 0);
//     own->tid = lane->tid = TID;
//     own->launches = 1;
//     for (uint64_t i = 0; i < launches; i++) {
//         struct weir_busy_launch launch = weir_busy_begin_in(busy, lane, kind_of(0));
//         weir_busy_end(busy, &launch, CUDA_SUCCESS);
//         if (i % 16 == 0)
//             weir_busy_poll(busy);
//     }
//     exchange_driver(found, 1);
//     int is = weir_busy_known(busy, kind_of(0).key)->clean != 0;
//     weir_sys_unmap(busy, sizeof(*busy));
//     return is;
// }
//
// // How often the helper asks the stream of a lane whose thread launches there no more, in so many
// // looks that are 5 ms apart; `wished`: another lane waits to know that its launches are done.
// static uint32_t asked_in(uint32_t looks, uint32_t wished) {
//     void *found[STAND_INS];
//     struct weir_state *state = weir_sys_map(sizeof(*state));
//     struct weir_time *time = weir_sys_map(sizeof(*time));
//     const uint64_t entry = 0;
//     if (!state || !time)
//         return 0;
//     state->control = weir_sys_map(sizeof(*state->control));
//     state->usage = weir_sys_map(sizeof(*state->usage));
//     time->state = state;
//     time->numbers[0] = 1;
//     struct weir_busy_lane *lane = weir_busy_lane_find(&time->busy, 64, CONTEXT, 0, STREAM);
//     exchange_driver(found, 0);
//     queries = 0;
//     lane->entry = &entry;
//     lane->launches = 1;
//     lane->wished = wished;
//     uint64_t now_ns = weir_busy_clock();
//     for (uint32_t i = 0; i < looks; i++)
//         weir_drain_step(time, 0, now_ns + i * 5000000u);
//     exchange_driver(found, 1);
//     weir_sys_unmap(state->usage, sizeof(*state->usage));
//     weir_sys_unmap((void *)state->control, sizeof(*state->control));
//     weir_sys_unmap(time, sizeof(*time));
//     weir_sys_unmap(state, sizeof(*state));
//     return queries;
// }
import "C"

// guesses is what became of launches of a kernel that is not known well.
type guesses struct{ looked, guesses, unknown, expected, work uint64 }

func guessMany(launches, kernels, expected, since uint64) guesses {
	g := C.guess_many(C.uint64_t(launches), C.uint64_t(kernels), C.uint64_t(expected), C.uint64_t(since))
	return guesses{uint64(g.looked), uint64(g.guesses), uint64(g.unknown), uint64(g.expected_ns), uint64(g.work_ns)}
}

func isLearnedBesideOwn(launches uint64) bool {
	return C.is_learned_beside_own(C.uint64_t(launches)) != 0
}

func askedIn(looks int, wished bool) int {
	var is C.uint32_t
	if wished {
		is = 1
	}
	return int(C.asked_in(C.uint32_t(looks), is))
}
