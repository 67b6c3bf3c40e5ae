# weir's build. `make help` lists the targets. Each part with C sources has a build.mk of its own,
# which adds to the lists below; nothing is written outside build/ and cgo/lib/.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := build

BUILD := build
PREFIX ?= /usr/local
CC ?= gcc
GO ?= go
CLANG_FORMAT ?= clang-format
VERSION := $(shell sed -n 's/^## \[\([0-9][^]]*\)\].*/\1/p' CHANGELOG.md | head -n 1)
# Without what the binary does not use of its modules: less to compile.
GO_TAGS := urfave_cli_no_docs,netgo,osusergo
GO_LDFLAGS := -s -w -X main.version=$(VERSION)
# The compiler collects its garbage only from 600 MiB on and writes nothing for debuggers, which -w leaves
# out in the end: a fifth of the time of a first build.
GO_LAZY := GOGC=off GOMEMLIMIT=600MiB
GO_COMPILE := -trimpath -gcflags=all=-dwarf=false
GO_BUILD := $(GO_LAZY) $(GO) build $(GO_COMPILE) -buildvcs=false -tags $(GO_TAGS) -ldflags '$(GO_LDFLAGS)'

# go-nvml declares NVML's older functions, which are marked as deprecated: nothing to tell a reader.
export CGO_CFLAGS ?= -g -O2 -Wno-deprecated-declarations

BUILD_TARGETS :=
TEST_TARGETS :=
SANITIZE_TARGETS :=
GENERATE_TARGETS :=
BENCH_TARGETS :=
FUZZ_TARGETS :=
FUZZ_SECONDS ?= 60

-include cgo/build.mk
-include tests/sim/build.mk
-include tests/sim/ptx/build.mk
-include tests/sim/nvml/build.mk
-include tests/sim/cudart/build.mk
-include tests/sim/programs/build.mk
-include hook/build.mk
-include agent/cmd/weir-containerd/build.mk
-include tests/bench/build.mk
-include tests/containers/build.mk
-include tests/e2e/build.mk
-include tests/demo/build.mk
-include tests/gpu/build.mk
-include docs/build.mk

GO_SOURCES := $(shell find agent cgo hook oci tests -name '*.go' -not -name '*_test.go' 2>/dev/null)
C_SOURCES := $(shell find cgo hook tests -name '*.[ch]' 2>/dev/null)
SH_SOURCES := .ci/run $(shell find tests cgo packaging -name '*.sh' 2>/dev/null)

## help: list the targets
.PHONY: help
help:
	@sed -n 's/^## \([a-z-]*\): /\1\t/p' $(MAKEFILE_LIST) | sort -u | \
	  while IFS=$$'\t' read -r name text; do printf '  make %-15s %s\n' "$$name" "$$text"; done

## build: everything that is installed, and the simulated GPU, under build/
.PHONY: build
build: $(BUILD)/weir $(BUILD_TARGETS)

$(BUILD)/weir: $(GO_SOURCES) $(C_SOURCES) go.mod go.sum $(BUILD)/libweir.so CHANGELOG.md
	mkdir -p $(@D)
	$(GO_BUILD) -o $@ ./agent/cmd/weir

## demo: two programs share one GPU (simulated where there is none) under caps; seconds, once built
.PHONY: demo
demo:
	@echo 'Building weir and the simulated GPU; the first time this takes about a minute.'
	@+$(MAKE) -s --no-print-directory -j2 $(BUILD)/weir $(DEMO_TARGETS)
	@tests/demo/demo.sh

## demo-containers: containers of a containerd share a simulated GPU under caps; needs root and containerd; seconds
.PHONY: demo-containers
demo-containers:
	@+$(MAKE) -s --no-print-directory -j2 $(BUILD)/weir $(BUILD)/weir-hook $(BUILD)/weir-runtime \
	  $(BUILD)/weir-runtime-create $(DEMO_TARGETS)
	@tests/demo/containers.sh

## test: everything that can be checked on this machine; installs Debian packages it needs if root
.PHONY: test
test: test-packages build lint check-generate unit sanitize e2e chaos

.PHONY: test-packages
test-packages:
	tests/packages.sh

.PHONY: unit
unit: build $(TEST_TARGETS)
	$(GO) test $$($(GO) list ./... | grep -v -e '^weir/tests/e2e' -e '^weir/tests/chaos' -e '^weir/tests/cases')
	$(GO) test -race ./agent/...
	$(GO_LAZY) CGO_ENABLED=0 $(GO) test -C $(CONTAINERD_DIR) $(GO_COMPILE) -tags $(GO_TAGS) ./...

.PHONY: sanitize
sanitize: $(SANITIZE_TARGETS)

## e2e: whole-system tests, on the simulated GPU
.PHONY: e2e
e2e: build
	$(GO) test -count=1 -timeout 20m ./tests/e2e/... ./tests/cases/...

## chaos: kills, stops and restarts, on the simulated GPU
.PHONY: chaos
chaos: build
	$(GO) test -count=1 -timeout 20m ./tests/chaos/...

## fuzz: feed damaged input to every parser, FUZZ_SECONDS (60) each
.PHONY: fuzz
fuzz: $(BUILD)/libweir.so $(FUZZ_TARGETS)
	tests/fuzz.sh $(FUZZ_SECONDS)

## gpu-check: check weir on the NVIDIA GPU of this machine, in 8 minutes at most; skips where none is
.PHONY: gpu-check
gpu-check:
	@+$(MAKE) -s --no-print-directory $(GPU_OUT)/probe
	@+tests/gpu/run.sh $(abspath $(BUILD)) $(MAKE) -s --no-print-directory $(GPU_TARGETS)

## bench: print measured figures beside what was promised; SECTION=name runs one part, LONG=1 fully
.PHONY: bench
bench: build $(BENCH_TARGETS)
	tests/bench/run.sh $(if $(SECTION),--section $(SECTION)) $(if $(LONG),--long)

## lint: format, vet, static checks, and the rules of the layout
.PHONY: lint
lint: $(BUILD)/libweir.so
	@test -z "$$(gofmt -l agent cgo hook oci tests | tee /dev/stderr)"
	$(GO) vet ./...
	$(GO) tool staticcheck ./...
	$(GO_LAZY) CGO_ENABLED=0 $(GO) vet -C $(CONTAINERD_DIR) $(GO_COMPILE) ./...
	@tests/lint.sh clang-format $(CLANG_FORMAT) $(C_SOURCES)
	@tests/lint.sh shellcheck shellcheck $(SH_SOURCES)
	$(GO) test -count=1 ./tests/layout/...

## generate: make anew what is generated and committed
.PHONY: generate
generate: $(GENERATE_TARGETS)
	$(GO) generate ./...

## check-generate: prove that what is generated and committed is current
.PHONY: check-generate
check-generate:
	tests/check-generate.sh

INSTALLED_PROGRAMS := $(addprefix $(BUILD)/,weir weir-hook weir-runtime weir-runtime-create weir-containerd)

## install: put the binaries, one of which carries the library, units and manual pages under DESTDIR and PREFIX (/usr/local)
.PHONY: install
install: $(INSTALLED_PROGRAMS) $(MAN_PAGES)
	install -D -m 755 -t $(DESTDIR)$(PREFIX)/bin $(INSTALLED_PROGRAMS)
	for page in $(MAN_PAGES); do \
	  install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/man/man$${page##*.} $$page; done
	install -d $(DESTDIR)$(PREFIX)/lib/systemd/system
	for unit in packaging/systemd/*.service; do \
	  sed 's|@BIN@|$(PREFIX)/bin|' $$unit > $(DESTDIR)$(PREFIX)/lib/systemd/system/$${unit##*/}; done

## clean: remove what was built
.PHONY: clean
clean:
	rm -rf $(BUILD) cgo/lib/libweir.so
