// Argument checks shared by the backends. Each failure is one sentence: which argument of which
// operator, what was expected, what came. Nothing is converted or copied to make it fit.
#pragma once

#include <ATen/ATen.h>

#include <cmath>
#include <cstdint>
#include <string>

#include "jetops_types.h"

namespace jetops {

inline void check_contiguous(const char* op, const char* name, const at::Tensor& t) {
  TORCH_CHECK(t.is_contiguous(), "jetops::", op, ": ", name,
              " must be contiguous, got strides ", t.strides(), " for sizes ", t.sizes(),
              "; call .contiguous() on it first.");
}

inline void check_float32(const char* op, const char* name, const at::Tensor& t) {
  TORCH_CHECK(t.scalar_type() == at::kFloat, "jetops::", op, ": ", name,
              " must be float32, got ", at::toString(t.scalar_type()), ".");
}

inline void check_same_device(const char* op, const char* name, const at::Tensor& t,
                              const char* first_name, const at::Tensor& first) {
  TORCH_CHECK(t.device() == first.device(), "jetops::", op, ": ", name,
              " must be on the same device as ", first_name, " (", first.device(), "), got ",
              t.device(), ".");
}

inline int dtype_of(const char* op, const char* name, const at::Tensor& t) {
  switch (t.scalar_type()) {
    case at::kFloat: return JETOPS_FLOAT32;
    case at::kHalf: return JETOPS_FLOAT16;
    case at::kBFloat16: return JETOPS_BFLOAT16;
    default: break;
  }
  TORCH_CHECK(false, "jetops::", op, ": ", name, " must be float32, float16 or bfloat16, got ",
              at::toString(t.scalar_type()), ".");
}

inline void check_same_dtype(const char* op, const char* name, const at::Tensor& t,
                             const char* first_name, const at::Tensor& first) {
  TORCH_CHECK(t.scalar_type() == first.scalar_type(), "jetops::", op, ": ", name,
              " must have the dtype of ", first_name, " (", at::toString(first.scalar_type()),
              "), got ", at::toString(t.scalar_type()), ".");
}

inline int gelu_form(const char* op, const std::string& approximate) {
  if (approximate == "none") return JETOPS_GELU_ERF;
  if (approximate == "tanh") return JETOPS_GELU_TANH;
  TORCH_CHECK(false, "jetops::", op, ": approximate must be \"none\" or \"tanh\", got \"",
              approximate, "\".");
}

struct GeluArguments {
  int dtype, form;
};

inline GeluArguments check_gelu(const char* op, const at::Tensor& x,
                                const std::string& approximate) {
  const GeluArguments arguments = {dtype_of(op, "x", x), gelu_form(op, approximate)};
  check_contiguous(op, "x", x);
  return arguments;
}

inline void check_gradient_sizes(const char* op, const at::Tensor& grad_y, const at::Tensor& x) {
  TORCH_CHECK(grad_y.sizes() == x.sizes(), "jetops::", op, ": grad_y must have the sizes of x, ",
              x.sizes(), ", got ", grad_y.sizes(), ".");
}

inline void check_gradient(const char* op, const at::Tensor& grad_y, const at::Tensor& x) {
  check_same_device(op, "grad_y", grad_y, "x", x);
  check_same_dtype(op, "grad_y", grad_y, "x", x);
  check_gradient_sizes(op, grad_y, x);
  check_contiguous(op, "grad_y", grad_y);
}

struct DropoutArguments {
  int dtype, form;
  int64_t rows, columns;
};

inline void check_bias_sizes(const char* op, const at::Tensor& x, const at::Tensor& bias) {
  TORCH_CHECK(x.dim() >= 1 && bias.dim() == 1 && bias.size(0) == x.size(-1), "jetops::", op,
              ": bias must have sizes [C] with C the last size of x, got ", bias.sizes(),
              " for an x of sizes ", x.sizes(), ".");
}

inline void check_seed(const char* op, const at::Tensor& seed) {
  TORCH_CHECK(seed.scalar_type() == at::kLong && seed.dim() == 1 && seed.size(0) == 2, "jetops::",
              op, ": seed must be int64 of sizes [2], got ", at::toString(seed.scalar_type()),
              " of sizes ", seed.sizes(), ".");
}

inline void check_probability(const char* op, double p) {
  TORCH_CHECK(p >= 0.0 && p <= 1.0, "jetops::", op,
              ": p must be a number within [0, 1], got ", p, ".");
}

inline DropoutArguments check_bias_gelu_dropout(const char* op, const at::Tensor& x,
                                                const at::Tensor& bias, const at::Tensor& seed,
                                                double p, const std::string& approximate) {
  const GeluArguments gelu = check_gelu(op, x, approximate);
  check_same_device(op, "bias", bias, "x", x);
  check_same_dtype(op, "bias", bias, "x", x);
  check_bias_sizes(op, x, bias);
  check_contiguous(op, "bias", bias);
  check_same_device(op, "seed", seed, "x", x);
  check_seed(op, seed);
  check_contiguous(op, "seed", seed);
  check_probability(op, p);
  const int64_t columns = bias.size(0);
  return {gelu.dtype, gelu.form, columns == 0 ? 0 : x.numel() / columns, columns};
}

inline void check_nms_sizes(const char* op, const at::Tensor& boxes, const at::Tensor& scores,
                            const at::Tensor& attn_map) {
  TORCH_CHECK(boxes.dim() == 2 && boxes.size(1) == 4, "jetops::", op,
              ": boxes must have sizes [N, 4], got ", boxes.sizes(), ".");
  const int64_t n = boxes.size(0);
  TORCH_CHECK(scores.dim() == 1 && scores.size(0) == n, "jetops::", op,
              ": scores must have sizes [N] with the N of boxes, here [", n, "], got ",
              scores.sizes(), ".");
  TORCH_CHECK(attn_map.dim() == 2 && attn_map.size(0) == n && attn_map.size(1) == n, "jetops::",
              op, ": attn_map must have sizes [N, N] with the N of boxes, here [", n, ", ", n,
              "], got ", attn_map.sizes(), ".");
  TORCH_CHECK(n <= JETOPS_NMS_MAX_BOXES, "jetops::", op, ": boxes must hold at most ",
              JETOPS_NMS_MAX_BOXES, " boxes, got ", n, "; keep the best of them first.");
}

inline void check_iou_threshold(const char* op, double iou_threshold) {
  TORCH_CHECK(std::isfinite(iou_threshold) && iou_threshold >= 0.0 && iou_threshold <= 1.0,
              "jetops::", op, ": iou_threshold must be a finite number within [0, 1], got ",
              iou_threshold, ".");
}

// The dtype of scores and attn_map.
inline int check_nms(const char* op, const at::Tensor& boxes, const at::Tensor& scores,
                     const at::Tensor& attn_map, double iou_threshold) {
  check_same_device(op, "scores", scores, "boxes", boxes);
  check_same_device(op, "attn_map", attn_map, "boxes", boxes);
  check_float32(op, "boxes", boxes);
  const int dtype = dtype_of(op, "scores", scores);
  check_same_dtype(op, "attn_map", attn_map, "scores", scores);
  check_nms_sizes(op, boxes, scores, attn_map);
  check_contiguous(op, "boxes", boxes);
  check_contiguous(op, "scores", scores);
  check_contiguous(op, "attn_map", attn_map);
  check_iou_threshold(op, iou_threshold);
  return dtype;
}

}  // namespace jetops
