// machine_test.c: the machine file: made by several at once, and damaged.
#define _GNU_SOURCE
#include "../../layout.h"
#include "test.h"
#include "test_machine.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static char path[4096];

// Several make the same machine at once: all succeed, and who looks sees a whole one at all times.
static void made_at_once(void) {
    enum { MAKERS = 4, TIMES = 10 };
    struct sim_config config = test_config();
    pid_t makers[MAKERS];
    for (unsigned i = 0; i < MAKERS; i++) {
        makers[i] = fork();
        CHECK(makers[i] >= 0);
        if (!makers[i]) {
            for (unsigned k = 0; k < TIMES; k++) {
                struct sim_machine *machine;
                CHECK_EQ(sim_machine_create(path, &config), 0);
                CHECK_EQ(sim_machine_open(path, &machine), 0);
                sim_machine_close(machine);
            }
            _exit(0);
        }
    }
    for (unsigned i = 0; i < MAKERS; i++) {
        int status;
        CHECK_EQ(waitpid(makers[i], &status, 0), makers[i]);
        CHECK_EQ(status, 0);
    }
}

static unsigned files_beside(void) {
    char directory[4096];
    unsigned count = 0;
    strcpy(directory, path);
    *strrchr(directory, '/') = 0;
    DIR *open = opendir(directory);
    CHECK(open);
    for (struct dirent *entry; (entry = readdir(open));)
        count += entry->d_name[0] != '.';
    closedir(open);
    return count;
}

static void nothing_left_over(void) {
    struct sim_config config = test_config();
    CHECK_EQ(sim_machine_create(path, &config), 0);
    CHECK_EQ(files_beside(), 1);
    config.gpu_count = 0;
    CHECK_EQ(sim_machine_create(path, &config), EINVAL);
    CHECK_EQ(files_beside(), 1);
}

// Opens the file with `value` in one of its words, which it has back afterwards.
static int open_with(uint32_t *word, uint32_t value) {
    struct sim_machine *machine;
    uint32_t before = *word;
    *word = value;
    int rc = sim_machine_open(path, &machine);
    if (!rc)
        sim_machine_close(machine);
    *word = before;
    return rc;
}

static void damaged(void) {
    struct sim_config config = test_config();
    CHECK_EQ(sim_machine_create(path, &config), 0);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    struct sim_file *file = mmap(NULL, sizeof *file, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(file != MAP_FAILED);
    close(fd);
    CHECK_EQ(open_with(&file->magic, SIM_MAGIC), 0);
    CHECK_EQ(open_with(&file->magic, 0), EPROTO);
    CHECK_EQ(open_with(&file->layout, SIM_LAYOUT + 1), EPROTO);
    CHECK_EQ(open_with(&file->config.gpu_count, 0), EPROTO);
    CHECK_EQ(open_with(&file->config.gpu_count, 1), EPROTO);  // not as many as its engines have
    CHECK_EQ(open_with(&file->config.gpu_count, 1000000), EPROTO);
    CHECK_EQ(open_with(&file->config.gpus[1].queue_depth, SIM_QUEUE_MAX + 1), EPROTO);
    CHECK_EQ(open_with(&file->config.gpus[0].sm_count, 0), EPROTO);
    CHECK_EQ(open_with(&file->processes_used, SIM_PROCESSES_MAX + 1), EPROTO);
    CHECK_EQ(open_with(&file->regions[0].gpu_count, 17), EPROTO);
    CHECK_EQ(open_with(&file->regions[0].contexts_used, UINT32_MAX), EPROTO);
    CHECK_EQ(open_with(&file->regions[3].stays_used, UINT32_MAX), EPROTO);
    memset(file->config.gpus[0].name, 'x', sizeof file->config.gpus[0].name);
    CHECK_EQ(open_with(&file->magic, SIM_MAGIC), EPROTO);
    munmap(file, sizeof *file);
}

int main(int argc, char **argv) {
    struct sim_config config = test_config();
    sim_machine_close(test_machine(&config));
    CHECK_EQ(sim_machine_path(path, sizeof path), 0);
    static const struct test tests[] = {TEST(made_at_once), TEST(nothing_left_over), TEST(damaged)};
    int rc = RUN(tests);
    test_machine_remove();
    return rc;
}
