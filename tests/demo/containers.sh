#!/bin/bash
# Containers of a containerd share one simulated GPU under caps, as the README's three commands have it. One asks
# for more than its cap and is refused, what is exec'd in it is under the cap too, and a mistake keeps one from
# starting. The containerd is the script's own, in a temporary directory. Needs root, containerd and runc; leaves
# nothing behind.
set -euo pipefail
# shellcheck source=tests/demo/node.sh
. "$(dirname "$0")/node.sh"

if [ "$(id -u)" != 0 ]; then
    echo "make demo-containers: starting containers takes root; run it as root, or see make demo, which needs none" >&2
    exit 1
fi
for program in containerd ctr runc; do
    command -v "$program" >/dev/null || {
        echo "make demo-containers: there is no $program; on Debian: apt-get install containerd" >&2
        exit 1
    }
done

# Plain words; then what is done, as one would type it, and what it says.
tell() { printf '\n%s\n' "$*"; }
typed() { # paths as one would type them at the top of the tree
    local words=${*//$node_dir/\$D}
    printf '\n  $ %s\n' "${words//$top\//}"
}
show() {
    typed "$*"
    "$@" 2>&1 | sed "s|$node_dir|\$D|g; s/^/    /" || {
        echo "the demo failed: that command did" >&2
        exit 1
    }
}
fail() {
    echo "the demo failed: $1" >&2
    shift
    cat "$@" >&2
    exit 1
}

namespace=weir-demo-$$
containerd='' train=''

# What containerd and runc make for a namespace, and leave: control groups and directories, the latter below one
# that a machine without another containerd does not have.
traces=(/sys/fs/cgroup/"$namespace" /run/containerd/runc/"$namespace")
for place in /run/containerd/runc /run/containerd/fifo /run/containerd/s /run/containerd; do
    if [ ! -e "$place" ]; then traces+=("$place"); fi
done

# node_before_end: ends the container that runs, then the containerd.
node_before_end() {
    exec 9>&-
    if [ -n "$train" ]; then
        ctr tasks kill --signal SIGKILL --all train >/dev/null 2>&1
        node_stop "$train"
        ctr tasks delete --force train >/dev/null 2>&1
        ctr containers delete train >/dev/null 2>&1
    fi
    if [ -n "$containerd" ]; then node_stop "$containerd"; fi
    rmdir /sys/fs/cgroup/*/"$namespace" "${traces[@]}" 2>/dev/null
}

# start_containerd: one whose every file lies in the temporary directory. WEIR_RUNTIME_CONFIG says where the settings
# of weir-runtime are, since they are not in their usual place.
start_containerd() {
    mkdir "$node_dir/containerd"
    cat >"$node_dir/containerd/config.toml" <<-EOF
	version = 2
	root = "$node_dir/containerd/root"
	state = "$node_dir/containerd/state"
	[grpc]
	  address = "$node_dir/containerd/sock"
	[plugins."io.containerd.internal.v1.opt"]
	  path = "$node_dir/containerd/opt"
	[plugins."io.containerd.grpc.v1.cri".cni]
	  bin_dir = "$node_dir/containerd/cni"
	  conf_dir = "$node_dir/containerd/cni"
	EOF
    show weir runtime configure --config "$node_dir/containerd/config.toml" \
        --drop-in-config "$node_dir/containerd/conf.d/99-weir.toml" --runtime-config "$node_dir/runtime.toml" \
        --state-dir "$node_dir/state"
    WEIR_RUNTIME_CONFIG=$node_dir/runtime.toml containerd --config "$node_dir/containerd/config.toml" \
        >"$node_dir/containerd.log" 2>&1 9>&- &
    containerd=$!
    export CONTAINERD_ADDRESS=$node_dir/containerd/sock CONTAINERD_NAMESPACE=$namespace
    local tries=200
    until ctr version >/dev/null 2>&1; do
        if [ $((tries -= 1)) -lt 0 ] || ! kill -0 "$containerd" 2>/dev/null; then
            fail "containerd does not start" "$node_dir/containerd.log"
        fi
        sleep 0.05
    done
}

# run NAME ANNOTATION COMMAND…: what starts a container, into the array `command`.
run() {
    command=(ctr run --rm --runc-binary "$top/build/weir-runtime" --annotation "$2"
        --mount "type=bind,src=$WEIR_SIM,dst=/run/weir-sim,options=rbind:rw" --rootfs "$node_dir/box" "$1" "${@:3}")
    typed "${command[*]}"
}

expect() {
    node_wait 30 "$node_dir/train" "$1" "$train" ||
        fail "train was to say \"$1\", and said:" "$node_dir/train" "$node_dir/agent.log" "$node_dir/containerd.log"
    sed -n "s/^/    /;/$1/p" "$node_dir/train" | tail -n 1
}

export PATH=$top/build:$PATH
node_start a30 --containerd off
mkfifo "$node_dir/pipe"
exec 9<>"$node_dir/pipe"
tell "A simulated GPU is used: every figure below is of it, and says nothing about the speed of hardware. \$D is
$node_dir, where everything lies, a containerd of its own too; on a real node nothing needs a place:
there it is 'weir agent', 'weir runtime configure --restart', and 'ctr run' as below, with an image."
sed 's/^/    /' "$node_dir/machine"
start_containerd
show "$top/tests/demo/rootfs.sh" "$node_dir/box"

tell "A container starts under a cap of 64MiB, by one annotation. Its program takes 8MiB with each step, until the cap
refuses; its driver call then fails as on a full card:"
run train weir/memory=64MiB /demo/trainer 8 12
"${command[@]}" <"$node_dir/pipe" >"$node_dir/train" 2>&1 9>&- &
train=$!
expect REFUSED
show weir ps
show weir events train

tell "The cap is raised while it runs, and it goes on:"
show weir caps set train --memory 128MiB
expect 'has all'

tell "What is exec'd in the container is under the cap, whatever its environment: it sees a card of 128MiB. (It prints that, and what
one context takes of it, in MiB.)"
show ctr tasks exec --exec-id probe train /bin/env -i /demo/inference --probe

tell "A mistake keeps a container from starting, with one line that says what is accepted; it is an event, too:"
run other weir/memory.trian=64MiB /demo/inference 8 8
if "${command[@]}" >"$node_dir/other" 2>&1; then fail "a mistyped name was passed over" "$node_dir/other"; fi
sed 's/^/    /' "$node_dir/other"
show weir events --type start-refused

tell "The container ends, and nothing is left:"
exec 9>&-
wait "$train" || fail "train ended with $?:" "$node_dir/train"
train=
expect_nothing() { ! weir ps -q | grep -q .; }
for _ in $(seq 100); do if expect_nothing; then break; fi; sleep 0.05; done
expect_nothing || fail "the agent still has a container" <(weir ps)
show weir ps
show weir runtime unconfigure --state-dir "$node_dir/state"
tell "That is weir under containerd: an annotation for each container, and no change to images or programs."
