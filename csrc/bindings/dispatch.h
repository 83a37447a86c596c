// Calls of the operators through the dispatcher, from kernels that stand above the backends.
#pragma once

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <string>
#include <tuple>

#include "names.h"

namespace jetops {

template <class Signature>
c10::TypedOperatorHandle<Signature> find(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

inline at::Tensor call_gelu(const at::Tensor& x, std::string approximate) {
  static const auto op = find<at::Tensor(const at::Tensor&, std::string)>(JETOPS_QUALIFIED("gelu"));
  return op.call(x, std::move(approximate));
}

inline at::Tensor call_gelu_backward(const at::Tensor& grad_y, const at::Tensor& x,
                                     std::string approximate) {
  static const auto op = find<at::Tensor(const at::Tensor&, const at::Tensor&, std::string)>(
      JETOPS_QUALIFIED("gelu_backward"));
  return op.call(grad_y, x, std::move(approximate));
}

inline at::Tensor call_bias_gelu_dropout(const at::Tensor& x, const at::Tensor& bias,
                                         const at::Tensor& seed, double p,
                                         std::string approximate) {
  static const auto op = find<at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                         double, std::string)>(JETOPS_QUALIFIED("bias_gelu_dropout"));
  return op.call(x, bias, seed, p, std::move(approximate));
}

inline std::tuple<at::Tensor, at::Tensor> call_bias_gelu_dropout_backward(
    const at::Tensor& grad_y, const at::Tensor& x, const at::Tensor& bias, const at::Tensor& seed,
    double p, std::string approximate) {
  static const auto op = find<std::tuple<at::Tensor, at::Tensor>(
      const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&, double,
      std::string)>(JETOPS_QUALIFIED("bias_gelu_dropout_backward"));
  return op.call(grad_y, x, bias, seed, p, std::move(approximate));
}

inline at::Tensor call_fused_attn_nms(const at::Tensor& boxes, const at::Tensor& scores,
                                      const at::Tensor& attn_map, double iou_threshold) {
  static const auto op =
      find<at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&, double)>(
          JETOPS_QUALIFIED("fused_attn_nms"));
  return op.call(boxes, scores, attn_map, iou_threshold);
}

inline std::tuple<at::Tensor, at::Tensor> call_fused_attn_nms_scored(const at::Tensor& boxes,
                                                                     const at::Tensor& scores,
                                                                     const at::Tensor& attn_map,
                                                                     double iou_threshold) {
  static const auto op = find<std::tuple<at::Tensor, at::Tensor>(
      const at::Tensor&, const at::Tensor&, const at::Tensor&, double)>(
      JETOPS_QUALIFIED("fused_attn_nms_scored"));
  return op.call(boxes, scores, attn_map, iou_threshold);
}

}  // namespace jetops
