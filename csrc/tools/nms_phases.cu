// Where fused_attn_nms spends its time: the same kernel, compiled with notes of the GPU's clock.
//
//     nvcc -O3 -std=c++14 -arch=native -I csrc/kernels csrc/tools/nms_phases.cu -o nms_phases
//     ./nms_phases 2000
//
// Prints the median nanoseconds of each phase, as block 0 sees it, and of the scan. The clock,
// %globaltimer, may tick as coarsely as a microsecond.
#define JETOPS_NMS_PROFILE
#include "fused_attn_nms.cu"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

namespace {

constexpr int kRuns = 200;
constexpr int kTimes = 6;

void check(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s\n", cudaGetErrorString(error));
  std::exit(1);
}

template <class T>
T* on_device(const std::vector<T>& values) {
  T* memory = nullptr;
  check(cudaMalloc(&memory, values.size() * sizeof(T)));
  check(cudaMemcpy(memory, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
  return memory;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void measure(int n, int boxes_an_object) {
  std::mt19937 random(n);
  std::uniform_real_distribution<float> uniform(0.0f, 1.0f);
  std::normal_distribution<float> normal(0.0f, boxes_an_object > 1 ? 20.0f : 0.0f);
  std::vector<float> boxes(4 * n), scores(n), attention((size_t)n * n, 1.0f / n);
  const int objects = std::max(1, n / boxes_an_object);
  std::vector<float> x(objects), y(objects);
  for (int i = 0; i < objects; ++i) x[i] = uniform(random) * 1920, y[i] = uniform(random) * 1920;
  for (int i = 0; i < n; ++i) {
    const int home = (int)(random() % objects);
    boxes[4 * i] = x[home] + normal(random);
    boxes[4 * i + 1] = y[home] + normal(random);
    boxes[4 * i + 2] = boxes[4 * i] + 120;
    boxes[4 * i + 3] = boxes[4 * i + 1] + 120;
    scores[i] = uniform(random);
  }
  float* d_boxes = on_device(boxes);
  float* d_scores = on_device(scores);
  float* d_attention = on_device(attention);
  uint8_t* keep = on_device(std::vector<uint8_t>(n));
  char* workspace = on_device(std::vector<char>(jetops_fused_attn_nms_workspace_bytes(n)));
  jetops_nms_times = on_device(std::vector<unsigned long long>(kTimes));

  std::vector<double> parts[kTimes - 1];
  for (int run = 0; run < kRuns; ++run) {
    check(jetops_fused_attn_nms_cuda(d_boxes, d_scores, d_attention, n, JETOPS_FLOAT32, 0.5f, keep,
                                     nullptr, workspace, 0));
    unsigned long long times[kTimes];
    check(cudaMemcpy(times, jetops_nms_times, sizeof times, cudaMemcpyDeviceToHost));
    for (int i = 1; i < kTimes; ++i) parts[i - 1].push_back((double)(times[i] - times[i - 1]));
  }
  std::printf("n %5d, %3d boxes an object:", n, boxes_an_object);
  const char* names[kTimes - 1] = {"weigh", "wait", "rank and wait", "compare and wait", "scan"};
  for (int i = 0; i < kTimes - 1; ++i) std::printf(" %s %.0f", names[i], median(parts[i]));
  std::printf("\n");
  cudaFree(d_boxes), cudaFree(d_scores), cudaFree(d_attention), cudaFree(keep);
  cudaFree(workspace), cudaFree(jetops_nms_times);
}

}  // namespace

int main(int argc, char** argv) {
  const int n = argc > 1 ? std::atoi(argv[1]) : 2000;
  for (int boxes_an_object : {20, 100, 1}) measure(n, boxes_an_object);
  return 0;
}
