// The operators as Python functions, for jetops.jit_load(). They go through the dispatcher as
// torch.ops does, so autograd and autocast hold here too.
#include <torch/extension.h>

#include "dispatch.h"

namespace {

// The address of the first element as C++ sees it, to show that a tensor is not copied on its way.
uintptr_t data_pointer(const at::Tensor& t) { return reinterpret_cast<uintptr_t>(t.data_ptr()); }

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  namespace py = pybind11;
  // Other threads of Python, such as the one of a FrameIngest, go on while an operator works.
  typedef py::call_guard<py::gil_scoped_release> Unlocked;
  m.doc() = "jetops, compiled by jetops.jit_load()";
  m.def("data_pointer", &data_pointer, py::arg("tensor"));
  m.def("gelu", &jetops::call_gelu, Unlocked(), py::arg("x"), py::arg("approximate") = "none");
  m.def("gelu_backward", &jetops::call_gelu_backward, Unlocked(), py::arg("grad_y"), py::arg("x"),
        py::arg("approximate") = "none");
  m.def("bias_gelu_dropout", &jetops::call_bias_gelu_dropout, Unlocked(), py::arg("x"),
        py::arg("bias"), py::arg("seed"), py::arg("p"), py::arg("approximate") = "none");
  m.def("bias_gelu_dropout_backward", &jetops::call_bias_gelu_dropout_backward, Unlocked(),
        py::arg("grad_y"), py::arg("x"), py::arg("bias"), py::arg("seed"), py::arg("p"),
        py::arg("approximate") = "none");
  m.def("fused_attn_nms", &jetops::call_fused_attn_nms, Unlocked(), py::arg("boxes"),
        py::arg("scores"), py::arg("attn_map"), py::arg("iou_threshold"));
  m.def("fused_attn_nms_scored", &jetops::call_fused_attn_nms_scored, Unlocked(),
        py::arg("boxes"), py::arg("scores"), py::arg("attn_map"), py::arg("iou_threshold"));
}
