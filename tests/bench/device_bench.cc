#include "tests/bench/device_bench.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <utility>

#include "absl/flags/flag.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/base/program.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/open_emulated_device.h"

ABSL_FLAG(std::string, device, "cuda",
          "device to measure: cuda, or emulated (tiny shapes, whose figures mean nothing)");
ABSL_FLAG(std::vector<std::string>, only, {},
          "parts to run, separated by commas: copies, gemms, attention, steps, handover, "
          "attention-variants, samples, gemm-algorithms; default: all");
ABSL_FLAG(std::string, filter, "",
          "text in the names of the figures to measure; default: all figures");
ABSL_FLAG(bool, gemms, true,
          "measures figures that need dense GEMMs; --no-gemms is for machines without cuBLASLt");
ABSL_FLAG(std::string, json, "", "file to append one line of JSON per figure to; default: none");
ABSL_FLAG(bool, handover_owner, false, "internal: runs the other process of the part handover");

namespace baton {
namespace {

// Exit statuses. The program also exits with kSkipped if there is no device.
constexpr int kSkipped = 77, kBelowTarget = 3;
constexpr size_t kEmulatedBytes = size_t{256} << 20;

double Seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

OpenedDevice Open(bool emulated) {
  auto device = emulated ? OpenEmulatedDevice(kEmulatedBytes) : OpenCudaDevice(0);
  if (!device.ok()) {
    std::fprintf(stderr, "device_bench: %s\n", device.status().ToString().c_str());
    std::exit(absl::IsFailedPrecondition(device.status()) ? kSkipped : 1);
  }
  return *std::move(device);
}

}  // namespace

DeviceBench::DeviceBench(const Options& options, BenchFigures* figures)
    : options_(options), figures_(figures), device_(Open(options.emulated)) {
  auto stream = runtime().CreateStream();
  Check(stream.status(), "CreateStream");
  stream_ = *std::move(stream);
}

DeviceBench::~DeviceBench() {
  graphs_.clear();
  FreeAll();
}

bool DeviceBench::Wants(absl::string_view figure) const {
  return absl::StrContains(figure, options_.filter);
}

absl::Status DeviceBench::gemms() {
  if (!options_.gemms) return absl::FailedPreconditionError("--gemms=false");
  return runtime().GemmStatus();
}

void DeviceBench::Check(const absl::Status& status, const char* what) {
  if (status.ok()) return;
  std::fprintf(stderr, "device_bench: %s: %s\n", what, status.ToString().c_str());
  std::exit(1);
}

std::unique_ptr<Backend> DeviceBench::CreateBackend(DeviceRuntime* runtime) {
  auto backend = CreateCudaBackend({.runtime = runtime,
                                    .kernels = device_.kernels,
                                    .name = device_.name,
                                    .gemms = gemms().ok()});
  Check(backend.status(), "CreateCudaBackend");
  return *std::move(backend);
}

std::byte* DeviceBench::Memory(size_t bytes) {
  auto memory = runtime().Allocate(bytes);
  Check(memory.status(), "Allocate");
  memory_.push_back(*memory);
  return *memory;
}

std::byte* DeviceBench::UploadBytes(const void* values, size_t bytes) {
  std::byte* const memory = Memory(bytes);
  Check(runtime().Copy(memory, values, bytes, *stream_), "Copy");
  Check(runtime().Synchronize(*stream_), "Synchronize");
  return memory;
}

std::byte* DeviceBench::Random(size_t bytes) {
  std::byte* const memory = Memory(bytes);
  // Fills the first part of the memory with random numbers, then copies them until the memory is
  // full.
  std::vector<uint16_t> some(std::min<size_t>(bytes / 2, tiny() ? 1 << 14 : 1 << 24));
  std::mt19937 random(static_cast<uint32_t>(memory_.size()));
  std::normal_distribution<float> normal(0, 0.05f);
  for (uint16_t& value : some) {
    const float number = normal(random);
    uint32_t bits;
    std::memcpy(&bits, &number, sizeof(bits));
    value = static_cast<uint16_t>(bits >> 16);
  }
  size_t filled = some.size() * 2;
  Check(runtime().Copy(memory, some.data(), filled, *stream_), "Copy");
  while (filled < bytes) {
    const size_t more = std::min(filled, bytes - filled);
    Check(runtime().Copy(memory + filled, memory, more, *stream_), "Copy");
    filled += more;
  }
  Check(runtime().Synchronize(*stream_), "Synchronize");
  return memory;
}

void DeviceBench::FreeAll() {
  for (std::byte* memory : memory_) runtime().Free(memory);
  memory_.clear();
}

DeviceBench::Timed DeviceBench::OnStream(std::function<absl::Status()> enqueue) {
  return {std::move(enqueue), [this] { return runtime().Synchronize(*stream_); }};
}

DeviceBench::Timed DeviceBench::InGraph(const std::function<absl::Status(int)>& work, int works) {
  const auto all = [&] {
    for (int i = 0; i < works; ++i) Check(work(i), "the work");
  };
  all();
  Check(runtime().Synchronize(*stream_), "Synchronize");
  Check(runtime().BeginCapture(*stream_), "BeginCapture");
  all();
  auto captured = runtime().EndCapture(*stream_);
  Check(captured.status(), "EndCapture");
  graphs_.push_back(*std::move(captured));
  Timed timed =
      OnStream([this, graph = graphs_.back().get()] { return runtime().Replay(*graph, *stream_); });
  timed.works = works;
  return timed;
}

std::vector<DeviceBench::Times> DeviceBench::Rounds(const std::vector<Timed>& timed) {
  const int rounds = tiny() ? 1 : 5;
  const double shortest = tiny() ? 0 : 0.02;  // Min duration of a measurement, in seconds.
  const auto run = [](const Timed& t, int times) {
    const double start = Seconds();
    for (int i = 0; i < times; ++i) Check(t.enqueue(), "the work");
    Check(t.wait(), "waiting for the work");
    return (Seconds() - start) / times;
  };
  std::vector<int> times;
  for (const Timed& t : timed) {
    run(t, 1);
    times.push_back(static_cast<int>(std::clamp(shortest / run(t, 1), 1.0, 500.0)));
  }
  std::vector<std::vector<double>> seconds(timed.size());
  for (int round = 0; round < rounds; ++round) {
    for (size_t i = 0; i < timed.size(); ++i) {
      seconds[i].push_back(run(timed[i], times[i]) / timed[i].works);
    }
  }
  std::vector<Times> result;
  for (std::vector<double>& all : seconds) {
    std::sort(all.begin(), all.end());
    result.push_back({all[all.size() / 2], all.front(), all.back()});
  }
  return result;
}

DeviceBench::Copy DeviceBench::CopyYardstick() {
  const size_t bytes = tiny() ? 1 << 20 : size_t{1} << 30;
  std::byte *const from = Random(bytes), *const to = Random(bytes);
  return {InGraph([=, this](int) { return runtime().Copy(to, from, bytes, *stream_); }),
          2.0 * bytes};
}

DeviceBench::Gemm DeviceBench::GemmYardstick() {
  const int n = tiny() ? 64 : 8192;
  const size_t bytes = size_t{2} * n * n;
  const DenseGemm gemm = {.in = Random(bytes),
                          .in_stride = n,
                          .weight = Random(bytes),
                          .out = Random(bytes),
                          .out_stride = n,
                          .rows = n,
                          .n = n,
                          .k = n};
  return {InGraph([=, this](int) { return runtime().Gemm(gemm, *stream_); }), 2.0 * n * n * n};
}

BenchFigures::Figure RateFigure(std::string name, double bytes, const DeviceBench::Times& times) {
  return {std::move(name), "GB/s", bytes / times.median / 1e9, bytes / times.max / 1e9,
          bytes / times.min / 1e9};
}

BenchFigures::Figure MicrosecondsFigure(std::string name, const DeviceBench::Times& times) {
  return {std::move(name), "us", times.median * 1e6, times.min * 1e6, times.max * 1e6};
}

namespace {

int Main() {
  const std::string kind = absl::GetFlag(FLAGS_device);
  if (kind != "cuda" && kind != "emulated") {
    RefuseToStart(absl::StrCat("--device is '", kind, "'; it takes cuda or emulated"));
  }
  const bool emulated = kind == "emulated";
  if (absl::GetFlag(FLAGS_handover_owner)) return RunHandoverOwner(emulated);
  struct Part {
    std::string name;
    void (*run)(DeviceBench&);
    bool multiplies;  // True if the part measures nothing without GEMMs.
  };
  const std::vector<Part> parts = {
      {"copies", BenchCopies, false},       {"gemms", BenchGemms, true},
      {"attention", BenchAttention, false}, {"steps", BenchSteps, true},
      {"handover", BenchHandover, false},   {"attention-variants", BenchAttentionVariants, false},
      {"samples", BenchSamples, false},     {"gemm-algorithms", BenchGemmAlgorithms, true}};
  const std::vector<std::string> only = absl::GetFlag(FLAGS_only);
  for (const std::string& name : only) {
    if (std::none_of(parts.begin(), parts.end(), [&](const Part& p) { return p.name == name; })) {
      RefuseToStart(absl::StrCat("--only: there is no part '", name, "'"));
    }
  }
  BenchFigures figures(absl::GetFlag(FLAGS_json), emulated);
  const DeviceBench::Options options = {.emulated = emulated,
                                        .gemms = absl::GetFlag(FLAGS_gemms),
                                        .filter = absl::GetFlag(FLAGS_filter)};
  bool skipped = false;
  for (const Part& part : parts) {
    if (!only.empty() && std::find(only.begin(), only.end(), part.name) == only.end()) continue;
    DeviceBench bench(options, &figures);
    if (const absl::Status gemms = bench.gemms(); part.multiplies && !gemms.ok()) {
      figures.Skip(part.name, gemms.message());
      skipped = true;
    } else {
      part.run(bench);
    }
  }
  if (figures.count() == 0) {
    if (skipped) return kSkipped;
    RefuseToStart(
        absl::StrCat("--filter: no figure of these parts has '", options.filter, "' in its name"));
  }
  // The last line sums up the results, because the table of tests/gpu/run shows only this line.
  if (!figures.missed().empty()) {
    std::printf("below target: %s\n", absl::StrJoin(figures.missed(), ", ").c_str());
    return kBelowTarget;
  }
  std::printf("%d measured, %s\n", figures.count(),
              emulated ? "without a device: they mean nothing" : "none below its target");
  return 0;
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) {
  const auto extra = baton::StartProgram(
      argc, argv,
      "device_bench: measures kernels, steps and hand-overs of a GPU, and compares them with the\n"
      "GPU's own copies and GEMMs.\n"
      "  device_bench --only=gemms,steps --json=figures.jsonl\n"
      "Exit status: 3 if a figure is below its target, 77 if there is no device or if nothing can\n"
      "be measured without dense GEMMs.");
  if (!extra.empty()) baton::RefuseToStart(absl::StrCat("'", extra.front(), "' is not expected"));
  return baton::Main();
}
