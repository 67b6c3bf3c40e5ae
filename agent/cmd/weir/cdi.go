// `weir cdi generate|list`: the node's GPUs as devices of the Container Device Interface.

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/urfave/cli/v2"

	"weir/agent/control"
	"weir/agent/device"
	"weir/oci"
	"weir/oci/cdi"
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
			text, err := generateCDI(c)
			if err != nil {
				return err
			}
			if c.String("output") == "-" {
				_, err = c.App.Writer.Write(text)
				return err
			}
			return writeCDI(c.String("output"), text)
		},
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

// writeCDI replaces a file in one step: runtimes read the directory at any time.
func writeCDI(path string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".weir-*") // a name that runtimes pass over
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Chmod(0o644), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
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
			dirs := c.StringSlice("dir")
			if len(dirs) == 0 {
				dirs = cdiDirs
			}
			var systems []fs.FS
			for _, dir := range dirs {
				systems = append(systems, os.DirFS(dir))
			}
			list, err := cdi.List(systems...)
			for _, found := range list {
				text := found.Name
				if found.Hidden != "" {
					text += "  not given: " + found.Hidden
				}
				fmt.Fprintln(c.App.Writer, printable(text))
			}
			return err
		},
	}
}
