# Clients of the whole-system tests, in build/e2e/. They link the null driver's names; which driver
# they run on says LD_LIBRARY_PATH.

E2E_DIR := tests/e2e/clients
E2E_OUT := $(BUILD)/e2e
# Lazily bound, so that they start on a driver that lacks names which they do not use there.
E2E_CFLAGS := -std=gnu11 -O2 -g -Wall -Wextra -Werror -I$(E2E_DIR) -Wl,-z,lazy
E2E_HEADERS := $(addprefix $(E2E_DIR)/,cuda.h random.h tenant.h)
E2E_DRIVER := $(BUILD)/bench/libcuda.so.1
# For those that look into the simulated machine's own books.
E2E_MACHINE := $(wildcard tests/sim/*.c)

E2E_CHURN := $(addprefix $(E2E_DIR)/,churn.c churn_memory.c churn_shared.c churn_context.c)
E2E_CHURN_HEADERS := $(E2E_DIR)/churn.h $(wildcard tests/sim/driver/cuda_*abi.h)

# Not part of `make build`: whoever only wants the demo need not wait for them.
E2E_TARGETS := $(addprefix $(E2E_OUT)/,puppet troupe crowd forger babbler spinner surveyor acrobat churn guest streamer \
  busy flow order chatter prober keeper libnext.so)

unit e2e chaos: $(E2E_TARGETS)

# The computing programs (tests/sim/programs) and the simulated driver's own tests, which run under the
# library as well.
e2e: $(PROGRAMS_OUT)/compute $(PROGRAMS_CUDA) $(SIM_DRIVER_TESTS:%=$(SIM_OUT)/plain/%)

$(E2E_OUT):
	mkdir -p $@

$(E2E_OUT)/puppet: $(addprefix $(E2E_DIR)/,puppet.c puppet_context.c puppet_share.c puppet.h) $(E2E_HEADERS) \
  $(E2E_DRIVER) | $(E2E_OUT)
	$(CC) $(E2E_CFLAGS) -o $@ $(filter %.c,$^) $(E2E_DRIVER) -ldl -lpthread

$(E2E_OUT)/acrobat: $(addprefix $(E2E_DIR)/,acrobat.c acrobat_memory.c acrobat_pool.c acrobat_context.c \
  acrobat_exports.c acrobat.h) $(E2E_HEADERS) \
  $(wildcard tests/sim/driver/cuda_*abi.h) \
  tests/sim/driver/test/test_fatbin.h $(E2E_DRIVER) | $(E2E_OUT)
	$(CC) $(E2E_CFLAGS) -o $@ $(filter %.c,$^) $(E2E_DRIVER)

$(addprefix $(E2E_OUT)/,forger babbler spinner surveyor order chatter): $(E2E_OUT)/%: $(E2E_DIR)/%.c $(E2E_HEADERS) \
  cgo/abi/weir_abi.h $(E2E_DRIVER) | $(E2E_OUT)
	$(CC) $(E2E_CFLAGS) -o $@ $< $(E2E_DRIVER)

$(E2E_OUT)/churn: $(E2E_CHURN) $(E2E_CHURN_HEADERS) $(E2E_DRIVER) | $(E2E_OUT)
	$(CC) $(E2E_CFLAGS) -pthread -o $@ $(E2E_CHURN) $(E2E_DRIVER)

# The same under a sanitizer, whole: with the library linked in, which no sanitizer's own library can
# be preloaded before, and on the simulated driver of the same kind, which it finds beside it.
E2E_ARCH := $(if $(filter aarch64,$(shell uname -m)),arm64,amd64)
E2E_LIBRARY := $(wildcard $(LIB_DIR)/*.c $(LIB_DIR)/*_$(E2E_ARCH).S) $(LIB_DIR)/preload/exports.S
define E2E_CHURN_KIND
$$(SIM_OUT)/$(1)/churn: $$(E2E_CHURN) $$(E2E_CHURN_HEADERS) $$(LIB_SOURCES) \
  $$(SIM_OUT)/$(1)/libcuda.so.1
	$$(CC) $$(E2E_CFLAGS) -D_GNU_SOURCE -fno-stack-protector -U_FORTIFY_SOURCE -I$$(LIB_DIR) \
	  $$(SIM_EXTRA_$(1)) -pthread -o $$@ $$(E2E_CHURN) $$(E2E_LIBRARY) \
	  $$(SIM_OUT)/$(1)/libcuda.so.1 -Wl,-rpath,'$$$$ORIGIN'
endef
$(foreach kind,asan tsan,$(eval $(call E2E_CHURN_KIND,$(kind))))
e2e: $(foreach kind,asan tsan,$(SIM_OUT)/$(kind)/churn)

$(E2E_OUT)/keeper: $(E2E_DIR)/keeper.c $(E2E_DIR)/random.h $(wildcard tests/sim/driver/cuda_*abi.h) $(E2E_DRIVER) \
  | $(E2E_OUT)
	$(CC) $(E2E_CFLAGS) -o $@ $< $(E2E_DRIVER)

$(E2E_OUT)/streamer: $(E2E_DIR)/streamer.c $(wildcard tests/sim/driver/cuda_*abi.h) $(E2E_DRIVER) \
  | $(E2E_OUT)
	$(CC) $(E2E_CFLAGS) -o $@ $< $(E2E_DRIVER)

$(E2E_OUT)/flow: $(addprefix $(E2E_DIR)/,flow.c flow_knot.c flow_ways.c flow.h) $(wildcard tests/sim/driver/cuda_*abi.h) \
  $(E2E_DRIVER) | $(E2E_OUT)
	$(CC) $(E2E_CFLAGS) -o $@ $(filter %.c,$^) $(E2E_DRIVER) -ldl -lpthread

$(E2E_OUT)/prober: $(addprefix $(E2E_DIR)/,prober.c prober_ask.c prober_copy.c prober_many.c prober.h) \
  $(wildcard tests/sim/driver/cuda_*abi.h) $(E2E_DRIVER) | $(E2E_OUT)
	$(CC) $(E2E_CFLAGS) -o $@ $(filter %.c,$^) $(E2E_DRIVER) -ldl -lpthread

# With the library's own files in it, whose calls it makes itself; nothing is interposed.
$(E2E_OUT)/busy: $(wildcard $(E2E_DIR)/busy*) $(LIB_SOURCES) $(E2E_DRIVER) | $(E2E_OUT)
	$(CC) $(E2E_CFLAGS) -D_GNU_SOURCE -fno-stack-protector -U_FORTIFY_SOURCE -I$(LIB_DIR) -pthread -o $@ \
	  $(filter $(E2E_DIR)/%.c,$^) $(wildcard $(LIB_DIR)/*.c $(LIB_DIR)/*_$(E2E_ARCH).S) $(E2E_DRIVER)

$(addprefix $(E2E_OUT)/,troupe guest): $(E2E_OUT)/%: $(E2E_DIR)/%.c | $(E2E_OUT)
	$(CC) $(E2E_CFLAGS) -o $@ $< -ldl

$(E2E_OUT)/crowd: $(addprefix $(E2E_DIR)/,crowd.c racer.c board.c board.h) $(E2E_HEADERS) \
  $(E2E_MACHINE) $(wildcard tests/sim/*.h) $(E2E_DRIVER) | $(E2E_OUT)
	$(CC) $(E2E_CFLAGS) -o $@ $(filter %.c,$^) $(E2E_DRIVER) -lpthread

$(E2E_OUT)/libnext.so: $(E2E_DIR)/next.c | $(E2E_OUT)
	$(CC) $(E2E_CFLAGS) -fPIC -shared -o $@ $<
