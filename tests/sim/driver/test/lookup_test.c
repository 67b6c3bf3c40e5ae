// lookup_test.c: what cuGetProcAddress answers, against what was observed of real drivers and
// runtimes. Arguments: the testdata directory. First without a machine, where the driver is of the
// version 12.2; then with one of 12.5, the newest that the tables know.
#define _GNU_SOURCE
#include "../cuda_abi.h"
#include "test.h"
#include "test_machine.h"

#include <dlfcn.h>
#include <stdbool.h>

static const char *data;
static void *library;

struct row {
    char name[128], export[128];
    int flags, version;
};

static void *exported(const char *name) {
    return dlsym(library, name);
}

static FILE *open_table(const char *file) {
    char path[512], header[256];
    snprintf(path, sizeof path, "%s/%s", data, file);
    FILE *table = fopen(path, "r");
    CHECK(table);
    CHECK(fgets(header, sizeof header, table));
    return table;
}

static void *ask(const char *name, int version, int flags, int *status) {
    void *function = &function;
    CHECK_EQ(cuGetProcAddress_v2(name, &function, version, (uint64_t)flags, status), CUDA_SUCCESS);
    void *old = &old;
    CUresult rc = cuGetProcAddress(name, &old, version, (uint64_t)flags);
    if (function) {
        CHECK_EQ(rc, CUDA_SUCCESS);
        CHECK(old == function);
    } else {
        CHECK_EQ(rc, CUDA_ERROR_NOT_FOUND);
        CHECK(old == &old);
    }
    CHECK((*status == 0) == (function != NULL));
    return function;
}

static bool next_row(FILE *table, struct row *row) {
    return fscanf(table, "%127s %d %d %127s", row->name, &row->flags, &row->version, row->export) ==
           4;
}

static int version(void) {
    int version;
    CHECK_EQ(cuDriverGetVersion(&version), CUDA_SUCCESS);
    return version;
}

// Every answer of 555 at the lowest version and one below; no answer newer than this driver.
static void table_of_555(void) {
    struct row row;
    FILE *table = open_table("libcuda-555-getprocaddress.tsv");
    int status, known = 0, newer = 0;
    while (next_row(table, &row)) {
        void *wanted = exported(row.export);
        CHECK(wanted);
        bool there = row.version <= version();
        CHECK((ask(row.name, row.version, row.flags, &status) == wanted) == there);
        CHECK(ask(row.name, row.version - 1, row.flags, &status) != wanted);
        *(there ? &known : &newer) += 1;
    }
    fclose(table);
    CHECK_EQ(known, version() == 12020 ? 1483 : 1600);
    CHECK_EQ(newer, version() == 12020 ? 117 : 0);
}

// The lowest version that gives an export; 0: cuGetProcAddress never does.
static int since(const char *export) {
    struct row row;
    FILE *table = open_table("libcuda-555-getprocaddress.tsv");
    int version = 0;
    while (!version && next_row(table, &row))
        if (!strcmp(row.export, export))
            version = row.version;
    fclose(table);
    return version;
}

// What a runtime asks for, in its order. A name of a newer driver gets an older export of the same
// name, or none.
static void replay(const char *file) {
    char line[512], name[128], export[128];
    int asked, flags, status, rows = 0;
    FILE *table = open_table(file);
    while (fgets(line, sizeof line, table)) {
        CHECK_EQ(sscanf(line, "%127[^\t]\t%d\t%d\t%127s", name, &asked, &flags, export), 4);
        if (!strcmp(name, "(empty string)"))
            name[0] = 0;
        void *function = ask(name, asked, flags, &status);
        if (since(export) && since(export) <= version())
            CHECK(function == exported(export));
        else if (since(name) && since(name) <= version())
            CHECK(function && function != exported(export));
        else
            CHECK_EQ(status, 1);
        rows++;
    }
    fclose(table);
    CHECK(rows > 380);
}

static void runtime_11_8(void) {
    replay("runtime-11.8-lookups.tsv");
}
static void runtime_12_4(void) {
    replay("runtime-12.4-lookups.tsv");
}

static void rules(void) {
    void *function;
    int status;
    CHECK(ask("cuGetProcAddress", 11030, 0, &status) == exported("cuGetProcAddress"));
    CHECK(ask("cuGetProcAddress", 12000, 0, &status) == exported("cuGetProcAddress_v2"));
    CHECK(ask("cuMemAlloc", 99000, 0, &status) == exported("cuMemAlloc_v2"));
    CHECK(ask("cuMemcpy", 7000, 2, &status) == exported("cuMemcpy_ptds"));
    CHECK(!ask("cuMemAlloc_v2", 12000, 0, &status));
    CHECK_EQ(status, 1);
    CHECK(!ask("cudbgApiInit", 12000, 0, &status));
    CHECK(!ask("cuMemAllocAsync", 10000, 0, &status));
    CHECK_EQ(status, 2);
    CHECK_EQ(cuGetProcAddress_v2("cuInit", &function, 12000, 3, &status), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuGetProcAddress_v2("nothing", &function, 12000, 0, NULL), CUDA_SUCCESS);
    CHECK(!function);
    CHECK_EQ(cuGetProcAddress_v2(NULL, &function, 12000, 0, NULL), CUDA_ERROR_INVALID_VALUE);
}

// Every export can be called before cuInit, and says so.
static void names_exist(void) {
    CUresult (*call)(void *, void *) =
        (CUresult(*)(void *, void *))(uintptr_t)exported("cuArrayCreate_v2");
    CHECK(call);
    CHECK_EQ(call(NULL, NULL), CUDA_ERROR_NOT_INITIALIZED);
}

static void driver_of_12_5(void) {
    struct sim_config config = test_config();
    config.cuda_version = 12050;
    sim_machine_close(test_machine(&config));
    CHECK_EQ(version(), 12050);
}

int main(int argc, char **argv) {
    data = argc > 1 ? argv[1] : "tests/sim/testdata";
    argc = 1;
    setenv("WEIR_SIM", "/nonexistent", 1);
    library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    CHECK(library);
    static const struct test tests[] = {
        TEST(rules),       TEST(table_of_555),   TEST(runtime_11_8), TEST(runtime_12_4),
        TEST(names_exist), TEST(driver_of_12_5), TEST(table_of_555), TEST(runtime_12_4),
    };
    int rc = RUN(tests);
    test_machine_remove();
    return rc;
}
