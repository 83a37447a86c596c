// Work shared among torch's own threads.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/TensorIterator.h>

namespace jetops {

// Calls work(first, end) for ranges that together are the elements of `out`, which is contiguous, at
// least `grain` at a time if there are that many. at::parallel_for would need OpenMP in this library,
// and so the target's libgomp beside torch's; TensorIterator has it compiled in.
template <class Work>
void in_ranges(at::Tensor out, int64_t grain, const Work& work) {
  const int64_t count = out.numel();
  if (count <= grain || at::get_num_threads() == 1) {
    if (count > 0) work(0, count);
    return;
  }
  at::TensorIterator elements = at::TensorIterator::nullary_op(out);
  const char* base = static_cast<const char*>(out.data_ptr());
  const int64_t size = out.element_size();
  const auto loop = [&](char** data, const int64_t*, int64_t length) {
    const int64_t first = (data[0] - base) / size;
    work(first, first + length);
  };
  elements.for_each(loop, grain);
}

}  // namespace jetops
