package runtimeconf

// Docker, whose daemon.json is one JSON object.

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"weir/oci"
)

// PlanDocker plans what makes a Docker daemon use weir. file is its daemon.json.
func PlanDocker(file File, setup Setup) (Plan, error) {
	if err := setup.check(); err != nil {
		return Plan{}, err
	}
	plan := Plan{Runtime: "docker", Restart: "docker", Reads: file.Path}
	text := file.Text
	if len(bytes.TrimSpace(text)) == 0 {
		text = []byte("{}")
	}
	var now struct {
		Default  string `json:"default-runtime"`
		Runtimes map[string]struct {
			Path string `json:"path"`
			Type string `json:"runtimeType"`
		} `json:"runtimes"`
	}
	if err := json.Unmarshal(text, &now); err != nil {
		return Plan{}, fmt.Errorf("%s: %w; nothing is written: correct it, and try again", file.Path, err)
	}
	var err error
	switch setup.Mode {
	case ModeRuntime:
		base := now.Runtimes[now.Default]
		switch {
		case now.Default == RuntimeName:
		case base.Type != "":
			return Plan{}, fmt.Errorf("%s: the default runtime %q is of type %q, before which weir-runtime cannot "+
				"stand; nothing is written", file.Path, now.Default, base.Type)
		default:
			if base.Path == "" {
				base.Path = defaultBase
			}
			if err := plan.wrapper(setup, base.Path); err != nil {
				return Plan{}, err
			}
		}
		text, err = oci.Set(text, setup.Runtime, "runtimes", RuntimeName, "path")
		if err == nil && setup.SetAsDefault {
			text, err = oci.Set(text, RuntimeName, "default-runtime")
		}
	case ModeCDI:
		text, err = oci.Set(text, true, "features", "cdi")
		plan.Notes = append(plan.Notes, "Docker knows CDI from 25 on, and needs no configuration for it from 28.2 on")
	case ModeNRI:
		return Plan{}, unsupported("docker", setup.Mode, "it is an experiment there; use runtime")
	default:
		return Plan{}, unsupported("docker", setup.Mode, "it has no directory of hooks; use runtime")
	}
	if err != nil {
		return Plan{}, fmt.Errorf("%s: %w; nothing is written", file.Path, err)
	}
	if err := plan.addJSON(file, text); err != nil {
		return Plan{}, err
	}
	if len(plan.Edits) == 0 {
		plan.Restart = ""
	}
	return plan, nil
}

// addJSON plans a file with this object, unless it says what is there already. It is indented as
// people write it.
func (p *Plan) addJSON(file File, text []byte) error {
	var before, after, pretty bytes.Buffer
	if json.Compact(&before, file.Text) == nil && json.Compact(&after, text) == nil &&
		bytes.Equal(before.Bytes(), after.Bytes()) {
		return nil
	}
	if err := json.Indent(&pretty, text, "", indentOf(file.Text)); err != nil {
		return errors.New(file.Path + ": " + err.Error())
	}
	pretty.WriteByte('\n')
	p.add(file, pretty.Bytes())
	return nil
}

// indentOf is the indentation that a file of JSON has.
func indentOf(text []byte) string {
	for line := range bytes.Lines(text) {
		blank := line[:len(line)-len(bytes.TrimLeft(line, " \t"))]
		if len(blank) > 0 && len(bytes.TrimSpace(line)) > 0 {
			return string(blank)
		}
	}
	return "    "
}
