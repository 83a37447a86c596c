#include <Python.h>
#include <numpy/numpyconfig.h>

#define TEXT(x) #x
#define NAME(x) "numpy ABI " TEXT(x)

/* 0x01000009 with numpy 1.x, 0x02000000 with 2.x */
const char* numpy_abi(void) { return NAME(NPY_ABI_VERSION); }
