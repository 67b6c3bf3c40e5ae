// `weir sim fault`: makes driver calls on a simulated machine fail, kernels never end, and cards fall
// off the bus.

package main

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/urfave/cli/v2"

	"weir/tests/sim"
)

// lostCode is what calls on a lost card give unless --code says otherwise: the launch failed.
const lostCode = 719

func simFaultCommand() *cli.Command {
	forms := []string{formTable, formJSON}
	return &cli.Command{
		Name:      "fault",
		Usage:     "make calls on a simulated machine fail, or show what is to fail",
		ArgsUsage: "[FAULT]",
		Description: `FAULT is FUNCTION[:NTH][+|*TIMES][=CODE]: the NTH use of a driver function from now on, of
all processes together, fails with CUDA's error CODE; with + all after it too, with *TIMES so many.
A function without its ending means all of its forms. "kernel:NTH" is a kernel that never ends;
move_lost, move_torn and move_twice spoil moves of data on a machine with managed_data.
Without anything, what is armed is shown.

Examples:
  weir sim fault cuMemAlloc:3=2
  weir sim fault cuLaunchKernel:100+=719 --process trainer
  weir sim fault kernel:5
  weir sim fault --lose 1
  weir sim fault --clear all`,
		Flags: []cli.Flag{
			&cli.IntFlag{Name: "pid", DefaultText: "all", Usage: "arm it for the process `PID` only, as it sees itself"},
			&cli.StringFlag{Name: "process", Usage: "arm it for programs called `NAME` only"},
			&cli.StringFlag{Name: "clear", Usage: "disarm the fault `ID`, or all"},
			&cli.IntFlag{Name: "lose", DefaultText: "none", Usage: "the card `GPU` falls off the bus"},
			&cli.IntFlag{Name: "code", Value: lostCode, Usage: "with --lose: calls on it give `CODE`"},
			&cli.IntFlag{Name: "restore", DefaultText: "none", Usage: "the card `GPU` is back; what was made on it stays dead"},
			outputFlag(forms...), simDirFlag(),
		},
		Action: func(c *cli.Context) error {
			form, err := outputForm(c, forms...)
			if err != nil {
				return err
			}
			change, err := faultChange(c)
			if err != nil {
				return err
			}
			dir, err := simDir(c)
			if err != nil {
				return err
			}
			running, err := sim.Open(dir)
			if err != nil {
				return simError(err)
			}
			defer running.Close()
			if change != nil {
				return simError(change(running))
			}
			return printFaults(c, form, running)
		},
	}
}

// faultChange is what the command line asks to be changed; nil where it asks for nothing.
func faultChange(c *cli.Context) (func(*sim.Running) error, error) {
	asked := c.NArg()
	for _, flag := range []string{"clear", "lose", "restore"} {
		if c.IsSet(flag) {
			asked++
		}
	}
	switch {
	case asked > 1:
		return nil, usageError("one at a time: a fault, --clear, --lose or --restore")
	case c.NArg() == 0 && (c.IsSet("pid") || c.IsSet("process")):
		return nil, usageError("--pid and --process belong to a fault: name it, as in cuMemAlloc:3=2")
	case c.IsSet("code") && !c.IsSet("lose"):
		return nil, usageError("--code belongs to --lose; a fault has its code after =")
	case c.IsSet("lose") && c.Int("code") <= 0:
		return nil, usageError("--code %d: want an error of CUDA's, such as 719", c.Int("code"))
	case c.IsSet("clear"):
		return clearFaults(c, c.String("clear"))
	case c.IsSet("lose"):
		return func(r *sim.Running) error { return r.Lose(c.Int("lose"), c.Int("code")) }, nil
	case c.IsSet("restore"):
		return func(r *sim.Running) error { return r.Lose(c.Int("restore"), 0) }, nil
	case c.NArg() == 0:
		return nil, nil
	}
	fault, err := sim.ParseFault(c.Args().First())
	if err != nil {
		return nil, usageError("%v", err)
	}
	fault.PID, fault.Process = c.Int("pid"), c.String("process")
	return func(r *sim.Running) error {
		id, err := r.Arm(fault)
		if err == nil {
			fmt.Fprintf(c.App.ErrWriter, "armed on the simulated machine as fault %d\n", id)
		}
		return err
	}, nil
}

func clearFaults(c *cli.Context, which string) (func(*sim.Running) error, error) {
	if which == "all" {
		return func(r *sim.Running) error {
			for _, fault := range r.Faults() {
				if err := r.ClearFault(fault.ID); err != nil && !errors.Is(err, sim.ErrNoFault) {
					return err
				}
			}
			return nil
		}, nil
	}
	id, err := strconv.Atoi(which)
	if err != nil {
		return nil, usageError("--clear %q: want the number of a fault, or all", which)
	}
	return func(r *sim.Running) error { return r.ClearFault(id) }, nil
}

// faultsSchema is the version of the JSON form of the list.
const faultsSchema = 1

func printFaults(c *cli.Context, form string, running *sim.Running) error {
	faults := running.Faults()
	if form == formJSON {
		return printDoc(c.App.Writer, form, struct {
			Schema int         `json:"schema_version"`
			Faults []sim.Fault `json:"faults"`
		}{faultsSchema, faults})
	}
	var rows [][]string
	for _, fault := range faults {
		pid, times, code := "any", "for ever", strconv.FormatInt(fault.Code, 10)
		if fault.PID != 0 {
			pid = strconv.Itoa(fault.PID)
		}
		if fault.Times > 0 {
			times = strconv.FormatInt(fault.Times, 10)
		}
		if fault.Function == "kernel" {
			code = "never ends"
		}
		program := printable(fault.Process)
		if program == "" {
			program = "any"
		}
		rows = append(rows, []string{
			strconv.Itoa(fault.ID), fault.Function, strconv.FormatInt(fault.Nth, 10), times, code, program,
			pid, strconv.FormatInt(fault.Used, 10),
		})
	}
	return printTable(c.App.Writer,
		[]string{"ID", "FUNCTION", "NTH", "TIMES", "CODE", "PROGRAM", "PID", "USED"}, rows)
}
