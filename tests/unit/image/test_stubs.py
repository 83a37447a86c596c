import pytest
from jetship.image.stubs import MissingSymbol, is_variable, stub_source

EXCHANGE = MissingSymbol("_ZN3c104cuda14ExchangeDeviceEa", "function")
ALLOCATOR = MissingSymbol("_ZN3c104cuda20CUDACachingAllocator9allocatorE", "object")
CONTEXT = MissingSymbol("_ZN2at4cuda27getCurrentDevicePropertiesEv", "function")


@pytest.mark.parametrize(
    "name",
    [
        ALLOCATOR.name,
        "_ZTVN3c104cuda4impl13CUDAGuardImplE",
        "_ZTIN2at4cuda9CUDAGraphE",
        "_ZTSN2at4cuda9CUDAGraphE",
        "_ZGVN3c104cuda3oneE",
        "_ZNK3c103oneE",
    ],
)
def test_data_is_told_by_its_name(name):
    assert is_variable(name)


@pytest.mark.parametrize(
    "name",
    [
        EXCHANGE.name,
        CONTEXT.name,
        "_ZN3c104cuda20getCurrentCUDAStreamEa",
        # The last parameter is a nested name, so this one ends in E as well.
        "_ZN2at4cuda4takeEN3c106DeviceE",
        "_ZN3c104cuda4impl13CUDAGuardImplC1ENS_10DeviceTypeE",
        "_ZN2at4cuda6detail3getIfEEvv",
        "_Z4takePKc",
        "cublasCreate",
    ],
)
def test_functions_are_told_by_their_parameters(name):
    assert not is_variable(name)


def test_symbols_go_to_the_library_that_would_have_them():
    assert EXCHANGE.library == ALLOCATOR.library == "libc10_cuda.so"
    assert CONTEXT.library == "libtorch_cuda.so"


def test_source_defines_exactly_the_missing_symbols():
    missing = (EXCHANGE, ALLOCATOR, CONTEXT)
    source = stub_source("libc10_cuda.so", missing)
    assert f"jetship: {EXCHANGE.name} was called, but this machine has no CUDA" in source
    assert f".type   {EXCHANGE.name}, %function" in source
    assert f".type   {ALLOCATOR.name}, %object" in source
    assert CONTEXT.name not in source
    other = stub_source("libtorch_cuda.so", missing)
    assert CONTEXT.name in other
    assert EXCHANGE.name not in other


def test_source_is_the_same_for_the_same_symbols():
    assert stub_source("libc10_cuda.so", (EXCHANGE,)) == stub_source("libc10_cuda.so", (EXCHANGE,))
    assert "jetship_refuse" in stub_source("libtorch_cuda.so", ())
