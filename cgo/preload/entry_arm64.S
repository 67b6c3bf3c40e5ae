// entry_arm64.S: the exported dlsym, dlvsym and dlopen on arm64; see routes.h.
//
// The route gets the three arguments, the return address and room for a result. If it names a
// function, that is jumped to with arguments, stack and link register as they were.

    .macro entry name
    .globl \name
    .type \name, %function
    .globl weir_entry_\name
    .hidden weir_entry_\name
\name:
weir_entry_\name:
    .cfi_startproc
    stp x29, x30, [sp, #-48]!
    .cfi_def_cfa_offset 48
    .cfi_offset x29, -48
    .cfi_offset x30, -40
    mov x29, sp
    stp x0, x1, [sp, #16]
    stp x2, xzr, [sp, #32]  // the last word is for the result
    mov x3, x30
    add x4, sp, #40
    bl weir_route_\name
    mov x16, x0
    ldp x0, x1, [sp, #16]
    ldp x2, x17, [sp, #32]
    ldp x29, x30, [sp], #48
    .cfi_def_cfa_offset 0
    .cfi_restore x29
    .cfi_restore x30
    cbz x16, 1f
    br x16
1:
    mov x0, x17
    ret
    .cfi_endproc
    .size \name, . - \name
    .endm

    .text
    entry dlsym
    entry dlvsym
    entry dlopen

    .section .note.GNU-stack, "", %progbits
