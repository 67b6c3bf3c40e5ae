package store

// Tests of the file of programs that export memory.

import (
	"os"
	"path/filepath"
	"testing"
)

func TestExporters(t *testing.T) {
	dir := t.TempDir()
	load := func() *Exporters {
		e, err := LoadExporters(dir)
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	e := load()
	first, rewritten := Executable{1, 2, 3}, Executable{1, 2, 4}
	for range 2 {
		if err := e.Add(first); err != nil {
			t.Fatal(err)
		}
	}
	for i, e := range []*Exporters{e, load()} {
		if !e.Has(first) || e.Has(rewritten) || len(e.known) != 1 {
			t.Errorf("%d: %+v", i, e.known)
		}
	}
	for i := range ExportersMax {
		e.known = append(e.known, Executable{9, uint64(i), 0})
	}
	e.known = e.known[1:] // as if each had been added
	if err := e.Add(rewritten); err != nil {
		t.Fatal(err)
	}
	if e = load(); len(e.known) != ExportersMax || e.Has(first) || !e.Has(rewritten) {
		t.Errorf("%d are known", len(e.known))
	}
	if err := os.WriteFile(filepath.Join(dir, "exporters.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	damaged, err := LoadExporters(dir)
	if err == nil {
		t.Error("no error of a damaged file")
	}
	if err := damaged.Add(first); err != nil || !load().Has(first) {
		t.Errorf("not usable: %v", err)
	}
}
