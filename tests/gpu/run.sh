#!/bin/bash
# run.sh BUILD COMMAND…: `make gpu-check`. Where no GPU with a CUDA driver is, it says so and is done.
# Else it builds with COMMAND and checks, all within eight minutes.
set -euo pipefail

build=$1
shift
until=$(($(date +%s) + 480))

if [ -z "${WEIR_GPU_CHECK_SIMULATED:-}" ]; then
    found=$(env -u WEIR_SIM -u LD_PRELOAD "$build/gpu/probe") || {
        echo "gpu-check: skipped: $found"
        exit 0
    }
    case $found in
    *' Simulated '*)
        echo "gpu-check: skipped: the only GPU here is a simulated one"
        exit 0
        ;;
    esac
fi

echo "gpu-check: building weir and the checks"
timeout --foreground 300 "$@"
# The program ends by itself in time; this is for the case that it cannot.
left=$((until - $(date +%s) - 10))
export WEIR_TEST_BUILD=$build
exec timeout --foreground -k 10 "$left" "$build/gpu/check" -until $((until - 15))
