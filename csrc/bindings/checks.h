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

inline int gelu_dtype(const at::Tensor& x) {
  switch (x.scalar_type()) {
    case at::kFloat: return JETOPS_FLOAT32;
    case at::kHalf: return JETOPS_FLOAT16;
    case at::kBFloat16: return JETOPS_BFLOAT16;
    default: break;
  }
  TORCH_CHECK(false, "jetops::gelu: x must be float32, float16 or bfloat16, got ",
              at::toString(x.scalar_type()), ".");
}

inline int gelu_form(const std::string& approximate) {
  if (approximate == "none") return JETOPS_GELU_ERF;
  if (approximate == "tanh") return JETOPS_GELU_TANH;
  TORCH_CHECK(false, "jetops::gelu: approximate must be \"none\" or \"tanh\", got \"",
              approximate, "\".");
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

inline void check_nms(const char* op, const at::Tensor& boxes, const at::Tensor& scores,
                      const at::Tensor& attn_map, double iou_threshold) {
  check_same_device(op, "scores", scores, "boxes", boxes);
  check_same_device(op, "attn_map", attn_map, "boxes", boxes);
  check_float32(op, "boxes", boxes);
  check_float32(op, "scores", scores);
  check_float32(op, "attn_map", attn_map);
  check_nms_sizes(op, boxes, scores, attn_map);
  check_contiguous(op, "boxes", boxes);
  check_contiguous(op, "scores", scores);
  check_contiguous(op, "attn_map", attn_map);
  TORCH_CHECK(std::isfinite(iou_threshold) && iou_threshold >= 0.0 && iou_threshold <= 1.0,
              "jetops::", op, ": iou_threshold must be a finite number within [0, 1], got ",
              iou_threshold, ".");
}

}  // namespace jetops
