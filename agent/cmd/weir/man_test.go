// The manual pages against the command line: whatever one can type is written down.

package main

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/cpuguy83/go-md2man/v2/md2man"
	"github.com/urfave/cli/v2"

	"weir/agent/config"
	"weir/agent/control"
)

const manDir = "../../../docs/man"

// pageOf names the page of each top-level command.
var pageOf = map[string]string{
	"agent": "weir-agent.8.md", "run": "weir-run.1.md", "ps": "weir-ps.1.md", "top": "weir-top.1.md", "queue": "weir-queue.1.md",
	"inspect": "weir-ps.1.md", "caps": "weir-caps.1.md", "events": "weir-events.1.md",
	"sim": "weir-sim.1.md", "version": "weir.1.md", "runtime": "weir-runtime-configure.8.md",
	"cdi": "weir-cdi.8.md",
}

func page(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(manDir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// spelled is a flag as pages write it.
func spelled(flag string) string { return "**" + dashed(flag) + "**" }

func TestManPagesHaveEveryCommandAndFlag(t *testing.T) {
	overview := page(t, "weir.1.md")
	for _, command := range newApp(io.Discard, io.Discard).Commands {
		name, ok := pageOf[command.Name]
		if !ok {
			t.Errorf("weir %s has no page", command.Name)
			continue
		}
		text := page(t, name)
		for _, leaf := range leavesOf(command) {
			path := "**weir " + command.Name + "**"
			if leaf != command {
				path = "**weir " + command.Name + " " + leaf.Name + "**"
			}
			if !strings.Contains(text, path) || !strings.Contains(overview, path) {
				t.Errorf("%s is missing from %s or weir.1.md", path, name)
			}
			for _, flag := range leaf.Flags {
				for _, spelling := range flag.Names() {
					if !strings.Contains(text, spelled(spelling)) {
						t.Errorf("%s: %s of %s is missing", name, spelled(spelling), path)
					}
				}
			}
		}
	}
}

func leavesOf(command *cli.Command) []*cli.Command {
	if len(command.Subcommands) > 0 {
		return command.Subcommands
	}
	return []*cli.Command{command}
}

// A page promises no flag that is not there.
func TestManPagesInventNoFlag(t *testing.T) {
	known := map[string]map[string]bool{}
	for _, command := range newApp(io.Discard, io.Discard).Commands {
		file := pageOf[command.Name]
		if known[file] == nil {
			known[file] = map[string]bool{"**--help**": true, "**--version**": true, "**--**": true}
		}
		for _, leaf := range leavesOf(command) {
			for _, flag := range leaf.Flags {
				for _, spelling := range flag.Names() {
					known[file][spelled(spelling)] = true
				}
			}
		}
	}
	for file, flags := range known {
		for _, found := range regexp.MustCompile(`\*\*--?[a-z-]*\*\*`).FindAllString(page(t, file), -1) {
			if !flags[found] {
				t.Errorf("%s: there is no %s", file, found)
			}
		}
	}
}

func TestManPageOfTheConfigurationHasEveryKey(t *testing.T) {
	file, agent := page(t, "weir.toml.5.md"), page(t, "weir-agent.8.md")
	for _, key := range config.Keys {
		if !strings.Contains(file, "**"+key.Name+"**") {
			t.Errorf("weir.toml.5.md: %s is missing", key.Name)
		}
		if !strings.Contains(agent, "**"+key.Env+"**") {
			t.Errorf("weir-agent.8.md: %s is missing", key.Env)
		}
	}
}

// Every page becomes a manual page with the sections that readers look for.
func TestManPagesRender(t *testing.T) {
	pages, err := filepath.Glob(filepath.Join(manDir, "*.md"))
	if err != nil || len(pages) == 0 {
		t.Fatalf("no pages: %v", err)
	}
	for _, path := range pages {
		name := strings.TrimSuffix(filepath.Base(path), ".md")
		dot := strings.LastIndex(name, ".")
		roff := string(md2man.Render([]byte(page(t, name+".md"))))
		for _, want := range []string{
			".TH " + name[:dot] + ` "` + name[dot+1:] + `"`, ".SH NAME", ".SH DESCRIPTION", ".SH SEE ALSO",
		} {
			if !strings.Contains(roff, want) {
				t.Errorf("%s: no %q in %.200q", name, want, roff)
			}
		}
	}
}

// What a flag takes is called the same by --help and by the page, and --help gives no default that is none.
func TestManPagesNameValuesAsHelpDoes(t *testing.T) {
	placeholder := regexp.MustCompile("`([^`]+)`")
	for _, command := range newApp(io.Discard, io.Discard).Commands {
		text := page(t, pageOf[command.Name])
		for _, leaf := range leavesOf(command) {
			for _, flag := range leaf.Flags {
				documented := flag.(cli.DocGenerationFlag)
				if !documented.TakesValue() {
					continue
				}
				found := placeholder.FindStringSubmatch(documented.GetUsage())
				if found == nil {
					t.Errorf("weir %s %s: --help does not say what %s takes", command.Name, leaf.Name, flag.Names()[0])
					continue
				}
				for _, spelling := range flag.Names() {
					if want := spelled(spelling) + " *" + found[1] + "*"; !strings.Contains(text, want) {
						t.Errorf("%s: %s is missing", pageOf[command.Name], want)
					}
				}
				if documented.GetDefaultText() == "0" {
					t.Errorf("weir %s %s --help: 0 is no default of --%s", command.Name, leaf.Name, flag.Names()[0])
				}
			}
		}
	}
}

// So it is of the queue's, with the states and modes that the scheduler has.
func TestManPageOfQueueExplainsItsWords(t *testing.T) {
	text := page(t, "weir-queue.1.md")
	for _, column := range queueHeader(true) {
		if !strings.Contains(text, "**"+column+"**") {
			t.Errorf("column %s is missing", column)
		}
	}
	view, err := os.ReadFile("../../sched/view.go")
	if err != nil {
		t.Fatal(err)
	}
	words := regexp.MustCompile(`return "([a-z-]+)"`).FindAllStringSubmatch(string(view), -1)
	if len(words) < 10 {
		t.Errorf("only %d states and modes of flows are found", len(words))
	}
	for _, word := range append(words, []string{"", control.ModeOff}) {
		if !strings.Contains(text, "*"+word[1]+"*") {
			t.Errorf("%s is not explained", word[1])
		}
	}
}

// Every column of the tables, and every word that can stand in one, is explained.
func TestManPageOfPsExplainsItsWords(t *testing.T) {
	text := page(t, "weir-ps.1.md")
	for _, column := range (tableView{wide: true}).header() {
		if !strings.Contains(text, "**"+column+"**") {
			t.Errorf("column %s is missing", column)
		}
	}
	for _, word := range []string{
		"*(" + statePrepared + ")*", "*(" + stateEnding + ")*", "*(simulated)*", "*(unenforced)*", "*cgroup*", "*path*", "*-*",
		"*yes (" + control.ByLibrary + ")*", "*yes (" + control.ByDriver + ")*", "*yes*", "*no:*",
		"*connected*", "*detached*", "*recovered*", "*exiting*",
	} {
		if !strings.Contains(text, word) {
			t.Errorf("%s is not explained", word)
		}
	}
}
