// Python module that shows what currentSite() says to the code that calls it: the reader of frames without torch.
#include <Python.h>

#include <chrono>

#include "runtime/python/sites/sites.h"

namespace t = flagos::telemetry;

namespace {

PyObject* init(PyObject*, PyObject* args) {
  const char *torch_dir, *flagos_dir;
  if (!PyArg_ParseTuple(args, "ss", &torch_dir, &flagos_dir)) return nullptr;
  return PyUnicode_FromString(t::initSites(torch_dir, flagos_dir).c_str());
}
PyObject* current(PyObject*, PyObject*) { return PyLong_FromUnsignedLong(t::currentSite()); }
PyObject* currentWithoutGil(PyObject*, PyObject*) {
  t::SiteId id;
  Py_BEGIN_ALLOW_THREADS
  id = t::currentSite();
  Py_END_ALLOW_THREADS
  return PyLong_FromUnsignedLong(id);
}
PyObject* describe(PyObject*, PyObject* args) {
  unsigned id;
  if (!PyArg_ParseTuple(args, "I", &id)) return nullptr;
  const t::Site* s = t::site(id);
  if (!s) Py_RETURN_NONE;
  return Py_BuildValue("{s:s,s:s,s:i,s:i,s:i,s:i,s:K,s:I}", "file", s->file.c_str(), "qualname", s->qualname.c_str(), "line", s->line,
                       "end_line", s->end_line, "column", s->column, "end_column", s->end_column, "call_hash",
                       static_cast<unsigned long long>(s->call_hash), "backward_of", s->backward_of);
}
PyObject* files(PyObject*, PyObject*) {
  PyObject* out = PyDict_New();
  for (const t::File& f : t::recordedFiles()) {
    PyObject* row = Py_BuildValue("(ssd)", f.hash.c_str(), f.why.c_str(), f.mtime);
    PyDict_SetItemString(out, f.path.c_str(), row);
    Py_DECREF(row);
  }
  return out;
}
PyObject* hitNanoseconds(PyObject*, PyObject* args) {
  int n;
  if (!PyArg_ParseTuple(args, "i", &n)) return nullptr;
  uint64_t sum = 0;
  std::chrono::duration<double, std::nano> took{};
  Py_BEGIN_ALLOW_THREADS
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < n; ++i) sum += t::currentSite();
  took = std::chrono::steady_clock::now() - start;
  Py_END_ALLOW_THREADS
  return Py_BuildValue("(dK)", took.count() / n, static_cast<unsigned long long>(sum));
}
PyObject* remember(PyObject*, PyObject* args) {
  unsigned long long thread, sequence;
  unsigned site;
  if (!PyArg_ParseTuple(args, "KKI", &thread, &sequence, &site)) return nullptr;
  t::rememberForward(thread, sequence, site);
  Py_RETURN_NONE;
}
PyObject* forward(PyObject*, PyObject* args) {
  unsigned long long thread, sequence;
  if (!PyArg_ParseTuple(args, "KK", &thread, &sequence)) return nullptr;
  return PyLong_FromUnsignedLong(t::forwardSite(thread, sequence));
}
PyObject* twin(PyObject*, PyObject* args) {
  unsigned site;
  if (!PyArg_ParseTuple(args, "I", &site)) return nullptr;
  return PyLong_FromUnsignedLong(t::backwardSite(site));
}
PyObject* backwardCaller(PyObject*, PyObject* args) {
  long long task;
  if (!PyArg_ParseTuple(args, "L", &task)) return nullptr;
  return PyLong_FromUnsignedLong(t::backwardCaller(task));
}

PyMethodDef methods[] = {{"init", init, METH_VARARGS, nullptr},
                         {"current", current, METH_NOARGS, nullptr},
                         {"current_without_gil", currentWithoutGil, METH_NOARGS, nullptr},
                         {"describe", describe, METH_VARARGS, nullptr},
                         {"files", files, METH_NOARGS, nullptr},
                         {"hit_ns", hitNanoseconds, METH_VARARGS, nullptr},
                         {"remember", remember, METH_VARARGS, nullptr},
                         {"forward", forward, METH_VARARGS, nullptr},
                         {"twin", twin, METH_VARARGS, nullptr},
                         {"backward_caller", backwardCaller, METH_VARARGS, nullptr},
                         {nullptr, nullptr, 0, nullptr}};
PyModuleDef module = {PyModuleDef_HEAD_INIT, "sites_probe", nullptr, -1, methods, nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit_sites_probe() { return PyModule_Create(&module); }
