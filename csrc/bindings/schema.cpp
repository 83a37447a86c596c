// The operators' schemas. What they compute is said in jetops/ops.py and jetops/reference.py.
#include "names.h"

JETOPS_LIBRARY(JETOPS_NAMESPACE, m) {
  m.def("gelu(Tensor x, *, str approximate=\"none\") -> Tensor");
  m.def("gelu_backward(Tensor grad_y, Tensor x, *, str approximate=\"none\") -> Tensor");
  m.def(
      "bias_gelu_dropout(Tensor x, Tensor bias, Tensor seed, float p, *, str approximate=\"none\") "
      "-> Tensor");
  m.def(
      "bias_gelu_dropout_backward(Tensor grad_y, Tensor x, Tensor bias, Tensor seed, float p, *, "
      "str approximate=\"none\") -> (Tensor grad_x, Tensor grad_bias)");
  m.def(
      "fused_attn_nms(Tensor boxes, Tensor scores, Tensor attn_map, float iou_threshold) -> "
      "Tensor");
  m.def(
      "fused_attn_nms_scored(Tensor boxes, Tensor scores, Tensor attn_map, float iou_threshold) "
      "-> (Tensor keep, Tensor weighted_scores)");
}
