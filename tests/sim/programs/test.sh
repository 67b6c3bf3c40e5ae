#!/bin/bash
# test.sh PROGRAM…: runs each program on a simulated machine of its own, made by `weir sim up`. Also
# checks that the runtime library asks the driver for its functions as a CUDA 12.4 runtime does.
set -euo pipefail

cd "$(dirname "$0")/../../.."
build=$PWD/build
machine=$(mktemp -d)
trap '"$build/weir" sim down --dir "$machine/m" >/dev/null 2>&1 || true; rm -rf "$machine"' EXIT

# Every look-up of runtime.h is a row of the observed list.
unknown=$(sed -n 's/^ *X(\(cu[A-Za-z0-9]*\), \([0-9]*\),.*/\1\t\2\t0/p' tests/sim/cudart/runtime.h |
    sort | comm -23 - <(cut -f 1-3 tests/sim/testdata/runtime-12.4-lookups.tsv | sort))
if [ -n "$unknown" ]; then
    printf 'programs: a 12.4 runtime does not look up:\n%s\n' "$unknown" >&2
    exit 1
fi

WEIR_SIM=$machine/m
LD_LIBRARY_PATH=$build/sim${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export WEIR_SIM LD_LIBRARY_PATH
"$build/weir" sim up --dir "$WEIR_SIM" a30 >/dev/null 2>&1
for program in "$@"; do
    case $program in
    */compute) timeout 60 "$program" tests/sim/kernels ;;
    *) timeout 60 "$program" ;;
    esac
done
echo "ok   programs: $# on the simulated GPU"
