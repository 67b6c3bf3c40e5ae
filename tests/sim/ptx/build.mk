# The PTX interpreter's tests. Its objects are the simulated driver's (tests/sim/build.mk), plain and
# under the sanitisers.

PTX_DIR := tests/sim/ptx
PTX_TEST_DIR := $(PTX_DIR)/test
PTX_OUT := $(BUILD)/sim/ptx
PTX_CLANG := $(shell command -v clang 2>/dev/null)
PTX_CFLAGS := -std=gnu11 -D_GNU_SOURCE -O2 -g -Wall -Wextra -Werror -I. -pthread -ffp-contract=off
PTX_TESTS := integers floats memory control module kernels
PTX_LEVELS := 0 1 2 3
PTX_CORPUS := $(wildcard $(PTX_TEST_DIR)/corpus/*.ptx tests/sim/kernels/*.ptx)
PTX_TEST_HEADERS := $(wildcard $(PTX_TEST_DIR)/*.h) $(PTX_DIR)/ptx.h tests/sim/programs/reference.h
FUZZ_SECONDS ?= 60

# Clang's options for CUDA C++ without any file of NVIDIA's; also used by tests/sim/programs.
PTX_CUDA_FLAGS := -x cuda -nocudainc -nocudalib --cuda-gpu-arch=sm_70 -Wall -Wextra -Werror -I. \
  -Xclang -target-sdk-version=11.2
PTX_DEVICE_FLAGS := $(PTX_CUDA_FLAGS) -Xclang -target-feature -Xclang +ptx64 --cuda-device-only -S

TEST_TARGETS += ptx-test
SANITIZE_TARGETS += ptx-asan ptx-tsan
GENERATE_TARGETS += ptx-generate
FUZZ_TARGETS += fuzz-ptx

# One kind of build: the test programs against the driver's objects of that kind.
define PTX_KIND
PTX_ARCHIVE_$(1) := $(PTX_OUT)/$(1)/libptx.a
PTX_PROGRAMS_$(1) := $(PTX_TESTS:%=$(PTX_OUT)/$(1)/test_%)

$(PTX_OUT)/$(1)/libptx.a: $(patsubst $(PTX_DIR)/%.c,$(SIM_OUT)/$(1)/ptx/%.o,\
  $(wildcard $(PTX_DIR)/*.c))
	@mkdir -p $$(@D)
	rm -f $$@
	$$(AR) rcs $$@ $$^

$(PTX_OUT)/$(1)/test_%: $(PTX_TEST_DIR)/test_%.c $(PTX_TEST_DIR)/harness.c $(PTX_TEST_DIR)/cases.c \
  $(PTX_TEST_HEADERS) $$(PTX_ARCHIVE_$(1))
	@mkdir -p $$(@D)
	$$(CC) $$(PTX_CFLAGS) $$(SIM_EXTRA_$(1)) -o $$@ $$(filter %.c,$$^) $$(PTX_ARCHIVE_$(1)) -lm

$(PTX_OUT)/$(1)/mutate: $(PTX_TEST_DIR)/mutate.c $(PTX_TEST_DIR)/fuzz.c $(PTX_TEST_HEADERS) \
  $$(PTX_ARCHIVE_$(1))
	@mkdir -p $$(@D)
	$$(CC) $$(PTX_CFLAGS) $$(SIM_EXTRA_$(1)) -o $$@ $$(filter %.c,$$^) $$(PTX_ARCHIVE_$(1)) -lm

$(PTX_OUT)/$(1)/differential: $(PTX_OUT)/differential.o $(PTX_TEST_DIR)/harness.c \
  $$(PTX_ARCHIVE_$(1))
	@mkdir -p $$(@D)
	$$(CC) $$(PTX_CFLAGS) $$(SIM_EXTRA_$(1)) -o $$@ $$^ -lm
endef
$(foreach kind,plain asan tsan,$(eval $(call PTX_KIND,$(kind))))

# Both sides of the differential test are clang's.
$(PTX_OUT)/differential.o: $(PTX_TEST_DIR)/differential.c $(PTX_TEST_DIR)/differential.inc \
  $(PTX_TEST_HEADERS)
	@mkdir -p $(@D)
	$(PTX_CLANG) $(PTX_CFLAGS) -c -o $@ $<

$(PTX_LEVELS:%=$(PTX_OUT)/differential-O%.ptx): $(PTX_OUT)/differential-O%.ptx: \
  $(PTX_TEST_DIR)/differential.cu $(PTX_TEST_DIR)/differential.inc tests/sim/cudart/weir_cuda.h
	@mkdir -p $(@D)
	$(PTX_CLANG) $(PTX_DEVICE_FLAGS) -O$* -ffp-contract=off -o $@ $<

ifeq ($(PTX_CLANG),)
PTX_DIFFERENTIAL := @echo 'skip ptx: differential: clang is not installed'
else
PTX_DIFFERENTIAL_PTX := $(PTX_LEVELS:%=$(PTX_OUT)/differential-O%.ptx)
PTX_DIFFERENTIAL = $(PTX_OUT)/$(1)/differential $(PTX_DIFFERENTIAL_PTX)
PTX_DIFFERENTIAL_NEEDS = $(PTX_OUT)/$(1)/differential $(PTX_DIFFERENTIAL_PTX)
endif

.PHONY: ptx-test
ptx-test: $(PTX_PROGRAMS_plain) $(call PTX_DIFFERENTIAL_NEEDS,plain)
	for test in $(PTX_PROGRAMS_plain); do $$test; done
	$(call PTX_DIFFERENTIAL,plain)

.PHONY: ptx-asan
ptx-asan: $(PTX_PROGRAMS_asan) $(PTX_OUT)/asan/mutate $(call PTX_DIFFERENTIAL_NEEDS,asan)
	for test in $(PTX_PROGRAMS_asan); do $$test; done
	$(call PTX_DIFFERENTIAL,asan)
	$(PTX_OUT)/asan/mutate $(PTX_CORPUS)

# Several launches of one module at once.
.PHONY: ptx-tsan
ptx-tsan: $(PTX_OUT)/tsan/test_memory
	$<

.PHONY: ptx-generate
ptx-generate:
	tests/sim/kernels/generate.sh

# Needs clang's libFuzzer. What it finds lands in $(PTX_OUT)/fuzz.
.PHONY: fuzz-ptx
fuzz-ptx:
	@mkdir -p $(PTX_OUT)/fuzz/corpus
	clang $(PTX_CFLAGS) -Wno-error -O1 -fsanitize=fuzzer,address,undefined \
	  -fno-sanitize-recover=undefined -o $(PTX_OUT)/fuzz/fuzz $(PTX_TEST_DIR)/fuzz.c \
	  $(wildcard $(PTX_DIR)/*.c) -lm
	$(PTX_OUT)/fuzz/fuzz -max_total_time=$(FUZZ_SECONDS) -max_len=20000 -timeout=10 \
	  -rss_limit_mb=2048 -artifact_prefix=$(PTX_OUT)/fuzz/ $(PTX_OUT)/fuzz/corpus \
	  $(PTX_TEST_DIR)/corpus tests/sim/kernels
