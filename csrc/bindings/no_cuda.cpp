// Stands in for cuda.cpp in a CPU-only build, so that a CUDA tensor meets a sentence about the build
// and not the dispatcher's list of backends.
#include <ATen/core/dispatch/Dispatcher.h>

#include "names.h"

namespace {

void refuse(const c10::OperatorHandle& op, torch::jit::Stack*) {
  TORCH_CHECK(false, op.schema().name(),
              ": this build of jetops has no CUDA code, but a CUDA tensor came in; build it again "
              "with FORCE_CUDA=1 and a CUDA toolkit, or move the tensors to the CPU.");
}

}  // namespace

#define JETOPS_REFUSE(m, op) m.impl(#op, torch::CppFunction::makeFromBoxedFunction<&refuse>());

JETOPS_LIBRARY_IMPL(JETOPS_NAMESPACE, CUDA, m) { JETOPS_OPERATORS(JETOPS_REFUSE, m) }
