// The operators on CPU tensors.
#include <algorithm>
#include <tuple>
#include <vector>

#include "checks.h"
#include "cpu/jetops_cpu.h"
#include "names.h"
#include "parallel.h"

namespace {

constexpr int64_t kGrain = 1 << 14;  // elements that are worth a thread

at::Tensor gelu(const at::Tensor& x, std::string approximate) {
  const auto arguments = jetops::check_gelu("gelu", x, approximate);
  at::Tensor y = at::empty(x.sizes(), x.options());
  const void* from = x.data_ptr();
  void* to = y.data_ptr();
  jetops::in_ranges(y, kGrain, [&](int64_t first, int64_t end) {
    jetops_gelu_cpu(from, to, first, end, arguments.dtype, arguments.form);
  });
  return y;
}

at::Tensor gelu_backward(const at::Tensor& grad_y, const at::Tensor& x, std::string approximate) {
  const auto arguments = jetops::check_gelu("gelu_backward", x, approximate);
  jetops::check_gradient("gelu_backward", grad_y, x);
  at::Tensor grad_x = at::empty(x.sizes(), x.options());
  const void *gradient = grad_y.data_ptr(), *from = x.data_ptr();
  void* to = grad_x.data_ptr();
  jetops::in_ranges(grad_x, kGrain, [&](int64_t first, int64_t end) {
    jetops_gelu_backward_cpu(gradient, from, to, first, end, arguments.dtype, arguments.form);
  });
  return grad_x;
}

at::Tensor bias_gelu_dropout(const at::Tensor& x, const at::Tensor& bias, const at::Tensor& seed,
                             double p, std::string approximate) {
  const auto a =
      jetops::check_bias_gelu_dropout("bias_gelu_dropout", x, bias, seed, p, approximate);
  at::Tensor y = at::empty(x.sizes(), x.options());
  const void *from = x.data_ptr(), *addend = bias.data_ptr();
  const int64_t* numbers = seed.data_ptr<int64_t>();
  void* to = y.data_ptr();
  jetops::in_ranges(y, kGrain, [&](int64_t first, int64_t end) {
    jetops_bias_gelu_dropout_cpu(from, addend, to, first, end, a.columns, a.dtype, a.form, p,
                                 numbers);
  });
  return y;
}

std::tuple<at::Tensor, at::Tensor> bias_gelu_dropout_backward(
    const at::Tensor& grad_y, const at::Tensor& x, const at::Tensor& bias, const at::Tensor& seed,
    double p, std::string approximate) {
  const char* op = "bias_gelu_dropout_backward";
  const auto a = jetops::check_bias_gelu_dropout(op, x, bias, seed, p, approximate);
  jetops::check_gradient(op, grad_y, x);
  at::Tensor grad_x = at::empty(x.sizes(), x.options());
  at::Tensor grad_bias = at::empty(bias.sizes(), bias.options());
  const at::Tensor sums = at::empty(bias.sizes(), bias.options().dtype(at::kFloat));
  jetops_bias_gelu_dropout_backward_cpu(grad_y.data_ptr(), x.data_ptr(), bias.data_ptr(),
                                        grad_x.data_ptr(), grad_bias.data_ptr(), a.rows, a.columns,
                                        a.dtype, a.form, p, seed.data_ptr<int64_t>(),
                                        sums.data_ptr<float>());
  return std::make_tuple(grad_x, grad_bias);
}

void weigh(const at::Tensor& scores, const at::Tensor& attn_map, int dtype,
           const at::Tensor& weighted) {
  const void *numbers = scores.data_ptr(), *rows = attn_map.data_ptr();
  float* to = weighted.data_ptr<float>();
  const int64_t n = scores.numel();
  jetops::in_ranges(weighted, std::max<int64_t>(1, 4 * kGrain / n), [&](int64_t first, int64_t end) {
    std::vector<float> scratch(2 * static_cast<size_t>(n));
    jetops_weighted_scores_cpu(numbers, rows, n, dtype, first, end, to, scratch.data());
  });
}

// The keep mask and the weighted scores.
std::tuple<at::Tensor, at::Tensor> run_nms(const char* op, const at::Tensor& boxes,
                                           const at::Tensor& scores, const at::Tensor& attn_map,
                                           double iou_threshold) {
  const int dtype = jetops::check_nms(op, boxes, scores, attn_map, iou_threshold);
  const int64_t n = boxes.size(0);
  at::Tensor keep = at::empty(scores.sizes(), scores.options().dtype(at::kBool));
  at::Tensor weighted = at::empty(scores.sizes(), boxes.options());
  if (n == 0) return std::make_tuple(keep, weighted);
  weigh(scores, attn_map, dtype, weighted);
  const at::Tensor workspace =
      at::empty({jetops_greedy_nms_cpu_workspace_bytes(n)}, boxes.options().dtype(at::kByte));
  jetops_greedy_nms_cpu(boxes.data_ptr<float>(), weighted.data_ptr<float>(), n,
                        static_cast<float>(iou_threshold),
                        reinterpret_cast<uint8_t*>(keep.data_ptr<bool>()), workspace.data_ptr());
  return std::make_tuple(keep, weighted);
}

at::Tensor fused_attn_nms(const at::Tensor& boxes, const at::Tensor& scores,
                          const at::Tensor& attn_map, double iou_threshold) {
  return std::get<0>(run_nms("fused_attn_nms", boxes, scores, attn_map, iou_threshold));
}

std::tuple<at::Tensor, at::Tensor> fused_attn_nms_scored(const at::Tensor& boxes,
                                                         const at::Tensor& scores,
                                                         const at::Tensor& attn_map,
                                                         double iou_threshold) {
  return run_nms("fused_attn_nms_scored", boxes, scores, attn_map, iou_threshold);
}

}  // namespace

JETOPS_LIBRARY_IMPL(JETOPS_NAMESPACE, CPU, m) { JETOPS_OPERATORS(JETOPS_IMPLEMENT, m) }
