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

// usualConfig is the main configuration that a runtime's own unit reads; of CRI-O it is the drop-in.
var usualConfig = map[string]string{
	"containerd": "/etc/containerd/config.toml",
	"docker":     "/etc/docker/daemon.json",
	"crio":       "/etc/crio/crio.conf.d/99-weir.conf",
}

// madeConfigs are those that other tools make for a containerd of theirs; looked at where there is no usual one.
var madeConfigs = []string{
	"/var/lib/rancher/k3s/agent/etc/containerd/config.toml",
	"/var/lib/rancher/rke2/agent/etc/containerd/config.toml",
	"/etc/k0s/containerd.toml",
	"/var/snap/microk8s/current/args/containerd.toml",
}

// hooksDir is where CRI-O looks for hooks of the machine's own, and Podman if it is told to.
const hooksDir = "/etc/containers/oci/hooks.d"

// gather plans the configuration of a runtime from what is there.
func gather(runtime string, c *cli.Context, setup runtimeconf.Setup) (plan runtimeconf.Plan, err error) {
	main, err := pathOf(c, "config")
	if err != nil {
		return plan, err
	}
	dropIn, err := pathOf(c, "drop-in-config")
	if err != nil {
		return plan, err
	}
	switch {
	case main != "" && (runtime == "crio" || runtime == "podman"):
		return plan, usageError("--config: of %s weir writes a drop-in file only; "+
			"--drop-in-config says where", runtime)
	case dropIn != "" && runtime == "docker":
		return plan, usageError("--drop-in-config: docker has no drop-in files; --config names its daemon.json")
	}
	if main != "" { // a usual one need not be there, but who names one means one that is
		if _, err := os.Lstat(main); errors.Is(err, os.ErrNotExist) {
			return plan, usageError("--config: there is no %s; nothing is written", main)
		}
	}
	switch runtime {
	case "containerd":
		return gatherContainerd(main, dropIn, setup)
	case "docker":
		file, err := runtimeconf.Load(either(main, usualConfig[runtime]))
		if err != nil {
			return plan, err
		}
		return runtimeconf.PlanDocker(file, setup)
	case "crio":
		return gatherCRIO(dropIn, setup)
	default:
		return gatherPodman(dropIn, setup)
	}
}

// pathOf is the absolute path that a flag gives, or an empty one where it is not given.
func pathOf(c *cli.Context, flag string) (string, error) {
	path := c.String(flag)
	if path == "" {
		if c.IsSet(flag) {
			return "", usageError("--%s is empty: give a path, or leave it out", flag)
		}
		return "", nil
	}
	return filepath.Abs(path)
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
	if errors.Is(err, exec.ErrNotFound) {
		return nil, fmt.Errorf("there is no %s in PATH; nothing is written: install it, or name another container runtime by "+
			"--runtime", program)
	}
	line := program + " " + strings.Join(args, " ")
	var failed *exec.ExitError
	if errors.As(err, &failed) && len(failed.Stderr) > 0 {
		first, _, _ := strings.Cut(strings.TrimSpace(string(failed.Stderr)), "\n")
		return nil, fmt.Errorf("%s: %v: %s; nothing is written", line, err, printable(first))
	}
	return nil, fmt.Errorf("%s: %v; nothing is written", line, err)
}

// firstThere is the first path at which there is something; else the first one.
func firstThere(paths []string) string {
	for _, path := range paths {
		if _, err := os.Lstat(path); err == nil {
			return path
		}
	}
	return paths[0]
}

func gatherContainerd(main, dropIn string, setup runtimeconf.Setup) (plan runtimeconf.Plan, err error) {
	if main == "" {
		main = firstThere(append([]string{usualConfig["containerd"]}, madeConfigs...))
	}
	var node runtimeconf.Containerd
	if node.Main, err = runtimeconf.Load(main); err != nil {
		return plan, err
	}
	place, made, err := runtimeconf.Generated(node.Main)
	if err == nil && made {
		node.Place, err = runtimeconf.Load(place)
	}
	if err != nil {
		return plan, err
	}
	if made { // with a containerd of its own, which is not in PATH
		return runtimeconf.PlanContainerd(node, setup)
	}
	dropIn = either(dropIn, filepath.Join(filepath.Dir(main), "conf.d", "99-weir.toml"))
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
		text, err := ask("containerd", "config", "dump")
		if err != nil { // 1.6 serves without a file, but dumps nothing
			text, err = dumpCopy("", nil)
		}
		return text, err
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
	return dumpCopy(filepath.Dir(node.Main.Path), text)
}

// dumpCopy is the effective configuration that containerd makes of a text, as a file in a directory (empty: that of
// temporary files).
func dumpCopy(dir string, text []byte) ([]byte, error) {
	copied, err := os.CreateTemp(dir, ".config.weir-*.toml")
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
	if node.DropIn, err = runtimeconf.Load(either(dropIn, usualConfig["crio"])); err != nil {
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
	if node.Config, err = podmanConfig(); err != nil {
		return plan, err
	}
	return runtimeconf.PlanPodman(node, setup)
}

// podmanConfig reads the files of Podman's configuration.
func podmanConfig() (files []runtimeconf.File, err error) {
	names := []string{"/usr/share/containers/containers.conf", "/etc/containers/containers.conf"}
	dropIns, err := filepath.Glob("/etc/containers/containers.conf.d/*.conf") // in the order of their names
	if err != nil {
		return nil, err
	}
	for _, name := range append(names, dropIns...) {
		text, err := os.ReadFile(name) // a link to elsewhere is as good, as none is written
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
		files = append(files, runtimeconf.File{Path: name, Text: text})
	}
	return files, nil
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
