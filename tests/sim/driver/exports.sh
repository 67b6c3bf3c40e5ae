#!/bin/bash
# Prints the names that the simulated driver exports: those of driver 535 and those that the cuGetProcAddress of 555
# answers with, which together are the exports of 555.
set -euo pipefail
export LC_ALL=C

cd "$(dirname "$0")/../testdata"
{
    tail -n +2 libcuda-535-classes.tsv | cut -f1
    tail -n +2 libcuda-555-getprocaddress.tsv | cut -f4
} | sort -u
