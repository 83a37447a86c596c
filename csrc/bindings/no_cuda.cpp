// Stands in for cuda.cpp in a CPU-only build, so that a CUDA tensor meets a sentence about the build
// and not the dispatcher's list of backends.
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

namespace {

void refuse(const c10::OperatorHandle& op, torch::jit::Stack*) {
  TORCH_CHECK(false, op.schema().name(),
              ": this build of jetops has no CUDA code, but a CUDA tensor came in; build it again "
              "with FORCE_CUDA=1 and a CUDA toolkit, or move the tensors to the CPU.");
}

}  // namespace

TORCH_LIBRARY_IMPL(jetops, CUDA, m) {
  m.impl("gelu", torch::CppFunction::makeFromBoxedFunction<&refuse>());
  m.impl("fused_attn_nms", torch::CppFunction::makeFromBoxedFunction<&refuse>());
  m.impl("fused_attn_nms_scored", torch::CppFunction::makeFromBoxedFunction<&refuse>());
}
