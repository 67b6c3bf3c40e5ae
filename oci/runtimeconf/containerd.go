package runtimeconf

// containerd. From 2.0 on a drop-in file is merged into the main configuration table by table; before,
// a drop-in's plugin section takes the place of the main one's, so it has to have all of that.

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Containerd is what is known of a node's containerd.
type Containerd struct {
	Version string // "1.6.20", as `containerd --version` prints it
	Main    File   // its main configuration
	DropIn  File   // where weir's is to be
	// Effective is what `containerd config dump` prints: all that is in force, defaults included. Before
	// 2.0 it is to be taken without weir's own drop-in, which would hide changes of the main file.
	Effective []byte
	// Place is the file that takes lines of others, where another tool makes the main one (Generated). Version
	// and Effective are not needed then.
	Place File
}

// The sections of the parts of containerd that matter here, by the version of the configuration.
const (
	criV2   = "io.containerd.grpc.v1.cri"
	criV3   = "io.containerd.cri.v1.runtime"
	nri     = "io.containerd.nri.v1.nri"
	runcV2  = "io.containerd.runc.v2"
	podKeys = "weir/*"
)

// release is a containerd's version as far as it matters.
type release struct{ major, minor int }

var releaseForm = regexp.MustCompile(`^v?([0-9]+)\.([0-9]+)(?:[.~+-].*)?$`)

func parseRelease(version string) (release, error) {
	parts := releaseForm.FindStringSubmatch(version)
	if parts == nil {
		return release{}, fmt.Errorf("%q is no version of containerd", version)
	}
	major, _ := strconv.Atoi(parts[1])
	minor, _ := strconv.Atoi(parts[2])
	return release{major, minor}, nil
}

func (r release) before(major, minor int) bool {
	return r.major < major || r.major == major && r.minor < minor
}

// containerd is one plan in the making.
type containerd struct {
	Containerd
	setup     Setup
	release   release
	main      table
	effective table
	plan      Plan
}

// PlanContainerd plans what makes a containerd use weir.
func PlanContainerd(node Containerd, setup Setup) (Plan, error) {
	if m := makerOf(node.Main); m != nil {
		return m.plan(node, setup)
	}
	c := &containerd{Containerd: node, setup: setup, plan: Plan{Runtime: "containerd", Restart: "containerd",
		Reads: node.Main.Path}}
	if err := c.read(); err != nil {
		return Plan{}, err
	}
	if strings.ContainsAny(node.DropIn.Path, `*?[\`) {
		return Plan{}, fmt.Errorf("containerd takes %q for a pattern where it is imported, so weir's part cannot be there; "+
			"nothing is written: name another file with --drop-in-config", node.DropIn.Path)
	}
	dropIn, err := c.dropIn()
	if err != nil {
		return Plan{}, err
	}
	if dropIn == nil {
		c.plan.Restart = ""
		return c.plan, nil
	}
	text, err := render(dropIn)
	if err != nil {
		return Plan{}, err
	}
	// The drop-in first: a main configuration that imports a file which is not there does not start.
	c.plan.add(node.DropIn, text)
	if imported(c.main, node.Main.Path, node.DropIn.Path) || imported(c.effective, node.Main.Path, node.DropIn.Path) {
		return c.finish(), nil
	}
	main := node.Main
	if len(c.main) == 0 { // without a version it would be taken for one of version 1
		main.Text = append(fmt.Appendf(nil, "version = %d\n", c.version()), main.Text...)
	}
	after, err := withImport(main, node.DropIn.Path)
	if err != nil {
		return Plan{}, err
	}
	if edit := c.plan.add(node.Main, after); edit != nil {
		_, has := c.main["imports"]
		edit.Import, edit.ImportLine = node.DropIn.Path, !has
	}
	return c.finish(), nil
}

func (c *containerd) finish() Plan {
	if len(c.plan.Edits) == 0 {
		c.plan.Restart = ""
	}
	return c.plan
}

// read understands what there is, or says why not.
func (c *containerd) read() (err error) {
	if err := c.setup.check(); err != nil {
		return err
	}
	if c.release, err = parseRelease(c.Version); err != nil {
		return err
	}
	if c.release.before(1, 6) {
		return fmt.Errorf("containerd %s is too old: weir needs 1.6 or later", c.Version)
	}
	if c.main, err = parse(c.Main); err != nil {
		return err
	}
	if c.effective, err = parse(File{"containerd config dump", c.Effective}); err != nil {
		return err
	}
	return c.checkVersion()
}

// checkVersion refuses a main configuration of a version that has no drop-in files.
func (c *containerd) checkVersion() error {
	if version, ok := c.main["version"].(int64); c.Main.Text != nil && (!ok || version < 2) && len(c.main) > 0 {
		return fmt.Errorf("%s is of version 1, which has no drop-in files; nothing is written: bring it to version 2 "+
			"(containerd config migrate shows how), and try again", c.Main.Path)
	}
	return nil
}

// version is that of a drop-in: never higher than the main file's, whose migration it would stop.
func (c *containerd) version() int64 {
	newest := int64(3)
	if c.release.before(2, 0) {
		newest = 2
	}
	if version, ok := c.main["version"].(int64); ok {
		return min(version, newest)
	}
	return newest
}

// cri is the section with the CRI's runtimes, as the effective configuration has it.
func (c *containerd) cri() table {
	if section := sub(c.effective, "plugins", criV3); section != nil {
		return section
	}
	return sub(c.effective, "plugins", criV2)
}

// dropIn is what the drop-in has to say; nil: nothing.
func (c *containerd) dropIn() (table, error) {
	switch c.setup.Mode {
	case ModeRuntime:
		return c.runtime()
	case ModeCDI:
		return c.cdi()
	case ModeNRI:
		return c.nri()
	}
	return nil, unsupported("containerd", c.setup.Mode, "it has no directory of hooks; use runtime")
}

// defaultRuntime is the one that containers get which ask for none, and its name.
func (c *containerd) defaultRuntime() (name string, runtime table, err error) {
	name, _ = sub(c.cri(), "containerd")["default_runtime_name"].(string)
	if name == "" {
		name = defaultBase
	}
	if runtime = sub(c.cri(), "containerd", "runtimes", name); runtime == nil {
		return name, nil, fmt.Errorf("containerd's configuration has no runtime %q to put weir before; nothing is "+
			"written: containerd config dump shows which there are", name)
	}
	return name, runtime, nil
}

// showAnnotations has the CRI pass weir's annotations on to a runtime's containers.
func showAnnotations(runtime table) (changed bool) {
	pods := addString(runtime, "pod_annotations", podKeys)
	return addString(runtime, "container_annotations", podKeys) || pods
}

// runtime adds the runtime weir: a copy of the one that is the default now, with weir-runtime as program.
func (c *containerd) runtime() (table, error) {
	base, from, err := c.defaultRuntime()
	if err != nil {
		return nil, err
	}
	ours, err := c.copyOf(base, from)
	if err != nil {
		return nil, err
	}
	return c.inCRI(func(cri table) {
		section := sub(cri, "containerd")
		section["runtimes"].(table)[RuntimeName] = ours
		if c.setup.SetAsDefault {
			section["default_runtime_name"] = RuntimeName
		}
	}), nil
}

// copyOf is weir's runtime made of another one, and plans weir-runtime's settings for that.
func (c *containerd) copyOf(base string, from table) (table, error) {
	if kind, _ := from["runtime_type"].(string); kind != runcV2 {
		return nil, fmt.Errorf("containerd's default runtime %q is of type %q, before which weir-runtime cannot "+
			"stand (%s only); nothing is written", base, kind, runcV2)
	}
	program, _ := sub(from, "options")["BinaryName"].(string)
	if program == "" {
		program = defaultBase
	}
	if base != RuntimeName { // else it is a copy of ours, and what is below is already known
		if err := c.plan.wrapper(c.setup, program); err != nil {
			return nil, err
		}
		programs := map[string]string{}
		for name := range sub(c.cri(), "containerd", "runtimes") {
			programs[name], _ = sub(c.cri(), "containerd", "runtimes", name, "options")["BinaryName"].(string)
		}
		c.plan.passedOver(program, programs)
	}
	ours := clone(from).(table)
	if !c.release.before(2, 0) {
		ours = pruned(ours)
	}
	options, _ := ours["options"].(table)
	if options == nil {
		options = table{}
		ours["options"] = options
	}
	options["BinaryName"] = c.setup.Runtime
	showAnnotations(ours)
	return ours, nil
}

// inCRI makes a drop-in of a change of the CRI's section: with all of it where it takes the place of the
// main one's, else with the change alone.
func (c *containerd) inCRI(change func(table)) table {
	name := criV3
	if c.version() < 3 {
		name = criV2
	}
	cri := table{"containerd": table{"runtimes": table{}}}
	if c.release.before(2, 0) {
		cri = clone(c.cri()).(table)
		c.plan.Notes = append(c.plan.Notes, c.DropIn.Path+" has a copy of the CRI's section, since containerd before "+
			"2.0 takes no part of one; configure again after changing that section elsewhere")
	}
	change(cri)
	return table{"version": c.version(), "plugins": table{name: cri}}
}

// cdi has containerd read specifications, and pass annotations on, which their hooks read.
func (c *containerd) cdi() (table, error) {
	if c.release.before(1, 7) {
		return nil, unsupported("containerd "+c.Version, ModeCDI, "it knows CDI from 1.7 on; use runtime")
	}
	base, from, err := c.defaultRuntime()
	if err != nil {
		return nil, err
	}
	c.plan.Notes = append(c.plan.Notes, "weir cdi generate makes the specification of the node's GPUs")
	enabled, _ := c.cri()["enable_cdi"].(bool)
	ours := clone(from).(table)
	if !c.release.before(2, 0) {
		ours, enabled = pruned(ours), true
	}
	if !showAnnotations(ours) && enabled {
		return nil, nil
	}
	return c.inCRI(func(cri table) {
		if !enabled {
			cri["enable_cdi"] = true
		}
		sub(cri, "containerd", "runtimes")[base] = ours
	}), nil
}

const pluginNote = "the plugin is a service of its own; start it first: systemctl enable --now weir-nri"

// nri switches the plugins' interface on, and from 2.2 on makes containers wait for weir's.
func (c *containerd) nri() (table, error) {
	if c.release.before(1, 7) {
		return nil, unsupported("containerd "+c.Version, ModeNRI, "it has NRI from 1.7 on; use runtime")
	}
	if c.release.before(2, 2) {
		c.plan.Notes = append(c.plan.Notes, pluginNote, "containerd before 2.2 starts containers unchanged while weir's "+
			"plugin does not run")
	} else {
		c.plan.Notes = append(c.plan.Notes, pluginNote, "from its restart on containerd makes no container of any "+
			"pod while weir's plugin does not run")
	}
	all := sub(c.effective, "plugins", nri)
	disabled, _ := all["disable"].(bool)
	section := table{}
	switch {
	case c.release.before(2, 0):
		section, _ = clone(all).(table)
		if section == nil {
			section = table{}
		}
		section["disable"] = false
	case c.release.before(2, 2) && !disabled:
		return nil, nil
	case c.release.before(2, 2):
		section["disable"] = false
	default:
		validator := pruned(sub(all, "default_validator"))
		validator["enable"] = true
		addString(validator, "required_plugins", RuntimeName)
		section["default_validator"] = validator
		if disabled {
			section["disable"] = false
		}
	}
	return table{"version": c.version(), "plugins": table{nri: section}}, nil
}
