package e2e

// Programs that compute, and check what they computed, under the library.

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"weir/tests/e2e/node"
)

func TestComputingProgramsUnderTheLibrary(t *testing.T) {
	n := node.Start(t, node.Options{CountContext: true})
	programs, err := filepath.Glob(filepath.Join(node.Root(t), "build/sim/programs/*"))
	if err != nil {
		t.Fatal(err)
	}
	ran := 0
	for _, program := range programs {
		info, err := os.Stat(program)
		if err != nil || !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
			continue
		}
		ran++
		t.Run(filepath.Base(program), func(t *testing.T) {
			var arguments []string
			if filepath.Base(program) == "compute" {
				arguments = []string{filepath.Join(node.Root(t), "tests/sim/kernels")}
			}
			run := n.Run(node.RunOptions{Name: filepath.Base(program), Memory: "128MiB"}, program, arguments...)
			code, lines := run.Wait(2 * time.Minute)
			if code != 0 || run.Stderr() != "" {
				t.Errorf("exit %d\n%q\n%s", code, lines, run.Stderr())
			}
			// And it is the library's: with a cap below what it needs it fails.
			starved := n.Run(node.RunOptions{Name: filepath.Base(program), Memory: "1KiB"}, program, arguments...)
			if code, lines := starved.Wait(2 * time.Minute); code == 0 {
				t.Errorf("it runs as well with a cap of 1KiB: %q", lines)
			}
		})
	}
	if ran == 0 {
		node.Build(t, "sim/programs/compute")
	}
}
