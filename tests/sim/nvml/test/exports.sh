#!/bin/sh
# exports.sh LIBRARY FUNCTIONS: the simulated NVML exports exactly the functions listed, has the
# right name, and needs nothing but the C library.
set -eu
library=$1
functions=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

sed -n 's/^NVML_[A-Z]*(\(.*\))$/\1/p' "$functions" | LC_ALL=C sort >"$work/listed"
nm -D --defined-only "$library" | awk '{ print $3 }' | LC_ALL=C sort >"$work/exported"
diff -u "$work/listed" "$work/exported"
count=$(grep -c -e '^NVML_ANSWERED' -e '^NVML_UNSUPPORTED' "$functions")
if [ "$count" -ne 332 ]; then
    echo "$functions lists $count functions, not the 332 of driver 535.309.01" >&2
    exit 1
fi

readelf -d "$library" >"$work/dynamic"
grep -q 'SONAME.*\[libnvidia-ml\.so\.1\]' "$work/dynamic"
if grep NEEDED "$work/dynamic" | grep -v -F -e '[libc.so.6]' -e '[libpthread.so.0]'; then
    echo "$library needs more than the C library" >&2
    exit 1
fi
banned='printf|fprintf|puts|perror|exit|_exit|abort'
if nm -D --undefined-only "$library" | grep -E " ($banned)(@|\$)"; then
    echo "$library prints, or ends its host" >&2
    exit 1
fi
