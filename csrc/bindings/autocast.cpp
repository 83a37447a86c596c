// Under autocast a matrix product gives 16-bit tensors while parameters and boxes stay as they are,
// so operands of one operator come in several dtypes. Here they are brought together: bias takes the
// dtype of x; boxes become float32; scores and attn_map become float32 where they differ.
// gelu has one operand and works in its dtype.
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "dispatch.h"

namespace {

const c10::DispatchKeySet kAutocastKeys({c10::DispatchKey::AutocastCUDA,
                                         c10::DispatchKey::AutocastCPU});

at::Tensor bias_gelu_dropout(const at::Tensor& x, const at::Tensor& bias, const at::Tensor& seed,
                             double p, std::string approximate) {
  c10::impl::ExcludeDispatchKeyGuard below(kAutocastKeys);
  return jetops::call_bias_gelu_dropout(x, bias.to(x.scalar_type()), seed, p, approximate);
}

struct NmsInputs {
  at::Tensor boxes, scores, attn_map;

  NmsInputs(const at::Tensor& b, const at::Tensor& s, const at::Tensor& a)
      : boxes(b.to(at::kFloat)), scores(s), attn_map(a) {
    if (s.scalar_type() != a.scalar_type()) {
      scores = s.to(at::kFloat);
      attn_map = a.to(at::kFloat);
    }
  }
};

at::Tensor fused_attn_nms(const at::Tensor& boxes, const at::Tensor& scores,
                          const at::Tensor& attn_map, double iou_threshold) {
  c10::impl::ExcludeDispatchKeyGuard below(kAutocastKeys);
  const NmsInputs in(boxes, scores, attn_map);
  return jetops::call_fused_attn_nms(in.boxes, in.scores, in.attn_map, iou_threshold);
}

std::tuple<at::Tensor, at::Tensor> fused_attn_nms_scored(const at::Tensor& boxes,
                                                         const at::Tensor& scores,
                                                         const at::Tensor& attn_map,
                                                         double iou_threshold) {
  c10::impl::ExcludeDispatchKeyGuard below(kAutocastKeys);
  const NmsInputs in(boxes, scores, attn_map);
  return jetops::call_fused_attn_nms_scored(in.boxes, in.scores, in.attn_map, iou_threshold);
}

void implement(torch::Library& m) {
  JETOPS_IMPLEMENT(m, bias_gelu_dropout)
  JETOPS_IMPLEMENT(m, fused_attn_nms)
  JETOPS_IMPLEMENT(m, fused_attn_nms_scored)
}

}  // namespace

JETOPS_LIBRARY_IMPL(JETOPS_NAMESPACE, AutocastCUDA, m) { implement(m); }

JETOPS_LIBRARY_IMPL(JETOPS_NAMESPACE, AutocastCPU, m) { implement(m); }
