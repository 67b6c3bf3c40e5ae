package runtimeconf

// CRI-O and Podman, which merge drop-in files table by table and can run hooks by annotation.

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path"

	"weir/oci"
)

// CRIO is what is known of a node's CRI-O.
type CRIO struct {
	DropIn File // where weir's is to be
	// Effective is what `crio config` prints: all that is in force.
	Effective []byte
	HooksDir  string // where its files of hooks are to be
	Hooks     []File // those of weir's that are there
}

// PlanCRIO plans what makes a CRI-O use weir.
func PlanCRIO(node CRIO, setup Setup) (Plan, error) {
	if err := setup.check(); err != nil {
		return Plan{}, err
	}
	plan := Plan{Runtime: "crio", Restart: "crio", Reads: node.DropIn.Path}
	effective, err := parse(File{"crio config", node.Effective})
	if err != nil {
		return Plan{}, err
	}
	switch setup.Mode {
	case ModeRuntime:
		err = planCRIORuntime(&plan, node, setup, sub(effective, "crio", "runtime"))
	case ModeHooks:
		err = plan.hooks(node.HooksDir, node.Hooks, setup)
	case ModeNRI:
		var text []byte
		text, err = render(nest(table{"enable_nri": true}, "crio", "nri"))
		plan.add(node.DropIn, text)
		plan.Notes = append(plan.Notes, pluginNote, "CRI-O starts containers unchanged while weir's plugin does not run")
	default:
		plan.Notes = append(plan.Notes, "CRI-O already reads CDI specifications; weir cdi generate makes weir's")
	}
	if err != nil {
		return Plan{}, err
	}
	if len(plan.Edits) == 0 {
		plan.Restart = ""
	}
	return plan, nil
}

func planCRIORuntime(plan *Plan, node CRIO, setup Setup, effective table) error {
	base, _ := effective["default_runtime"].(string)
	from := sub(effective, "runtimes", base)
	if from == nil {
		return fmt.Errorf("CRI-O's configuration has no runtime %q to put weir before; nothing is written: "+
			"crio config shows which there are", base)
	}
	if kind, _ := from["runtime_type"].(string); kind != "" && kind != "oci" {
		return fmt.Errorf("CRI-O's default runtime %q is of type %q, before which weir-runtime cannot stand; "+
			"nothing is written", base, kind)
	}
	if base != RuntimeName {
		program, _ := from["runtime_path"].(string)
		if program == "" {
			program = base
		}
		if err := plan.wrapper(setup, program); err != nil {
			return err
		}
		programs := map[string]string{}
		for name := range sub(effective, "runtimes") {
			programs[name], _ = sub(effective, "runtimes", name)["runtime_path"].(string)
		}
		plan.passedOver(program, programs)
	}
	ours := pruned(from)
	ours["runtime_path"] = setup.Runtime
	section := table{"runtimes": table{RuntimeName: ours}}
	if setup.SetAsDefault {
		section["default_runtime"] = RuntimeName
	}
	text, err := render(nest(section, "crio", "runtime"))
	if err != nil {
		return err
	}
	plan.add(node.DropIn, text)
	return nil
}

// Podman is what is known of a machine's Podman.
type Podman struct {
	DropIn File   // where weir's is to be
	Base   string // the path of the OCI runtime that it uses: `podman info` has it
	// DefaultName is that runtime's name.
	DefaultName string
	// Config are the files of its configuration in the order in which it reads them.
	Config   []File
	HooksDir string
	Hooks    []File
}

// PlanPodman plans what makes Podman use weir. It has no daemon, so nothing is to be restarted.
func PlanPodman(node Podman, setup Setup) (Plan, error) {
	if err := setup.check(); err != nil {
		return Plan{}, err
	}
	plan := Plan{Runtime: "podman"}
	switch setup.Mode {
	case ModeRuntime:
		if node.DefaultName != RuntimeName {
			if node.Base == "" {
				return Plan{}, fmt.Errorf("it is not known which OCI runtime Podman uses; podman info shows it")
			}
			if err := plan.wrapper(setup, node.Base); err != nil {
				return Plan{}, err
			}
		}
		engine := table{"runtimes": table{RuntimeName: []string{setup.Runtime}}}
		if setup.SetAsDefault {
			engine["runtime"] = RuntimeName
		}
		text, err := render(table{"engine": engine})
		if err != nil {
			return Plan{}, err
		}
		plan.add(node.DropIn, text)
		return plan, nil
	case ModeHooks:
		if err := plan.hooks(node.HooksDir, node.Hooks, setup); err != nil {
			return Plan{}, err
		}
		if err := plan.readHooks(node); err != nil {
			return Plan{}, err
		}
		return plan, nil
	case ModeCDI:
		plan.Notes = append(plan.Notes, "Podman already reads CDI specifications; weir cdi generate makes weir's")
		return plan, nil
	}
	return Plan{}, unsupported("podman", setup.Mode, "it has none; use runtime or hooks")
}

// hookFile is a file of a directory of hooks, format 1.0.0.
type hookFile struct {
	Version string         `json:"version"`
	Hook    oci.Hook       `json:"hook"`
	When    map[string]any `json:"when"`
	Stages  []string       `json:"stages"`
}

// hooks plans the files by which CRI-O and Podman run weir-hook for containers with an annotation of
// weir's. Others are not seen by it, so unasked_gpu does not hold for them.
func (p *Plan) hooks(dir string, there []File, setup Setup) error {
	if !path.IsAbs(dir) {
		return fmt.Errorf("the directory of hooks %q is no absolute path", dir)
	}
	for _, hook := range []oci.Hook{
		oci.NewHook("createRuntime", setup.Hook, "start", "--socket", setup.ControlSocket),
		oci.NewHook("createContainer", setup.Hook, "inject", "--socket", setup.ControlSocket),
		oci.NewHook("poststop", setup.Hook, "release", "--socket", setup.ControlSocket),
	} {
		var text bytes.Buffer
		encoder := json.NewEncoder(&text)
		encoder.SetIndent("", "  ")
		if err := encoder.Encode(hookFile{"1.0.0", hook,
			map[string]any{"annotations": map[string]string{"^weir/": ".*"}}, []string{hook.Stage}}); err != nil {
			return fmt.Errorf("writing a hook's file: %w", err)
		}
		file := File{Path: path.Join(dir, "99-weir-"+hook.Stage+".json")}
		for _, f := range there {
			if f.Path == file.Path {
				file = f
			}
		}
		p.add(file, text.Bytes())
	}
	p.Notes = append(p.Notes, "containers with a GPU and without an annotation of weir's are not seen in this mode")
	return nil
}
