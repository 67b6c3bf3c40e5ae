// A process of the simulated machine, for tests: see client.h.
#include "client.h"

#include "../../machine.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

int client_join(unsigned gpu, uint64_t bytes, uint64_t busy_ns) {
    char path[4096];
    struct sim_machine *machine;
    uint32_t context;
    int code = sim_machine_path(path, sizeof(path));
    if (code == 0) {
        code = sim_machine_open(path, &machine);
    }
    if (code == 0) {
        code = sim_process_join(machine);
    }
    if (code == 0 && gpu >= SIM_GPUS_MAX) {
        code = sim_mig_attach(machine, 0, gpu);
    }
    if (code == 0) {
        code = sim_context_open(machine, gpu, &context);
    }
    if (code == 0 && bytes > 0) {
        code = sim_memory_take(machine, gpu, bytes);
    }
    if (code == 0 && busy_ns > 0) {
        struct sim_work work = {.engine = SIM_ENGINE_COMPUTE, .cost_ns = busy_ns};
        uint64_t seq;
        uint64_t recycled_ns;
        uint64_t wait_ns;
        code = sim_work_submit(machine, context, &work, &seq, &recycled_ns, &wait_ns);
    }
    return code;
}

pid_t client_start(unsigned gpu, uint64_t bytes, uint64_t busy_ns) {
    int ready[2];
    if (pipe(ready) != 0) {
        return -1;
    }
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (client_join(gpu, bytes, busy_ns) != 0 || write(ready[1], "", 1) != 1) {
            _exit(1);
        }
        for (;;) {
            pause();
        }
    }
    close(ready[1]);
    char byte;
    bool is_ready = pid > 0 && read(ready[0], &byte, 1) == 1;
    close(ready[0]);
    if (pid > 0 && !is_ready) {
        waitpid(pid, NULL, 0);
    }
    return is_ready ? pid : -1;
}

void client_kill(pid_t pid) {
    if (pid <= 0) {  // kill(-1) would end every process of the machine
        return;
    }
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}
