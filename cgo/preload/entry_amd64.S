// entry_amd64.S: the exported dlsym, dlvsym and dlopen on x86-64; see routes.h.
//
// The route gets the three arguments, the return address and room for a result. If it names a
// function, that is jumped to with arguments, stack and return address as they were.

    .macro entry name
    .globl \name
    .type \name, @function
    .globl weir_entry_\name
    .hidden weir_entry_\name
\name:
weir_entry_\name:
    .cfi_startproc
    pushq %rdi
    .cfi_adjust_cfa_offset 8
    pushq %rsi
    .cfi_adjust_cfa_offset 8
    pushq %rdx
    .cfi_adjust_cfa_offset 8
    subq $16, %rsp  // the result, and what aligns the stack
    .cfi_adjust_cfa_offset 16
    movq 40(%rsp), %rcx
    movq %rsp, %r8
    movq $0, (%rsp)
    call weir_route_\name
    movq %rax, %r11
    movq (%rsp), %rax
    addq $16, %rsp
    .cfi_adjust_cfa_offset -16
    popq %rdx
    .cfi_adjust_cfa_offset -8
    popq %rsi
    .cfi_adjust_cfa_offset -8
    popq %rdi
    .cfi_adjust_cfa_offset -8
    testq %r11, %r11
    jz 1f
    jmp *%r11
1:
    ret
    .cfi_endproc
    .size \name, . - \name
    .endm

    .text
    entry dlsym
    entry dlvsym
    entry dlopen

    .section .note.GNU-stack, "", @progbits
