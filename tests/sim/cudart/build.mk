# build/sim/libweircudart.so: the small CUDA runtime for <<<>>> programs compiled by clang.

CUDART_DIR := tests/sim/cudart
CUDART_SOURCES := $(wildcard $(CUDART_DIR)/*.c)
CUDART_CFLAGS := -std=gnu11 -D_GNU_SOURCE -O2 -g -Wall -Wextra -Werror -fPIC -fvisibility=hidden

BUILD_TARGETS += $(BUILD)/sim/libweircudart.so

$(BUILD)/sim/libweircudart.so: $(CUDART_SOURCES) $(CUDART_DIR)/runtime.h $(CUDART_DIR)/build.mk
	@mkdir -p $(@D)
	$(CC) $(CUDART_CFLAGS) -shared -Wl,-soname,libweircudart.so -Wl,-z,defs,-z,now,-z,relro \
	  -o $@ $(CUDART_SOURCES) -ldl -pthread
