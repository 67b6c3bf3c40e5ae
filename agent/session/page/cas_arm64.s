// Two words at once: see cas.go.

#include "textflag.h"

// func compareAndSwapPair(at *[2]uint64, old0, old1, new0, new1 uint64) bool
TEXT ·compareAndSwapPair(SB), NOSPLIT, $0-41
	MOVD at+0(FP), R0
	MOVD old0+8(FP), R1
	MOVD old1+16(FP), R2
	MOVD new0+24(FP), R3
	MOVD new1+32(FP), R4
again:
	LDAXP (R0), (R5, R6)
	CMP R1, R5
	BNE differs
	CMP R2, R6
	BNE differs
	STLXP (R3, R4), (R0), R7
	CBNZ R7, again
	MOVD $1, R8
	MOVB R8, ret+40(FP)
	RET
differs:
	CLREX
	MOVB ZR, ret+40(FP)
	RET
