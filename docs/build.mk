# The manual pages, made of docs/man: readable in this checkout by `man -l build/man/weir.1`, and installed.

MAN_OUT := $(BUILD)/man
MAN_PAGES := $(patsubst docs/man/%.md,$(MAN_OUT)/%,$(wildcard docs/man/*.md))

BUILD_TARGETS += $(MAN_PAGES)

$(MAN_PAGES): $(MAN_OUT)/%: docs/man/%.md go.mod
	@mkdir -p $(@D)
	$(GO) tool go-md2man -in $< -out $@
