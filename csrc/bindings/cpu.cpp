// The operators on CPU tensors.
#include <torch/library.h>

#include <tuple>

#include "checks.h"
#include "cpu/jetops_cpu.h"

namespace {

at::Tensor gelu(const at::Tensor& x, std::string approximate) {
  const int dtype = jetops::gelu_dtype(x);
  const int form = jetops::gelu_form(approximate);
  jetops::check_contiguous("gelu", "x", x);
  at::Tensor y = at::empty(x.sizes(), x.options());
  jetops_gelu_cpu(x.data_ptr(), y.data_ptr(), x.numel(), dtype, form);
  return y;
}

void run_nms(const at::Tensor& boxes, const at::Tensor& scores, const at::Tensor& attn_map,
             double iou_threshold, const at::Tensor& keep, float* weighted) {
  const int64_t n = boxes.size(0);
  if (n == 0) return;
  const at::Tensor workspace = at::empty({jetops_fused_attn_nms_cpu_workspace_bytes(n)},
                                         boxes.options().dtype(at::kByte));
  jetops_fused_attn_nms_cpu(boxes.data_ptr<float>(), scores.data_ptr<float>(),
                            attn_map.data_ptr<float>(), n, static_cast<float>(iou_threshold),
                            reinterpret_cast<uint8_t*>(keep.data_ptr<bool>()), weighted,
                            workspace.data_ptr());
}

at::Tensor fused_attn_nms(const at::Tensor& boxes, const at::Tensor& scores,
                          const at::Tensor& attn_map, double iou_threshold) {
  jetops::check_nms("fused_attn_nms", boxes, scores, attn_map, iou_threshold);
  at::Tensor keep = at::empty(scores.sizes(), scores.options().dtype(at::kBool));
  run_nms(boxes, scores, attn_map, iou_threshold, keep, nullptr);
  return keep;
}

std::tuple<at::Tensor, at::Tensor> fused_attn_nms_scored(const at::Tensor& boxes,
                                                         const at::Tensor& scores,
                                                         const at::Tensor& attn_map,
                                                         double iou_threshold) {
  jetops::check_nms("fused_attn_nms_scored", boxes, scores, attn_map, iou_threshold);
  at::Tensor keep = at::empty(scores.sizes(), scores.options().dtype(at::kBool));
  at::Tensor weighted = at::empty(scores.sizes(), scores.options());
  run_nms(boxes, scores, attn_map, iou_threshold, keep, weighted.data_ptr<float>());
  return std::make_tuple(keep, weighted);
}

}  // namespace

TORCH_LIBRARY_IMPL(jetops, CPU, m) {
  m.impl("gelu", TORCH_FN(gelu));
  m.impl("fused_attn_nms", TORCH_FN(fused_attn_nms));
  m.impl("fused_attn_nms_scored", TORCH_FN(fused_attn_nms_scored));
}
