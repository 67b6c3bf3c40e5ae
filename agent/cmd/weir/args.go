// The command line before cli v2 sees it. Invariant: what is left for cli v2 is one order of known
// flags and positionals, so it cannot misread any.

package main

import (
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"
)

// passesThrough names the command whose first positional begins another program's command line.
const passesThrough = "run"

// arrange rewrites a command line into the one order that cli v2 understands: the command, its
// flags as --name=value, `--`, its positionals. cli v2 stops at the first positional and silently
// takes flags after it for positionals. Unknown commands and flags are found here, so that nothing
// that begins with `-` is left over unless it stood after `--`. path is the command as it was
// found, for messages.
func arrange(app *cli.App, args []string) (path, arranged []string, err error) {
	path = []string{app.Name}
	rest := args[1:]
	help := len(rest) > 0 && rest[0] == "help"
	if help {
		rest = rest[1:]
	}
	if len(rest) > 0 && !help && rest[0] == "--version" {
		rest = append([]string{"version"}, rest[1:]...)
	}
	level := app.Commands
	for {
		if len(rest) == 0 || isHelp(rest[0]) {
			help = help || len(rest) > 0
			return path, withHelp(path, help), nil
		}
		command, err := findCommand(level, rest[0])
		if err != nil {
			return path, nil, err
		}
		path, rest = append(path, command.Name), rest[1:]
		if len(command.Subcommands) > 0 {
			level = command.Subcommands
			continue
		}
		if help && len(rest) == 0 {
			return path, withHelp(path, true), nil
		}
		if help && !isHelp(rest[0]) {
			return path, nil, usageError("unexpected %q: help takes the name of a command only", rest[0])
		}
		flags, positionals, err := split(command, rest)
		if err != nil {
			return path, nil, err
		}
		arranged := append(slices.Clone(path), flags...)
		return path, append(append(arranged, "--"), positionals...), nil
	}
}

func withHelp(path []string, help bool) []string {
	if help {
		return append(slices.Clone(path), "--help")
	}
	return path
}

func isHelp(arg string) bool { return arg == "-h" || arg == "--help" }

func findCommand(level []*cli.Command, name string) (*cli.Command, error) {
	names := namesOf(level)
	if strings.HasPrefix(name, "-") {
		return nil, usageError("unknown flag %q before the command: name the command first, "+
			"one of %s", name, strings.Join(names, ", "))
	}
	for _, command := range level {
		if command.HasName(name) {
			return command, nil
		}
	}
	return nil, usageError("unknown command %q%s; accepted: %s", name, suggest(name, names),
		strings.Join(names, ", "))
}

// split parts what follows a command into its flags and its positionals.
func split(command *cli.Command, args []string) (flags, positionals []string, err error) {
	for len(args) > 0 {
		arg := args[0]
		args = args[1:]
		switch {
		case arg == "--":
			return flags, append(positionals, args...), nil
		case isHelp(arg):
			return []string{"--help"}, nil, nil
		case arg == "-" || !strings.HasPrefix(arg, "-"):
			positionals = append(positionals, arg)
			if command.Name == passesThrough {
				return flags, append(positionals, args...), nil
			}
		default:
			var flag string
			if flag, args, err = takeFlag(command, arg, args); err != nil {
				return nil, nil, err
			}
			flags = append(flags, flag)
		}
	}
	return flags, positionals, nil
}

// takeFlag reads one flag, with its value if it has one, into the form --name=value.
func takeFlag(command *cli.Command, arg string, rest []string) (string, []string, error) {
	written, value, hasValue := strings.Cut(arg, "=")
	flag := findFlag(command, written)
	if flag == nil {
		return "", nil, unknownFlag(command, written)
	}
	name := "--" + flag.Names()[0]
	if !takesValue(flag) {
		if _, err := strconv.ParseBool(value); hasValue && err != nil {
			return "", nil, usageError("%s takes no value but true or false, not %q", written, value)
		}
		if !hasValue {
			value = "true"
		}
		return name + "=" + value, rest, nil
	}
	if !hasValue {
		if len(rest) == 0 || strings.HasPrefix(rest[0], "--") || findFlag(command, rest[0]) != nil {
			return "", nil, usageError("%s needs a value: %s", written, describeFlag(flag))
		}
		value, rest = rest[0], rest[1:]
	}
	return name + "=" + value, rest, nil
}

// findFlag finds a flag as written: one dash for a letter, two for a word.
func findFlag(command *cli.Command, written string) cli.Flag {
	for _, flag := range command.Flags {
		for _, name := range flag.Names() {
			if written == dashed(name) {
				return flag
			}
		}
	}
	return nil
}

func dashed(name string) string {
	if len(name) == 1 {
		return "-" + name
	}
	return "--" + name
}

func takesValue(flag cli.Flag) bool {
	documented, ok := flag.(cli.DocGenerationFlag)
	return !ok || documented.TakesValue()
}

// describeFlag is a flag's usage text, without the quotes that mark its placeholder.
func describeFlag(flag cli.Flag) string {
	documented, ok := flag.(cli.DocGenerationFlag)
	if !ok {
		return "see --help"
	}
	return strings.ReplaceAll(documented.GetUsage(), "`", "")
}

func unknownFlag(command *cli.Command, written string) error {
	var names []string
	for _, flag := range command.Flags {
		for _, name := range flag.Names() {
			names = append(names, dashed(name))
		}
	}
	slices.Sort(names)
	if len(names) == 0 {
		return usageError("unknown flag %q: this command has none", written)
	}
	return usageError("unknown flag %q%s; accepted: %s", written, suggest(written, names),
		strings.Join(names, ", "))
}

// suggest names the nearest of the accepted, if one is near enough to be meant.
func suggest(given string, accepted []string) string {
	best, least := "", 1+len(given)/3
	for _, name := range accepted {
		if d := distance(given, name); d <= least && (best == "" || d < least) {
			best, least = name, d
		}
	}
	if best == "" {
		return ""
	}
	return " (did you mean " + best + "?)"
}

// distance is how many letters must be put in, taken out or replaced to turn a into b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replace := diagonal
			if a[i] != b[j] {
				replace++
			}
			diagonal = row[j+1]
			row[j+1] = min(replace, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
