// near of near.go, on amd64.

#include "textflag.h"

// func near(p uintptr, lines int)
TEXT ·near(SB), NOSPLIT|NOFRAME, $0-16
	MOVQ p+0(FP), AX
	MOVQ lines+8(FP), CX
next:
	PREFETCHT0 (AX)
	ADDQ $64, AX
	DECQ CX
	JNZ next
	RET
