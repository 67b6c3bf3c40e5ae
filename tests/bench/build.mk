# The null driver and the benchmark programs, in build/bench/.

BENCH_DIR := tests/bench
BENCH_OUT := $(BUILD)/bench
BENCH_CFLAGS := -std=gnu11 -O2 -Wall -Wextra -Werror
BENCH_OVERHEAD := $(BENCH_DIR)/overhead
BENCH_HEADERS := $(BENCH_OVERHEAD)/driver_calls.h tests/e2e/clients/cuda.h

BENCH_TARGETS += $(addprefix $(BENCH_OUT)/,libcuda.so.1 calls start overhead crowd sim_launch managed gate launch containers load \
  handover mixes.test sched.test tenant watch swap.test)

unit: $(BENCH_TARGETS)

# Of section swap: programs whose data move.
bench: $(BUILD)/e2e/keeper

$(BENCH_OUT):
	mkdir -p $@

$(BENCH_OUT)/libcuda.so.1: $(wildcard $(BENCH_DIR)/null/*) cgo/symbols.def | $(BENCH_OUT)
	$(CC) $(BENCH_CFLAGS) -fPIC -fvisibility=hidden -ftls-model=initial-exec -shared \
	  -Wl,-soname,libcuda.so.1 -Wl,-z,now,-z,defs -o $@ $(wildcard $(BENCH_DIR)/null/*.c)

$(BENCH_OUT)/calls: $(addprefix $(BENCH_OVERHEAD)/,calls.c variants.c measure.c measure.h) \
  $(BENCH_HEADERS) $(BENCH_OUT)/libcuda.so.1
	$(CC) $(BENCH_CFLAGS) -o $@ $(filter %.c,$^) $(BENCH_OUT)/libcuda.so.1 -Wl,-rpath,'$$ORIGIN' -lpthread

$(BENCH_OUT)/start: $(BENCH_OVERHEAD)/start.c $(BENCH_HEADERS) | $(BENCH_OUT)
	$(CC) $(BENCH_CFLAGS) -o $@ $< -Wl,-rpath,'$$ORIGIN'

$(BENCH_OUT)/overhead: $(BENCH_OVERHEAD)/overhead.c $(BENCH_OVERHEAD)/children.c $(BENCH_OVERHEAD)/children.h \
  $(BENCH_HEADERS) | $(BENCH_OUT)
	$(CC) $(BENCH_CFLAGS) -o $@ $(filter %.c,$^) -lm

$(BENCH_OUT)/crowd: $(BENCH_OVERHEAD)/crowd.c $(BENCH_OVERHEAD)/children.c $(BENCH_OVERHEAD)/children.h \
  $(BENCH_HEADERS) | $(BENCH_OUT)
	$(CC) $(BENCH_CFLAGS) -o $@ $(filter %.c,$^) -lm

$(BENCH_OUT)/sim_launch: $(BENCH_OVERHEAD)/sim_launch.c $(BENCH_HEADERS) $(BENCH_OUT)/libcuda.so.1
	$(CC) $(BENCH_CFLAGS) -o $@ $< $(BENCH_OUT)/libcuda.so.1

# On the simulated GPU; the loader finds that by LD_LIBRARY_PATH.
$(BENCH_OUT)/managed: $(wildcard $(BENCH_DIR)/managed/*) $(SIM_MACHINE_OBJECTS_plain) \
  $(BUILD)/sim/libcuda.so.1 | $(BENCH_OUT)
	$(CC) $(BENCH_CFLAGS) -pthread -o $@ $(filter %.c %.o,$^) $(BUILD)/sim/libcuda.so.1 -lm

$(BENCH_OUT)/gate: $(addprefix $(BENCH_DIR)/time/,gate.c homes.c homes.h) $(addprefix $(BENCH_OVERHEAD)/,measure.c measure.h) \
  cgo/gate.c cgo/revoke.c cgo/gate.h cgo/sys.h $(BENCH_HEADERS) $(BENCH_OUT)/libcuda.so.1
	$(CC) $(BENCH_CFLAGS) -pthread -o $@ $(filter %.c,$^) $(BENCH_OUT)/libcuda.so.1 -Wl,-rpath,'$$ORIGIN'

# Its figures are read from the books of a simulated machine, whose driver the loader finds.
$(BENCH_OUT)/load: $(addprefix $(BENCH_DIR)/,time/load.c settings/settings.c settings/settings.h) $(BENCH_HEADERS) $(BENCH_OUT)/libcuda.so.1
	$(CC) $(BENCH_CFLAGS) -o $@ $(filter %.c,$^) $(BENCH_OUT)/libcuda.so.1

# It looks into the machine itself.
$(BENCH_OUT)/handover: $(addprefix $(BENCH_DIR)/time/,handover.c chain.c chain.h) $(SIM_MACHINE_OBJECTS_plain) \
  | $(BENCH_OUT)
	$(CC) $(BENCH_CFLAGS) -pthread -o $@ $(filter %.c %.o,$^) -lm

# Programs whose sets exceed a card, on whichever driver the loader finds, and who looks into the machine's books.
$(BENCH_OUT)/tenant: $(addprefix $(BENCH_DIR)/,$(addprefix tenants/,tenant.c lock.c lock.h) settings/settings.c settings/settings.h) $(BENCH_HEADERS) $(BENCH_OUT)/libcuda.so.1
	$(CC) $(BENCH_CFLAGS) -o $@ $(filter %.c,$^) $(BENCH_OUT)/libcuda.so.1

$(BENCH_OUT)/watch: $(BENCH_DIR)/tenants/watch.c $(SIM_MACHINE_OBJECTS_plain) | $(BENCH_OUT)
	$(CC) $(BENCH_CFLAGS) -pthread -o $@ $(filter %.c %.o,$^) -lm

# Built ahead, so that no compiler runs beside what is measured.
$(BENCH_OUT)/mixes.test: $(wildcard $(BENCH_DIR)/mixes/*.go $(BENCH_DIR)/figures/*.go tests/e2e/node/*.go tests/e2e/ctrd/*.go tests/sim/*.[ch] \
  tests/sim/*.go) | $(BENCH_OUT)
	$(GO) test -c -o $@ ./$(BENCH_DIR)/mixes

$(BENCH_OUT)/swap.test: $(wildcard $(BENCH_DIR)/swap/*.go $(BENCH_DIR)/figures/*.go tests/e2e/node/*.go tests/e2e/keepers/*.go tests/sim/*.[ch] \
  tests/sim/*.go) | $(BENCH_OUT)
	$(GO) test -c -o $@ ./$(BENCH_DIR)/swap

$(BENCH_OUT)/sched.test: $(wildcard agent/sched/*.go) | $(BENCH_OUT)
	$(GO) test -c -o $@ ./agent/sched

# With the library's own files in it, optimized over all of them as the library is.
BENCH_LIBRARY := $(wildcard cgo/*.c cgo/*_$(if $(filter aarch64,$(shell uname -m)),arm64,amd64).S)
$(BENCH_OUT)/launch: $(BENCH_DIR)/time/launch.c $(LIB_SOURCES) $(BENCH_OUT)/libcuda.so.1
	$(CC) $(BENCH_CFLAGS) -D_GNU_SOURCE -fno-stack-protector -U_FORTIFY_SOURCE -flto=1 -flto-partition=one -pthread \
	  -o $@ $(filter $(BENCH_DIR)/%.c,$^) $(BENCH_LIBRARY) $(BENCH_OUT)/libcuda.so.1 -Wl,-rpath,'$$ORIGIN'

$(BENCH_OUT)/containers: $(wildcard $(BENCH_DIR)/containers/*.go) | $(BENCH_OUT)
	CGO_ENABLED=0 $(GO_BUILD) -o $@ ./$(BENCH_DIR)/containers
