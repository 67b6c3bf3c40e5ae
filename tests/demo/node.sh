# shellcheck shell=bash
# node.sh: a node for scripts, gone with them: a temporary directory, an agent in it and, unless the
# machine has a GPU that is to be used, a simulated machine. Source it, then call node_start.

# The top of the tree, and what was built.
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
weir=$top/build/weir
node_dir='' node_agent='' node_simulated='' node_programs=()

# node_start [MACHINE [FLAG...]]: starts the agent, on a simulated MACHINE if one is named, with more
# flags. Afterwards WEIR_RUN_DIR (and WEIR_SIM and LD_LIBRARY_PATH) are set for weir and all programs.
# What a script calls node_before_end is called first of all when it ends.
node_start() {
    local variable
    for variable in "${!WEIR_@}"; do unset "$variable"; done
    trap node_end EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
    # The addresses of sockets below it are short, so it must be too.
    local temporary=${TMPDIR:-/tmp}
    if [ "${#temporary}" -gt 40 ]; then temporary=/tmp; fi
    node_dir=$(mktemp -d "$temporary/weir-XXXXXX")
    export WEIR_RUN_DIR=$node_dir/run
    if [ -n "${1:-}" ]; then
        local settings
        settings=$("$weir" sim up "$1" --dir "$node_dir/sim" 2>"$node_dir/machine") || {
            cat "$node_dir/machine" >&2
            return 1
        }
        eval "$settings"
        node_simulated=yes
    fi
    "$weir" agent --run-dir "$WEIR_RUN_DIR" --state-dir "$node_dir/state" "${@:2}" \
        >"$node_dir/ready" 2>"$node_dir/agent.log" &
    node_agent=$!
    node_wait 10 "$node_dir/ready" ready "$node_agent" || {
        echo "the agent does not start:" >&2
        cat "$node_dir/agent.log" >&2
        return 1
    }
}

# node_wait SECONDS FILE TEXT PID: waits until FILE contains TEXT. Fails if PID ends before, or when the
# time is over.
node_wait() {
    local tries=$(($1 * 20))
    until grep -q -- "$3" "$2" 2>/dev/null; do
        if [ $((tries -= 1)) -lt 0 ] || ! kill -0 "$4" 2>/dev/null; then
            # It may have been written last thing.
            grep -q -- "$3" "$2" 2>/dev/null
            return
        fi
        sleep 0.05
    done
}

# node_stop PID: ends a process that this script started, kindly and then not.
node_stop() {
    local tries=60
    kill "$1" 2>/dev/null || return 0
    while kill -0 "$1" 2>/dev/null; do
        if [ $((tries -= 1)) -lt 0 ]; then kill -9 "$1" 2>/dev/null || true; fi
        sleep 0.05
    done
    wait "$1" 2>/dev/null || true
}

# node_end: takes everything away again: the programs whose pids are in node_programs, the agent, the
# machine, the directory. It runs at every exit; nothing may stop it half-way.
node_end() {
    local status=$? program
    trap - EXIT
    trap '' INT TERM HUP
    set +e
    if declare -F node_before_end >/dev/null; then node_before_end; fi
    for program in "${node_programs[@]}"; do node_stop "$program"; done
    if [ -n "$node_agent" ]; then node_stop "$node_agent"; fi
    if [ -n "$node_simulated" ]; then "$weir" sim down --dir "$node_dir/sim" >/dev/null 2>&1; fi
    if [ -n "$node_dir" ]; then rm -rf "$node_dir"; fi
    exit "$status"
}
