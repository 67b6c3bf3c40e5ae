// Tests of the command line: what arrange makes of it, and that cli v2 understands that.

package main

import (
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/urfave/cli/v2"
)

func TestArrange(t *testing.T) {
	for line, want := range map[string]string{
		"weir":                                  "weir",
		"weir --help":                           "weir --help",
		"weir help":                             "weir --help",
		"weir help ps":                          "weir ps --help",
		"weir help caps set":                    "weir caps set --help",
		"weir caps -h":                          "weir caps --help",
		"weir --version":                        "weir version --",
		"weir --version -o json":                "weir version --output=json --",
		"weir ps":                               "weir ps --",
		"weir ps a -o json b":                   "weir ps --output=json -- a b",
		"weir ps a -q --no-trunc=false":         "weir ps --quiet=true --no-trunc=false -- a",
		"weir ps a --help":                      "weir ps --help --",
		"weir ps -- -o json":                    "weir ps -- -o json",
		"weir ps -":                             "weir ps -- -",
		"weir ps help":                          "weir ps -- help",
		"weir caps set a --memory 8G":           "weir caps set --memory=8G -- a",
		"weir caps set --memory=8G a":           "weir caps set --memory=8G -- a",
		"weir caps set --memory=a=b a":          "weir caps set --memory=a=b -- a",
		"weir caps set --weight -1 a":           "weir caps set --weight=-1 -- a",
		"weir run prog --memory 8G":             "weir run -- prog --memory 8G",
		"weir run --memory 8G prog -h":          "weir run --memory=8G -- prog -h",
		"weir run --memory 8G -- prog -- x":     "weir run --memory=8G -- prog -- x",
		"weir run --allow-unenforced prog --":   "weir run --allow-unenforced=true -- prog --",
		"weir events --type a x --type b":       "weir events --type=a --type=b -- x",
		"weir ps =":                             "weir ps -- =",
		"weir ps -o= a":                         "weir ps --output= -- a",
		"weir run --name -- prog":               "!--name needs a value: call the container NAME",
		"weir caps set a --memory --weight 2":   "!--memory needs a value",
		"weir caps set a --memory --wieght 2":   "!--memory needs a value",
		"weir ps -o":                            "!-o needs a value: print as FORM: table, wide,",
		"weir ps -oq":                           `!unknown flag "-oq"`,
		"weir ps --":                            "weir ps --",
		"weir ps ---":                           `!unknown flag "---"`,
		"weir ps -=x":                           `!unknown flag "-"`,
		"weir caps --memory 8G set a":           `!unknown flag "--memory" before the command: name the`,
		"weir cops get":                         `!unknown command "cops" (did you mean caps?); `,
		"weir zzzzzz":                           `!unknown command "zzzzzz"; accepted: `,
		"weir help cops":                        `!unknown command "cops"`,
		"weir run --allow-unenforced=yes prog":  `!--allow-unenforced takes no value but true or false`,
		"weir version --ouput json":             `!unknown flag "--ouput" (did you mean --output?); `,
		"weir caps get --weight 2":              `!unknown flag "--weight"; accepted: --output, `,
		"weir caps set a b c --dry-run -o yaml": "weir caps set --dry-run=true --output=yaml -- a b c",
	} {
		app := newApp(io.Discard, io.Discard)
		_, got, err := arrange(app, strings.Split(line, " "))
		if message, fails := strings.CutPrefix(want, "!"); fails {
			if err == nil || !strings.HasPrefix(err.Error(), message) || exitCode(err) != exitUsage {
				t.Errorf("%q: %q, %v; want the error %q", line, got, err, message)
			}
			continue
		}
		if diff := cmp.Diff(want, strings.Join(got, " ")); diff != "" || err != nil {
			t.Errorf("%q: %v %s", line, err, diff)
		}
	}
}

// What arrange makes of a command line must mean to cli v2 what the user wrote.
func TestArrangedFlagsReachTheCommand(t *testing.T) {
	app := newApp(io.Discard, io.Discard)
	var memory string
	var args []string
	for _, command := range app.Commands {
		for _, sub := range command.Subcommands {
			if command.Name == "caps" && sub.Name == "set" {
				sub.Action = func(c *cli.Context) error {
					memory, args = c.String("memory"), c.Args().Slice()
					return nil
				}
			}
		}
	}
	line := []string{"weir", "caps", "set", "a", "--memory", "8G", "--", "-b"}
	_, arranged, err := arrange(app, line)
	if err == nil {
		err = app.Run(arranged)
	}
	if err != nil || memory != "8G" || !cmp.Equal(args, []string{"a", "-b"}) {
		t.Errorf("memory %q, arguments %q, %v", memory, args, err)
	}
}

// FuzzArrange: whatever is typed, cli v2 gets a command that exists, flags in one form, and after
// `--` nothing that could be a flag; or the user gets a usage error.
func FuzzArrange(f *testing.F) {
	for _, line := range []string{"caps set a --memory 8G", "run -- x --", "ps -o", "help caps", "-"} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		app := newApp(io.Discard, io.Discard)
		path, arranged, err := arrange(app, append([]string{"weir"}, strings.Split(line, " ")...))
		if err != nil {
			if exitCode(err) != exitUsage || err.Error() == "" {
				t.Fatalf("%q: %v with code %d", line, err, exitCode(err))
			}
			return
		}
		if len(arranged) < len(path) || !cmp.Equal(arranged[:len(path)], path) {
			t.Fatalf("%q: %q does not begin with %q", line, arranged, path)
		}
		for _, arg := range arranged[len(path):] {
			if arg == "--" {
				return
			}
			if arg != "--help" && (!strings.HasPrefix(arg, "--") || !strings.Contains(arg, "=")) {
				t.Fatalf("%q: %q has the flag %q", line, arranged, arg)
			}
		}
	})
}

func TestDistance(t *testing.T) {
	for pair, want := range map[[2]string]int{
		{"", ""}: 0, {"a", ""}: 1, {"", "ab"}: 2, {"kitten", "sitting"}: 3, {"--memry", "--memory"}: 1,
	} {
		if got := distance(pair[0], pair[1]); got != want {
			t.Errorf("distance(%q, %q) = %d, want %d", pair[0], pair[1], got, want)
		}
	}
}

// No command passes over an argument that it does not take. Those that take some say so in their usage.
func TestSurplusArguments(t *testing.T) {
	needs := map[string]string{"set": "--memory=1GiB", "unset": "--memory"} // else that is the mistake
	takesAny := func(usage string) bool { return strings.HasSuffix(usage, "...]") }
	for _, command := range newApp(io.Discard, io.Discard).Commands {
		for _, leaf := range leavesOf(command) {
			line := []string{"weir", command.Name}
			if leaf != command {
				line = append(line, leaf.Name)
			}
			if takesAny(leaf.ArgsUsage) {
				continue
			}
			surplus := append(slices.Clone(line), "nope")
			if leaf.ArgsUsage != "" {
				surplus = append(surplus, "too")
				if flag := needs[leaf.Name]; flag != "" {
					surplus = append(surplus, flag)
				}
			}
			for _, args := range [][]string{surplus, append([]string{"weir", "help"}, append(line[1:len(line):len(line)], "nope")...)} {
				var said strings.Builder
				if code := execute(args, io.Discard, &said); code != exitUsage || !strings.Contains(said.String(), `"nope"`) &&
					!strings.Contains(said.String(), "one at a time") {
					t.Errorf("%q: exit %d, it said %q", args, code, said.String())
				}
			}
		}
	}
	for _, args := range [][]string{{"weir", "nope"}, {"weir", "caps", "nope"}, {"weir", "help", "nope"}, {"weir", "--version", "nope"}} {
		var said strings.Builder
		if code := execute(args, io.Discard, &said); code != exitUsage || !strings.Contains(said.String(), `"nope"`) {
			t.Errorf("%q: exit %d, it said %q", args, code, said.String())
		}
	}
}
