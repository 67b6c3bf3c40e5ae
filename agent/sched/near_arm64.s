// near of near.go, on arm64.

#include "textflag.h"

// func near(p uintptr, lines int)
TEXT ·near(SB), NOSPLIT|NOFRAME, $0-16
	MOVD p+0(FP), R0
	MOVD lines+8(FP), R1
next:
	PRFM (R0), PLDL1KEEP
	ADD $64, R0
	SUBS $1, R1
	BNE next
	RET
