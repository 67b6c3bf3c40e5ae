// exports.S: the names of the driver and of NVML that the library exports, one for each HOOK row of
// symbols.def and NVML_HOOK row of nvml.def, each a jump to its wrapper. A program that is linked with
// the driver, or NVML, is bound to them.

#if defined(__x86_64__)
#define JUMP jmp
#else
#define JUMP b
#endif

#define HOOK(export, asked, since, streams, class)                                                 \
    .globl export; .type export, %function; export: JUMP weir_##export; .size export, . - export;
#define LATER(export, asked, since, streams, class, waits)
#define PASS(export, asked, since, streams, class)

#define NVML_HOOK(name)                                                                            \
    .globl name; .type name, %function; name: JUMP weir_##name; .size name, . - name;
#define NVML_USE(name)

    .text
#include "symbols.def"
#include "nvml.def"

    .section .note.GNU-stack, "", %progbits
