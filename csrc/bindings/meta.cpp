// Shapes and dtypes without data, for torch.compile, torch.export and meta tensors. In C++, where
// every release has the same interface; and by empty_like, which knows symbolic sizes.
//
// One meta tensor is enough for the dispatcher to come here, so the others are checked to be meta as
// well: the results have no data. Sizes are checked where they are numbers, since a check of symbolic
// ones would fix them. Strides and dtypes are left to the backends: a compiler asks here about tensors
// that it still lays out, and autocast does not know meta tensors.
#include <ATen/ATen.h>

#include <string>
#include <tuple>

#include "checks.h"
#include "names.h"

namespace {

at::Tensor like(const at::Tensor& t, at::ScalarType dtype) {
  return at::empty_like(t, t.options().dtype(dtype), at::MemoryFormat::Contiguous);
}

at::Tensor like(const at::Tensor& t) { return like(t, t.scalar_type()); }

#if JETOPS_TORCH_FROM(2, 0)
bool has_numbers_for_sizes(const at::Tensor& t) {
  return !t.unsafeGetTensorImpl()->has_symbolic_sizes_strides();
}
#else
bool has_numbers_for_sizes(const at::Tensor&) { return true; }
#endif

void check_gradient(const char* op, const at::Tensor& grad_y, const at::Tensor& x) {
  jetops::check_same_device(op, "grad_y", grad_y, "x", x);
  if (has_numbers_for_sizes(grad_y) && has_numbers_for_sizes(x)) {
    jetops::check_gradient_sizes(op, grad_y, x);
  }
}

void check_bias_gelu_dropout(const char* op, const at::Tensor& x, const at::Tensor& bias,
                             const at::Tensor& seed, double p, const std::string& approximate) {
  jetops::gelu_form(op, approximate);
  jetops::check_same_device(op, "bias", bias, "x", x);
  jetops::check_same_device(op, "seed", seed, "x", x);
  if (has_numbers_for_sizes(x) && has_numbers_for_sizes(bias)) {
    jetops::check_bias_sizes(op, x, bias);
  }
  if (has_numbers_for_sizes(seed)) jetops::check_seed(op, seed);
  jetops::check_probability(op, p);
}

void check_nms(const char* op, const at::Tensor& boxes, const at::Tensor& scores,
               const at::Tensor& attn_map, double iou_threshold) {
  jetops::check_same_device(op, "scores", scores, "boxes", boxes);
  jetops::check_same_device(op, "attn_map", attn_map, "boxes", boxes);
  if (has_numbers_for_sizes(boxes) && has_numbers_for_sizes(scores) &&
      has_numbers_for_sizes(attn_map)) {
    jetops::check_nms_sizes(op, boxes, scores, attn_map);
  }
  jetops::check_iou_threshold(op, iou_threshold);
}

at::Tensor gelu(const at::Tensor& x, std::string approximate) {
  jetops::gelu_form("gelu", approximate);
  return like(x);
}

at::Tensor gelu_backward(const at::Tensor& grad_y, const at::Tensor& x, std::string approximate) {
  jetops::gelu_form("gelu_backward", approximate);
  check_gradient("gelu_backward", grad_y, x);
  return like(x);
}

at::Tensor bias_gelu_dropout(const at::Tensor& x, const at::Tensor& bias, const at::Tensor& seed,
                             double p, std::string approximate) {
  check_bias_gelu_dropout("bias_gelu_dropout", x, bias, seed, p, approximate);
  return like(x);
}

std::tuple<at::Tensor, at::Tensor> bias_gelu_dropout_backward(
    const at::Tensor& grad_y, const at::Tensor& x, const at::Tensor& bias, const at::Tensor& seed,
    double p, std::string approximate) {
  const char* op = "bias_gelu_dropout_backward";
  check_bias_gelu_dropout(op, x, bias, seed, p, approximate);
  check_gradient(op, grad_y, x);
  return std::make_tuple(like(x), like(bias));
}

at::Tensor fused_attn_nms(const at::Tensor& boxes, const at::Tensor& scores,
                          const at::Tensor& attn_map, double iou_threshold) {
  check_nms("fused_attn_nms", boxes, scores, attn_map, iou_threshold);
  return like(scores, at::kBool);
}

std::tuple<at::Tensor, at::Tensor> fused_attn_nms_scored(const at::Tensor& boxes,
                                                         const at::Tensor& scores,
                                                         const at::Tensor& attn_map,
                                                         double iou_threshold) {
  check_nms("fused_attn_nms_scored", boxes, scores, attn_map, iou_threshold);
  return std::make_tuple(like(scores, at::kBool), like(scores, at::kFloat));
}

}  // namespace

JETOPS_LIBRARY_IMPL(JETOPS_NAMESPACE, Meta, m) { JETOPS_OPERATORS(JETOPS_IMPLEMENT, m) }
