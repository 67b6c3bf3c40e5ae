package runccmd

// Tests of command lines as container runtimes write them.

import (
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for line, want := range map[string]Command{
		"": {},
		"--root /run/containerd/runc/k8s.io --log /b/log.json --log-format json --systemd-cgroup create --bundle /b --pid-file /b/init.pid 5f3a": {Name: "create", Bundle: "/b", ID: "5f3a", Log: "/b/log.json", LogJSON: true},
		"--root /run/docker/runtime-runc/moby --log /l --log-format=json create --bundle=/b --pid-file /p --console-socket /tmp/s -- 5f3a":       {Name: "create", Bundle: "/b", ID: "5f3a", Log: "/l", LogJSON: true},
		"create web": {Name: "create", ID: "web"},
		"--cgroup-manager systemd --root /r --log-level debug create -b /b --no-pivot --preserve-fds 3 web": {Name: "create", Bundle: "/b", ID: "web"},
		"-root /r -debug create -bundle /b web":            {Name: "create", Bundle: "/b", ID: "web"},
		"run --detach --keep -b /b web":                    {Name: "run", Bundle: "/b", ID: "web"},
		"create web --bundle /b":                           {Name: "create", Bundle: "/b", ID: "web"},
		"run web -d -b=/b":                                 {Name: "run", Bundle: "/b", ID: "web"},
		"create web -- --bundle /b":                        {Name: "create", ID: "web"},
		"-- create -- --bundle":                            {Name: "create", ID: "--bundle"},
		"--root=/r state web":                              {Name: "state"},
		"exec --process /p web create":                     {Name: "exec"},
		"delete --force create":                            {Name: "delete"},
		"--version":                                        {},
		"features":                                         {Name: "features"},
		"--log create create --bundle":                     {Name: "create", Log: "create"},
		"--systemd-cgroup=true --rootless true create web": {Name: "create", ID: "web"},
		"--root /r --log /l restore --image-path /i --work-path /w --bundle /b --detach --manage-cgroups-mode soft --pid-file /p web": {Name: "restore", Bundle: "/b", ID: "web", Log: "/l"},
		"restore -file-locks --empty-ns network -b /b web":                                    {Name: "restore", Bundle: "/b", ID: "web"},
		"restore --lsm-profile selinux:x --lsm-mount-context y -d web":                        {Name: "restore", ID: "web"},
		"--cgroup-manager=cgroupfs --rootless true create --config /c/spec.json -b /b -- web": {Name: "create", Bundle: "/b", Config: "/c/spec.json", ID: "web"},
		"run -f spec.json web":                 {Name: "run", Config: "spec.json", ID: "web"},
		"run web --config=spec.json":           {Name: "run", Config: "spec.json", ID: "web"},
		"run -fspec.json -db/b web":            {Name: "run", Bundle: "/b", Config: "spec.json", ID: "web"},
		"run -db /b -detach -keep web":         {Name: "run", Bundle: "/b", ID: "web"},
		"run --bun /b --conf c --con web":      {Name: "run", Bundle: "/b", Config: "c", ID: "web"},
		"--log-fo json --log=/l run -d -- web": {Name: "run", ID: "web", Log: "/l", LogJSON: true},
	} {
		if got := Parse(strings.Fields(line)); got != want {
			t.Errorf("%s: %+v", line, got)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("--root /r create --bundle /b x")
	f.Add("-- - --= -b")
	f.Fuzz(func(t *testing.T, line string) {
		args := strings.Fields(line)
		command := Parse(args)
		if command.ID != "" && !command.Starts() {
			t.Errorf("%q: %+v", line, command)
		}
	})
}
