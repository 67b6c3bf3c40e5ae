# The simulated machine and driver: build/sim/libcuda.so.1, its tests, and both under sanitisers.
# Everything is compiled three times, into $(SIM_OUT)/{plain,asan,tsan}.

SIM_DIR := tests/sim
SIM_OUT := $(BUILD)/sim/obj
SIM_CFLAGS := -std=gnu11 -O2 -g -Wall -Wextra -Werror -fPIC -fvisibility=hidden -pthread
SIM_LDFLAGS := -pthread -Wl,-z,defs -Wl,-z,now -Wl,-z,relro -Wl,-z,nodelete -Wl,-Bsymbolic
# Floats must be neither contracted nor evaluated in another rounding mode than the instruction's.
SIM_INTERPRETER_CFLAGS := -D_GNU_SOURCE -ffp-contract=off -frounding-math -fno-math-errno
SIM_MACHINE_SOURCES := $(wildcard $(SIM_DIR)/*.c)
SIM_SOURCES := $(SIM_MACHINE_SOURCES) $(wildcard $(SIM_DIR)/driver/*.c $(SIM_DIR)/ptx/*.c)
SIM_HEADERS := $(wildcard $(SIM_DIR)/*.h $(SIM_DIR)/driver/*.h $(SIM_DIR)/driver/*.inc \
  $(SIM_DIR)/ptx/*.h $(SIM_DIR)/ptx/*.def)
SIM_TEST_DIR := $(SIM_DIR)/driver/test

SIM_EXTRA_plain :=
SIM_EXTRA_asan := -O1 -fsanitize=address,undefined -fno-sanitize-recover=all \
  -fno-omit-frame-pointer
SIM_EXTRA_tsan := -O1 -fsanitize=thread -Wno-tsan

BUILD_TARGETS += $(BUILD)/sim/libcuda.so.1
TEST_TARGETS += sim-test
SANITIZE_TARGETS += sim-asan sim-tsan
GENERATE_TARGETS += sim-generate

# One kind of build: objects, the library, and the test programs beside it.
define SIM_KIND
SIM_OBJECTS_$(1) := $$(SIM_SOURCES:$$(SIM_DIR)/%.c=$$(SIM_OUT)/$(1)/%.o)
SIM_MACHINE_OBJECTS_$(1) := $$(SIM_MACHINE_SOURCES:$$(SIM_DIR)/%.c=$$(SIM_OUT)/$(1)/%.o)

$$(SIM_OUT)/$(1)/%.o: $$(SIM_DIR)/%.c $$(SIM_HEADERS) $$(SIM_DIR)/build.mk
	@mkdir -p $$(@D)
	$$(CC) $$(SIM_CFLAGS) $$(SIM_EXTRA_$(1)) -c -o $$@ $$<

$$(SIM_OUT)/$(1)/ptx/%.o: $$(SIM_DIR)/ptx/%.c $$(SIM_HEADERS) $$(SIM_DIR)/build.mk
	@mkdir -p $$(@D)
	$$(CC) $$(SIM_CFLAGS) $$(SIM_INTERPRETER_CFLAGS) $$(SIM_EXTRA_$(1)) -c -o $$@ $$<

$$(SIM_OUT)/$(1)/libcuda.so.1: $$(SIM_OBJECTS_$(1)) $$(SIM_DIR)/driver/driver.map
	$$(CC) $$(SIM_EXTRA_$(1)) -shared -Wl,-soname,libcuda.so.1 \
	  -Wl,--version-script=$$(SIM_DIR)/driver/driver.map $$(SIM_LDFLAGS) -o $$@ \
	  $$(SIM_OBJECTS_$(1)) -lm
endef
$(foreach kind,plain asan tsan,$(eval $(call SIM_KIND,$(kind))))

# The sanitisers' own libraries are not all there for -z defs.
$(SIM_OUT)/asan/libcuda.so.1 $(SIM_OUT)/tsan/libcuda.so.1: SIM_LDFLAGS := -pthread \
  -Wl,-z,now -Wl,-Bsymbolic

$(BUILD)/sim/libcuda.so.1: $(SIM_OUT)/plain/libcuda.so.1
	cp $< $@

.PHONY: sim-generate
sim-generate:
	$(SIM_DIR)/driver/generate.sh
