package runtimeconf

// Where Podman looks for hooks. In its own configuration that is one directory below /usr; what lies in that of the
// machine's own, below /etc, it reads only if it is told to.

import (
	"fmt"
	"path"
	"slices"
)

// podmanHooks is where Podman looks where no configuration says otherwise.
const podmanHooks = "/usr/share/containers/oci/hooks.d"

// readHooks plans that Podman looks for hooks in the directory of weir's, too, where it does not yet.
func (p *Plan) readHooks(node Podman) error {
	dirs := []any{podmanHooks}
	for _, file := range node.Config {
		if file.Path == node.DropIn.Path {
			continue
		}
		tree, err := parse(file)
		if err != nil {
			return err
		}
		list, found := sub(tree, "engine")["hooks_dir"].([]any)
		if !found {
			continue
		}
		if path.Dir(file.Path) == path.Dir(node.DropIn.Path) && file.Path > node.DropIn.Path &&
			!slices.Contains(list, any(node.HooksDir)) {
			return fmt.Errorf("%s sets hooks_dir, and Podman reads it after %s; nothing is written: add %q to it, or name "+
				"a file that comes after it with --drop-in-config", file.Path, node.DropIn.Path, node.HooksDir)
		}
		dirs = joined(dirs, list)
	}
	if slices.Contains(dirs, any(node.HooksDir)) {
		return nil
	}
	text, err := render(nest(table{"hooks_dir": append(dirs, node.HooksDir)}, "engine"))
	p.add(node.DropIn, text)
	return err
}

// joined is what a list is after another was read: that one, unless it says of itself that it is to be appended.
func joined(before, list []any) []any {
	var dirs []any
	for _, entry := range list {
		switch v := entry.(type) {
		case string:
			dirs = append(dirs, v)
		case table:
			if v["append"] == true {
				dirs = append(slices.Clone(before), dirs...)
			}
		}
	}
	return dirs
}
