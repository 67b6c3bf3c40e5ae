// puppet.c: a CUDA program on strings. It does what its standard input says, one command a line,
// and answers each with one line: "ok VALUES…", "error CODE" of the driver, or "wrong TEXT" where
// data or arguments are not what they should be. Tests drive it (package node).
//
// It links the driver directly; `via` lets it reach allocation by the other routes.
#define _GNU_SOURCE
#include "puppet.h"

#include "cuda.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SLOTS_MAX = 4096, WORDS_MAX = 8, LINE_MAX_BYTES = 1024, FDS_MAX = 4096 };

static struct {
    uint64_t address;
    size_t bytes;
} slots[SLOTS_MAX];

static alloc_fn *allocate = cuMemAlloc_v2;
static free_fn *release = cuMemFree_v2;
static char *program;

// One write, so that a killed puppet leaves no half line. Stdio is not used for output: a forked
// child must not write what its parent had buffered.
void puppet_answer(const char *format, ...) {
    char line[LINE_MAX_BYTES];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line, sizeof(line) - 1, format, arguments);
    va_end(arguments);
    line[length++] = '\n';
    if (write(STDOUT_FILENO, line, (size_t)length) != length)
        _exit(1);
}

void puppet_answer_code(int code) {
    if (code)
        puppet_answer("error %d", code);
    else
        puppet_answer("ok");
}

uint64_t puppet_number(const char *word) {
    return word ? strtoull(word, NULL, 0) : 0;
}

static int keep(uint64_t address, size_t bytes) {
    for (int i = 0; i < SLOTS_MAX; i++) {
        if (slots[i].bytes == 0) {
            slots[i].address = address;
            slots[i].bytes = bytes;
            return i;
        }
    }
    return -1;
}

static void do_init(char **words) {
    puppet_answer_code(use_gpu((int)puppet_number(words[1])));
}

// Allocation.

static void do_alloc(char **words) {
    uint64_t address = 0;
    size_t bytes = puppet_number(words[1]);
    int code = allocate(&address, bytes);
    if (code)
        puppet_answer("error %d", code);
    else
        puppet_answer("ok %d", keep(address, bytes));
}

static void do_pitch(char **words) {
    uint64_t address = 0;
    size_t pitch = 0, height = puppet_number(words[2]);
    int code = cuMemAllocPitch_v2(&address, &pitch, puppet_number(words[1]), height,
                                  (unsigned)puppet_number(words[3]));
    if (code)
        puppet_answer("error %d", code);
    else
        puppet_answer("ok %d %zu", keep(address, pitch * height), pitch);
}

static void do_managed(char **words) {
    uint64_t address = 0;
    size_t bytes = puppet_number(words[1]);
    int code = cuMemAllocManaged(&address, bytes, CU_MEM_ATTACH_GLOBAL);
    if (code)
        puppet_answer("error %d", code);
    else
        puppet_answer("ok %d", keep(address, bytes));
}

// "hog BYTES": pieces of BYTES until one is refused; how many, and the refusal.
static void do_hog(char **words) {
    size_t bytes = puppet_number(words[1]);
    uint64_t address;
    int count = 0, code;
    while (!(code = allocate(&address, bytes)) && keep(address, bytes) >= 0)
        count++;
    puppet_answer("ok %d %d", count, code);
}

// "churn COUNT BYTES": allocate and free, COUNT times.
static void do_churn(char **words) {
    int code = 0;
    uint64_t address;
    for (uint64_t i = puppet_number(words[1]); i > 0 && !code; i--) {
        code = allocate(&address, puppet_number(words[2]));
        if (!code)
            code = release(address);
    }
    puppet_answer_code(code);
}

static bool is_slot(uint64_t slot) {
    return slot < SLOTS_MAX && slots[slot].bytes > 0;
}

uint64_t puppet_address(const char *word) {
    uint64_t slot = puppet_number(word);
    return is_slot(slot) ? slots[slot].address : 0;
}

static void do_free(char **words) {
    uint64_t slot = puppet_number(words[1]);
    if (!is_slot(slot)) {
        puppet_answer("wrong slot");
        return;
    }
    slots[slot].bytes = 0;
    puppet_answer_code(release(slots[slot].address));
}

static void do_free_all(char **words) {
    int code = 0;
    (void)words;
    for (int i = 0; i < SLOTS_MAX && !code; i++) {
        if (slots[i].bytes > 0)
            code = release(slots[i].address);
        slots[i].bytes = 0;
    }
    puppet_answer_code(code);
}

static void do_free_address(char **words) {
    puppet_answer_code(release(puppet_number(words[1])));
}

static void do_info(char **words) {
    size_t free_bytes, total_bytes;
    int code = cuMemGetInfo_v2(&free_bytes, &total_bytes);
    (void)words;
    if (code)
        puppet_answer("error %d", code);
    else
        puppet_answer("ok %zu %zu", free_bytes, total_bytes);
}

static void do_total(char **words) {
    size_t bytes;
    int code = cuDeviceTotalMem_v2(&bytes, (int)puppet_number(words[1]));
    if (code)
        puppet_answer("error %d", code);
    else
        puppet_answer("ok %zu", bytes);
}

static void do_count(char **words) {
    int count, code = cuDeviceGetCount(&count);
    (void)words;
    if (code)
        puppet_answer("error %d", code);
    else
        puppet_answer("ok %d", count);
}

// Data. Each word of an allocation is a hash of its place and the seed.

static uint64_t pattern(uint64_t seed, uint64_t at) {
    uint64_t word = (seed << 32 | 1) + at * 0x9e3779b97f4a7c15u;
    word ^= word >> 29;
    return word * 0xbf58476d1ce4e5b9u;
}

static void do_fill(char **words) {
    uint64_t slot = puppet_number(words[1]), seed = puppet_number(words[2]);
    if (!is_slot(slot)) {
        puppet_answer("wrong slot");
        return;
    }
    size_t count = slots[slot].bytes / sizeof(uint64_t);
    uint64_t *data = malloc(slots[slot].bytes);
    for (size_t i = 0; data && i < count; i++)
        data[i] = pattern(seed, i);
    puppet_answer_code(cuMemcpyHtoD_v2(slots[slot].address, data, count * sizeof(*data)));
    free(data);
}

static void do_check(char **words) {
    uint64_t slot = puppet_number(words[1]), seed = puppet_number(words[2]);
    if (!is_slot(slot)) {
        puppet_answer("wrong slot");
        return;
    }
    size_t count = slots[slot].bytes / sizeof(uint64_t), i = 0;
    uint64_t *data = calloc(count, sizeof(*data));
    int code = cuMemcpyDtoH_v2(data, slots[slot].address, count * sizeof(*data));
    while (data && !code && i < count && data[i] == pattern(seed, i))
        i++;
    if (code)
        puppet_answer("error %d", code);
    else if (i < count)
        puppet_answer("wrong word %zu of slot %d", i, (int)slot);
    else
        puppet_answer("ok");
    free(data);
}

// Routes to the driver.

static int take_route(void *handle) {
    allocate = (alloc_fn *)dlsym(handle, "cuMemAlloc_v2");
    release = (free_fn *)dlsym(handle, "cuMemFree_v2");
    return allocate && release ? 0 : -1;
}

static int open_route(const char *path, int flags) {
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL | flags);
    return handle ? take_route(handle) : -1;
}

// A function of an object by its symbol table, past everybody who would have it found otherwise.
static void *walk(const struct link_map *object, const char *name) {
    const ElfW(Sym) *symbol = NULL;
    const char *names = NULL;
    for (const ElfW(Dyn) *entry = object->l_ld; entry->d_tag != DT_NULL; entry++) {
        if (entry->d_tag == DT_SYMTAB)
            symbol = (const ElfW(Sym) *)entry->d_un.d_ptr;
        else if (entry->d_tag == DT_STRTAB)
            names = (const char *)entry->d_un.d_ptr;
    }
    for (; symbol && (const char *)symbol < names; symbol++)  // which lie behind
        if (symbol->st_shndx != SHN_UNDEF && !strcmp(names + symbol->st_name, name))
            return (void *)(object->l_addr + symbol->st_value);
    return NULL;
}

static int walk_route(void) {
    struct link_map *object;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (!driver || dlinfo(driver, RTLD_DI_LINKMAP, &object))
        return -1;
    allocate = (alloc_fn *)walk(object, "cuMemAlloc_v2");
    release = (free_fn *)walk(object, "cuMemFree_v2");
    return allocate && release ? 0 : -1;
}

static int take_procaddress(int version) {
    void *found[2] = {NULL, NULL};
    int code = cuGetProcAddress_v2("cuMemAlloc", &found[0], version, 0, NULL);
    if (!code)
        code = cuGetProcAddress_v2("cuMemFree", &found[1], version, 0, NULL);
    allocate = (alloc_fn *)found[0];
    release = (free_fn *)found[1];
    return code ? code : found[0] && found[1] ? 0 : -1;
}

// "via ROUTE [PATH]": how allocate and release are found from now on.
static void do_via(char **words) {
    const char *route = words[1] ? words[1] : "";
    int failed = -1;
    if (!strcmp(route, "link")) {
        allocate = cuMemAlloc_v2;
        release = cuMemFree_v2;
        failed = 0;
    } else if (!strcmp(route, "default"))
        failed = take_route(RTLD_DEFAULT);
    else if (!strcmp(route, "local"))
        failed = open_route("libcuda.so.1", 0);
    else if (!strcmp(route, "deepbind"))
        failed = open_route("libcuda.so.1", RTLD_DEEPBIND);
    else if (!strcmp(route, "path"))
        failed = open_route(words[2], 0);
    else if (!strcmp(route, "walk"))
        failed = walk_route();
    else if (!strcmp(route, "procaddress"))
        failed = take_procaddress((int)puppet_number(words[2]));
    if (failed)
        puppet_answer("wrong route %s: %s", route, failed < 0 ? dlerror() : "refused");
    else
        puppet_answer("ok");
}

// "self VERSION": asks cuGetProcAddress for itself, and that for the allocating functions, each
// called as its version's documentation says.
static void do_self(char **words) {
    typedef int v1_fn(const char *, void **, int, uint64_t);
    typedef int v2_fn(const char *, void **, int, uint64_t, int *);
    int version = (int)puppet_number(words[1]), status = 0;
    void *self = NULL, *found[2] = {NULL, NULL};
    int code = cuGetProcAddress_v2("cuGetProcAddress", &self, version, 0, NULL);
    const char *names[2] = {"cuMemAlloc", "cuMemFree"};
    for (int i = 0; i < 2 && !code && !status; i++) {
        if (version >= 12000)
            code = ((v2_fn *)self)(names[i], &found[i], version, 0, &status);
        else
            code = ((v1_fn *)self)(names[i], &found[i], version, 0);
    }
    allocate = (alloc_fn *)found[0];
    release = (free_fn *)found[1];
    if (status)
        puppet_answer("wrong status %d", status);
    else
        puppet_answer_code(code);
}

// "look NAME VERSION FLAGS [null]": what cuGetProcAddress_v2 says: code, status, and the object and
// symbol that the pointer lies in. With "null" it is given no place for the status.
static void do_look(char **words) {
    void *found = NULL;
    int status = -1;
    Dl_info where = {0};
    int code = cuGetProcAddress_v2(words[1], &found, (int)puppet_number(words[2]),
                                   puppet_number(words[3]), words[4] ? NULL : &status);
    if (found)
        dladdr(found, &where);
    puppet_answer("ok %d %d %s %s", code, status, where.dli_fname ? where.dli_fname : "-",
                  where.dli_sname ? where.dli_sname : "-");
}

// "table": what cuGetExportTable gives for an id that no driver knows, and whether it leaves the
// place for the pointer alone.
static void do_table(char **words) {
    const unsigned char id[16] = "no such table!!";
    const void *table = &id;
    int code = cuGetExportTable(&table, id);
    (void)words;
    puppet_answer("ok %d %s", code, !table ? "null" : table == &id ? "untouched" : "set");
}

// Processes.

// "fork hold": a child that does nothing but keep what it inherited. "fork exec": a child that
// becomes another program. Answers the child's pid.
static void do_fork(char **words) {
    const char *what = words[1] ? words[1] : "";
    pid_t pid = fork();
    if (pid > 0) {
        puppet_answer("ok %d", (int)pid);
        return;
    }
    if (pid < 0) {
        puppet_answer("wrong fork %d", errno);
        return;
    }
    // It outlives its parent, that is the point; but not a test that forgot it.
    if (!strcmp(what, "exec"))
        execl("/bin/sleep", "sleep", "120", NULL);
    alarm(120);
    for (;;)
        pause();
}

// "child BYTES": a child that uses CUDA from the beginning, and what it got; it is ended then.
static void do_child(char **words) {
    int ends[2], code = -1;
    if (pipe(ends))
        _exit(1);
    pid_t pid = fork();
    if (pid == 0) {
        uint64_t address;
        code = use_gpu(0);
        if (!code)
            code = allocate(&address, puppet_number(words[1]));
        _exit(write(ends[1], &code, sizeof(code)) != sizeof(code));
    }
    close(ends[1]);
    if (read(ends[0], &code, sizeof(code)) != sizeof(code))
        code = -1;
    close(ends[0]);
    waitpid(pid, NULL, 0);
    puppet_answer_code(code);
}

// "exec": the same program anew, in the same process, with the same input.
static void do_exec(char **words) {
    (void)words;
    execl("/proc/self/exe", program, NULL);
    puppet_answer("wrong exec %d", errno);
}

static void do_closefrom(char **words) {
    closefrom((int)puppet_number(words[1]));
    puppet_answer("ok");
}

// "reuse PATH": closes every descriptor from 3 on and opens PATH under the same numbers, as a host
// does that knows nothing of a library's descriptors. Answers how many there were.
static void do_reuse(char **words) {
    int count = 0, file = open(words[1], O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    for (int fd = 3; fd < FDS_MAX; fd++) {
        if (fd == file || fcntl(fd, F_GETFD) < 0)
            continue;
        if (dup2(file, fd) == fd)
            count++;
    }
    puppet_answer(file < 0 ? "wrong file" : "ok %d", count);
}

static void do_pid(char **words) {
    (void)words;
    puppet_answer("ok %d", (int)getpid());
}

static const struct puppet_command commands[] = {
    {"init", do_init},   {"alloc", do_alloc},
    {"pitch", do_pitch}, {"managed", do_managed},
    {"hog", do_hog},     {"churn", do_churn},
    {"free", do_free},   {"free-all", do_free_all},
    {"info", do_info},   {"free-address", do_free_address},
    {"total", do_total}, {"count", do_count},
    {"fill", do_fill},   {"check", do_check},
    {"via", do_via},     {"look", do_look},
    {"fork", do_fork},   {"child", do_child},
    {"exec", do_exec},   {"closefrom", do_closefrom},
    {"pid", do_pid},     {"self", do_self},
    {"table", do_table}, {"reuse", do_reuse},
    {NULL, NULL},
};

static bool run_one_of(const struct puppet_command *list, char **words) {
    for (; list->name; list++) {
        if (!strcmp(words[0], list->name)) {
            list->run(words);
            return true;
        }
    }
    return false;
}

static void run_line(char *line) {
    char *words[WORDS_MAX + 1] = {NULL}, *rest = line;
    for (int count = 0; count < WORDS_MAX;) {
        char *word = strsep(&rest, " ");
        if (!word)
            break;
        if (*word)
            words[count++] = word;
    }
    if (words[0] && (run_one_of(commands, words) || run_one_of(puppet_context_commands, words) ||
                     run_one_of(puppet_share_commands, words)))
        return;
    puppet_answer("wrong command %s", words[0] ? words[0] : "");
}

// Reads byte by byte, so that nothing of the input is lost at exec.
static bool read_line(char *line) {
    for (size_t length = 0; length < LINE_MAX_BYTES - 1; length++) {
        if (read(STDIN_FILENO, line + length, 1) != 1)
            return false;
        if (line[length] == '\n') {
            line[length] = 0;
            return true;
        }
    }
    return false;
}

int main(int count, char **arguments) {
    char line[LINE_MAX_BYTES];
    (void)count;
    program = arguments[0];
    // So that other puppets can take over descriptors (puppet_share.c).
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    while (read_line(line))
        run_line(line);
    return 0;
}
