#!/bin/bash
# Installs the Debian packages that the tests use beyond gcc, make and Go, where this is possible
# (Debian, root). Elsewhere it names what is missing; the tests that need it skip with a reason.
set -euo pipefail

# package:file that shows that it is there
wanted=(
    clang-14:/usr/bin/clang-14
    clang:/usr/bin/clang
    libclang-rt-14-dev:/usr/lib/llvm-14/lib/clang/14.0.6/lib/linux/libclang_rt.asan-x86_64.so
    clang-format:/usr/bin/clang-format
    shellcheck:/usr/bin/shellcheck
    musl-tools:/usr/bin/musl-gcc
    libjemalloc2:/usr/lib/x86_64-linux-gnu/libjemalloc.so.2
    libfaketime:/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1
    gcc-aarch64-linux-gnu:/usr/bin/aarch64-linux-gnu-gcc
    libc6-dev-arm64-cross:/usr/aarch64-linux-gnu/lib/libc.so.6
    qemu-user-static:/usr/bin/qemu-aarch64-static
    python3-numba:/usr/lib/python3/dist-packages/numba/__init__.py
    git:/usr/bin/git
    strace:/usr/bin/strace
    tmux:/usr/bin/tmux
    runc:/usr/sbin/runc
    crun:/usr/bin/crun
    systemd:/usr/bin/systemd-analyze
    containerd:/usr/bin/containerd
    docker.io:/usr/sbin/dockerd
    podman:/usr/bin/podman
    libncursesw6:/usr/lib/x86_64-linux-gnu/libncursesw.so.6
)

# nvtop is in a part of Debian that is not enabled as a rule (contrib), and would bring NVIDIA's own
# NVML along. So its file is unpacked here, with a list of sources of its own, and the system is left
# as it is. Its test looks for this folder.
tools=/usr/local/lib/weir-test-tools
unpack_tools() {
    local work release archive
    work=$(mktemp -d)
    # shellcheck source=/dev/null
    release=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
    # shellcheck disable=SC2016  # apt's own variables
    archive=$(apt-get indextargets --format '$(RELEASE) $(COMPONENT) $(REPO_URI)' \
        'Created-By: Packages' | sed -n "s/^$release main //p" | head -n 1)
    printf 'Types: deb\nURIs: %s\nSuites: %s\n%s\n%s\n' "$archive" "$release" \
        'Components: contrib' \
        'Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg' >"$work/tools.sources"
    mkdir -p "$work/lists/partial" "$work/root"
    local apt=(-qq -o "Dir::Etc::sourcelist=$work/tools.sources" -o Dir::Etc::sourceparts=/nonexistent
        -o "Dir::State::lists=$work/lists" -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache=
        -o APT::Sandbox::User=root)
    if (cd "$work" && apt-get "${apt[@]}" update && apt-get "${apt[@]}" download nvtop) \
        >"$work/log" 2>&1; then
        for package in "$work"/*.deb; do
            dpkg-deb -x "$package" "$work/root"
        done
        mkdir -p "$tools"
        find "$work/root" -type f -name nvtop -perm -u+x -exec cp {} "$tools/" \;
    else
        echo "no nvtop, so its test will skip: $(tail -n 1 "$work/log")"
    fi
    rm -rf "$work"
}

missing=()
for entry in "${wanted[@]}"; do
    [ -e "${entry#*:}" ] || missing+=("${entry%%:*}")
done
no_tools=
[ -x "$tools/nvtop" ] || no_tools=1
[ ${#missing[@]} -gt 0 ] || [ -n "$no_tools" ] || exit 0

if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "not installed, so some tests will skip: ${missing[*]} ${no_tools:+nvtop}" \
        "(as root: tests/packages.sh)"
    exit 0
fi
export DEBIAN_FRONTEND=noninteractive
if [ ${#missing[@]} -gt 0 ]; then
    echo "installing Debian packages for the tests: ${missing[*]}"
    apt-get update -qq
    # The tests start daemons of their own, so none is to be started for the machine, now or at its next start.
    policy=/usr/sbin/policy-rc.d
    if [ ! -e "$policy" ]; then
        trap 'rm -f "$policy"' EXIT
        printf '#!/bin/sh\nexit 101\n' >"$policy"
        chmod 755 "$policy"
    fi
    apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
    for package in "${missing[@]}"; do
        [ -d /run/systemd/system ] || break
        case $package in
        containerd) systemctl disable containerd ;;
        docker.io) systemctl disable docker.service docker.socket ;;
        podman) systemctl disable podman.service podman.socket podman-restart.service podman-auto-update.timer ;;
        esac
    done
fi
[ -z "$no_tools" ] || unpack_tools
