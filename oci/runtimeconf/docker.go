package runtimeconf

// Docker, whose daemon.json is one JSON object.

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"

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
		return Plan{}, fmt.Errorf("%s; nothing is written: correct it, and try again", mistake(file, text, err))
	}
	var err error
	switch setup.Mode {
	case ModeRuntime:
		base := now.Runtimes[now.Default]
		switch {
		case now.Default == RuntimeName:
		case base.Path == "" && base.Type == "" && !slices.Contains(dockersOwn, now.Default):
			return Plan{}, fmt.Errorf("%s: the default runtime %q is not among its runtimes, so it is not known what to "+
				"put weir before; nothing is written", file.Path, now.Default)
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
			programs := map[string]string{}
			for name, runtime := range now.Runtimes {
				programs[name] = runtime.Path
			}
			plan.passedOver(base.Path, programs)
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

// dockersOwn are the names by which Docker knows runc, without being told of it.
var dockersOwn = []string{"", "runc", "io.containerd.runc.v2"}

// mistake says what is wrong with a file of JSON, and where.
func mistake(file File, text []byte, err error) string {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	var offset int64
	switch {
	case errors.As(err, &syntax):
		offset = syntax.Offset
	case errors.As(err, &kind):
		offset = kind.Offset
		where := "it"
		if kind.Field != "" {
			where = kind.Field
		}
		want := map[reflect.Kind]string{reflect.String: "string"}[kind.Type.Kind()]
		err = fmt.Errorf("%s is of type %s, want %s", where, kind.Value, either(want, "object"))
	}
	line := 1 + bytes.Count(text[:min(int(offset), len(text))], []byte("\n"))
	return fmt.Sprintf("%s:%d: %v", file.Path, line, err)
}

func either(text, none string) string {
	if text == "" {
		return none
	}
	return text
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
