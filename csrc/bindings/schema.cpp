// The operators' schemas. What they compute is said in jetops/ops.py and jetops/reference.py.
#include "names.h"

namespace {

// Inductor lays out what it computes as it likes, and drops a copy that is there for its strides only:
// it has to be told that these operators take the strides that eager mode gives them. Before 2.4 there
// was no way to say so.
void define(torch::Library& m, const char* schema) {
#if JETOPS_TORCH_FROM(2, 11)
  m.def(schema, {at::Tag::pt2_compliant_tag, at::Tag::needs_exact_strides});
#elif JETOPS_TORCH_FROM(2, 4)
  m.def(schema, {at::Tag::pt2_compliant_tag, at::Tag::needs_fixed_stride_order});
#else
  m.def(schema);
#endif
}

}  // namespace

JETOPS_LIBRARY(JETOPS_NAMESPACE, m) {
  define(m, "gelu(Tensor x, *, str approximate=\"none\") -> Tensor");
  define(m, "gelu_backward(Tensor grad_y, Tensor x, *, str approximate=\"none\") -> Tensor");
  define(m,
         "bias_gelu_dropout(Tensor x, Tensor bias, Tensor seed, float p, *, "
         "str approximate=\"none\") -> Tensor");
  define(m,
         "bias_gelu_dropout_backward(Tensor grad_y, Tensor x, Tensor bias, Tensor seed, float p, *, "
         "str approximate=\"none\") -> (Tensor grad_x, Tensor grad_bias)");
  define(m,
         "fused_attn_nms(Tensor boxes, Tensor scores, Tensor attn_map, float iou_threshold) -> "
         "Tensor");
  define(m,
         "fused_attn_nms_scored(Tensor boxes, Tensor scores, Tensor attn_map, float iou_threshold) "
         "-> (Tensor keep, Tensor weighted_scores)");
}
