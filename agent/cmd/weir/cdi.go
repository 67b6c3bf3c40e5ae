// `weir cdi generate|list`: the node's GPUs as devices of the Container Device Interface.

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"weir/agent/control"
	"weir/agent/device"
	"weir/oci"
	"weir/oci/cdi"
	"weir/oci/runtimeconf"
)

// cdiDirs are where container runtimes look for specifications; of a device in both the latter counts.
var cdiDirs = []string{"/etc/cdi", "/var/run/cdi"}

func cdiCommand() *cli.Command {
	return &cli.Command{
		Name:  "cdi",
		Usage: "offer the node's GPUs to containers by name",
		Description: `Examples:
  weir cdi generate --output /etc/cdi/weir-gpu.json
  weir cdi list
  ctr run --device weir/gpu=0 ...`,
		Subcommands: []*cli.Command{cdiGenerateCommand(), cdiListCommand()},
	}
}

func cdiGenerateCommand() *cli.Command {
	return &cli.Command{
		Name:  "generate",
		Usage: "write the CDI specification of the node's GPUs",
		Description: `Each GPU is a device, weir/gpu=INDEX and weir/gpu=UUID, whose hooks ask the agent what the container's
annotations ask for.

Examples:
  weir cdi generate
  weir cdi generate --output /etc/cdi/weir-gpu.json`,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "output", Aliases: []string{"o"}, Value: "-", Usage: "write to `FILE`; - is stdout"},
			&cli.StringFlag{Name: "nvml", Usage: "load NVML from `FILE`; else the system's libnvidia-ml.so.1"},
			askedRunDirFlag(),
		},
		Action: func(c *cli.Context) error {
			if err := noPositionals(c); err != nil {
				return err
			}
			output, err := outputOf(c)
			if err != nil {
				return err
			}
			text, err := generateCDI(c)
			if err != nil {
				return err
			}
			if output.Path == "" {
				_, err = c.App.Writer.Write(text)
				return err
			}
			// In one step, for runtimes read the directory at any time.
			if err := runtimeconf.Write(output, text); err != nil {
				return err
			}
			noteHidden(c, output.Path)
			return nil
		},
	}
}

// outputOf is the file to be written; without a path that is stdout.
func outputOf(c *cli.Context) (file runtimeconf.File, err error) {
	if c.String("output") == "-" {
		return file, nil
	}
	name, err := pathOf(c, "output")
	if err != nil {
		return file, err
	}
	if info, err := os.Stat(name); err == nil && info.IsDir() {
		return file, usageError("--output: %s is a directory; name a file in it, such as %s", name, filepath.Join(name, "weir-gpu.json"))
	}
	if !slices.Contains(cdi.Names, filepath.Ext(name)) {
		return file, usageError("--output: container runtimes read no file with a name like %s; want one that ends with %s",
			filepath.Base(name), strings.Join(cdi.Names, " or "))
	}
	return runtimeconf.Load(name)
}

// noteHidden says that devices of a file are not given, since another one has them, too.
func noteHidden(c *cli.Context, file string) {
	// What is wrong with other files is for list to say.
	list, _ := cdi.List(cdi.Dir{Path: filepath.Dir(file), Files: os.DirFS(filepath.Dir(file))})
	for _, found := range list {
		if found.File == filepath.Base(file) && found.Hidden != "" {
			fmt.Fprintf(c.App.ErrWriter, "note: runtimes do not give %s: %s; remove one of the files\n", printable(found.Name),
				printable(found.Hidden))
			return
		}
	}
}

func generateCDI(c *cli.Context) ([]byte, error) {
	hook := besideProgram("weir-hook")
	if hook == "" {
		return nil, errors.New("there is no weir-hook beside this program; install all of weir's programs in one directory")
	}
	socket, err := socketOf(c)
	if err != nil {
		return nil, err
	}
	devices, err := device.Open(c.String("nvml"))
	if errors.Is(err, device.ErrNoNVML) {
		return nil, fmt.Errorf("%w: %w, so there is no GPU to offer", control.ErrUnsupported, err)
	}
	if err != nil {
		return nil, fmt.Errorf("opening the GPUs: %w", err)
	}
	defer devices.Close()
	var gpus []cdi.GPU
	for _, gpu := range devices.GPUs() {
		nodes, err := nodeDevices{devices}.Nodes(gpu.UUID)
		if err != nil {
			return nil, fmt.Errorf("GPU %s: %w", gpu.UUID, err)
		}
		var mig *int
		if gpu.MIG != nil {
			mig = &gpu.MIG.Index
		}
		gpus = append(gpus, cdi.GPU{Name: control.GPUName(gpu.Index, mig), UUID: gpu.UUID, Devices: []oci.Device(nodes)})
	}
	spec, err := cdi.Generate(gpus, cdi.Programs{Hook: hook, ControlSocket: socket})
	if err != nil {
		return nil, err
	}
	return cdi.Encode(spec)
}

func cdiListCommand() *cli.Command {
	return &cli.Command{
		Name:        "list",
		Usage:       "list weir's devices as container runtimes find them",
		Description: "Examples:\n  weir cdi list\n  weir cdi list --dir /etc/cdi",
		Flags: []cli.Flag{
			&cli.StringSliceFlag{Name: "dir", Usage: "look in `DIR`; may be repeated, the last one counts; else in /etc/cdi " +
				"and /var/run/cdi"},
		},
		Action: func(c *cli.Context) error {
			if err := noPositionals(c); err != nil {
				return err
			}
			paths := c.StringSlice("dir")
			for _, path := range paths { // the usual ones need not be there, but who names one means one that is
				if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
					return usageError("--dir: there is no directory %q", path)
				}
			}
			if len(paths) == 0 {
				paths = cdiDirs
			}
			var dirs []cdi.Dir
			for _, path := range paths {
				dirs = append(dirs, cdi.Dir{Path: path, Files: os.DirFS(path)})
			}
			list, err := cdi.List(dirs...)
			for _, found := range list {
				text := found.Name
				if found.Hidden != "" {
					text += "  not given: " + found.Hidden
				}
				fmt.Fprintln(c.App.Writer, printable(text))
			}
			if len(list) == 0 && err == nil {
				fmt.Fprintf(c.App.ErrWriter, "note: weir has no devices in %s; weir cdi generate makes some\n",
					strings.Join(paths, " and "))
			}
			return err
		},
	}
}
