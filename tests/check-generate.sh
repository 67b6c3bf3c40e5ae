#!/bin/bash
# Makes everything that is generated and committed anew in a copy of the tree and compares. The tree
# itself is left alone, so that a failing check loses nobody's work.
set -euo pipefail

top=$(cd "$(dirname "$0")/.." && pwd)
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
cd "$top"
if git rev-parse --git-dir >/dev/null 2>&1; then
    git ls-files -z --cached --others --exclude-standard | while IFS= read -r -d '' file; do
        [ ! -e "$file" ] || printf '%s\0' "$file"
    done >"$copy/.files"
else
    find . -path ./build -prune -o -type f -print0 >"$copy/.files"
fi
mkdir "$copy/before" "$copy/after"
xargs -0 -a "$copy/.files" cp --parents -p -t "$copy/before"
cp -a "$copy/before/." "$copy/after"
make --no-print-directory -C "$copy/after" generate >"$copy/log" 2>&1 || {
    cat "$copy/log" >&2
    echo "check-generate: \`make generate\` failed" >&2
    exit 1
}
rm -rf "$copy/after/build"
if ! diff -ru "$copy/before" "$copy/after"; then
    echo "check-generate: what is committed differs from what \`make generate\` writes; run it and commit" >&2
    exit 1
fi
echo "check-generate: all that is generated is current"
