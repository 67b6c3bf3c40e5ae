#!/bin/bash
# Runs the benchmarks: run.sh [--section NAME] [--long]. Without a section, all of them. The last line
# of each promise says: name, promised, got, holds. It fails if a promise does not hold.
#
# WEIR_BENCH_RIVALS names other libraries to preload and put beside weir's, separated by blanks.
set -euo pipefail
# shellcheck source=tests/demo/node.sh
. "$(dirname "$0")/../demo/node.sh"
sections=(overhead time managed swap containers)
long=()
rivals=${WEIR_BENCH_RIVALS:-}

usage() {
    echo "usage: run.sh [--section $(IFS='|' && echo "${sections[*]}")] [--long]" >&2
    exit 2
}

# What libweir.so costs each driver call, over a driver whose calls return at once. The library has an
# agent and a cap, as it does in use; the agent gets its GPU from a simulated machine, and the null
# driver shows a GPU of the same UUID.
overhead() {
    local library uuid preloads=()
    node_start h200 # a card with room for the cap below
    uuid=$("$weir" sim status --dir "$WEIR_SIM" -o json | sed -n 's/.*"uuid": *"\([^"]*\)".*/\1/p' | head -n 1)
    for library in $rivals; do preloads+=(--preload "$library"); done
    local failed=0
    # Room for the contexts of a whole crowd, which the agent counts as the simulated GPU's are.
    WEIR_NULL_UUIDS=$uuid "$weir" run --name overhead --memory 2GiB -- \
        env -u LD_PRELOAD "$top/build/bench/overhead" "${long[@]}" \
        --preload "$top/build/libweir.so" "${preloads[@]}" || failed=1
    # The agent learns what a context takes from one on the simulated GPU: the null driver's take nothing.
    "$weir" run -- "$top/build/bench/start" </dev/null >/dev/null
    WEIR_NULL_UUIDS=$uuid "$weir" run --name crowd -- \
        env -u LD_PRELOAD "$top/build/bench/crowd" --preload "$top/build/libweir.so" \
        --agent "$node_agent" || failed=1
    "$top/build/bench/sim_launch" "$top/tests/sim/kernels/spin.ptx" || failed=1
    return "$failed"
}

# GPU time: what the gate costs a launch, what a decision costs, how programs share a simulated GPU, and
# how long the slot goes from one to the next.
gpu_time() {
    local failed=0
    # What does not hold is tried again only as long as that is still done in a minute.
    [ ${#long[@]} != 0 ] || export WEIR_BENCH_UNTIL=$(($(date +%s) + 59))
    "$top/build/bench/gate" || failed=1
    "$top/build/bench/launch" || failed=1
    decisions || failed=1
    mixes Handover || failed=1
    mixes Time || failed=1
    return "$failed"
}

# What a decision of the scheduler costs, with few flows and with many.
decisions() {
    "$top/build/bench/sched.test" -test.run '^$' -test.bench Promises -test.benchtime 1x | promises
}

# Without what the test framework says by itself.
promises() { grep -vE '^(goos|goarch|pkg|cpu|PASS|Benchmark)' || true; }

# mixes NAME: a benchmark of tests/bench/mixes, which finds the tree above its folder.
mixes() {
    (cd "$top/tests/bench/mixes" && LONG=${long:+1} "$top/build/bench/mixes.test" -test.run '^$' \
        -test.bench "^Benchmark$1\$" -test.benchtime 1x) | promises
}

# What managed memory costs on the simulated GPU, by faults and by prefetches, beside what the machine
# file's bandwidths imply.
managed() {
    node_start a30
    "$top/build/bench/managed"
}

# Programs that together need more memory than a simulated card has, under weir with swap and without weir.
swap() {
    # What does not hold is tried again once; the scene for data takes half a minute after that.
    [ ${#long[@]} != 0 ] || export WEIR_BENCH_UNTIL=$(($(date +%s) + 60))
    (cd "$top/tests/bench/swap" && LONG=${long:+1} "$top/build/bench/swap.test" -test.run '^$' \
        -test.bench '^BenchmarkSwap$' -test.benchtime 1x -test.timeout 0) | promises
}

# What weir adds to the start of a container, with runc alone and by containerd's ctr. In use, bundles,
# containerd's state and the agent's directory are on /run, a tmpfs: so they are here.
containers() {
    if [ "$(id -u)" != 0 ] || ! command -v runc >/dev/null; then
        echo 'skipped: containers need root and runc'
        return 0
    fi
    local rounds=50 starts=25 failed=0
    [ ${#long[@]} = 0 ] || rounds=500 starts=100
    if [ -z "${TMPDIR:-}" ] && [ -w /dev/shm ]; then export TMPDIR=/dev/shm; fi
    node_start a30
    mkdir "$node_dir/bundles"
    "$top/build/bench/containers" --runtime "$top/build/weir-runtime" --hook "$top/build/weir-hook" \
        --socket "$WEIR_RUN_DIR/control.sock" --dir "$node_dir/bundles" --rounds "$rounds" || failed=1
    STARTS=$starts go test -count=1 -run '^$' -bench ContainerStart -benchtime 1x -v ./tests/e2e |
        tee "$node_dir/starts" | grep -E '^promise|SKIP|FAIL|_test.go:' || true
    ! grep -qE 'holds no|FAIL' "$node_dir/starts" || failed=1
    return "$failed"
}

run_section() {
    echo "== $1"
    case $1 in
    overhead) overhead ;;
    time) gpu_time ;;
    managed) managed ;;
    swap) swap ;;
    containers) containers ;;
    *)
        echo "run.sh: no section $1 in this version; there is: ${sections[*]}" >&2
        return 2
        ;;
    esac
}

chosen=("${sections[@]}")
while [ $# -gt 0 ]; do
    case $1 in
    --long) long=(--long) ;;
    --section)
        [ $# -gt 1 ] || usage
        chosen=("$2")
        shift
        ;;
    *) usage ;;
    esac
    shift
done
failed=0
for section in "${chosen[@]}"; do
    # Each in a shell of its own, with a node of its own.
    (run_section "$section") || failed=$?
done
exit "$failed"
