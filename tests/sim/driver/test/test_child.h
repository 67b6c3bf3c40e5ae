// test_child.h: children of a test that tell their parent words through one pipe and hear from it
// through another. A test that forks such children must not use the driver itself.
#ifndef SIM_TEST_CHILD_H
#define SIM_TEST_CHILD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct child {
    pid_t pid;
    int from;  // its words to us
    int to;    // ours to it; closed: end
};

// ---- In the parent ----

// A child that runs the function and ends well.
struct child spawn(void (*run)(uint64_t), uint64_t argument);
uint64_t hear(struct child child);
void say(struct child child, uint64_t word);
// Closes our end, and waits for the child to end well.
void finish(struct child child);
void kill_now(struct child child);  // our end of its pipe stays open
void stop_now(struct child child);  // until SIGCONT
void sleep_us(unsigned us);

// ---- In the child ----

extern int tell_fd, hear_fd;

void tell(uint64_t word);
uint64_t listen_word(void);  // the parent's next word; ends the child where there is none
void wait_for_end(void);     // until the parent has closed its end
bool end_wanted(void);       // whether it has; hear_fd must not block

#endif
