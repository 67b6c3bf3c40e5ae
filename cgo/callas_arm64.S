// callas_arm64.S: the call of callas.h on arm64.

    .text
    .globl weir_call_through
    .hidden weir_call_through
    .type weir_call_through, %function
// void *weir_call_through(site x0, function x1, a x2, b x3, c x4)
weir_call_through:
    .cfi_startproc
    stp x29, x30, [sp, #-16]!
    .cfi_def_cfa_offset 16
    .cfi_offset x29, -16
    .cfi_offset x30, -8
    mov x29, sp
    .cfi_def_cfa_register x29
    // The frame that the instructions at `site` take off: they go on at 1.
    adr x9, 1f
    stp x29, x9, [sp, #-16]!
    mov x30, x0
    mov x16, x1
    mov x0, x2
    mov x1, x3
    mov x2, x4
    br x16
1:
    ldp x29, x30, [sp], #16
    .cfi_def_cfa sp, 0
    .cfi_restore x29
    .cfi_restore x30
    ret
    .cfi_endproc
    .size weir_call_through, . - weir_call_through

    .section .note.GNU-stack, "", %progbits
