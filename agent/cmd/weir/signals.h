// signals.h: what os/signal does not tell: who sent a signal, and what was ignored at the start.
#ifndef WEIR_CMD_SIGNALS_H
#define WEIR_CMD_SIGNALS_H

// Where weir_catch's handler writes: two native-endian 32-bit words a signal, its number and 1 if
// the kernel sent it, else 0. The descriptor must not block: when it is full, signals are lost.
void weir_report_to(int fd);

// Makes a signal be reported instead of ending the process. Returns 0 or an errno.
int weir_catch(int signum);

// Says whether the process was started with this signal ignored, before Go's runtime took it over.
int weir_ignored_at_start(int signum);

#endif
