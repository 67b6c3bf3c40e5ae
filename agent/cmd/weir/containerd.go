// The agent's helper for containerd: a program of its own, since containerd's API brings with it more
// code than the rest of the agent. It is started where it is installed and a containerd is there, and
// again whenever it ends.

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"weir/agent/config"
	"weir/agent/control"
	"weir/agent/control/ociapi"
)

const (
	containerdProgram = "weir-containerd"
	// containerdLook is how often it is looked whether a containerd has come.
	containerdLook = 2 * time.Second
	// The time between two starts of the helper doubles from the one to the other, and is the first
	// again after the helper has lived for as long as the other.
	containerdAgainFirst = 100 * time.Millisecond
	containerdAgainLast  = 10 * time.Second
)

// watchContainerd runs the helper until ctx ends. Containers are served without it, too: only their
// images, if they have no pod, and who has a GPU without weir, are not known then.
func watchContainerd(ctx context.Context, settings config.Config, node control.Node, log *slog.Logger) {
	program, socket := besideProgram(containerdProgram), settings.ContainerdSocket()
	if socket == "" || program == "" || os.Geteuid() != 0 {
		return
	}
	helper{program, filepath.Join(settings.RunDir, config.SocketName), socket}.keep(ctx, node, log)
}

// helper is what the helper is started as.
type helper struct{ program, control, containerd string }

// keep has it run until ctx ends, whenever a containerd is there.
func (h helper) keep(ctx context.Context, node control.Node, log *slog.Logger) {
	for wait := containerdAgainFirst; ctx.Err() == nil; {
		if _, err := os.Stat(h.containerd); errors.Is(err, fs.ErrNotExist) {
			pause(ctx, containerdLook)
			continue
		}
		begun := time.Now()
		err := h.run(ctx)
		if ctx.Err() != nil {
			return
		}
		if time.Since(begun) > containerdAgainLast {
			wait = containerdAgainFirst
		}
		log.Warn("the helper for containerd has ended and is started again", "error", err, "wait", wait)
		if _, err := node.Listing(ctx, ociapi.Listing{Lost: "its helper has ended"}); err != nil {
			log.Error("the end of the helper for containerd goes unnoticed", "error", err)
		}
		pause(ctx, wait)
		wait = min(2*wait, containerdAgainLast)
	}
}

// run starts it and waits for its end. It ends when its input does, which is when this process ends.
func (h helper) run(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, h.program, "--control", h.control, "--containerd", h.containerd)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err == nil {
		defer in.Close()
		err = cmd.Run()
	}
	if err != nil {
		return fmt.Errorf("%s: %w", h.program, err)
	}
	return nil
}

func pause(ctx context.Context, wait time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(wait):
	}
}

// besideProgram is the path of a program that is installed beside this one; empty if it is not.
func besideProgram(name string) string {
	program, err := os.Executable()
	if err != nil {
		return ""
	}
	path := filepath.Join(filepath.Dir(program), name)
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
		return ""
	}
	return path
}
