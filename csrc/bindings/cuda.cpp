// The operators on CUDA tensors. Only c10's CUDA headers are used: ATen/cuda/CUDAContext.h would ask
// for the headers of cuBLAS, cuSPARSE and cuSOLVER, which a cross-building machine need not have.
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <tuple>

#include "checks.h"
#include "jetops_kernels.h"
#include "names.h"

namespace {

std::string capability_of(const at::Device& device) {
  int major = 0, minor = 0;
  const int index = device.index();
  if (cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, index) != cudaSuccess ||
      cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, index) != cudaSuccess) {
    return "X.Y";
  }
  return std::to_string(major) + "." + std::to_string(minor);
}

void check_launch(const char* op, cudaError_t error, const at::Device& device) {
  if (error == cudaSuccess) return;
  if (error == cudaErrorNoKernelImageForDevice) {
    const std::string capability = capability_of(device);
    TORCH_CHECK(false, "jetops::", op, ": this build of jetops has no device code for compute ",
                "capability ", capability, " of ", device, "; build it again with --arch ",
                capability, " (with pip: TORCH_CUDA_ARCH_LIST=", capability, ").");
  }
  TORCH_CHECK(false, "jetops::", op, ": the CUDA launch on ", device, " failed: ",
              cudaGetErrorString(error), " (", cudaGetErrorName(error), ").");
}

cudaStream_t current_stream() { return c10::cuda::getCurrentCUDAStream().stream(); }

at::Tensor gelu(const at::Tensor& x, std::string approximate) {
  const auto arguments = jetops::check_gelu("gelu", x, approximate);
  const c10::cuda::CUDAGuard guard(x.device());
  at::Tensor y = at::empty(x.sizes(), x.options());
  const cudaError_t error = jetops_gelu_cuda(x.data_ptr(), y.data_ptr(), x.numel(),
                                             arguments.dtype, arguments.form, current_stream());
  check_launch("gelu", error, x.device());
  return y;
}

at::Tensor gelu_backward(const at::Tensor& grad_y, const at::Tensor& x, std::string approximate) {
  const char* op = "gelu_backward";
  const auto arguments = jetops::check_gelu(op, x, approximate);
  jetops::check_gradient(op, grad_y, x);
  const c10::cuda::CUDAGuard guard(x.device());
  at::Tensor grad_x = at::empty(x.sizes(), x.options());
  const cudaError_t error =
      jetops_gelu_backward_cuda(grad_y.data_ptr(), x.data_ptr(), grad_x.data_ptr(), x.numel(),
                                arguments.dtype, arguments.form, current_stream());
  check_launch(op, error, x.device());
  return grad_x;
}

at::Tensor bias_gelu_dropout(const at::Tensor& x, const at::Tensor& bias, const at::Tensor& seed,
                             double p, std::string approximate) {
  const char* op = "bias_gelu_dropout";
  const auto a = jetops::check_bias_gelu_dropout(op, x, bias, seed, p, approximate);
  const c10::cuda::CUDAGuard guard(x.device());
  at::Tensor y = at::empty(x.sizes(), x.options());
  const cudaError_t error = jetops_bias_gelu_dropout_cuda(
      x.data_ptr(), bias.data_ptr(), y.data_ptr(), a.rows, a.columns, a.dtype, a.form, p,
      seed.data_ptr<int64_t>(), current_stream());
  check_launch(op, error, x.device());
  return y;
}

std::tuple<at::Tensor, at::Tensor> bias_gelu_dropout_backward(
    const at::Tensor& grad_y, const at::Tensor& x, const at::Tensor& bias, const at::Tensor& seed,
    double p, std::string approximate) {
  const char* op = "bias_gelu_dropout_backward";
  const auto a = jetops::check_bias_gelu_dropout(op, x, bias, seed, p, approximate);
  jetops::check_gradient(op, grad_y, x);
  const c10::cuda::CUDAGuard guard(x.device());
  at::Tensor grad_x = at::empty(x.sizes(), x.options());
  at::Tensor grad_bias = at::empty(bias.sizes(), bias.options());
  int64_t bytes = 0;
  cudaError_t error = jetops_bias_gelu_dropout_workspace_bytes(a.rows, a.columns, &bytes);
  check_launch(op, error, x.device());
  const at::Tensor workspace = at::empty({bytes}, bias.options().dtype(at::kByte));
  error = jetops_bias_gelu_dropout_backward_cuda(
      grad_y.data_ptr(), x.data_ptr(), bias.data_ptr(), grad_x.data_ptr(), grad_bias.data_ptr(),
      a.rows, a.columns, a.dtype, a.form, p, seed.data_ptr<int64_t>(), workspace.data_ptr(),
      current_stream());
  check_launch(op, error, x.device());
  return std::make_tuple(grad_x, grad_bias);
}

// The caller holds the device guard.
void run_nms(const char* op, const at::Tensor& boxes, const at::Tensor& scores,
             const at::Tensor& attn_map, int dtype, double iou_threshold, const at::Tensor& keep,
             float* weighted) {
  const int64_t n = boxes.size(0);
  if (n == 0) return;
  const at::Tensor workspace = at::empty({jetops_fused_attn_nms_workspace_bytes(n)},
                                         boxes.options().dtype(at::kByte));
  const cudaError_t error = jetops_fused_attn_nms_cuda(
      boxes.data_ptr<float>(), scores.data_ptr(), attn_map.data_ptr(), n, dtype,
      static_cast<float>(iou_threshold), reinterpret_cast<uint8_t*>(keep.data_ptr<bool>()),
      weighted, workspace.data_ptr(), current_stream());
  check_launch(op, error, boxes.device());
}

// A CPU boxes tensor next to CUDA tensors is dispatched here as well.
int check_nms(const char* op, const at::Tensor& boxes, const at::Tensor& scores,
              const at::Tensor& attn_map, double iou_threshold) {
  const int dtype = jetops::check_nms(op, boxes, scores, attn_map, iou_threshold);
  TORCH_CHECK(boxes.is_cuda(), "jetops::", op, ": boxes must be a CUDA tensor here, got ",
              boxes.device(), ".");
  return dtype;
}

at::Tensor fused_attn_nms(const at::Tensor& boxes, const at::Tensor& scores,
                          const at::Tensor& attn_map, double iou_threshold) {
  const char* op = "fused_attn_nms";
  const int dtype = check_nms(op, boxes, scores, attn_map, iou_threshold);
  const c10::cuda::CUDAGuard guard(boxes.device());
  at::Tensor keep = at::empty(scores.sizes(), scores.options().dtype(at::kBool));
  run_nms(op, boxes, scores, attn_map, dtype, iou_threshold, keep, nullptr);
  return keep;
}

std::tuple<at::Tensor, at::Tensor> fused_attn_nms_scored(const at::Tensor& boxes,
                                                         const at::Tensor& scores,
                                                         const at::Tensor& attn_map,
                                                         double iou_threshold) {
  const char* op = "fused_attn_nms_scored";
  const int dtype = check_nms(op, boxes, scores, attn_map, iou_threshold);
  const c10::cuda::CUDAGuard guard(boxes.device());
  at::Tensor keep = at::empty(scores.sizes(), scores.options().dtype(at::kBool));
  at::Tensor weighted = at::empty(scores.sizes(), boxes.options());
  run_nms(op, boxes, scores, attn_map, dtype, iou_threshold, keep, weighted.data_ptr<float>());
  return std::make_tuple(keep, weighted);
}

}  // namespace

JETOPS_LIBRARY_IMPL(JETOPS_NAMESPACE, CUDA, m) { JETOPS_OPERATORS(JETOPS_IMPLEMENT, m) }
