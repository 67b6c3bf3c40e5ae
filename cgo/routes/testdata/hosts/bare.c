// bare.c: a program without a C library, which only ends.
__attribute__((used)) void _start(void) {
#if defined(__x86_64__)
    __asm__ volatile("syscall" : : "a"(60L), "D"(0L));
#else
    register long x8 __asm__("x8") = 93, x0 __asm__("x0") = 0;
    __asm__ volatile("svc #0" : : "r"(x8), "r"(x0));
#endif
    for (;;) {
    }
}
