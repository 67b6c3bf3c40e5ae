// Tests of files that whoever makes a container may have put where an engine keeps its own.
package engine

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// A manifest that cannot be read is an error, and a pipe is not waited for.
func TestRecordsThatAreNone(t *testing.T) {
	dir := t.TempDir()
	manifest := filepath.Join(dir, "manifest")
	if _, err := (Told{Manifest: manifest}).OfImage(); err == nil {
		t.Error("a manifest that is not there is read")
	}
	if err := os.WriteFile(manifest, []byte(`{"annotations":{"a":"b"}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if of, err := (Told{Manifest: manifest}).OfImage(); err != nil || of["a"] != "b" {
		t.Errorf("%v, %v", of, err)
	}
	pipe := filepath.Join(dir, "containers", "web", "config.v2.json")
	if err := os.MkdirAll(filepath.Dir(pipe), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if told := Look(filepath.Dir(pipe), "web", nil); told != (Told{}) {
		t.Errorf("a pipe tells %+v", told)
	}
}
