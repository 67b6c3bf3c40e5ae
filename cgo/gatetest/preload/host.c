// host.c: a program that launches on two threads if a library with the gate is preloaded.
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>

extern int weir_gate_try(void) __attribute__((weak));

// Thread-local data of the program's own, whose place must not be another's.
static __thread long own = 42;

static void *launch(void *argument) {
    (void)argument;
    long wrong = weir_gate_try() || own != 42;
    return (void *)wrong;
}

int main(void) {
    pthread_t thread;
    void *wrong = NULL;
    if (!weir_gate_try) {
        printf("nothing is preloaded\n");
        return 1;
    }
    if (launch(NULL) || pthread_create(&thread, NULL, launch, NULL) != 0 ||
        pthread_join(thread, &wrong) != 0 || wrong) {
        printf("a thread has no word of its own\n");
        return 1;
    }
    printf("fine\n");
    return 0;
}
