package page

// Two words at once.

// compareAndSwapPair changes two neighbouring words at once, if they are still the old ones. at is
// a multiple of 16. It is atomic also towards those who change only the first word, which is what a
// tenant does.
//
//go:noescape
func compareAndSwapPair(at *[2]uint64, old0, old1, new0, new1 uint64) bool
