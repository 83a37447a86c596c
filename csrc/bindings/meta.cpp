// Shapes and dtypes without data, for torch.compile, torch.export and meta tensors. In C++, where
// every release has the same interface; and by empty_like, which knows symbolic sizes.
#include <ATen/ATen.h>

#include <string>
#include <tuple>

#include "names.h"

namespace {

at::Tensor like(const at::Tensor& t, at::ScalarType dtype) {
  return at::empty_like(t, t.options().dtype(dtype), at::MemoryFormat::Contiguous);
}

at::Tensor like(const at::Tensor& t) { return like(t, t.scalar_type()); }

at::Tensor gelu(const at::Tensor& x, std::string) { return like(x); }

at::Tensor gelu_backward(const at::Tensor&, const at::Tensor& x, std::string) { return like(x); }

at::Tensor bias_gelu_dropout(const at::Tensor& x, const at::Tensor&, const at::Tensor&, double,
                             std::string) {
  return like(x);
}

std::tuple<at::Tensor, at::Tensor> bias_gelu_dropout_backward(const at::Tensor&,
                                                              const at::Tensor& x,
                                                              const at::Tensor& bias,
                                                              const at::Tensor&, double,
                                                              std::string) {
  return std::make_tuple(like(x), like(bias));
}

at::Tensor fused_attn_nms(const at::Tensor&, const at::Tensor& scores, const at::Tensor&, double) {
  return like(scores, at::kBool);
}

std::tuple<at::Tensor, at::Tensor> fused_attn_nms_scored(const at::Tensor&,
                                                         const at::Tensor& scores,
                                                         const at::Tensor&, double) {
  return std::make_tuple(like(scores, at::kBool), like(scores, at::kFloat));
}

}  // namespace

JETOPS_LIBRARY_IMPL(JETOPS_NAMESPACE, Meta, m) { JETOPS_OPERATORS(JETOPS_IMPLEMENT, m) }
