// None of the operators has a backward. Where a gradient could be expected, that is an error here:
// without these kernels some versions of torch would cut the graph in silence.
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/GradMode.h>
#include <torch/library.h>

#include <string>
#include <tuple>

namespace {

void refuse_gradient(const char* op, const char* name, const at::Tensor& t) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      !(c10::GradMode::is_enabled() && t.requires_grad()), "jetops::", op,
      " has no backward, but ", name,
      " requires grad; call it under torch.no_grad(), or on ", name, ".detach().");
}

template <class Signature>
c10::TypedOperatorHandle<Signature> find(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

at::Tensor gelu(const at::Tensor& x, std::string approximate) {
  refuse_gradient("gelu", "x", x);
  static const auto op = find<at::Tensor(const at::Tensor&, std::string)>("jetops::gelu");
  at::AutoDispatchBelowADInplaceOrView below;
  return op.call(x, approximate);
}

// A keep mask is a set of decisions and has no gradient in mathematics either, so inputs that
// require grad are welcome, as they are in other NMS operators.
at::Tensor fused_attn_nms(const at::Tensor& boxes, const at::Tensor& scores,
                          const at::Tensor& attn_map, double iou_threshold) {
  static const auto op =
      find<at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&, double)>(
          "jetops::fused_attn_nms");
  at::AutoDispatchBelowADInplaceOrView below;
  return op.call(boxes, scores, attn_map, iou_threshold);
}

// weighted_scores does depend on scores and attn_map smoothly; on boxes it does not depend.
std::tuple<at::Tensor, at::Tensor> fused_attn_nms_scored(const at::Tensor& boxes,
                                                         const at::Tensor& scores,
                                                         const at::Tensor& attn_map,
                                                         double iou_threshold) {
  refuse_gradient("fused_attn_nms_scored", "scores", scores);
  refuse_gradient("fused_attn_nms_scored", "attn_map", attn_map);
  static const auto op = find<std::tuple<at::Tensor, at::Tensor>(
      const at::Tensor&, const at::Tensor&, const at::Tensor&, double)>(
      "jetops::fused_attn_nms_scored");
  at::AutoDispatchBelowADInplaceOrView below;
  return op.call(boxes, scores, attn_map, iou_threshold);
}

}  // namespace

TORCH_LIBRARY_IMPL(jetops, Autograd, m) {
  m.impl("gelu", TORCH_FN(gelu));
  m.impl("fused_attn_nms", TORCH_FN(fused_attn_nms));
  m.impl("fused_attn_nms_scored", TORCH_FN(fused_attn_nms_scored));
}
