// The operators' schemas. What they compute is said in jetops/ops.py and jetops/reference.py.
#include <torch/library.h>

TORCH_LIBRARY(jetops, m) {
  m.def("gelu(Tensor x, *, str approximate=\"none\") -> Tensor");
  m.def(
      "fused_attn_nms(Tensor boxes, Tensor scores, Tensor attn_map, float iou_threshold) -> "
      "Tensor");
  m.def(
      "fused_attn_nms_scored(Tensor boxes, Tensor scores, Tensor attn_map, float iou_threshold) "
      "-> (Tensor keep, Tensor weighted_scores)");
}
