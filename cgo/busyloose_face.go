// busyloose_face.go: launches without a lane, for Go tests.

package library

// #include "busy.h"
// #include "sys.h"
//
// #define FUNCTION 0x10000u
//
// // What a launch without a lane counts for, of a grid that was never launched, after so many grids
// // of its function were measured that take `base` and so much for each block.
// static uint64_t loose_after(uint64_t samples, uint64_t base, uint64_t each, uint64_t blocks) {
//     struct weir_busy *busy = weir_busy_open();
//     if (!busy)
//         return 0;
//     for (uint64_t grid = 1; grid <= samples; grid++) {
//         struct weir_busy_kind kind = weir_busy_kind(FUNCTION, grid, 1, 0);
//         struct weir_busy_key *known = weir_busy_key_enter(busy, kind.key);
//         weir_busy_family_tell(busy, known, &kind, 0);
//         struct weir_sample sample = {base + each * grid, 0, WEIR_SORT_CLEAN, 0, 0};
//         weir_busy_family_learn(known->family, known, &sample);
//     }
//     weir_busy_loose(busy, 0, weir_busy_kind(FUNCTION, blocks, 1, 0));
//     uint64_t ns = busy->gpus[0].loose_work_ns;
//     weir_sys_unmap(busy, sizeof(*busy));
//     return ns;
// }
import "C"

func looseAfter(samples, base, each, blocks uint64) uint64 {
	return uint64(C.loose_after(C.uint64_t(samples), C.uint64_t(base), C.uint64_t(each), C.uint64_t(blocks)))
}
