// Two words at once: see cas.go.

#include "textflag.h"

// func compareAndSwapPair(at *[2]uint64, old0, old1, new0, new1 uint64) bool
TEXT ·compareAndSwapPair(SB), NOSPLIT, $0-41
	MOVQ at+0(FP), DI
	MOVQ old0+8(FP), AX
	MOVQ old1+16(FP), DX
	MOVQ new0+24(FP), BX
	MOVQ new1+32(FP), CX
	LOCK
	CMPXCHG16B (DI)
	SETEQ ret+40(FP)
	RET
