// Tests of the process that makes the agent's own context, with drivers that are none. What it does
// with a working one the whole-system tests show.

package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// fakeDriver has the loader find a libcuda.so.1 that make made, given its path.
func fakeDriver(t *testing.T, make func(path string) error) {
	t.Helper()
	dir := t.TempDir()
	if err := make(filepath.Join(dir, "libcuda.so.1")); err != nil {
		t.Fatal(err)
	}
	t.Setenv("LD_LIBRARY_PATH", dir)
	t.Setenv(weirMode, "1")
}

// stuck is a driver that never comes to be loaded: the loader waits for who writes into the pipe.
func stuck(path string) error { return unix.Mkfifo(path, 0o600) }

func TestNoContextFromWhatIsNoDriver(t *testing.T) {
	library, err := anyLibrary()
	if err != nil {
		t.Skip(err)
	}
	for _, c := range []struct {
		says string
		make func(path string) error
	}{
		{"is no CUDA driver", func(path string) error { return os.Symlink(library, path) }},
		{"loading the driver", func(path string) error { return os.WriteFile(path, []byte("text"), 0o600) }},
	} {
		t.Run(c.says, func(t *testing.T) {
			fakeDriver(t, c.make)
			_, _, err := makeContext(t.Context(), "GPU-0")
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("the error is %v", err)
			}
		})
	}
}

func TestStuckDriverIsNotWaitedFor(t *testing.T) {
	fakeDriver(t, stuck)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, _, err := makeContext(ctx, "GPU-0"); err == nil || !strings.Contains(err.Error(), "too long") {
		t.Errorf("the error is %v", err)
	}
}

// The end of its input, which is the agent's end, ends the process whatever the driver does.
func TestContextProcessEndsWithTheAgent(t *testing.T) {
	fakeDriver(t, stuck)
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = []string{contextProgram}
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	in.Close()
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		var failed *exec.ExitError
		if err != nil && !errors.As(err, &failed) {
			t.Error(err)
		}
	case <-time.After(contextLife / 2): // before it ends by itself
		t.Error("it has not ended")
		cmd.Process.Kill()
	}
}

func TestContextProcessIsNoTenant(t *testing.T) {
	env := contextEnvironment([]string{
		"LD_PRELOAD=/run/weir/libweir.so", "PATH=/bin", "WEIR_SOCKET=/run/weir/agent.sock",
		"CUDA_VISIBLE_DEVICES=3", "WEIR_SIM=/tmp/sim",
	}, "GPU-1")
	if want := []string{"PATH=/bin", "WEIR_SIM=/tmp/sim", "CUDA_VISIBLE_DEVICES=GPU-1"}; !slices.Equal(env, want) {
		t.Errorf("environment %q, want %q", env, want)
	}
}
