#!/bin/bash
# fuzz.sh SECONDS: runs every Go fuzz target of the tree for so long, and stops at the first finding.
set -euo pipefail

seconds=$1
cd "$(dirname "$0")/.."
grep -rHo --include='*_test.go' '^func Fuzz[A-Za-z0-9]*' agent cgo hook oci tests |
    while IFS=: read -r file target; do
        target=${target#func }
        echo "fuzzing $target of $(dirname "$file")"
        # Go would spend a minute on making each new input smaller, and feed nothing meanwhile.
        go test -run '^$' -fuzz "^$target\$" -fuzzminimizetime 10x -fuzztime "${seconds}s" "./$(dirname "$file")" </dev/null
    done
