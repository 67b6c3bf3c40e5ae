// versions.c: a function in three versions, of which the second is the default one.
int choose_1(void);
int choose_2(void);
int choose_3(void);

__asm__(".symver choose_1, choose@V1");
__asm__(".symver choose_2, choose@@V2");
__asm__(".symver choose_3, choose@V3");

int choose_1(void) {
    return 1;
}

int choose_2(void) {
    return 2;
}

int choose_3(void) {
    return 3;
}
