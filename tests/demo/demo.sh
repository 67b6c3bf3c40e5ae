#!/bin/bash
# Two CUDA programs share one GPU under caps. One asks for more than its cap and is refused; the cap is
# raised while it runs, and it goes on. Then two share its time by weight. Needs no root; leaves nothing behind.
set -euo pipefail
# shellcheck source=tests/demo/node.sh
. "$(dirname "$0")/node.sh"
programs=$top/build/demo
hog_seconds=5

# Plain words, then what is done, as a user would type it, then what it says.
tell() { printf '\n%s\n' "$*"; }
show() {
    printf '\n  $ weir %s\n' "$*"
    "$weir" "$@" 2>&1 | sed 's/^/    /' || {
        echo "the demo failed: that command did" >&2
        exit 1
    }
}
last_words() { sed -n "s/^/    /;/$2/p" "$1" | tail -n 1; }

# The programs end when this pipe is closed; without it at the latest when the script ends.
open_pipe() {
    mkfifo "$node_dir/pipe"
    exec 9<>"$node_dir/pipe"
}

# start NAME CAP_MIB COMMAND…: a program under a cap, in the background.
start() {
    local name=$1 cap=$2
    shift 2
    printf '\n  $ weir run --name %s --memory %sMiB -- %s\n' "$name" "$cap" "$(basename "$1") ${*:2}"
    "$weir" run --name "$name" --memory "${cap}MiB" -- "$@" \
        <"$node_dir/pipe" >"$node_dir/$name" 2>&1 9>&- &
    node_programs+=("$!")
}

# expect NAME TEXT: waits until a program says it, and shows it.
expect() {
    local number=0
    if [ "$1" = inference ]; then number=1; fi
    if ! node_wait 30 "$node_dir/$1" "$2" "${node_programs[$number]}"; then
        echo "the demo failed: $1 was to say \"$2\", and said:" >&2
        cat "$node_dir/$1" "$node_dir/agent.log" >&2
        exit 1
    fi
    last_words "$node_dir/$1" "$2"
}

finish() {
    local run
    exec 9>&-
    for run in "${node_programs[@]}"; do
        wait "$run" || {
            echo "the demo failed: a program ended with $?:" >&2
            cat "$node_dir/trainer" "$node_dir/inference" >&2
            exit 1
        }
    done
    node_programs=()
}

# hog NAME WEIGHT: a program that takes all GPU time that it can get, for some seconds, in the background.
hog() {
    printf '\n  $ weir run --name %s --weight %s -- hog 1000 %s\n' "$1" "$2" "$hog_seconds"
    "$weir" run --name "$1" --weight "$2" -- "$programs/hog" 1000 "$hog_seconds" >"$node_dir/$1" 2>&1 &
    node_programs+=("$!")
}

# share NAME: what a hog says in the end.
share() {
    if ! wait "${node_programs[0]}" || ! grep -q 'of the GPU' "$node_dir/$1"; then
        echo "the demo failed: $1 was to say what it had, and said:" >&2
        cat "$node_dir/$1" "$node_dir/agent.log" >&2
        exit 1
    fi
    node_programs=("${node_programs[@]:1}")
    sed "s/^hog/    $1/" "$node_dir/$1"
}

# A GPU with a driver is used; the program that asks is the one that will run there.
card=$(env -u WEIR_SIM -u LD_PRELOAD "$programs/inference" --probe 2>/dev/null) || card=
case $card in
"" | *Simulated*)
    node_start a30
    tell "No GPU with a CUDA driver is here, so a simulated one is used: every figure below is of it,
and says nothing about the speed of hardware."
    sed 's/^/    /' "$node_dir/machine"
    step=8 context=8
    ;;
*)
    node_start
    read -r size context name <<<"$card"
    # A step is about one hundredth of the card.
    step=$((size / 100))
    tell "A GPU is here and is used: $name with ${size}MiB."
    ;;
esac
open_pipe
# What a program has for itself, beside its context and its code, which count too.
first_cap=$((8 * step + context)) second_cap=$((13 * step + context))
inference_cap=$((6 * step + context))
tell "The agent runs, as uid $(id -u). Two CUDA programs start, each under a cap of its own."
start trainer "$first_cap" "$programs/trainer" "$step" 12
start inference "$inference_cap" "$programs/inference" $((4 * step)) "$step"
expect inference 'holds a model'
expect trainer 'wants'

tell "The trainer takes ${step}MiB with each step and checks every result against the CPU, until the
next step would pass its cap of ${first_cap}MiB. Its driver call is then refused, as on a full card:"
expect trainer REFUSED
show ps
tell "The refusal is an event, which names who asked, for how much, and the way out:"
show events
tell "The cap is raised, while both programs run:"
show caps set trainer --memory "${second_cap}MiB"
expect trainer 'got it'
expect trainer 'has all'
show ps

tell "Both programs end, and nothing is left:"
finish
last_words "$node_dir/trainer" ends
last_words "$node_dir/inference" ends
show ps

tell "GPU time goes by weight. Two programs take all that they can get of it for ${hog_seconds}s:"
hog light 1
hog heavy 3
sleep $((hog_seconds - 1))
show queue
tell "ASKED is what their weights give them, GOT what they had. In the end they say themselves:"
share light
share heavy
tell "That is weir: a cap for each container, which holds, can be changed live, and gives back all; and a
share of GPU time for each that has work."
