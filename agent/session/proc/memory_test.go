package proc

// Tests of what control groups leave of host memory.

import (
	"math"
	"os"
	"path/filepath"
	"testing"
)

func TestMemoryLeft(t *testing.T) {
	root := t.TempDir()
	write := func(directory string, files map[string]string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Join(root, directory), 0o755); err != nil {
			t.Fatal(err)
		}
		for name, text := range files {
			if err := os.WriteFile(filepath.Join(root, directory, name), []byte(text+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	left := func(directory string) int64 { return memoryFiles[""].left(root, filepath.Join(root, directory)) }
	write("pod/free", map[string]string{"memory.max": "max", "memory.current": "100"})
	if got := left("pod/free"); got != math.MaxInt64 {
		t.Errorf("without a limit %d are left", got)
	}
	write("pod/held", map[string]string{"memory.max": "1000", "memory.current": "700", "memory.stat": "anon 400\nfile 300"})
	if got := left("pod/held"); got != 600 {
		t.Errorf("%d are left beside 400 that are no files' pages", got)
	}
	write("pod", map[string]string{"memory.max": "1200", "memory.current": "1000", "memory.stat": "anon 900\nfile 100"})
	if held, free := left("pod/held"), left("pod/free"); held != 300 || free != 300 {
		t.Errorf("%d and %d are left under the pod's limit", held, free)
	}
	write("pod/over", map[string]string{"memory.max": "10", "memory.current": "50"})
	if got := left("pod/over"); got != 0 {
		t.Errorf("%d are left over the limit", got)
	}
	if _, err := HostMemoryLeft(os.Getpid()); err != nil {
		t.Error(err)
	}
}
