package oci

// The edit of a specification. See the package's invariants.

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
)

// The places in a container.
const (
	// PreloadPlace is read by glibc's loader in every process, whatever its environment.
	PreloadPlace = "/etc/ld.so.preload"
	// SocketPlace is where the library looks for the agent's socket.
	SocketPlace = "/run/weir"
	// deviceDir takes SocketPlace's place where the image's own file system cannot be changed: /dev is
	// nearly always the runtime's.
	deviceDir = "/dev/weir"
	// LibraryPlace is the name, in the container's socket directory, of the empty directory over
	// which the library's is mounted: so only one directory has to be made in the image.
	LibraryPlace = "lib"
	libraryName  = "libweir.so"
	socketName   = "agent.sock"
)

// hookSeconds is how long a hook of ours may take before the runtime gives up on it.
const hookSeconds = 10

// Device is a device node.
type Device struct {
	Path  string `json:"path"`
	Major int64  `json:"major"`
	Minor int64  `json:"minor"`
}

// Grant is what Edit puts into a container. All paths are the host's, and absolute.
type Grant struct {
	// ID is the container's name with the agent.
	ID string `json:"id"`
	// SocketDir is this container's alone, and holds an empty directory LibraryPlace.
	SocketDir string `json:"socket_dir"`
	// LibraryDir holds libweir.so. It is never written to again.
	LibraryDir string `json:"library_dir"`
	// PreloadFile is mounted over /etc/ld.so.preload: see MergePreload.
	PreloadFile string `json:"preload_file"`
	// Hook is the weir-hook program, and ControlSocket where it finds the agent.
	Hook          string   `json:"hook"`
	ControlSocket string   `json:"control_socket"`
	Devices       []Device `json:"devices"` // of the GPUs that it is given
	// FixedImage: nothing can be made in the image's file system, be it a mount point. The library
	// is then loaded by the environment alone, which programs may clear.
	FixedImage bool `json:"fixed_image"`
	// ReadImage: what the image has as its own /etc/ld.so.preload was not to be seen when the grant was
	// made, so the hook tells it when the image is there.
	ReadImage bool `json:"read_image"`
}

// check refuses a grant that would put something else into the container than was meant.
func (g *Grant) check() error {
	paths := []string{g.SocketDir, g.LibraryDir, g.Hook, g.ControlSocket}
	if !g.FixedImage {
		paths = append(paths, g.PreloadFile)
	}
	for _, device := range g.Devices {
		paths = append(paths, device.Path)
	}
	for _, p := range paths {
		if !path.IsAbs(p) || path.Clean(p) != p {
			return fmt.Errorf("the grant names %q, which is no absolute path", p)
		}
	}
	if g.ID == "" {
		return errors.New("the grant has no id")
	}
	return nil
}

// dir is where the socket directory is in the container.
func (g *Grant) dir() string {
	if g.FixedImage {
		return deviceDir
	}
	return SocketPlace
}

// Library is the library's path in the container.
func (g *Grant) Library() string { return path.Join(g.dir(), LibraryPlace, libraryName) }

// Edit puts a grant into a specification. Mounts of others at our places go, since two are there for
// one; all else stays, in its order and to the byte.
func Edit(spec []byte, grant Grant) ([]byte, error) {
	if err := grant.check(); err != nil {
		return nil, fmt.Errorf("editing the container's specification: %w", err)
	}
	edited, err := inObject(func(o *object) error {
		return errors.Join(
			o.change("annotations", inObject(grant.mark)),
			o.change("mounts", inArray(grant.mount)),
			o.change("process", grant.inProcess),
			o.change("hooks", inObject(grant.hooks)),
			grant.devices(o),
		)
	})(spec)
	if err != nil {
		return nil, fmt.Errorf("editing the container's specification: %w", err)
	}
	return edited, nil
}

func (g *Grant) mark(annotations *object) error {
	return annotations.change(Marker, func(json.RawMessage) (json.RawMessage, error) {
		return encode(g.ID), nil
	})
}

// Mount is an entry of the specification's list.
type Mount struct {
	Destination string   `json:"destination"`
	Type        string   `json:"type"`
	Source      string   `json:"source"`
	Options     []string `json:"options"`
}

// Mounts are those that a grant adds, in their order.
func (g *Grant) Mounts() []Mount {
	bind := func(from, to string, more ...string) Mount {
		return Mount{to, "bind", from, append([]string{"bind", "ro", "nosuid", "nodev"}, more...)}
	}
	list := []Mount{
		bind(g.SocketDir, g.dir(), "noexec"),
		bind(g.LibraryDir, path.Join(g.dir(), LibraryPlace)),
	}
	if !g.FixedImage {
		list = append(list, bind(g.PreloadFile, PreloadPlace))
	}
	return list
}

// mount puts ours last, where no other of the specification covers them.
func (g *Grant) mount(list []json.RawMessage) ([]json.RawMessage, error) {
	ours := g.Mounts()
	list, err := without(list, func(m Mount) bool {
		return slices.ContainsFunc(ours, func(o Mount) bool { return o.Destination == clean(m.Destination) })
	})
	if err != nil {
		return nil, err
	}
	for _, m := range ours {
		list = append(list, encode(m))
	}
	return list, nil
}

// inProcess edits the process; a specification may have none.
func (g *Grant) inProcess(process json.RawMessage) (json.RawMessage, error) {
	if isNull(process) {
		return process, nil
	}
	return inObject(func(o *object) error { return o.change("env", inArray(g.environment)) })(process)
}

// Preload is what LD_PRELOAD becomes in the container, where it was value. A musl reads nothing else.
func (g *Grant) Preload(value string) string { return prepend(g.Library(), value) }

// environment puts the library first into each LD_PRELOAD: of several, loaders take different ones.
func (g *Grant) environment(list []json.RawMessage) ([]json.RawMessage, error) {
	list, preloads := slices.Clone(list), 0
	for i, element := range list {
		var variable string
		if err := json.Unmarshal(element, &variable); err != nil {
			return nil, fmt.Errorf("entry %d is no string", i)
		}
		if rest, ok := strings.CutPrefix(variable, preloadVariable); ok {
			preloads++
			list[i] = encode(preloadVariable + g.Preload(rest))
		}
	}
	if preloads == 0 {
		list = append(list, encode(preloadVariable+g.Preload("")))
	}
	if !g.FixedImage {
		return list, nil
	}
	list = slices.DeleteFunc(list, func(element json.RawMessage) bool {
		var variable string
		return json.Unmarshal(element, &variable) == nil && strings.HasPrefix(variable, socketVariable)
	})
	return append(list, encode(socketVariable+path.Join(g.dir(), socketName))), nil
}

// Hook is an entry of the specification's lists. It is never without an environment: some runtimes
// give one that has none the container's, which is the image's.
type Hook struct {
	Stage          string   `json:"-"` // the list that it is in
	Path           string   `json:"path"`
	Args           []string `json:"args"`
	Env            []string `json:"env"`
	TimeoutSeconds int      `json:"timeout"`
}

// Hooks are those that a grant adds.
func (g *Grant) Hooks() []Hook {
	begin := "register"
	if g.ReadImage {
		begin = "merge"
	}
	return []Hook{
		NewHook("createRuntime", g.Hook, begin, "--socket", g.ControlSocket, "--id", g.ID),
		NewHook("poststop", g.Hook, "release", "--socket", g.ControlSocket, "--id", g.ID),
	}
}

// NewHook is a call of weir-hook, the program, with these arguments.
func NewHook(stage, program string, args ...string) Hook {
	return Hook{stage, program, append([]string{path.Base(program)}, args...),
		[]string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}, hookSeconds}
}

func (g *Grant) hooks(hooks *object) error {
	var errs []error
	for _, ours := range g.Hooks() {
		errs = append(errs, hooks.change(ours.Stage, inArray(
			func(list []json.RawMessage) ([]json.RawMessage, error) {
				list, err := without(list, func(h Hook) bool { return path.Base(h.Path) == path.Base(g.Hook) })
				return append(list, encode(ours)), err
			})))
	}
	return errors.Join(errs...)
}

// devices adds the device nodes, and allows them.
func (g *Grant) devices(spec *object) error {
	if len(g.Devices) == 0 {
		return nil
	}
	type node struct {
		Path     string `json:"path"`
		Type     string `json:"type"`
		Major    int64  `json:"major"`
		Minor    int64  `json:"minor"`
		FileMode uint32 `json:"fileMode"`
		UID      uint32 `json:"uid"`
		GID      uint32 `json:"gid"`
	}
	type rule struct {
		Allow  bool   `json:"allow"`
		Type   string `json:"type"`
		Major  int64  `json:"major"`
		Minor  int64  `json:"minor"`
		Access string `json:"access"`
	}
	nodes := func(list []json.RawMessage) ([]json.RawMessage, error) {
		list, err := without(list, func(n node) bool {
			return slices.ContainsFunc(g.Devices, func(d Device) bool { return d.Path == clean(n.Path) })
		})
		for _, d := range g.Devices {
			list = append(list, encode(node{d.Path, "c", d.Major, d.Minor, 0o666, 0, 0}))
		}
		return list, err
	}
	rules := func(list []json.RawMessage) ([]json.RawMessage, error) {
		var ours []rule
		for _, d := range g.Devices {
			ours = append(ours, rule{true, "c", d.Major, d.Minor, "rwm"})
		}
		list, err := without(list, func(r rule) bool { return slices.Contains(ours, r) })
		for _, r := range ours {
			list = append(list, encode(r))
		}
		return list, err
	}
	return spec.change("linux", inObject(func(linux *object) error {
		return errors.Join(
			linux.change("devices", inArray(nodes)),
			linux.change("resources", inObject(func(resources *object) error {
				return resources.change("devices", inArray(rules))
			})),
		)
	}))
}

// without removes the elements that remove tells.
func without[T any](list []json.RawMessage, remove func(T) bool) ([]json.RawMessage, error) {
	var kept []json.RawMessage
	for i, element := range list {
		var value T
		if err := json.Unmarshal(element, &value); err != nil {
			return nil, fmt.Errorf("entry %d: %w", i, err)
		}
		if !remove(value) {
			kept = append(kept, element)
		}
	}
	return kept, nil
}
