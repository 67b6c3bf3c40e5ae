#!/bin/sh
# Writes types.go from weir_abi.h by way of godefs.go. The input's name is given without a folder,
# so that the output is the same wherever the tree lies.
set -eu
go tool cgo -godefs godefs.go | gofmt | sed 's|^// cgo -godefs .*|// go tool cgo -godefs godefs.go|' >types.go.new
mv types.go.new types.go
rm -rf _obj _cgo_*.o
