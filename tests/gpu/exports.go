package main

// The driver's exports beside the library's list of them.

import (
	"debug/elf"
	"os"
	"regexp"
	"strings"
)

const symbolsFile = "cgo/symbols.def"

var symbolsRow = regexp.MustCompile(`(?m)^(?:HOOK|LATER|PASS)\((\w+),`)

// exportsOf are the names that a shared library defines for others.
func exportsOf(path string) (names []string, err error) {
	file, err := elf.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	symbols, err := file.DynamicSymbols()
	if err != nil {
		return nil, err
	}
	for _, symbol := range symbols {
		kind := elf.ST_TYPE(symbol.Info)
		defined := symbol.Section != elf.SHN_UNDEF && (kind == elf.STT_FUNC || kind == elf.STT_OBJECT)
		visible := elf.ST_BIND(symbol.Info) != elf.STB_LOCAL && elf.ST_VISIBILITY(symbol.Other) == elf.STV_DEFAULT
		if defined && visible && strings.HasPrefix(symbol.Name, "cu") {
			names = append(names, symbol.Name)
		}
	}
	return names, nil
}

// exports: what the driver exports and the library's list does not have, passes by it unseen.
func (r *run) exports(t *trial) {
	list, err := os.ReadFile(symbolsFile)
	if err != nil {
		t.Fatalf("reading the list: %v", err)
	}
	known := map[string]bool{}
	for _, row := range symbolsRow.FindAllStringSubmatch(string(list), -1) {
		known[row[1]] = true
	}
	names, err := exportsOf(r.card.driverFile)
	if err != nil {
		t.Fatalf("reading the driver: %v", err)
	}
	if len(names) < len(known)/2 {
		t.Fatalf("%s exports only %d functions: it is not the driver itself", r.card.driverFile, len(names))
	}
	var without []string
	for _, name := range names {
		if !known[name] {
			without = append(without, name)
		}
	}
	if len(without) > 0 {
		t.Errorf("%d of %d exports have no row in %s: %s", len(without), len(names), symbolsFile,
			strings.Join(without, " "))
	}
	t.figure("%d exports, a row for each", len(names))
}
