// Makes the library importable as the empty Python module jetops._C. The operators come from the
// static initialisers of the other files, whichever way the library is loaded.
#include <Python.h>

// Weak, so that a C++ program without Python can load the library too.
#pragma weak PyModule_Create2

PyMODINIT_FUNC PyInit__C(void) {
  static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_C", nullptr, -1, nullptr,
                                   nullptr, nullptr, nullptr, nullptr};
  return PyModule_Create(&definition);
}
