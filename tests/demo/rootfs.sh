#!/bin/bash
# rootfs.sh DIR: makes a root file system for trying containers on the simulated GPU, where there is no image and
# no network: a shell, the two programs of `make demo` in /demo, and the simulated driver where a real one would
# be, with the libraries of this machine that they need. The simulated machine itself is to be mounted at
# /run/weir-sim. DIR must not be there yet.
set -euo pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
dir=${1:?usage: rootfs.sh DIR}
for file in demo/trainer demo/inference sim/libcuda.so.1 sim/libnvidia-ml.so.1; do
    [ -e "$top/build/$file" ] || {
        echo "rootfs.sh: there is no build/$file; run: make build" >&2
        exit 1
    }
done
mkdir "$dir"
cd "$dir"
mkdir -p demo dev etc proc run sys tmp usr/{bin,lib,lib64,sbin}
for link in bin lib lib64 sbin; do ln -s "usr/$link" "$link"; done
chmod 1777 tmp

# The loader finds libraries in the directory in which the C library lies.
libraries=$(dirname "$(realpath "$(ldd /bin/sh | sed -n 's/.*libc\.so\.6 => \(\S*\).*/\1/p')")")
mkdir -p ".$libraries"
cp "$top"/build/sim/lib{cuda,nvidia-ml}.so.1 ".$libraries/"
cp "$top"/build/demo/{trainer,inference} demo/
for program in dash cat env ls sleep; do
    if path=$(command -v "$program"); then cp "$(realpath "$path")" "usr/bin/$program"; fi
done
ln -sf dash usr/bin/sh
ldd usr/bin/* demo/* ".$libraries"/lib*.so.1 2>/dev/null | grep -o '/\S* (0x' | sed 's/ (0x//' | sort -u |
    while read -r library; do
        place=.$(realpath "$(dirname "$library")")
        mkdir -p "$place"
        [ -e "$place/$(basename "$library")" ] || cp -L "$library" "$place/"
    done
