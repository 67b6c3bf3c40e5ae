// `weir caps get|set|unset`, and the flags for caps that `weir run` shares.

package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"weir/agent/config"
	"weir/agent/control"
)

// What is said of a weight and of swap where the agent shares out no time.
const (
	notEnforcedHere = "stored, but not enforced: the agent was started with time off"
	notMovedHere    = "memory moves by page faults only: the agent was started with time off"
)

func capsCommand() *cli.Command {
	return &cli.Command{
		Name:  "caps",
		Usage: "show and change the caps of running containers",
		Description: `Examples:
  weir caps get
  weir caps set trainer --memory 8GiB
  weir caps unset trainer --memory`,
		Subcommands: []*cli.Command{capsGetCommand(), capsSetCommand(), capsUnsetCommand()},
	}
}

// capFlags are the limits that `caps set` and `run` take.
func capFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "memory", Usage: "`SIZES` of device memory: 8GiB on each GPU; on some " +
			"only: 0=8GiB,GPU-5d5ba0d6=4GiB; or both: 8GiB,1=4GiB"},
		&cli.StringFlag{Name: "swap",
			Usage: "what it may hold beyond that on each GPU, swapped out to the host, a `SIZE`"},
		&cli.StringFlag{Name: "weight",
			Usage: "share of GPU time beside others, a `NUMBER` such as 2; 1 if none is given"},
	}
}

// capsFrom reads capFlags.
func capsFrom(c *cli.Context) (control.Caps, error) {
	var caps control.Caps
	if c.IsSet("memory") {
		if err := memoryFrom(c.String("memory"), c.Command.Name, &caps); err != nil {
			return caps, err
		}
	}
	if c.IsSet("swap") {
		bytes, err := config.ParseSize(c.String("swap"))
		if err != nil {
			return caps, usageError("--swap: %v", err)
		}
		caps.SwapBytes = &bytes
	}
	if c.IsSet("weight") {
		weight, err := config.ParseWeight(c.String("weight"))
		if err != nil {
			return caps, usageError("--weight: %v", err)
		}
		caps.Weight = &weight
	}
	return caps, nil
}

// memoryFrom reads what --memory says: a size for each GPU, GPU=SIZE for single ones, or several of
// these with commas.
func memoryFrom(text, command string, caps *control.Caps) error {
	for _, part := range strings.Split(text, ",") {
		gpu, sizeText, single := strings.Cut(part, "=")
		if !single {
			sizeText = part
		}
		bytes, err := config.ParseSize(sizeText)
		_, twice := caps.MemoryByGPU[gpu]
		switch {
		case err != nil:
			return usageError("--memory: %v", err)
		case bytes == 0:
			without := "`weir caps unset CONTAINER --memory` removes a cap"
			if command == passesThrough {
				without = "leave --memory out to run without a cap"
			}
			return usageError("--memory 0 is no cap: want at least 1 byte; %s", without)
		case !single && caps.MemoryBytes != nil:
			return usageError("--memory %q: two sizes for each GPU; want GPU=SIZE for single ones", text)
		case !single:
			caps.MemoryBytes = &bytes
		case gpu == "":
			return usageError("--memory %q: which GPU? Want its index or UUID before the =", text)
		case twice:
			return usageError("--memory %q: two sizes for GPU %s", text, gpu)
		default:
			if caps.MemoryByGPU == nil {
				caps.MemoryByGPU = make(map[string]int64)
			}
			caps.MemoryByGPU[gpu] = bytes
		}
	}
	return nil
}

// memoryText writes memory caps as --memory reads them, GPUs by their index where that is known.
func memoryText(caps control.Caps, gpus []control.GPUUse, none string) string {
	var parts []string
	if caps.MemoryBytes != nil {
		parts = append(parts, config.FormatSize(*caps.MemoryBytes))
	}
	own := maps.Clone(caps.MemoryByGPU)
	for _, gpu := range gpus {
		if bytes, there := own[gpu.UUID]; there {
			parts = append(parts, control.GPUName(gpu.Index, gpu.MIG)+"="+config.FormatSize(bytes))
			delete(own, gpu.UUID)
		}
	}
	for _, uuid := range slices.Sorted(maps.Keys(own)) {
		parts = append(parts, uuid+"="+config.FormatSize(own[uuid]))
	}
	if len(parts) == 0 {
		return none
	}
	return strings.Join(parts, ",")
}

// capsRow is a container's caps as `caps get -o json` prints them.
type capsRow struct {
	ID        string       `json:"id"`
	Name      string       `json:"name"`
	Namespace string       `json:"namespace"`
	Caps      control.Caps `json:"caps"`
}

func capsGetCommand() *cli.Command {
	forms := []string{formTable, formJSON, formYAML}
	return &cli.Command{
		Name:      "get",
		Usage:     "show the caps of containers",
		ArgsUsage: "[CONTAINER...]",
		Description: `Examples:
  weir caps get
  weir caps get trainer -o json`,
		Flags: []cli.Flag{outputFlag(forms...), runDirFlag()},
		Action: func(c *cli.Context) error {
			form, err := outputForm(c, forms...)
			if err != nil {
				return err
			}
			agent, err := connect(c)
			if err != nil {
				return err
			}
			list, err := containers(c, agent)
			if err != nil {
				return agent.explain(err)
			}
			if !c.Args().Present() { // what weir has no part in has no caps
				list = slices.DeleteFunc(list, func(one control.Container) bool { return one.Identity == "" })
			}
			info, err := agent.Info(c.Context)
			if err != nil {
				return agent.explain(err)
			}
			return printCaps(c.App.Writer, form, list, info.TimeShared)
		},
	}
}

func printCaps(out io.Writer, form string, list []control.Container, timeShared bool) error {
	if form != formTable {
		doc := struct {
			SchemaVersion int       `json:"schema_version"`
			Containers    []capsRow `json:"containers"`
		}{control.SchemaVersion, []capsRow{}}
		for _, one := range list {
			doc.Containers = append(doc.Containers, capsRow{one.ID, one.Name, one.Namespace, one.Caps})
		}
		return printDoc(out, form, doc)
	}
	var rows [][]string
	for _, one := range list {
		rows = append(rows, []string{
			printable(one.Name), orDash(one.Namespace), memoryText(one.Caps, one.GPUs, "-"),
			sizeOr(one.Caps.SwapBytes, "-"), weightText(one.Caps, timeShared),
		})
	}
	return printTable(out, []string{"CONTAINER", "NAMESPACE", "MEMORY", "SWAP", "WEIGHT"}, rows)
}

func capsSetCommand() *cli.Command {
	forms := []string{formTable, formJSON, formYAML}
	return &cli.Command{
		Name:      "set",
		Usage:     "change the caps of a running container, at once",
		ArgsUsage: "CONTAINER",
		Description: `What is not named stays as it is. A cap below what is in use takes nothing away: new
allocations fail until use has dropped below it, and with swap, movable memory goes to the host
while programs run on. Units are powers of 1024: 8G is 8GiB.
--memory GPU=SIZE sets the cap on one GPU, named by index or UUID; a size alone sets it on each.
--swap 0 turns swap off, which is refused while memory lies on the host; --drain brings it back first.

Examples:
  weir caps set trainer --memory 8GiB
  weir caps set trainer --memory 1=4GiB
  weir caps set trainer --swap 16GiB
  weir caps set trainer --memory 6GiB --dry-run`,
		Flags: append(capFlags(), drainFlag(), dryRunFlag(), outputFlag(forms...), runDirFlag()),
		Action: func(c *cli.Context) error {
			caps, err := capsFrom(c)
			if err != nil {
				return err
			}
			if caps.IsZero() {
				return usageError("nothing to set: give --memory, --swap or --weight")
			}
			if c.Bool("drain") && (caps.SwapBytes == nil || caps.Swaps()) {
				return usageError("--drain is for swap that is turned off: --swap 0 --drain")
			}
			return changeCaps(c, forms, control.CapsChange{Set: caps, Drain: c.Bool("drain"), DryRun: c.Bool("dry-run")})
		},
	}
}

func capsUnsetCommand() *cli.Command {
	forms := []string{formTable, formJSON, formYAML}
	return &cli.Command{
		Name:      "unset",
		Usage:     "remove caps of a running container",
		ArgsUsage: "CONTAINER",
		Description: `A container without a memory cap gets what the GPU has left. Swap without a cap is no limit,
so it is to be removed, too. That is refused while memory lies on the host; --drain brings it back first.

Examples:
  weir caps unset trainer --memory
  weir caps unset trainer --swap --weight`,
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "memory", Usage: "remove the memory cap"},
			&cli.BoolFlag{Name: "swap", Usage: "remove the swap"},
			&cli.BoolFlag{Name: "weight", Usage: "return to weight 1"},
			drainFlag(), dryRunFlag(), outputFlag(forms...), runDirFlag(),
		},
		Action: func(c *cli.Context) error {
			change := control.CapsChange{Drain: c.Bool("drain"), DryRun: c.Bool("dry-run")}
			for _, name := range []string{"memory", "swap", "weight"} {
				if c.Bool(name) {
					change.Unset = append(change.Unset, name)
				}
			}
			if len(change.Unset) == 0 {
				return usageError("nothing to unset: give --memory, --swap or --weight")
			}
			if change.Drain && !c.Bool("swap") {
				return usageError("--drain is for swap that is turned off: --swap --drain")
			}
			return changeCaps(c, forms, change)
		},
	}
}

func drainFlag() cli.Flag {
	return &cli.BoolFlag{Name: "drain", Usage: "with swap turned off: have all that lies on the host come back to the GPU first"}
}

func dryRunFlag() cli.Flag {
	return &cli.BoolFlag{Name: "dry-run", Usage: "say what would change, and change nothing"}
}

func changeCaps(c *cli.Context, forms []string, change control.CapsChange) error {
	form, err := outputForm(c, forms...)
	if err != nil {
		return err
	}
	ref, err := oneContainer(c)
	if err != nil {
		return err
	}
	agent, err := connect(c)
	if err != nil {
		return err
	}
	result, err := agent.ChangeCaps(c.Context, ref, change)
	if err != nil {
		return agent.explain(err)
	}
	if form != formTable {
		return printDoc(c.App.Writer, form, control.CapsDoc{
			SchemaVersion: control.SchemaVersion, CapsResult: result, DryRun: change.DryRun,
		})
	}
	info, err := agent.Info(c.Context)
	if err != nil {
		return agent.explain(err)
	}
	return printChange(c.App.Writer, result, change, info.TimeShared)
}

// printChange writes one line for each thing that was named: what it was, what it is, and what
// follows from that.
func printChange(
	out io.Writer, result control.CapsResult, change control.CapsChange, timeShared bool,
) error {
	type line struct {
		what                string
		named               bool
		before, after, note string
	}
	before, after := result.Before, result.After
	swaps, weighs := result.SwapMessage, ""
	if change.Set.Swaps() && !timeShared {
		swaps = notMovedHere
	}
	if change.Set.Weight != nil && !timeShared {
		weighs = notEnforcedHere
	}
	lines := []line{
		{"memory", change.Set.SetsMemory(), memoryText(before, result.GPUs, "none"),
			memoryText(after, result.GPUs, "none"), result.Message},
		{"swap", change.Set.SwapBytes != nil, sizeOr(before.SwapBytes, "none"),
			sizeOr(after.SwapBytes, "none"), swaps},
		{"weight", change.Set.Weight != nil, weightOr(before.Weight, "1"),
			weightOr(after.Weight, "1"), weighs},
	}
	prefix := printable(result.Name) + ": "
	if change.DryRun {
		prefix = "dry run: " + prefix
	}
	for _, l := range lines {
		if !l.named && !slices.Contains(change.Unset, l.what) {
			continue
		}
		text := fmt.Sprintf("%s%s %s -> %s", prefix, l.what, l.before, l.after)
		if l.note != "" {
			text += "; " + l.note
		}
		if _, err := fmt.Fprintln(out, text); err != nil {
			return err
		}
	}
	return nil
}
