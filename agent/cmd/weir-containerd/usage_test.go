package main

// Tests of how the program is called by people.

import (
	"bytes"
	"flag"
	"strings"
	"testing"

	"weir/agent/cmd/weir-containerd/nri"
)

func TestHelp(t *testing.T) {
	var helper helperOptions
	for want, c := range map[string]*command{help: helperCommand(&helper), pluginHelp: pluginCommand(&nri.Options{})} {
		for _, asked := range []string{"--help", "-h", "-help"} {
			var stdout, stderr bytes.Buffer
			args := append(strings.Fields(c.name)[1:], asked)
			if code := run(args, nil, &stdout, &stderr); code != 0 || stdout.String() != want || stderr.Len() > 0 {
				t.Errorf("%q: exit %d, %s%s", args, code, &stdout, &stderr)
			}
		}
		if lines := strings.Count(want, "\n"); lines > 24 {
			t.Errorf("%s: %d lines are more than a screen", c.name, lines)
		}
		for line := range strings.Lines(want) {
			if len(line) > 110 {
				t.Errorf("%s: a line is too wide: %s", c.name, line)
			}
		}
		c.flags.VisitAll(func(f *flag.Flag) {
			if !strings.Contains(want, "  --"+f.Name+" ") || !strings.Contains(want, f.DefValue) {
				t.Errorf("%s says nothing of --%s, or another default than %q", c.name, f.Name, f.DefValue)
			}
		})
	}
	if !strings.Contains(help, "\n  "+pluginVerb+" ") {
		t.Error("the help names no command", pluginVerb)
	}
}

func TestMistakes(t *testing.T) {
	for args, want := range map[string]string{
		"":                                   "weir-containerd: give a command, or --control and --containerd, as the agent does; see weir-containerd --help",
		"nir":                                "weir-containerd: unknown command \"nir\"; accepted: nri; see weir-containerd --help",
		"--control /a":                       "weir-containerd: give a command, or --control and --containerd, as the agent does; see",
		"--control /a --containerd /b extra": "weir-containerd: unexpected argument \"extra\"; see",
		"--contrl /a":                        "weir-containerd: unknown flag \"--contrl\"; accepted: --containerd, --control; see",
		"nri --sockets /a":                   "weir-containerd nri: unknown flag \"--sockets\"; accepted: --control, --socket, --state; see weir-containerd nri --help",
		"nri --state":                        "weir-containerd nri: --state needs a value; see",
		"nri extra":                          "weir-containerd nri: unexpected argument \"extra\"; see",
		"nri --state here":                   "weir-containerd nri: --state \"here\": want an absolute path; see",
	} {
		var stdout, stderr bytes.Buffer
		code := run(strings.Fields(args), strings.NewReader(""), &stdout, &stderr)
		if code != 2 || !strings.HasPrefix(stderr.String(), want) || strings.Count(stderr.String(), "\n") != 1 || stdout.Len() > 0 {
			t.Errorf("%q: exit %d, %s%s", args, code, &stdout, &stderr)
		}
	}
}
