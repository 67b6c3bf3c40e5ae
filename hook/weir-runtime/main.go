// Command weir-runtime stands in a container runtime's configuration in the place of runc. It is called
// as runc is. Of a container that asks for a part of a GPU it edits the specification, as the agent
// says; then, as for every other call, it becomes runc, or the runtime that its configuration names.
// Invariants: a container that weir has nothing to do with is passed on byte for byte, whatever is wrong
// with weir; the process that the caller started is the one that becomes runc.
//
// What is installed as weir-runtime is hook/front, which becomes runc by itself where it is plain that a
// call makes no container; this program, beside it as weir-runtime-create, knows every case.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"weir/agent/control/ociapi"
	"weir/hook/bundle"
	"weir/hook/report"
	"weir/hook/runccmd"
	"weir/oci"
)

func main() {
	command := runccmd.Parse(os.Args[1:])
	settings, err := readSettings()
	if command.Starts() {
		if err := prepare(command, settings, err); err != nil {
			report.Error(os.Stderr, command, err)
			os.Exit(1)
		}
	}
	err = become(settings, os.Args[1:])
	report.Error(os.Stderr, command, err)
	os.Exit(1)
}

// prepare asks the agent about the container and edits its specification. broken is what is wrong with
// the settings.
func prepare(command runccmd.Command, settings settings, broken error) error {
	nvidia := strings.Contains(filepath.Base(settings.Runtime), "nvidia")
	b, err := bundle.Open(command.Bundle, command.Config, command.ID, nvidia)
	if errors.Is(err, bundle.ErrOnce) {
		return fmt.Errorf("container %s: %w", command.ID, err)
	}
	if err != nil || !b.Concerns() {
		return nil // what is wrong with a bundle is for the runtime to say
	}
	fail := func(err error) error {
		if errors.Is(err, ociapi.ErrUnreachable) {
			err = fmt.Errorf("%w; control_socket in %s would name another", err, settings.source())
		}
		return fmt.Errorf("container %s: %w", b.Facts.Name, err)
	}
	if broken != nil && b.Asks() {
		return fail(broken)
	}
	request, obstacle := b.Request()
	if command.Restores() {
		obstacle = runccmd.ErrRestores
	}
	if obstacle != nil {
		request.Obstacle = obstacle.Error() // which the agent weighs against the node's policy, and tells of
	}
	agent := ociapi.Client{Socket: settings.ControlSocket}
	prepared, err := agent.Prepare(request)
	if b.OnlyShown() {
		return nil
	}
	if obstacle != nil && (b.Asks() || prepared.Grant != nil) {
		if prepared.Grant != nil { // by an agent of old
			agent.Release(ociapi.Event{GrantID: prepared.Grant.ID})
		}
		return fail(obstacle)
	}
	var refusal *ociapi.Refusal
	switch {
	case errors.As(err, &refusal), err != nil && b.Asks():
		return fail(err)
	case err != nil || prepared.Grant == nil:
		return nil
	}
	edited, err := oci.Edit(b.Spec, *prepared.Grant)
	if err == nil {
		err = b.Write(edited)
	}
	if err != nil {
		return fail(err)
	}
	return nil
}

// become replaces this process by the runtime below. It returns only with an error.
func become(settings settings, args []string) error {
	path, err := find(settings.Runtime)
	if err != nil {
		return fmt.Errorf("the OCI runtime to pass containers on to: %w; name it as runtime in %s", err, settings.File)
	}
	err = unix.Exec(path, append([]string{path}, args...), os.Environ())
	return fmt.Errorf("starting the OCI runtime %s: %w; runtime in %s would name another", path, err, settings.source())
}

// find is the runtime's path: of a name, the first one in PATH that is not weir-runtime, which may stand
// there under the other's name.
func find(runtime string) (string, error) {
	self, err := os.Stat("/proc/self/exe")
	if err != nil {
		return "", err
	}
	front, _ := os.Stat(os.Args[0]) // as which it has called this program
	same := func(path string) bool {
		info, err := os.Stat(path)
		return err == nil && (os.SameFile(self, info) || front != nil && os.SameFile(front, info))
	}
	if strings.Contains(runtime, "/") {
		if same(runtime) {
			return "", fmt.Errorf("%s is weir-runtime itself", runtime)
		}
		return runtime, nil
	}
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		path, err := exec.LookPath(filepath.Join(dir, runtime))
		if err == nil && filepath.IsAbs(path) && !same(path) {
			return path, nil
		}
	}
	return "", fmt.Errorf("there is no %s in PATH", runtime)
}
