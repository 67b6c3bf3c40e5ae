// busy_face.go: the pure parts of measuring busy time, for Go tests.

package library

// #include "busyfit.h"
// #include "busylearn.h"
// #include "busytime.h"
import "C"

// busyTime is struct weir_busytime.
type busyTime struct{ t C.struct_weir_busytime }

func (b *busyTime) cover(from, to uint64) {
	C.weir_busytime_cover(&b.t, C.uint64_t(from), C.uint64_t(to))
}

func (b *busyTime) step(now, work, outstanding uint64) {
	C.weir_busytime_step(&b.t, C.uint64_t(now), C.uint64_t(work), C.uint64_t(outstanding))
}

func (b *busyTime) late(ns uint64) { C.weir_busytime_late(&b.t, C.uint64_t(ns)) }

func (b *busyTime) busy() uint64  { return uint64(b.t.busy_ns) }
func (b *busyTime) idle() uint64  { return uint64(b.t.idle_ns) }
func (b *busyTime) ahead() uint64 { return uint64(b.t.ahead_ns) }

// learned is struct weir_learned.
type learned struct{ l C.struct_weir_learned }

func (l *learned) clean(ns uint64) {
	C.weir_learn(&l.l, C.uint64_t(ns), C.WEIR_SORT_CLEAN, 0)
}

func (l *learned) mixed(ns uint64) {
	C.weir_learn(&l.l, C.uint64_t(ns), C.WEIR_SORT_MIXED, 0)
}

func (l *learned) rough(ns, foreign uint64) {
	C.weir_learn(&l.l, C.uint64_t(ns), C.WEIR_SORT_ROUGH, C.uint64_t(foreign))
}

func (l *learned) renew()      { C.weir_learn_renew(&l.l) }
func (l *learned) eager() bool { return C.weir_learned_is_eager(&l.l) != 0 }

func (l *learned) ns() uint64    { return uint64(C.weir_learned_ns(&l.l)) }
func (l *learned) pause() uint64 { return uint64(C.weir_learn_pause(&l.l)) }

// fit is struct weir_fit.
type fit struct{ f C.struct_weir_fit }

func (f *fit) add(amount, ns uint64) { C.weir_fit_add(&f.f, C.uint64_t(amount), C.uint64_t(ns)) }

func (f *fit) renew(amount, ns uint64) bool {
	return C.weir_fit_renew(&f.f, C.uint64_t(amount), C.uint64_t(ns)) != 0
}

func (f *fit) ns(amount uint64) uint64 {
	line := C.weir_fit_line(&f.f)
	return uint64(C.weir_line_ns(&line, C.uint64_t(amount)))
}

func (f *fit) covers(amount uint64) bool {
	line := C.weir_fit_line(&f.f)
	return C.weir_line_covers(&line, C.uint64_t(amount)) != 0
}

// threadsOf is how much a launch of a kernel is to do, by its grid and block as keys have them.
func threadsOf(grid, block uint64) uint64 {
	return uint64(C.weir_kernel_amount(C.uint64_t(grid), C.uint64_t(block)))
}
