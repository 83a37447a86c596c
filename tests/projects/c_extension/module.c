#include <Python.h>

long answer(void);

static PyObject* call(PyObject* self, PyObject* none) {
  (void)self;
  (void)none;
  return PyLong_FromLong(answer());
}

static PyMethodDef methods[] = {{"answer", call, METH_NOARGS, "42"}, {NULL, NULL, 0, NULL}};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "c_extension", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_c_extension(void) { return PyModule_Create(&module); }
