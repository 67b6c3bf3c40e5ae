// What is known of a machine's container runtimes: their files, and what they say of themselves.

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/urfave/cli/v2"

	"weir/oci/runtimeconf"
)

// k3sConfig is k3s's containerd's, where there is no other.
const k3sConfig = "/var/lib/rancher/k3s/agent/etc/containerd/config.toml"

// hooksDir is where CRI-O and Podman look for hooks of the machine's own.
const hooksDir = "/etc/containers/oci/hooks.d"

// gather plans the configuration of a runtime from what is there.
func gather(runtime string, c *cli.Context, setup runtimeconf.Setup) (runtimeconf.Plan, error) {
	main, dropIn := c.String("config"), c.String("drop-in-config")
	for _, path := range []*string{&main, &dropIn} {
		if *path != "" {
			absolute, err := filepath.Abs(*path)
			if err != nil {
				return runtimeconf.Plan{}, err
			}
			*path = absolute
		}
	}
	switch runtime {
	case "containerd":
		return gatherContainerd(main, dropIn, setup)
	case "docker":
		file, err := runtimeconf.Load(either(main, "/etc/docker/daemon.json"))
		if err != nil {
			return runtimeconf.Plan{}, err
		}
		return runtimeconf.PlanDocker(file, setup)
	case "crio":
		return gatherCRIO(dropIn, setup)
	default:
		return gatherPodman(dropIn, setup)
	}
}

func either(given, usual string) string {
	if given != "" {
		return given
	}
	return usual
}

// ask runs a runtime's program and returns what it prints. Its exit code is not this program's.
func ask(program string, args ...string) ([]byte, error) {
	out, err := exec.Command(program, args...).Output()
	if err == nil {
		return out, nil
	}
	line := program + " " + strings.Join(args, " ")
	var failed *exec.ExitError
	if errors.As(err, &failed) && len(failed.Stderr) > 0 {
		first, _, _ := strings.Cut(strings.TrimSpace(string(failed.Stderr)), "\n")
		return nil, fmt.Errorf("%s: %v: %s; nothing is written", line, err, printable(first))
	}
	return nil, fmt.Errorf("%s: %v; nothing is written", line, err)
}

func gatherContainerd(main, dropIn string, setup runtimeconf.Setup) (plan runtimeconf.Plan, err error) {
	if main == "" {
		main = "/etc/containerd/config.toml"
		if _, err := os.Stat(main); errors.Is(err, os.ErrNotExist) {
			if _, err := os.Stat(k3sConfig); err == nil {
				main = k3sConfig
			}
		}
	}
	dropIn = either(dropIn, filepath.Join(filepath.Dir(main), "conf.d", "99-weir.toml"))
	var node runtimeconf.Containerd
	if node.Main, err = runtimeconf.Load(main); err != nil {
		return plan, err
	}
	if node.DropIn, err = runtimeconf.Load(dropIn); err != nil {
		return plan, err
	}
	version, err := ask("containerd", "--version")
	if err != nil {
		return plan, err
	}
	fields := strings.Fields(string(version)) // containerd, its repository, its version, a commit
	if len(fields) < 3 {
		return plan, fmt.Errorf("containerd --version prints %.100q, which is not understood", version)
	}
	node.Version = fields[2]
	if node.Effective, err = dumpContainerd(node); err != nil {
		return plan, err
	}
	return runtimeconf.PlanContainerd(node, setup)
}

// dumpContainerd is containerd's effective configuration, without weir's part where the main
// configuration names that.
func dumpContainerd(node runtimeconf.Containerd) ([]byte, error) {
	if node.Main.Text == nil {
		return ask("containerd", "config", "dump")
	}
	names, err := runtimeconf.Imports(node.Main, node.DropIn.Path)
	if err != nil {
		return nil, err
	}
	if !names {
		return ask("containerd", "--config", node.Main.Path, "config", "dump")
	}
	text, err := runtimeconf.WithoutImport(node.Main, node.DropIn.Path)
	if err != nil {
		return nil, err
	}
	// Beside the file, so that what it imports by relative paths is found.
	copied, err := os.CreateTemp(filepath.Dir(node.Main.Path), ".config.weir-*.toml")
	if err != nil {
		return nil, err
	}
	defer os.Remove(copied.Name())
	_, err = copied.Write(text)
	if err = errors.Join(err, copied.Close()); err != nil {
		return nil, err
	}
	return ask("containerd", "--config", copied.Name(), "config", "dump")
}

func gatherCRIO(dropIn string, setup runtimeconf.Setup) (plan runtimeconf.Plan, err error) {
	var node runtimeconf.CRIO
	if node.DropIn, err = runtimeconf.Load(either(dropIn, "/etc/crio/crio.conf.d/99-weir.conf")); err != nil {
		return plan, err
	}
	if node.Effective, err = ask("crio", "config"); err != nil {
		return plan, err
	}
	var effective struct {
		CRIO struct {
			Runtime struct {
				HooksDir []string `toml:"hooks_dir"`
			} `toml:"runtime"`
		} `toml:"crio"`
	}
	node.HooksDir = hooksDir
	if toml.Unmarshal(node.Effective, &effective) == nil {
		if dirs := effective.CRIO.Runtime.HooksDir; len(dirs) > 0 {
			node.HooksDir = dirs[len(dirs)-1]
		}
	}
	if node.Hooks, err = loadHooks(node.HooksDir); err != nil {
		return plan, err
	}
	return runtimeconf.PlanCRIO(node, setup)
}

func gatherPodman(dropIn string, setup runtimeconf.Setup) (plan runtimeconf.Plan, err error) {
	node := runtimeconf.Podman{HooksDir: hooksDir}
	if node.DropIn, err = runtimeconf.Load(either(dropIn, "/etc/containers/containers.conf.d/99-weir.conf")); err != nil {
		return plan, err
	}
	text, err := ask("podman", "info", "--format", "json")
	if err != nil {
		return plan, err
	}
	var info struct {
		Host struct {
			OCIRuntime struct{ Name, Path string }
		}
	}
	if err := json.Unmarshal(text, &info); err != nil {
		return plan, fmt.Errorf("podman info: %w; nothing is written", err)
	}
	node.Base, node.DefaultName = info.Host.OCIRuntime.Path, info.Host.OCIRuntime.Name
	if node.Hooks, err = loadHooks(node.HooksDir); err != nil {
		return plan, err
	}
	return runtimeconf.PlanPodman(node, setup)
}

// loadHooks reads weir's files of a directory of hooks.
func loadHooks(dir string) (files []runtimeconf.File, err error) {
	names, err := filepath.Glob(filepath.Join(dir, "99-weir-*.json"))
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		file, err := runtimeconf.Load(name)
		if err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	return files, nil
}
