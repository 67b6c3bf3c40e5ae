#!/bin/bash
# Makes the PTX of the kernels anew from their sources. Needs clang 14, Debian 12's: another version
# writes other text. Without it the committed PTX is what everything uses.
set -euo pipefail

cd "$(dirname "$0")/../../.."
clang=${CLANG:-clang}
if ! "$clang" --version 2>/dev/null | grep -q 'clang version 14\.'; then
    echo "kernels: clang 14 is not installed: the committed PTX stays" >&2
    exit 0
fi
for source in tests/sim/kernels/*.cu; do
    "$clang" -x cuda -nocudainc -nocudalib --cuda-gpu-arch=sm_70 --cuda-device-only -O2 -Wall \
        -Xclang -target-sdk-version=11.2 -Xclang -target-feature -Xclang +ptx64 \
        -I. -S -o "${source%.cu}.ptx" "$source" </dev/null
done
