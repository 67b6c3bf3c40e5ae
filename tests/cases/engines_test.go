package cases

// Rows C again, with Docker and Podman.

import (
	"testing"

	"weir/tests/e2e/ctrd"
	"weir/tests/e2e/node"
)

func TestDockerRows(t *testing.T) {
	n := node.Start(t, node.Options{Machine: node.Machine("256MiB", "1MiB")})
	d := ctrd.StartDocker(t, n, ctrd.DockerOptions{Configure: []string{}})
	var only []string
	if !d.Annotates() {
		only = []string{"C7", "U8"} // in all others a container asks
	}
	play(t, "docker", n, ctrd.DockerStarter{Docker: d}, only)
}

func TestDockerRowsByCDI(t *testing.T) {
	n := node.Start(t, node.Options{Machine: node.Machine("256MiB", "1MiB")})
	d := ctrd.StartDocker(t, n, ctrd.DockerOptions{Configure: []string{"--mode", "cdi"}})
	if !d.Annotates() {
		t.Skip("Docker before 25 knows no CDI")
	}
	n.MustWeir("cdi", "generate", "--output", d.CDI())
	play(t, "docker", n, ctrd.DockerStarter{Docker: d, Runtime: "-", Flags: []string{"--device", "weir/gpu=0"}}, hookRows)
}

func TestPodmanRows(t *testing.T) {
	for mode, flags := range map[string][]string{"runtime": {"--runtime", "weir"}, "hooks": nil} {
		t.Run(mode, func(t *testing.T) {
			n := node.Start(t, node.Options{Machine: node.Machine("256MiB", "1MiB")})
			p := ctrd.StartPodman(t, n, "crun")
			if out := p.Runtime("configure", "--mode", mode); out.Code != 0 {
				t.Fatal(out.Stderr)
			}
			only := hookRows
			if mode == "runtime" {
				only = nil
			}
			play(t, "podman", n, ctrd.PodmanStarter{Podman: p, Flags: flags}, only)
		})
	}
}
