// Where machines are kept, for root and for others.

package sim

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

func TestDirOfUser(t *testing.T) {
	type environment map[string]string
	for _, test := range []struct {
		uid  int
		env  environment
		want string
	}{
		{0, nil, "/run/weir-sim"},
		{0, environment{"XDG_RUNTIME_DIR": "/run/user/0"}, "/run/weir-sim"},
		{0, environment{"WEIR_SIM": "/tmp/four"}, "/tmp/four"},
		{7, environment{"WEIR_SIM": "four", "XDG_RUNTIME_DIR": "/run/user/7"}, "four"},
		{7, environment{"XDG_RUNTIME_DIR": "/run/user/7"}, "/run/user/7/weir-sim"},
		{7, environment{"XDG_RUNTIME_DIR": "no"}, "/tmp/weir-sim-7"},
		{7, nil, "/tmp/weir-sim-7"},
	} {
		getenv := func(name string) string { return test.env[name] }
		if got := dirOf(test.uid, getenv); got != test.want {
			t.Errorf("user %d with %v: %s, want %s", test.uid, test.env, got, test.want)
		}
	}
}

func TestDirOfAnotherUserIsRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give directories away")
	}
	parent := t.TempDir()
	own, foreign, link := filepath.Join(parent, "own"), filepath.Join(parent, "foreign"),
		filepath.Join(parent, "link")
	const user, other = 4321, 4322
	for path, make := range map[string]func() error{
		own:     func() error { return os.Mkdir(own, 0o755) },
		foreign: func() error { return os.Mkdir(foreign, 0o777) },
		link:    func() error { return os.Symlink(own, link) },
	} {
		owner := other
		if path == own {
			owner = user
		}
		if err := errors.Join(make(), os.Lchown(path, owner, owner)); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{foreign, link} {
		if err := makeDir(dir, user); !errors.Is(err, fs.ErrPermission) {
			t.Errorf("%s: %v", dir, err)
		}
		if err := makeDir(dir, 0); err != nil {
			t.Errorf("%s for root: %v", dir, err)
		}
	}
	for _, dir := range []string{own, parent, filepath.Join(parent, "a", "b")} {
		if err := makeDir(dir, user); err != nil {
			t.Errorf("%s: %v", dir, err)
		}
	}
}
