#!/bin/bash
# fuzz.sh SECONDS: runs every Go fuzz target of the tree for so long, and stops at the first finding.
set -euo pipefail

seconds=$1
cd "$(dirname "$0")/.."
grep -rl --include='*_test.go' '^func Fuzz' agent cgo tests | while read -r file; do
    for target in $(sed -n 's/^func \(Fuzz[A-Za-z0-9]*\)(.*/\1/p' "$file"); do
        echo "fuzzing $target of $(dirname "$file")"
        go test -run '^$' -fuzz "^$target\$" -fuzztime "${seconds}s" "./$(dirname "$file")"
    done
done
