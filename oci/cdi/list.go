package cdi

// Reading specifications: what is valid, and which of weir's devices a directory has.

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
	specs "tags.cncf.io/container-device-interface/specs-go"
)

// fileBytesMax bounds what is read as a specification.
const fileBytesMax = 4 << 20

var errTooLarge = errors.New("more than 4MiB is no specification")

var (
	kindForm   = regexp.MustCompile(`^[A-Za-z](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?/[A-Za-z](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?$`)
	deviceForm = regexp.MustCompile(`^[A-Za-z0-9](?:[A-Za-z0-9_.:-]*[A-Za-z0-9])?$`)
	stages     = []string{"prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"}
)

// Validate tells what is wrong with a specification: the format's own rules; and that each device
// does something, without which runtimes call it unresolvable, and each hook has an environment,
// without which some give it the image's.
func Validate(spec *specs.Spec) error {
	if !kindForm.MatchString(spec.Kind) {
		return fmt.Errorf("kind %q: want VENDOR/CLASS", spec.Kind)
	}
	if err := validateEdits(&spec.ContainerEdits); err != nil {
		return fmt.Errorf("containerEdits: %w", err)
	}
	seen := make(map[string]bool)
	for i := range spec.Devices {
		device := &spec.Devices[i]
		switch {
		case !deviceForm.MatchString(device.Name):
			return fmt.Errorf("device %q: a name has letters, digits, and _ - . : between them", device.Name)
		case seen[device.Name]:
			return fmt.Errorf("device %q is there twice", device.Name)
		case isEmpty(&device.ContainerEdits):
			return fmt.Errorf("device %q has no containerEdits", device.Name)
		}
		seen[device.Name] = true
		if err := validateEdits(&device.ContainerEdits); err != nil {
			return fmt.Errorf("device %q: %w", device.Name, err)
		}
	}
	// Last, for it does not look whether an entry is null.
	if err := specs.ValidateVersion(spec); err != nil {
		return fmt.Errorf("cdiVersion: %w", err)
	}
	return nil
}

func isEmpty(edits *specs.ContainerEdits) bool {
	return len(edits.Env) == 0 && len(edits.DeviceNodes) == 0 && len(edits.Hooks) == 0 && len(edits.Mounts) == 0 &&
		len(edits.NetDevices) == 0 && edits.IntelRdt == nil && len(edits.AdditionalGIDs) == 0
}

func validateEdits(edits *specs.ContainerEdits) error {
	for _, variable := range edits.Env {
		if name, _, ok := strings.Cut(variable, "="); !ok || name == "" {
			return fmt.Errorf("env %q: want NAME=VALUE", variable)
		}
	}
	for _, node := range edits.DeviceNodes {
		if node == nil || !path.IsAbs(node.Path) {
			return errors.New("a device node without an absolute path")
		}
	}
	for _, m := range edits.Mounts {
		if m == nil || !path.IsAbs(m.ContainerPath) || m.HostPath == "" {
			return errors.New("a mount without absolute paths")
		}
	}
	for _, hook := range edits.Hooks {
		switch {
		case hook == nil || !path.IsAbs(hook.Path):
			return errors.New("a hook without an absolute path")
		case !slices.Contains(stages, hook.HookName):
			return fmt.Errorf("hook %q: want one of %s", hook.HookName, strings.Join(stages, ", "))
		case len(hook.Env) == 0:
			return fmt.Errorf("hook %s of %s has no env of its own", hook.Path, hook.HookName)
		}
	}
	return nil
}

// Parse reads a specification, JSON or YAML, and validates it.
func Parse(text []byte) (*specs.Spec, error) {
	if len(text) > fileBytesMax {
		return nil, errTooLarge
	}
	var spec specs.Spec
	if err := yaml.UnmarshalStrict(text, &spec); err != nil {
		return nil, errors.New(ownWords(err))
	}
	return &spec, Validate(&spec)
}

// strange are the words of the parser that say how it works, and not what is wrong.
var strange = regexp.MustCompile(`error (?:converting|unmarshaling)[^:]*: |while decoding JSON: |Go (?:value of type|struct field) `)

// ownWords is what is wrong with a text in one line, where the parser writes several.
func ownWords(err error) string {
	return strange.ReplaceAllString(strings.Join(strings.Fields(err.Error()), " "), "")
}

// Dir is a directory of specifications, and its path for messages.
type Dir struct {
	Path  string
	Files fs.FS
}

// List gives weir's devices in directories of specifications, in the order of their precedence: of a
// device that several directories have, the last one counts; one that is twice in a directory, none.
// Files of others are passed over, and of weir's own those that cannot be read are in the error.
func List(dirs ...Dir) ([]Listed, error) {
	var list []Listed
	var errs []error
	for _, dir := range dirs {
		files, err := fs.ReadDir(dir.Files, ".")
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("%s: %w", dir.Path, reason(err)))
		}
		begin := len(list)
		for _, file := range files {
			if !ours(file.Name()) {
				continue
			}
			found, err := listFile(dir.Files, file.Name())
			if err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", path.Join(dir.Path, file.Name()), err))
			}
			list = append(list, found...)
		}
		hide(list[:begin], list[begin:])
	}
	return list, errors.Join(errs...)
}

// Names are the endings of files that container runtimes read.
var Names = []string{".json", ".yaml"}

// ours tells whether a file is one of weir's by its name, so that no other is read.
func ours(name string) bool {
	return strings.HasPrefix(name, "weir-") && slices.Contains(Names, path.Ext(name))
}

// listFile reads one file. What is no regular one is not opened, since a pipe would be waited for.
func listFile(dir fs.FS, name string) ([]Listed, error) {
	info, err := fs.Stat(dir, name)
	switch {
	case err != nil:
		return nil, reason(err)
	case !info.Mode().IsRegular():
		return nil, errors.New("it is no regular file")
	case info.Size() > fileBytesMax:
		return nil, errTooLarge
	}
	text, err := fs.ReadFile(dir, name)
	if err != nil {
		return nil, reason(err)
	}
	spec, err := Parse(text)
	if err != nil {
		return nil, err
	}
	if vendor, _, _ := strings.Cut(spec.Kind, "/"); vendor != "weir" {
		return nil, fmt.Errorf("it is of kind %q, which is not weir's", spec.Kind)
	}
	var list []Listed
	for _, device := range spec.Devices {
		list = append(list, Listed{Name: spec.Kind + "=" + device.Name, File: name})
	}
	return list, nil
}

// reason is why a file could not be read, without its name, which the message has.
func reason(err error) error {
	var of *fs.PathError
	if errors.As(err, &of) {
		return of.Err
	}
	return err
}

// hide marks what a later directory, or a second file of the same one, takes out of use.
func hide(before, here []Listed) {
	for i := range here {
		for j := range before {
			if before[j].Name == here[i].Name && before[j].Hidden == "" {
				before[j].Hidden = "a later directory has it, too"
			}
		}
		for j := range here[:i] {
			if here[j].Name == here[i].Name {
				here[i].Hidden = "also in " + here[j].File
				here[j].Hidden = "also in " + here[i].File
			}
		}
	}
}
