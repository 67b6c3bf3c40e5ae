// callas_amd64.S: the call of callas.h on x86-64.

    .text
    .globl weir_call_through
    .hidden weir_call_through
    .type weir_call_through, @function
// void *weir_call_through(site rdi, function rsi, a rdx, b rcx, c r8)
weir_call_through:
    .cfi_startproc
    pushq %rbp
    .cfi_def_cfa_offset 16
    .cfi_offset %rbp, -16
    movq %rsp, %rbp
    .cfi_def_cfa_register %rbp
    // The stack is aligned here; the function must find it so that its return address is not.
    subq $8, %rsp
    leaq 1f(%rip), %rax
    pushq %rax  // where the return instruction at `site` goes
    pushq %rdi  // where the function returns to: `site`
    movq %rsi, %rax
    movq %rdx, %rdi
    movq %rcx, %rsi
    movq %r8, %rdx
    jmp *%rax
1:
    leave
    .cfi_def_cfa %rsp, 8
    ret
    .cfi_endproc
    .size weir_call_through, . - weir_call_through

    .section .note.GNU-stack, "", @progbits
