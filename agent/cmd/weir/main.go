// Command weir is the agent and its command line in one binary. This file and its neighbours only
// translate: flags into requests of the control API, answers into text, errors into exit codes.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/urfave/cli/v2"
)

func main() {
	if os.Args[0] == contextProgram {
		os.Exit(contextProcess(os.Args[1:], os.Stdin, os.Stdout))
	}
	os.Exit(execute(os.Args, os.Stdout, os.Stderr))
}

// execute runs one command line and returns the process's exit code. Data goes to stdout, all
// that is said about it to stderr.
func execute(args []string, stdout, stderr io.Writer) int {
	app := newApp(stdout, stderr)
	path, arranged, err := arrange(app, args)
	if err == nil {
		err = app.Run(arranged)
	}
	if err != nil && err.Error() != "" {
		fmt.Fprintf(stderr, "%s: %v\n", strings.Join(path, " "), err)
	}
	return exitCode(err)
}

func newApp(stdout, stderr io.Writer) *cli.App {
	app := &cli.App{
		Name:        "weir",
		Usage:       "share GPUs between containers, under caps that hold",
		HideVersion: true,
		Writer:      stdout,
		ErrWriter:   stderr,
		Commands: []*cli.Command{
			agentCommand(), runCommand(), psCommand(), topCommand(), queueCommand(), inspectCommand(), capsCommand(),
			eventsCommand(), runtimeCommand(), cdiCommand(), versionCommand(), simCommand(),
		},
		// cli v2 would print and exit by itself; execute does both.
		ExitErrHandler: func(*cli.Context, error) {},
	}
	app.CustomAppHelpTemplate = appHelp
	app.HideHelpCommand = true
	app.OnUsageError = onUsageError
	app.Action = func(c *cli.Context) error { return cli.ShowAppHelp(c) }
	prepare(app.Commands)
	return app
}

// prepare gives every command the behaviour that they share.
func prepare(commands []*cli.Command) {
	for _, command := range commands {
		command.HideHelpCommand = true
		command.OnUsageError = onUsageError
		command.CustomHelpTemplate = commandHelp
		for _, flag := range command.Flags {
			if boolean, ok := flag.(*cli.BoolFlag); ok {
				boolean.DisableDefaultText = true
			}
		}
		if len(command.Subcommands) > 0 {
			names := namesOf(command.Subcommands)
			command.Action = func(*cli.Context) error {
				return usageError("give one of %s", strings.Join(names, ", "))
			}
			prepare(command.Subcommands)
		}
	}
}

func onUsageError(_ *cli.Context, err error, _ bool) error {
	var known cli.ExitCoder
	if errors.As(err, &known) {
		return err
	}
	return usageError("%v", err)
}

func namesOf(commands []*cli.Command) []string {
	names := make([]string, 0, len(commands))
	for _, command := range commands {
		names = append(names, command.Name)
	}
	return names
}
