#!/bin/bash
# lint.sh KIND TOOL FILE…: checks files with a tool that a user may lack; then it says so and passes.
# In CI the tool must be there.
set -euo pipefail

kind=$1 tool=$2
shift 2
if ! command -v "$tool" >/dev/null; then
    echo "lint: $tool is not installed: $kind not checked"
    [ -z "${CI:-}" ]
    exit
fi
case $kind in
clang-format) "$tool" --dry-run --Werror "$@" ;;
shellcheck) "$tool" "$@" ;;
*)
    echo "lint.sh: unknown kind $kind" >&2
    exit 2
    ;;
esac
