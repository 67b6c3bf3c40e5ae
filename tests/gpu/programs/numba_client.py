"""numba under a cap. Arguments: a part (there is only one), and the cap in bytes.

The last line that it prints is the figure; what is not as it should be ends it with an exception.
"""

import sys

import numpy
from numba import cuda
from numba.cuda.cudadrv import driver

MIB = 1 << 20
PIECE = 16 * MIB


def main():
    cap = int(sys.argv[2])
    context = cuda.current_context()
    free, total = context.get_memory_info()
    if total != cap:
        raise SystemExit(f"get_memory_info says {total} in all, the cap is {cap}")
    data = numpy.arange(MIB, dtype=numpy.int32)
    numpy.testing.assert_array_equal(cuda.to_device(data).copy_to_host(), data)
    context.deallocations.clear()
    held = []
    try:
        while len(held) * PIECE <= cap:
            held.append(context.memalloc(PIECE))
        raise SystemExit(f"{len(held) * PIECE} bytes are given under a cap of {cap}")
    except driver.CudaAPIError as error:
        if error.code != 2:
            raise
    if len(held) != free // PIECE:
        raise SystemExit(f"{len(held)} pieces of {PIECE} bytes, where {free} bytes were free")
    print(f"{len(held) * PIECE // MIB}MiB of {free // MIB}MiB that were free, then refused")


main()
