// entry.S: the exports. Each goes on to its implementation, the function of the same name with
// `impl_` before it (the build renames them), unless faults may be armed: then fault_entry is asked
// first, and what it answers, if not 0, is the call's result.
//
// `fault_page` points to a page with the address of a word of the machine file, not 0 while faults
// are armed. The page is zero in a forked child, which has no mapping of that file.

#if defined(__x86_64__)

	.text
	.macro ENTRY name
	.globl \name
	.type \name, @function
	.p2align 4
\name:
	movq fault_page(%rip), %rax
	movq (%rax), %rax
	testq %rax, %rax
	je 1f
	cmpl $0, (%rax)
	jne 2f
1:	jmp impl_\name
2:	leaq impl_\name(%rip), %r11
	movl $\@, %eax
	jmp ask
	.size \name, . - \name
	.endm

#define E(name) ENTRY name
#include "exports.inc"
#undef E

// The number of the export in %eax, its implementation in %r11; all arguments are kept.
	.type ask, @function
ask:
	.cfi_startproc
	pushq %rbp
	.cfi_def_cfa_offset 16
	.cfi_offset %rbp, -16
	movq %rsp, %rbp
	.cfi_def_cfa_register %rbp
	subq $192, %rsp
	movq %rdi, -8(%rbp)
	movq %rsi, -16(%rbp)
	movq %rdx, -24(%rbp)
	movq %rcx, -32(%rbp)
	movq %r8, -40(%rbp)
	movq %r9, -48(%rbp)
	movq %r11, -56(%rbp)
	movups %xmm0, -80(%rbp)
	movups %xmm1, -96(%rbp)
	movups %xmm2, -112(%rbp)
	movups %xmm3, -128(%rbp)
	movups %xmm4, -144(%rbp)
	movups %xmm5, -160(%rbp)
	movups %xmm6, -176(%rbp)
	movups %xmm7, -192(%rbp)
	movl %eax, %edi
	call fault_entry
	movq -8(%rbp), %rdi
	movq -16(%rbp), %rsi
	movq -24(%rbp), %rdx
	movq -32(%rbp), %rcx
	movq -40(%rbp), %r8
	movq -48(%rbp), %r9
	movq -56(%rbp), %r11
	movups -80(%rbp), %xmm0
	movups -96(%rbp), %xmm1
	movups -112(%rbp), %xmm2
	movups -128(%rbp), %xmm3
	movups -144(%rbp), %xmm4
	movups -160(%rbp), %xmm5
	movups -176(%rbp), %xmm6
	movups -192(%rbp), %xmm7
	leave
	.cfi_def_cfa %rsp, 8
	testl %eax, %eax
	jne 1f
	jmp *%r11
1:	ret
	.cfi_endproc
	.size ask, . - ask

#elif defined(__aarch64__)

	.text
	.macro ENTRY name
	.globl \name
	.type \name, %function
	.p2align 4
\name:
	adrp x16, fault_page
	ldr x16, [x16, :lo12:fault_page]
	ldr x16, [x16]
	cbz x16, 1f
	ldr w16, [x16]
	cbnz w16, 2f
1:	b impl_\name
2:	adrp x17, impl_\name
	add x17, x17, :lo12:impl_\name
	mov w16, #\@
	b ask
	.size \name, . - \name
	.endm

#define E(name) ENTRY name
#include "exports.inc"
#undef E

// The number of the export in w16, its implementation in x17; all arguments are kept.
	.type ask, %function
ask:
	.cfi_startproc
	stp x29, x30, [sp, #-224]!
	.cfi_def_cfa_offset 224
	.cfi_offset x29, -224
	.cfi_offset x30, -216
	mov x29, sp
	stp x0, x1, [sp, #16]
	stp x2, x3, [sp, #32]
	stp x4, x5, [sp, #48]
	stp x6, x7, [sp, #64]
	str x17, [sp, #80]
	stp q0, q1, [sp, #96]
	stp q2, q3, [sp, #128]
	stp q4, q5, [sp, #160]
	stp q6, q7, [sp, #192]
	mov w0, w16
	bl fault_entry
	mov w16, w0
	ldp x0, x1, [sp, #16]
	ldp x2, x3, [sp, #32]
	ldp x4, x5, [sp, #48]
	ldp x6, x7, [sp, #64]
	ldr x17, [sp, #80]
	ldp q0, q1, [sp, #96]
	ldp q2, q3, [sp, #128]
	ldp q4, q5, [sp, #160]
	ldp q6, q7, [sp, #192]
	ldp x29, x30, [sp], #224
	.cfi_restore x29
	.cfi_restore x30
	.cfi_def_cfa_offset 0
	cbnz w16, 1f
	br x17
1:	mov w0, w16
	ret
	.cfi_endproc
	.size ask, . - ask

#else
#error "no entry points for this processor"
#endif

	.section .note.GNU-stack, "", %progbits
