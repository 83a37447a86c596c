// Where fused_attn_nms spends its time: the same kernel, compiled with notes of the GPU's clock.
//
//     nvcc -O3 -std=c++17 -arch=native -I csrc/kernels csrc/tools/nms_phases.cu -o nms_phases
//     ./nms_phases 500 2000 8000
//
// For each number of boxes and each scene: microseconds of a replay in a graph, nanoseconds of each
// phase as block 0 sees it (medians; the clock, %globaltimer, may tick as coarsely as a
// microsecond), the turns of the last phase, and how many boxes are kept. The result is compared
// with that of the sequential loop on the host; a difference ends the program with 1.
#define JETOPS_NMS_PROFILE
#include "fused_attn_nms.cu"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>
#include <string>
#include <vector>

namespace {

constexpr int kRuns = 100;
constexpr int kCallsInAGraph = 20;
constexpr double kEnoughMs = 100;
constexpr int kTimes = 6;
constexpr float kThreshold = 0.5f;

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

template <class T>
std::vector<T> on_host(const T* memory, size_t count) {
  std::vector<T> values(count);
  check(cudaMemcpy(values.data(), memory, count * sizeof(T), cudaMemcpyDeviceToHost));
  return values;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct Scene {
  std::string name;
  std::vector<float> boxes, scores;
};

Scene objects(int n, int boxes_an_object) {
  std::mt19937 random(n);
  std::uniform_real_distribution<float> uniform(0.0f, 1.0f);
  std::normal_distribution<float> normal(0.0f, 20.0f);
  const int count = std::max(1, n / boxes_an_object);
  std::vector<float> x(count), y(count);
  for (int i = 0; i < count; ++i) x[i] = uniform(random) * 1920, y[i] = uniform(random) * 1920;
  Scene scene{std::to_string(boxes_an_object) + " boxes an object", {}, {}};
  for (int i = 0; i < n; ++i) {
    const int home = (int)(random() % count);
    const float left = x[home] + (boxes_an_object > 1 ? normal(random) : 0.0f);
    const float top = y[home] + (boxes_an_object > 1 ? normal(random) : 0.0f);
    scene.boxes.insert(scene.boxes.end(), {left, top, left + 120, top + 120});
    scene.scores.push_back(uniform(random));
  }
  return scene;
}

// Each box overlaps the one before and the one after, and ranks below the one before.
Scene chain(int n, bool scrambled) {
  std::vector<int> place(n);
  std::iota(place.begin(), place.end(), 0);
  if (scrambled) std::shuffle(place.begin(), place.end(), std::mt19937(n));
  Scene scene{scrambled ? "chain, scrambled" : "chain", std::vector<float>(4 * (size_t)n),
              std::vector<float>(n)};
  for (int i = 0; i < n; ++i) {
    const float box[4] = {3.0f * i, 0, 3.0f * i + 10, 10};
    std::copy(box, box + 4, &scene.boxes[4 * (size_t)place[i]]);
    scene.scores[place[i]] = 1.0f - (float)i / (2 * n);
  }
  return scene;
}

std::vector<uint8_t> sequential(const Scene& scene, const std::vector<float>& weighted) {
  const int n = (int)weighted.size();
  std::vector<uint64_t> keys(n);
  std::vector<jetops::Box> boxes(n);
  for (int i = 0; i < n; ++i) {
    uint32_t bits;
    memcpy(&bits, &weighted[i], sizeof bits);
    keys[i] = jetops::sort_key(weighted[i], bits, i);
    const float* b = &scene.boxes[4 * (size_t)i];
    boxes[i] = jetops::make_box(b[0], b[1], b[2], b[3]);
  }
  std::sort(keys.begin(), keys.end());
  std::vector<uint8_t> keep(n, 0);
  std::vector<int> kept;
  const jetops::Threshold threshold = jetops::make_threshold(kThreshold);
  for (uint64_t key : keys) {
    if (jetops::key_is_nan(key)) continue;
    const int i = (int)jetops::key_index(key);
    const bool lost = std::any_of(kept.begin(), kept.end(), [&](int k) {
      return jetops::iou_exceeds(boxes[k], boxes[i], threshold);
    });
    if (!lost) kept.push_back(i), keep[i] = 1;
  }
  return keep;
}

template <class Call>
double replay_us(const Call& call) {
  cudaStream_t stream;
  cudaGraph_t graph;
  cudaGraphExec_t replay;
  cudaEvent_t start, stop;
  check(cudaStreamCreate(&stream));
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  for (int i = 0; i < kCallsInAGraph; ++i) call(stream);
  check(cudaStreamEndCapture(stream, &graph));
  check(cudaGraphInstantiate(&replay, graph, 0));
  check(cudaEventCreate(&start));
  check(cudaEventCreate(&stop));
  std::vector<double> times;
  double spent_ms = 0;
  for (int run = 0; run < kRuns && spent_ms < kEnoughMs; ++run) {
    float ms = 0;
    check(cudaEventRecord(start, stream));
    check(cudaGraphLaunch(replay, stream));
    check(cudaEventRecord(stop, stream));
    check(cudaEventSynchronize(stop));
    check(cudaEventElapsedTime(&ms, start, stop));
    times.push_back(ms * 1e3 / kCallsInAGraph);
    spent_ms += ms;
  }
  check(cudaGraphExecDestroy(replay));
  check(cudaGraphDestroy(graph));
  check(cudaStreamDestroy(stream));
  return median(times);
}

bool measure(const Scene& scene) {
  const int n = (int)scene.scores.size();
  float* boxes = on_device(scene.boxes);
  float* scores = on_device(scene.scores);
  float* attention = on_device(std::vector<float>((size_t)n * n, 1.0f / n));
  float* weighted = on_device(std::vector<float>(n));
  uint8_t* keep = on_device(std::vector<uint8_t>(n));
  char* workspace = on_device(std::vector<char>(jetops_fused_attn_nms_workspace_bytes(n)));
  jetops_nms_times = on_device(std::vector<unsigned long long>(kTimes));
  const auto call = [&](cudaStream_t stream) {
    check(jetops_fused_attn_nms_cuda(boxes, scores, attention, n, JETOPS_FLOAT32, kThreshold, keep,
                                     weighted, workspace, stream));
  };

  const double us = replay_us(call);
  std::vector<double> parts[kTimes - 1];
  std::vector<uint8_t> expected;
  bool exact = true;
  for (int run = 0; run < kRuns && run * us < kEnoughMs * 1e3; ++run) {
    call(0);
    check(cudaDeviceSynchronize());
    const auto times = on_host(jetops_nms_times, kTimes);
    for (int i = 1; i < 5; ++i) parts[i - 1].push_back((double)(times[i] - times[i - 1]));
    parts[4].push_back((double)times[5]);
    if (run == 0) expected = sequential(scene, on_host(weighted, n));
    exact = exact && on_host(keep, n) == expected;
  }
  const int kept = (int)std::count(expected.begin(), expected.end(), 1);
  std::printf("n %5d, %-19s: %7.1f us;", n, scene.name.c_str(), us);
  const char* names[kTimes - 1] = {"weigh and compare", "wait", "strike", "decide", "turns"};
  for (int i = 0; i < kTimes - 1; ++i) std::printf(" %s %.0f,", names[i], median(parts[i]));
  std::printf(" kept %d%s\n", kept, exact ? "" : " -- NOT that of the sequential loop");
  cudaFree(boxes), cudaFree(scores), cudaFree(attention), cudaFree(weighted), cudaFree(keep);
  cudaFree(workspace), cudaFree(jetops_nms_times);
  return exact;
}

}  // namespace

int main(int argc, char** argv) {
  bool exact = true;
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  for (int k = 1; k < std::max(argc, 2); ++k) {
    const int n = argc > 1 ? std::atoi(argv[k]) : 2000;
    for (int boxes_an_object : {20, 100, 1}) exact &= measure(objects(n, boxes_an_object));
    for (bool scrambled : {false, true}) exact &= measure(chain(n, scrambled));
  }
  return exact ? 0 : 1;
}
