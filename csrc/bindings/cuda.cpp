// The operators on CUDA tensors. Only c10's CUDA headers are used: ATen/cuda/CUDAContext.h would ask
// for the headers of cuBLAS, cuSPARSE and cuSOLVER, which a cross-building machine need not have.
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>

#include <tuple>

#include "checks.h"
#include "jetops_kernels.h"

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

at::Tensor gelu(const at::Tensor& x, std::string approximate) {
  const int dtype = jetops::gelu_dtype(x);
  const int form = jetops::gelu_form(approximate);
  jetops::check_contiguous("gelu", "x", x);
  const c10::cuda::CUDAGuard guard(x.device());
  at::Tensor y = at::empty(x.sizes(), x.options());
  const cudaError_t error = jetops_gelu_cuda(x.data_ptr(), y.data_ptr(), x.numel(), dtype, form,
                                             c10::cuda::getCurrentCUDAStream().stream());
  check_launch("gelu", error, x.device());
  return y;
}

// The caller holds the device guard.
void run_nms(const char* op, const at::Tensor& boxes, const at::Tensor& scores,
             const at::Tensor& attn_map, double iou_threshold, const at::Tensor& keep,
             float* weighted) {
  const int64_t n = boxes.size(0);
  if (n == 0) return;
  const at::Tensor workspace = at::empty({jetops_fused_attn_nms_workspace_bytes(n)},
                                         boxes.options().dtype(at::kByte));
  const cudaError_t error = jetops_fused_attn_nms_cuda(
      boxes.data_ptr<float>(), scores.data_ptr<float>(), attn_map.data_ptr<float>(), n,
      static_cast<float>(iou_threshold), reinterpret_cast<uint8_t*>(keep.data_ptr<bool>()),
      weighted, workspace.data_ptr(), c10::cuda::getCurrentCUDAStream().stream());
  check_launch(op, error, boxes.device());
}

// A CPU boxes tensor next to CUDA tensors is dispatched here as well.
void check_nms(const char* op, const at::Tensor& boxes, const at::Tensor& scores,
               const at::Tensor& attn_map, double iou_threshold) {
  jetops::check_nms(op, boxes, scores, attn_map, iou_threshold);
  TORCH_CHECK(boxes.is_cuda(), "jetops::", op, ": boxes must be a CUDA tensor here, got ",
              boxes.device(), ".");
}

at::Tensor fused_attn_nms(const at::Tensor& boxes, const at::Tensor& scores,
                          const at::Tensor& attn_map, double iou_threshold) {
  const char* op = "fused_attn_nms";
  check_nms(op, boxes, scores, attn_map, iou_threshold);
  const c10::cuda::CUDAGuard guard(boxes.device());
  at::Tensor keep = at::empty(scores.sizes(), scores.options().dtype(at::kBool));
  run_nms(op, boxes, scores, attn_map, iou_threshold, keep, nullptr);
  return keep;
}

std::tuple<at::Tensor, at::Tensor> fused_attn_nms_scored(const at::Tensor& boxes,
                                                         const at::Tensor& scores,
                                                         const at::Tensor& attn_map,
                                                         double iou_threshold) {
  const char* op = "fused_attn_nms_scored";
  check_nms(op, boxes, scores, attn_map, iou_threshold);
  const c10::cuda::CUDAGuard guard(boxes.device());
  at::Tensor keep = at::empty(scores.sizes(), scores.options().dtype(at::kBool));
  at::Tensor weighted = at::empty(scores.sizes(), scores.options());
  run_nms(op, boxes, scores, attn_map, iou_threshold, keep, weighted.data_ptr<float>());
  return std::make_tuple(keep, weighted);
}

}  // namespace

TORCH_LIBRARY_IMPL(jetops, CUDA, m) {
  m.impl("gelu", TORCH_FN(gelu));
  m.impl("fused_attn_nms", TORCH_FN(fused_attn_nms));
  m.impl("fused_attn_nms_scored", TORCH_FN(fused_attn_nms_scored));
}
