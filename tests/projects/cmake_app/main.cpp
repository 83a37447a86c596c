#include <ATen/ATen.h>

#include <iostream>

extern "C" int scale(float* data, float factor, long long count, void* stream);

int main() {
  const at::Tensor rows = at::arange(6, at::kFloat).reshape({2, 3});
  TORCH_CHECK(rows.dim() == 2, "a matrix, and not ", rows.sizes());
  std::cout << "product " << rows.matmul(rows.t()).flatten() << "\n";
  std::cout << "device code is linked: " << scale(nullptr, 2.0F, 0, nullptr) << "\n";
}
