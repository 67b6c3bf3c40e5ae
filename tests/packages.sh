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
)

missing=()
for entry in "${wanted[@]}"; do
    [ -e "${entry#*:}" ] || missing+=("${entry%%:*}")
done
[ ${#missing[@]} -gt 0 ] || exit 0

if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "not installed, so some tests will skip: ${missing[*]} (as root: apt-get install ${missing[*]})"
    exit 0
fi
echo "installing Debian packages for the tests: ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
