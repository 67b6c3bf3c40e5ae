// Command containers measures what weir adds to the start of a container, with a real runc, and prints it beside
// what is promised.
//
// Every round starts one container of each kind, in turns, so that noise meets all alike. A start is over when the
// container's program has written its first line. Shown are medians over all rounds, and as "added" by how much they
// are above runc's; promises are judged by these. Beside each stands the processor time to the container's end, which
// other load disturbs less.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// What is promised.
const (
	addedMax    = 10 * time.Millisecond // of a container with a cap, to its start
	hookMax     = 3 * time.Millisecond  // of one call of weir-hook
	hookSizeMax = 3e6                   // bytes
)

// options are the programs, and where this may write.
type options struct {
	runtime, hook, socket, dir string
	rounds                     int
}

// cost is what one start, or the run of a program, took.
type cost struct {
	wall      time.Duration // to the first line of output, or the end
	processor time.Duration // of all that took part and was waited for
}

// kind is one way of starting, with what it took in each round.
type kind struct {
	name  string
	run   func(round int) (cost, error)
	costs []cost
}

func main() {
	var o options
	flag.StringVar(&o.runtime, "runtime", "", "the weir-runtime program")
	flag.StringVar(&o.hook, "hook", "", "the weir-hook program")
	flag.StringVar(&o.socket, "socket", "", "the agent's control socket")
	flag.StringVar(&o.dir, "dir", "", "a directory to make bundles in")
	flag.IntVar(&o.rounds, "rounds", 50, "how many containers of each kind")
	flag.Parse()
	holds, err := measure(o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "containers:", err)
		os.Exit(2)
	}
	if !holds {
		os.Exit(1)
	}
}

func measure(o options) (holds bool, err error) {
	if err := os.WriteFile(o.settings(), fmt.Appendf(nil, "control_socket = %q\n", o.socket), 0o644); err != nil {
		return false, err
	}
	starts := []*kind{
		{name: "runc", run: o.starter("runc", "bare", "")},
		{name: "weir-runtime, nothing asked", run: o.starter(o.runtime, "unasked", "")},
		{name: "weir-runtime, with a cap", run: o.starter(o.runtime, "capped", "32MiB")},
	}
	calls := []*kind{
		{name: "/bin/true", run: func(int) (cost, error) { return run(exec.Command("/bin/true")) }},
		{name: "weir-hook release", run: o.callHook},
	}
	for _, kinds := range [][]*kind{starts, calls} {
		if err := rounds(kinds, o.rounds); err != nil {
			return false, err
		}
		table(kinds)
	}
	info, err := os.Stat(o.hook)
	if err != nil {
		return false, err
	}
	ms := func(d time.Duration) string { return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000) }
	capped := added(starts[0].costs, starts[2].costs, wall)
	hook, size := added(calls[0].costs, calls[1].costs, wall), float64(info.Size())
	all := []bool{
		promise("container start", "at most "+ms(addedMax)+" added", ms(capped), capped <= addedMax),
		promise("one call of weir-hook", "at most "+ms(hookMax)+" added", ms(hook), hook <= hookMax),
		promise("size of weir-hook", "at most 3.0 MB", fmt.Sprintf("%.1f MB", size/1e6), size <= hookSizeMax),
	}
	return !slices.Contains(all, false), nil
}

// settings is the file of weir-runtime's settings.
func (o *options) settings() string { return filepath.Join(o.dir, "runtime.toml") }

// starter starts containers by an OCI runtime, with a cap where memory names one.
func (o *options) starter(runtime, name, memory string) func(int) (cost, error) {
	bundle := filepath.Join(o.dir, name)
	return func(round int) (cost, error) {
		// weir-runtime has edited the last round's.
		if err := makeBundle(bundle, memory); err != nil {
			return cost{}, err
		}
		command := exec.Command(runtime, "--root", filepath.Join(o.dir, "runc"), "run", "--bundle", bundle,
			fmt.Sprintf("%s-%s-%d", filepath.Base(filepath.Dir(o.dir)), name, round))
		command.Env = append(os.Environ(), "WEIR_RUNTIME_CONFIG="+o.settings())
		return run(command)
	}
}

// callHook calls weir-hook about a container that the agent does not know: a whole call, with nothing to do behind it.
func (o *options) callHook(int) (cost, error) {
	command := exec.Command(o.hook, "release", "--socket", o.socket, "--id", "000000000000")
	command.Stdin = strings.NewReader(`{"ociVersion":"1.0.2","id":"none","pid":0,"bundle":"/nowhere"}`)
	return run(command)
}

// run runs a program to its end.
func run(command *exec.Cmd) (cost, error) {
	var stderr bytes.Buffer
	command.Stderr = &stderr
	out, err := command.StdoutPipe()
	if err != nil {
		return cost{}, err
	}
	begin := time.Now()
	if err := command.Start(); err != nil {
		return cost{}, err
	}
	// A program that says nothing has started when it has ended.
	_, _ = bufio.NewReader(out).ReadString('\n')
	wall := time.Since(begin)
	if err := command.Wait(); err != nil {
		return cost{}, fmt.Errorf("%s: %w: %s", command, err, &stderr)
	}
	state := command.ProcessState
	return cost{wall, state.UserTime() + state.SystemTime()}, nil
}

// makeBundle makes a bundle with the machine's own programs in it.
func makeBundle(dir, memory string) error {
	root := filepath.Join(dir, "rootfs")
	if err := os.MkdirAll(filepath.Join(root, "etc"), 0o755); err != nil {
		return err
	}
	for _, link := range []string{"bin", "lib", "lib64", "sbin"} {
		if err := os.Symlink("usr/"+link, filepath.Join(root, link)); err != nil && !os.IsExist(err) {
			return err
		}
	}
	type object = map[string]any
	annotations := object{}
	if memory != "" {
		annotations["weir/memory"] = memory
	}
	text, err := json.Marshal(object{
		"ociVersion": "1.0.2", "root": object{"path": "rootfs"}, "annotations": annotations,
		"process": object{"user": object{"uid": 0, "gid": 0}, "cwd": "/", "args": []string{"/bin/echo", "started"},
			"env": []string{"PATH=/bin"}},
		"mounts": []object{
			{"destination": "/proc", "type": "proc", "source": "proc"},
			{"destination": "/dev", "type": "tmpfs", "source": "tmpfs"},
			{"destination": "/usr", "type": "bind", "source": "/usr", "options": []string{"rbind", "ro"}},
		},
		"linux": object{"namespaces": []object{{"type": "pid"}, {"type": "mount"}, {"type": "ipc"}, {"type": "uts"}}},
	})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "config.json"), text, 0o644)
}
