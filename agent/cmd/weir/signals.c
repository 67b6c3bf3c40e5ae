// signals.c: a signal handler that reports who sent a signal. It runs on any of Go's threads, so
// it does nothing but write to a pipe, and keeps errno.
#include "signals.h"

#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

enum { SIGNALS_MAX = 65 };

static int report_fd = -1;
static unsigned char ignored[SIGNALS_MAX];

// Before Go's runtime, which installs handlers of its own for nearly all signals.
__attribute__((constructor)) static void note_ignored(void) {
    for (int signum = 1; signum < SIGNALS_MAX; signum++) {
        struct sigaction action;
        if (sigaction(signum, NULL, &action) == 0) {
            ignored[signum] = action.sa_handler == SIG_IGN;
        }
    }
}

static void report(int signum, siginfo_t *info, void *context) {
    (void)context;
    int saved = errno;
    int32_t record[2] = {signum, info != NULL && info->si_code == SI_KERNEL};
    if (write(report_fd, record, sizeof(record)) < 0) {
        // Nothing can be done about it here.
    }
    errno = saved;
}

void weir_report_to(int fd) {
    report_fd = fd;
}

int weir_catch(int signum) {
    struct sigaction action;
    memset(&action, 0, sizeof(action));
    action.sa_sigaction = report;
    // Go's stacks are small: SA_ONSTACK is a must in its processes.
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
    sigfillset(&action.sa_mask);
    return sigaction(signum, &action, NULL) == 0 ? 0 : errno;
}

int weir_ignored_at_start(int signum) {
    return signum > 0 && signum < SIGNALS_MAX && ignored[signum];
}
