// `weir sim`: simulated machines, made and shown. Only what a shell is to evaluate goes to the
// stdout of `up`; every text for people says that the GPUs are simulated.

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"weir/agent/config"
	"weir/tests/sim"
)

// simLibraryDir, beside the weir executable, holds the simulated driver's libraries.
const simLibraryDir = "sim"

func simCommand() *cli.Command {
	return &cli.Command{
		Name:  "sim",
		Usage: "simulate GPUs on a machine without any",
		Subcommands: []*cli.Command{
			simUpCommand(), simDownCommand(), simStatusCommand(), simFaultCommand(),
		},
	}
}

func simDirFlag() cli.Flag {
	return &cli.StringFlag{
		Name: "dir",
		Usage: "the machine is in `DIR`; else in $WEIR_SIM, else " + sim.SystemDir +
			", or $XDG_RUNTIME_DIR/weir-sim or /tmp/weir-sim-UID for an ordinary user",
	}
}

func simDir(c *cli.Context) (string, error) {
	dir := c.String("dir")
	if dir == "" {
		if c.IsSet("dir") {
			return "", usageError("--dir is empty: give the machine's directory")
		}
		dir = sim.Dir()
	}
	absolute, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("finding %s: %w", dir, err)
	}
	return absolute, nil
}

func simUpCommand() *cli.Command {
	return &cli.Command{
		Name:      "up",
		Usage:     "make a simulated machine and print how to use it, as shell commands",
		ArgsUsage: "[NAME|FILE]",
		Description: `NAME is a ready-made machine, a30 if none is given: ` +
			strings.Join(sim.MachineNames(), ", ") + `.
FILE is a machine file (TOML), named with a slash or its ending .toml. Programs that have the
printed environment find simulated GPUs instead of real ones. A simulated GPU is smaller than the
card it stands for, by the scale of its machine; its times are never a speed of hardware.

Examples:
  eval "$(weir sim up)"
  eval "$(weir sim up a100x4 --dir /tmp/four)"
  weir sim up ./mine.toml`,
		Flags: []cli.Flag{
			simDirFlag(),
			&cli.StringFlag{
				Name:  "lib-dir",
				Usage: "the simulated driver's libraries are in `DIR`; else sim/ beside this program",
			},
		},
		Action: simUp,
	}
}

func simUp(c *cli.Context) error {
	name := "a30"
	switch c.NArg() {
	case 0:
	case 1:
		name = c.Args().First()
	default:
		return usageError("one machine at a time, not %q", c.Args().Slice())
	}
	libraries, err := simLibraries(c.String("lib-dir"))
	if err != nil {
		return err
	}
	dir, err := simDir(c)
	if err != nil {
		return err
	}
	machine, err := sim.LoadMachine(name)
	if err != nil {
		return simError(err)
	}
	if err := sim.Up(dir, machine); err != nil {
		return simError(err)
	}
	fmt.Fprintf(c.App.Writer, "export WEIR_SIM=%s\n", shellQuote(dir))
	fmt.Fprintf(c.App.Writer, "export LD_LIBRARY_PATH=%s${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}\n",
		shellQuote(libraries))
	fmt.Fprintf(c.App.ErrWriter, "simulated machine %s is up in %s: %s\n", machine.Name, dir,
		describeMachine(machine))
	return nil
}

// describeMachine says what a machine has, and that it is no real one.
func describeMachine(machine *sim.Machine) string {
	first := machine.GPUs[0]
	gpus := "1 simulated GPU"
	if len(machine.GPUs) > 1 {
		gpus = fmt.Sprintf("%d simulated GPUs", len(machine.GPUs))
	}
	return fmt.Sprintf("%s (%s) at scale 1/%d: %s of memory stand for %s, and all figures are "+
		"simulated", gpus, first.Name, machine.Scale,
		config.FormatSize(first.MemoryBytes/machine.Scale), config.FormatSize(first.MemoryBytes))
}

// simLibraries finds the directory of the simulated driver's libraries.
func simLibraries(given string) (string, error) {
	dir := given
	if dir == "" {
		executable, err := os.Executable()
		if err != nil {
			return "", fmt.Errorf("finding this program: %w", err)
		}
		dir = filepath.Join(filepath.Dir(executable), simLibraryDir)
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("finding %s: %w", given, err)
	}
	if strings.ContainsAny(dir, ":;") {
		return "", usageError("%s: LD_LIBRARY_PATH cannot carry a path with : or ;; name another "+
			"directory with --lib-dir", dir)
	}
	if _, err := os.Stat(filepath.Join(dir, "libcuda.so.1")); err != nil {
		return "", &codedError{exitNotFound, fmt.Sprintf("no simulated driver in %s: %v; build it "+
			"with `make build`, or name its directory with --lib-dir", dir, err)}
	}
	return dir, nil
}

func simDownCommand() *cli.Command {
	return &cli.Command{
		Name:  "down",
		Usage: "take a simulated machine away",
		Description: `A machine with live processes stays up unless --force is given. They keep what they
have, but nothing that starts later finds the machine.

Examples:
  weir sim down
  weir sim down --dir /tmp/four --force`,
		Flags: []cli.Flag{
			simDirFlag(),
			&cli.BoolFlag{Name: "force", Usage: "even though processes of it are alive"},
		},
		Action: func(c *cli.Context) error {
			if err := noPositionals(c); err != nil {
				return err
			}
			dir, err := simDir(c)
			if err != nil {
				return err
			}
			if err := sim.Down(dir, c.Bool("force")); err != nil {
				return simError(err)
			}
			fmt.Fprintf(c.App.ErrWriter, "the simulated machine in %s is down\n", dir)
			return nil
		},
	}
}

func simStatusCommand() *cli.Command {
	forms := []string{formTable, formJSON}
	return &cli.Command{
		Name:  "status",
		Usage: "show a simulated machine's GPUs, its processes and its books",
		Description: `BUSY is the time that the compute engine worked for a process; CONTENDED its part
while another process had work too. SHARED is what of its memory others may hold too. A MIG device
of a divided GPU is shown as GPU:DEVICE. -o json has bytes, nanoseconds, counters of managed memory
and the books of the dead.

Examples:
  weir sim status
  weir sim status -o json | jq '.gpus[0].processes[] | {pid, contended_ns}'`,
		Flags: []cli.Flag{outputFlag(forms...), simDirFlag()},
		Action: func(c *cli.Context) error {
			form, err := outputForm(c, forms...)
			if err != nil {
				return err
			}
			if err := noPositionals(c); err != nil {
				return err
			}
			dir, err := simDir(c)
			if err != nil {
				return err
			}
			books, err := sim.Status(dir)
			if err != nil {
				return simError(err)
			}
			if form == formJSON {
				return printDoc(c.App.Writer, form, books)
			}
			return printBooks(c, books)
		},
	}
}

func printBooks(c *cli.Context, books sim.Books) error {
	out := c.App.Writer
	fmt.Fprintf(out, "simulated machine in %s, scale 1/%d, driver %s, CUDA %s\n\n", books.Dir,
		books.Scale, books.Driver, books.CUDA)
	var tables bookTables
	for _, gpu := range books.GPUs {
		index := strconv.Itoa(gpu.Index)
		tables.add(index, gpu)
		for _, device := range gpu.MIG.Devices() {
			tables.add(fmt.Sprintf("%s:%d", index, device.Index), device.GPUBooks)
		}
	}
	if err := printTable(out, []string{"GPU", "NAME", "MEMORY", "BUSY", "CONTENDED", "LAUNCHES",
		"SWITCHES"}, tables.gpus); err != nil || len(tables.processes) == 0 {
		return err
	}
	fmt.Fprintln(out)
	if err := printTable(out, []string{"PID", "PROGRAM", "GPU", "MEMORY", "SHARED", "BUSY",
		"CONTENDED", "LAUNCHES"}, tables.processes); err != nil || len(tables.managed) == 0 {
		return err
	}
	fmt.Fprintln(out)
	return printTable(out, []string{"PID", "GPU", "MANAGED", "RESIDENT", "FAULTS", "FAULTED IN",
		"PREFETCHED", "EVICTED", "STOOD STILL"}, tables.managed)
}

// bookTables are the rows of the three tables of a machine's books.
type bookTables struct {
	gpus, processes, managed [][]string
}

func (t *bookTables) add(index string, gpu sim.GPUBooks) {
	name := gpu.Name
	if gpu.LostCode != 0 {
		name += " (lost)"
	}
	t.gpus = append(t.gpus, []string{
		index, name, config.FormatSize(gpu.UsedBytes) + " / " + config.FormatSize(gpu.MemoryBytes),
		span(gpu.BusyNS), span(gpu.ContendedWallNS), strconv.FormatInt(gpu.Launches, 10),
		strconv.FormatInt(gpu.Switches, 10),
	})
	for _, process := range gpu.Processes {
		if process.Alive {
			t.addProcess(index, process)
		}
	}
}

func (t *bookTables) addProcess(index string, process sim.ProcessBooks) {
	pid, shared := strconv.Itoa(process.PID), "-"
	if process.SharedBytes > 0 {
		shared = config.FormatSize(process.SharedBytes)
	}
	t.processes = append(t.processes, []string{
		pid, printable(process.Program), index,
		config.FormatSize(process.AllocatedBytes + process.ContextBytes), shared,
		span(process.BusyNS), span(process.ContendedNS), strconv.FormatInt(process.Launches, 10),
	})
	managed := process.Managed
	if managed.AllocatedBytes == 0 && managed.FaultBatches == 0 {
		return
	}
	t.managed = append(t.managed, []string{
		pid, index, config.FormatSize(managed.AllocatedBytes), config.FormatSize(managed.ResidentBytes),
		strconv.FormatInt(managed.FaultBatches, 10), config.FormatSize(managed.FaultInBytes),
		config.FormatSize(managed.PrefetchInBytes), config.FormatSize(managed.EvictedBytes),
		span(managed.FaultNS),
	})
}

// span writes nanoseconds to the millisecond.
func span(ns int64) string {
	return time.Duration(ns).Round(time.Millisecond).String()
}

// simError adds the way out and the exit code to what package sim refuses.
func simError(err error) error {
	var mistake *sim.FileError
	var inUse *sim.InUseError
	switch {
	case errors.As(err, &mistake), errors.Is(err, sim.ErrUnknownMachine):
		return usageError("%v", err)
	case errors.As(err, &inUse):
		return fmt.Errorf("%w; end them first, or take it down with weir sim down --force", err)
	case errors.Is(err, sim.ErrNotMachine):
		return fmt.Errorf("%w; name another directory with --dir", err)
	case errors.Is(err, sim.ErrNoFault), errors.Is(err, sim.ErrNoGPU):
		return &codedError{exitNotFound, err.Error() + "; weir sim fault and weir sim status list them"}
	case errors.Is(err, sim.ErrTooManyFaults):
		return fmt.Errorf("%w; weir sim fault --clear disarms some", err)
	case errors.Is(err, sim.ErrNoMachine):
		return &codedError{exitNotFound, err.Error() + "; make one with weir sim up"}
	case errors.Is(err, fs.ErrNotExist):
		return &codedError{exitNotFound, err.Error()}
	case errors.Is(err, fs.ErrPermission):
		return &codedError{exitPermission, err.Error() + "; name a directory of yours with --dir"}
	}
	return err
}

// shellQuote makes one word of text for a POSIX shell.
func shellQuote(text string) string {
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
