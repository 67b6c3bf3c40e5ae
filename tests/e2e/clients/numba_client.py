"""A CUDA program on numba's driver binding: devices, memory, copies, a kernel from PTX, a refusal.

It says what it found, one line each; a wrong result ends it with an exception.
Argument: a PTX file with the kernel vector_add(a, b, out, unsigned count).
"""

import ctypes
import sys

import numpy
from numba import cuda
from numba.cuda.cudadrv import driver

MIB = 1 << 20


def copies():
    data = numpy.arange(3 * MIB // 8, dtype=numpy.float64)
    on_gpu = cuda.to_device(data)
    numpy.testing.assert_array_equal(on_gpu.copy_to_host(), data)
    strided = cuda.to_device(data.reshape(-1, 64).T.copy())
    numpy.testing.assert_array_equal(strided.copy_to_host(), data.reshape(-1, 64).T)
    print("copies right")


def kernel(context, path):
    count = 1000
    with open(path, "rb") as file:
        module = context.create_module_ptx(file.read())
    function = module.get_function("vector_add")
    a = numpy.linspace(0, 1, count, dtype=numpy.float32)
    b = numpy.linspace(5, 9, count, dtype=numpy.float32)
    out, on_a, on_b = cuda.device_array_like(a), cuda.to_device(a), cuda.to_device(b)
    pointers = [ctypes.c_uint64(array.device_ctypes_pointer.value) for array in (on_a, on_b, out)]
    arguments = pointers + [ctypes.c_uint32(count)]
    driver.launch_kernel(
        function.handle, (count + 127) // 128, 1, 1, 128, 1, 1, 0, 0,
        arguments)
    context.synchronize()
    numpy.testing.assert_array_equal(out.copy_to_host(), a + b)
    print("kernel right")


def until_refused(context):
    held, total = [], context.get_memory_info().total
    try:
        while True:
            held.append(context.memalloc(MIB))
    except driver.CudaAPIError as error:
        if error.code != 2:
            raise
    print("refused at", len(held), "of", total // MIB, "MiB")


def main():
    for gpu in cuda.gpus.lst:
        with gpu:
            device = cuda.get_current_device()
            print("device", gpu.id, device.name.decode(), device.compute_capability)
    context = cuda.current_context()
    print("total", context.get_memory_info().total)
    copies()
    kernel(context, sys.argv[1])
    context.deallocations.clear()
    until_refused(context)


main()
