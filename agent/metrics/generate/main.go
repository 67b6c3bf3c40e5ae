// Command generate writes docs/METRICS.md to the file that it is given.
package main

import (
	"fmt"
	"os"

	"weir/agent/metrics"
)

func main() {
	if err := os.WriteFile(os.Args[1], []byte(metrics.Markdown()), 0o644); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
