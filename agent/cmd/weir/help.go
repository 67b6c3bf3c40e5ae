// The help texts' forms. cli v2's own put everything in capitals and leave the examples no place.

package main

// A tab ends a column, which is as wide as its widest entry.

const appHelp = `weir: {{.Usage}}

Usage: weir COMMAND [FLAGS] [ARGUMENTS]; flags may stand before and after arguments.

Commands:{{range .VisibleCommands}}
  {{.Name}}{{"\t"}}{{.Usage}}{{end}}
  help{{"\t"}}show this, or with a command's name that command's help

A first try, without a GPU:
  eval "$(weir sim up a30)"                      # simulate a GPU
  weir agent &                                   # start the agent
  weir run --memory 64MiB --name a -- ./program  # run a program under a cap
  weir ps                                        # what it holds and may hold
  weir caps set a --memory 128MiB                # change its cap while it runs
  weir queue                                     # who gets how much GPU time

Sizes: 8GiB, 8Gi, 8GB, 8G or a number of bytes; K to P are powers of 1024. Durations: 30s, 1h30m.
Exit codes: 0 ok, 1 failed, 2 wrong usage, 3 not found, 4 no permission, 5 agent unreachable,
6 not supported here; ` + "`weir run`" + ` passes its program's.
`

const commandHelp = `{{.HelpName}}: {{.Usage}}

Usage: {{.HelpName}}{{if .VisibleCommands}} COMMAND{{end}}{{if .VisibleFlags}} [FLAGS]{{end}}
{{- if .ArgsUsage}} {{.ArgsUsage}}{{end}}{{if .VisibleCommands}}

Commands:{{range .VisibleCommands}}
  {{.Name}}{{"\t"}}{{.Usage}}{{end}}{{end}}{{if .VisibleFlags}}

Flags:{{range .VisibleFlags}}
  {{.}}{{end}}{{end}}{{if .Description}}

{{.Description}}{{end}}
`
