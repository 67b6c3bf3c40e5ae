# The library: cgo/lib/libweir.so, which is embedded in the binary `weir`, and build/libweir.so.
#
# Of which files it is made, and with what flags, cgo/link takes from the Go package; what is listed
# here only says when it has to be made anew.

LIB_DIR := cgo
LIB_EMBEDDED := $(LIB_DIR)/lib/libweir.so
LIB_TRAP := -fsanitize=undefined -fsanitize-undefined-trap-on-error
LIB_SOURCES := $(wildcard $(LIB_DIR)/*.[chS] $(LIB_DIR)/*.def $(LIB_DIR)/flags.go \
  $(LIB_DIR)/abi/*.h $(LIB_DIR)/preload/* $(LIB_DIR)/link/*.go)

BUILD_TARGETS += $(BUILD)/libweir.so
SANITIZE_TARGETS += lib-sanitize

$(LIB_EMBEDDED): $(LIB_SOURCES) go.mod $(LIB_DIR)/build.mk
	$(GO_LAZY) $(GO) run $(GO_COMPILE) ./$(LIB_DIR)/link -o $@

# Renamed into place: a library that processes have mapped must not be written over.
$(BUILD)/libweir.so: $(LIB_EMBEDDED)
	@mkdir -p $(@D)
	cp $< $@.new
	mv $@.new $@

# All routes with a library in which undefined behaviour is a fatal signal (the sanitizer's own
# library cannot be linked in), then many more damaged objects, and threads, than in the unit tests.
.PHONY: lib-sanitize
lib-sanitize:
	CC="$(CC) $(LIB_TRAP)" $(GO) test -count=1 ./$(LIB_DIR)/routes
	$(GO) test -count=1 -run 'TestObjectsReadSafely|TestThreads' ./$(LIB_DIR)/routes -copies 5000

-include $(LIB_DIR)/hosttest/build.mk
-include $(LIB_DIR)/gatetest/build.mk
