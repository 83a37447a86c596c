#include <Python.h>

static PyObject* answer(PyObject* self, PyObject* none) {
  (void)self;
  (void)none;
  return PyLong_FromLong(42);
}

static PyMethodDef methods[] = {{"answer", answer, METH_NOARGS, "42"}, {NULL, NULL, 0, NULL}};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_C", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__C(void) { return PyModule_Create(&module); }
