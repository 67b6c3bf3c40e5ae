// What the driver alone can tell the agent: the agent's own context on a GPU, made to see what one takes, and
// whether a GPU can have managed memory that the host uses, too. The driver never comes into the agent: a process
// of this same binary asks it, and ends with the agent, when told, or after a while, whatever the driver is doing.

package main

// #cgo LDFLAGS: -ldl
// #include "context.h"
import "C"

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// contextProgram is the name by which this binary is started to make a context.
	contextProgram = "weir-context"
	// contextMade is what it says when it has.
	contextMade = "made"
	// askManaged, its argument, has it say instead whether managed memory can be used from both sides at once.
	askManaged               = "concurrent-managed-access"
	managedYes, managedNever = "yes", "no"
	// contextLife is how long it lives at most.
	contextLife = 10 * time.Second
)

// makeContext starts a process that makes a context on a GPU; see session.MakeContext.
func makeContext(ctx context.Context, gpuUUID string) (pid int, end func(), err error) {
	pid, line, end, err := askDriver(ctx, gpuUUID)
	if err == nil && line != contextMade {
		end()
		return 0, nil, errors.New(line)
	}
	return pid, end, err
}

// concurrentManaged asks the driver of a GPU; see session.ConcurrentManaged.
func concurrentManaged(ctx context.Context, gpuUUID string) (bool, error) {
	_, line, end, err := askDriver(ctx, gpuUUID, askManaged)
	if err != nil {
		return false, err
	}
	end()
	if line != managedYes && line != managedNever {
		return false, errors.New(line)
	}
	return line == managedYes, nil
}

// askDriver starts a process that asks the driver about a GPU, and returns the line that it says. It ends when
// end is called, or with this process.
func askDriver(ctx context.Context, gpuUUID string, arguments ...string) (pid int, line string, end func(), err error) {
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Args = append([]string{contextProgram}, arguments...)
	cmd.Env = contextEnvironment(os.Environ(), gpuUUID)
	// Its input ends with this process.
	in, err := cmd.StdinPipe()
	if err != nil {
		return 0, "", nil, fmt.Errorf("starting %s: %w", contextProgram, err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return 0, "", nil, errors.Join(fmt.Errorf("starting %s: %w", contextProgram, err), in.Close())
	}
	end = func() {
		// Neither can fail but for a process that has ended already.
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	// What the driver has started may keep the other end open.
	stop := context.AfterFunc(ctx, func() { _ = out.Close() })
	defer stop()
	line, err = bufio.NewReader(out).ReadString('\n')
	if line = strings.TrimSuffix(line, "\n"); line != "" {
		return cmd.Process.Pid, line, end, nil
	}
	end()
	if ctx.Err() != nil {
		return 0, "", nil, errors.New("the driver took too long")
	}
	return 0, "", nil, fmt.Errorf("%s ended before it had said anything: %w", contextProgram, err)
}

// contextEnvironment is the agent's own, without what would make the process a tenant, and with one
// GPU to be seen.
func contextEnvironment(env []string, gpuUUID string) []string {
	var kept []string
	for _, entry := range env {
		switch name, _, _ := strings.Cut(entry, "="); name {
		case "LD_PRELOAD", "WEIR_SOCKET", "CUDA_VISIBLE_DEVICES":
		default:
			kept = append(kept, entry)
		}
	}
	return append(kept, "CUDA_VISIBLE_DEVICES="+gpuUUID)
}

// contextProcess makes a context, says so or why not, and keeps it until its input ends; or says what else it is asked
// for. It returns the process's exit code where that is all.
func contextProcess(arguments []string, in io.Reader, out io.Writer) int {
	time.AfterFunc(contextLife, func() { leave(1) })
	go func() {
		_, _ = io.Copy(io.Discard, in)
		leave(0)
	}()
	var text [512]C.char
	if len(arguments) > 0 && arguments[0] == askManaged {
		switch C.weir_context_concurrent_managed(&text[0], C.size_t(len(text))) {
		case 1:
			fmt.Fprintln(out, managedYes)
		case 0:
			fmt.Fprintln(out, managedNever)
		default:
			fmt.Fprintln(out, C.GoString(&text[0]))
			return 1
		}
		return 0
	}
	if C.weir_context_make(&text[0], C.size_t(len(text))) != 0 {
		fmt.Fprintln(out, C.GoString(&text[0]))
		return 1
	}
	fmt.Fprintln(out, contextMade)
	select {}
}

// leave ends the process whatever the driver does: without the C library, which may wait for a lock
// that the loader of the driver holds.
func leave(code uintptr) {
	_, _, _ = unix.RawSyscall(unix.SYS_EXIT_GROUP, code, 0, 0)
}
