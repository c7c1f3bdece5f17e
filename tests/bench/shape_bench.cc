// Measures a worker's engine on a model, or on a shape with random weights. Compares the engine
// with the rates at which this machine reads memory and multiplies (measured here, too) and, if
// asked, with the whole service and with llama.cpp on the same model. All measurements are repeated
// in rounds, so that they see the machine in the same state.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/base/check.h"
#include "common/base/json.h"
#include "common/base/program.h"
#include "common/engine/engine.h"
#include "common/model/model_folder.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/bench/random_checkpoint.h"
#include "tests/bench/timed_backend.h"
#include "tests/bench/yardsticks.h"
#include "tests/cluster/cluster.h"

ABSL_FLAG(std::string, shape, "100m",
          "shape to measure: 100m, 1b or 8b (tests/bench/shapes), or a folder with a config.json");
ABSL_FLAG(std::string, model, "",
          "folder or GGUF file whose weights are measured, in place of a shape with random ones");
ABSL_FLAG(std::string, write, "",
          "folder to write config.json and model.safetensors to, for make_gguf.py; nothing is "
          "measured then");
ABSL_FLAG(std::string, numerics, "auto",
          "order of sums in the cpu backend, with the same values as --numerics of a worker");
ABSL_FLAG(std::string, isa, "auto", "instructions: auto, avx2, avx512, amx or portable");
ABSL_FLAG(int, threads, 2, "threads of Baton, and of llama.cpp if it is measured too, 1 to 8000");
ABSL_FLAG(int, rounds, 3, "number of times that everything is measured, 1 to 8000");
ABSL_FLAG(int, prompt, 512, "tokens of the prompt that is prefilled, 1 to 8000");
ABSL_FLAG(int, generate, 24, "tokens to generate for each sequence, 1 to 8000");
ABSL_FLAG(int, depth, 16, "tokens of each sequence before those that are generated, 1 to 8000");
ABSL_FLAG(std::vector<std::string>, batches, {"8"},
          "numbers of sequences in a step that are measured beside 1, each 2 to 256");
ABSL_FLAG(int, context, 4096, "tokens before the token whose attention is measured, 1 to 8000");
ABSL_FLAG(bool, operations, false, "measure each kind of operation of a step of 1, too");
ABSL_FLAG(
    std::string, llama, "",
    "folder with llama-bench and llama-batched-bench, to measure llama.cpp too; needs --gguf");
ABSL_FLAG(
    std::string, gguf, "",
    "file with the same model for llama.cpp: --model, or made by make_gguf.py; needs --llama");
ABSL_FLAG(std::string, programs, "",
          "folder with the programs of Baton, to measure the whole service too; needs --model");

namespace baton {
namespace {

constexpr uint64_t kSeed = 1;
constexpr int kBlockTokens = 16;

// Tokens of each stream of the service. More than --generate, because streams begin one by one.
int StreamTokens() { return 4 * absl::GetFlag(FLAGS_generate); }

double Seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

template <class T>
T OrRefuse(absl::StatusOr<T> result) {
  if (!result.ok()) RefuseToStart(result.status().message());
  return *std::move(result);
}

CpuBackendOptions::Isa IsaFlag() {
  using Isa = CpuBackendOptions::Isa;
  const std::string name = absl::GetFlag(FLAGS_isa);
  for (const auto& [known, isa] : {std::pair("auto", Isa::kAuto), std::pair("avx2", Isa::kAvx2),
                                   std::pair("avx512", Isa::kAvx512), std::pair("amx", Isa::kAmx),
                                   std::pair("portable", Isa::kPortable)}) {
    if (name == known) return isa;
  }
  RefuseToStart(
      absl::StrCat("--isa is '", name, "'; it takes auto, avx2, avx512, amx or portable"));
}

// A model in an engine. `batches` are the numbers of sequences that Decode() is called with.
class Measured {
 public:
  // If `timed` is true, also measures each operation of a step, which makes steps a little slower.
  Measured(const std::string& folder, const std::vector<int>& batches, bool timed) {
    const std::string path = absl::GetFlag(FLAGS_model);
    std::optional<ModelFolder> opened;
    WeightFormat format = WeightFormat::kBF16;
    if (!path.empty()) {
      opened = OrRefuse(ModelFolder::Open(path));
      format = opened->checkpoint->MatrixFormat();
    }
    const CpuNumerics numerics = OrRefuse(ParseCpuNumerics(absl::GetFlag(FLAGS_numerics), format));
    backend_ = OrRefuse(CreateCpuBackend(
        {.threads = absl::GetFlag(FLAGS_threads), .isa = IsaFlag(), .numerics = numerics}));
    if (timed) {
      auto timing = std::make_unique<TimedBackend>(std::move(backend_));
      timed_ = timing.get();
      backend_ = std::move(timing);
    }
    model_ = opened ? OrRefuse(Model::Load(*std::move(opened), backend_.get()))
                    : OrRefuse(Model::WithRandomWeights(OrRefuse(ReadModelConfig(folder)), kSeed,
                                                        backend_.get()));
    layout_ = model_->LayoutFor(kBlockTokens, model_->weight_type());
    const int context = model_->config().context;
    for (const auto& [flag, tokens] :
         {std::pair("prompt", absl::GetFlag(FLAGS_prompt)),
          std::pair("context", absl::GetFlag(FLAGS_context) + 16),
          std::pair("depth", absl::GetFlag(FLAGS_depth) + StreamTokens())}) {
      if (tokens <= context) continue;
      RefuseToStart(
          absl::StrCat("--", flag, " needs ", tokens, " tokens; the model has ", context));
    }
    const int batch = *std::max_element(batches.begin(), batches.end());
    const int depth = absl::GetFlag(FLAGS_depth), prompt = absl::GetFlag(FLAGS_prompt);
    const int tokens = std::max({prompt + 1, absl::GetFlag(FLAGS_context) + 16,
                                 batch * (depth + StreamTokens() + kBlockTokens)});
    pool_.resize((layout_.BlocksFor(tokens) + batch) * layout_.BlockBytes() / 2, 0x3c00);
    engine_ = OrRefuse(Engine::Create(model_.get(), backend_.get(),
                                      {reinterpret_cast<std::byte*>(pool_.data()), layout_},
                                      {std::max({prompt, depth, 2 * batch}), batch}));
    sampling_.max_tokens = 1 << 20;
  }

  std::string Describe() const {
    return absl::StrCat(backend_->Describe(), ", numerics ", backend_->numerics_id(), ", weights ",
                        model_->weight_bytes() >> 20, " MiB");
  }
  double weight_bytes() const { return static_cast<double>(model_->weight_bytes()); }

  // Returns the tokens per second of one prompt in one step.
  double Prefill() {
    const int tokens = absl::GetFlag(FLAGS_prompt);
    const double start = Seconds();
    Run({Some(0, tokens, 0)});
    return tokens / (Seconds() - start);
  }

  // Returns the seconds of a step that gives one token to each of `batch` sequences: the mean over
  // `steps` steps, up to StreamTokens().
  double Decode(int batch, int steps) {
    const int depth = absl::GetFlag(FLAGS_depth);
    for (int i = 0; i < batch; ++i) Run({Some(i, depth, 0)});
    if (timed_ != nullptr) timed_->Take();
    const double start = Seconds();
    for (int step = 0; step < steps; ++step) {
      std::vector<Part> parts;
      for (int i = 0; i < batch; ++i) parts.push_back(Some(i, 1, depth + step));
      Run(parts);
    }
    return (Seconds() - start) / steps;
  }

  // Prints how many microseconds each kind of operation takes in a step of 1.
  void PrintOperations(double read_rate) {
    const int steps = absl::GetFlag(FLAGS_generate);
    const double all = 1e6 * Decode(1, steps);
    const auto times = timed_->Take();
    double rest = all;
    std::printf("\na step of 1, us%20s%12s%12s%20s\n", "calls", "time", "share",
                "of the read rate");
    for (const auto& [name, time] : times) {
      const double us = 1e6 * time.seconds / steps;
      rest -= us;
      std::printf("%-20s%15.1f%12.1f%11.1f%%", name.c_str(),
                  static_cast<double>(time.calls) / steps, us, 100 * us / all);
      if (time.weight_bytes > 0)
        std::printf("%20.2f", time.weight_bytes / time.seconds / read_rate);
      std::printf("\n");
    }
    std::printf("%-35s%12.1f%11.1f%%\n", "rest", rest, 100 * rest / all);
  }

  // Returns the bytes of KV per second that attention reads for one token with a long context. Uses
  // the difference between the times of a step with and without that context.
  double Attention() {
    const int context = absl::GetFlag(FLAGS_context), steps = 8;
    const auto seconds = [&](int position) {
      const double start = Seconds();
      for (int step = 0; step < steps; ++step) Run({Some(0, 1, position + step)});
      return (Seconds() - start) / steps;
    };
    double longest = 1e9, shortest = 1e9;
    for (int i = 0; i < 3; ++i) {
      longest = std::min(longest, seconds(context));
      shortest = std::min(shortest, seconds(0));
    }
    return static_cast<double>(context) / kBlockTokens * layout_.BlockBytes() /
           (longest - shortest);
  }

 private:
  struct Part {
    std::vector<TokenId> tokens;
    std::vector<BlockId> blocks;
    int position;
  };
  // Returns `count` random tokens of sequence `i`, from `position` on, with the blocks for them.
  // Each sequence has its own range of blocks.
  Part Some(int i, int count, int position) {
    Part part{{}, {}, position};
    for (int t = 0; t < count; ++t) {
      part.tokens.push_back(static_cast<TokenId>(random_() % model_->config().vocab));
    }
    part.blocks.resize(layout_.BlocksFor(position + count));
    const int each = layout_.BlocksFor(absl::GetFlag(FLAGS_depth) + StreamTokens());
    std::iota(part.blocks.begin(), part.blocks.end(), i * each);
    return part;
  }
  void Run(const std::vector<Part>& parts) {
    StepPlan plan;
    for (const Part& part : parts) {
      plan.items.push_back({.tokens = part.tokens,
                            .first_position = part.position,
                            .blocks = part.blocks,
                            .sampling = &sampling_});
    }
    for (const auto& token : OrRefuse(engine_->Run(plan))) {
      BATON_CHECK(token.ok()) << token.status();
    }
  }

  std::unique_ptr<Backend> backend_;
  TimedBackend* timed_ = nullptr;
  std::unique_ptr<const Model> model_;
  KvLayout layout_;
  std::vector<uint16_t> pool_;
  std::unique_ptr<Engine> engine_;
  SamplingOptions sampling_;
  std::mt19937 random_;
};

// Returns every line of JSON that the command prints.
std::vector<nlohmann::json> JsonOf(const std::string& command) {
  FILE* pipe = popen(absl::StrCat(command, " 2>/dev/null").c_str(), "r");
  BATON_CHECK(pipe != nullptr) << command;
  std::string text;
  char buffer[4096];
  while (const size_t got = fread(buffer, 1, sizeof(buffer), pipe)) text.append(buffer, got);
  if (pclose(pipe) != 0) RefuseToStart(absl::StrCat("failed: ", command));
  std::vector<nlohmann::json> lines;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    auto parsed = nlohmann::json::parse(line.begin(), line.end(), nullptr, false);
    if (parsed.is_object()) lines.push_back(std::move(parsed));
  }
  return lines;
}

using Figures = std::map<std::string, std::vector<double>>;

std::string BatchName(int batch) { return absl::StrCat("step of ", batch); }

void AskLlama(const std::vector<int>& batches, Figures* figures) {
  const std::string common =
      absl::StrCat(" -m '", absl::GetFlag(FLAGS_gguf), "' -t ", absl::GetFlag(FLAGS_threads), " ");
  const int generate = absl::GetFlag(FLAGS_generate);
  for (const auto& line :
       JsonOf(absl::StrCat(absl::GetFlag(FLAGS_llama), "/llama-bench", common, "-r 1 -o jsonl -p ",
                           absl::GetFlag(FLAGS_prompt), " -n 0"))) {
    (*figures)["llama prefill"].push_back(line.at("avg_ts"));
  }
  for (const auto& line : JsonOf(absl::StrCat(absl::GetFlag(FLAGS_llama), "/llama-bench", common,
                                              "-r 1 -o jsonl -p 0 -n ", generate, " -d ",
                                              absl::GetFlag(FLAGS_depth)))) {
    (*figures)["llama step of 1"].push_back(1e3 / line.at("avg_ts").get<double>());
  }
  if (batches.empty()) return;
  const int cells = batches.back() * (absl::GetFlag(FLAGS_depth) + generate);
  for (const auto& line : JsonOf(absl::StrCat(
           absl::GetFlag(FLAGS_llama), "/llama-batched-bench", common, "--output-format jsonl -c ",
           std::max(2048, cells), " -npp ", absl::GetFlag(FLAGS_depth), " -ntg ", generate,
           " -npl ", absl::StrJoin(batches, ",")))) {
    const int batch = line.at("pl");
    (*figures)["llama " + BatchName(batch)].push_back(1e3 * batch /
                                                      line.at("speed_tg").get<double>());
  }
}

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// The whole service on this machine, with a router, a prefill worker and a decode worker.
class Service {
 public:
  Service() {
    const std::string threads = absl::StrCat("--threads=", absl::GetFlag(FLAGS_threads));
    Cluster::Options options;
    options.model = absl::GetFlag(FLAGS_model);
    options.programs = absl::GetFlag(FLAGS_programs);
    options.prefill_flags = options.decode_flags = {threads};
    options.kv_bytes = "512Mi";
    cluster_ = OrRefuse(Cluster::Start(options));
  }

  // Returns the milliseconds between two tokens of each of `streams` streams, as clients see them,
  // while all of them run.
  double Step(int streams) {
    std::vector<std::vector<double>> at(streams);
    std::vector<std::thread> clients;
    for (std::vector<double>& times : at) {
      std::vector<int32_t> prompt(absl::GetFlag(FLAGS_depth));
      for (int32_t& id : prompt) id = static_cast<int32_t>(random_() % 256);
      clients.emplace_back([this, prompt, &times] {
        const Answer answer =
            Generate(cluster_->stub(), TokenRequest(prompt, StreamTokens()), absl::Minutes(10),
                     [&](const v1::Token&) { times.push_back(Seconds()); });
        if (!answer.status.ok()) RefuseToStart(answer.status.message());
      });
    }
    for (std::thread& client : clients) client.join();
    double begin = 0, end = 1e300;
    for (const auto& times : at) {
      begin = std::max(begin, times.front());
      end = std::min(end, times.back());
    }
    size_t tokens = 0;
    for (const auto& times : at) {
      for (const double time : times) tokens += time > begin && time <= end;
    }
    return 1e3 * (end - begin) * streams / std::max<size_t>(tokens, 1);
  }

 private:
  std::unique_ptr<Cluster> cluster_;
  std::mt19937 random_;
};

void Print(const std::vector<int>& batches, const Figures& figures) {
  const auto of = [&](const std::string& name) {
    const auto found = figures.find(name);
    return found == figures.end() ? 0 : Median(found->second);
  };
  const bool llama = of("llama prefill") > 0;
  std::printf("\nmedians%26s%14s%10s\n", "baton", llama ? "llama.cpp" : "", llama ? "ratio" : "");
  const auto row = [&](const std::string& what, const std::string& ours, const std::string& theirs,
                       bool rate) {
    std::printf("%-20s%13.1f", what.c_str(), of(ours));
    if (llama && of(theirs) > 0) {
      std::printf("%14.1f%10.2f", of(theirs), rate ? of(ours) / of(theirs) : of(theirs) / of(ours));
    }
    std::printf("\n");
  };
  row(absl::StrCat("prefill ", absl::GetFlag(FLAGS_prompt), ", tok/s"), "prefill", "llama prefill",
      true);
  std::vector<int> all = {1};
  all.insert(all.end(), batches.begin(), batches.end());
  for (const int batch : all) {
    row(BatchName(batch) + ", ms", BatchName(batch), "llama " + BatchName(batch), false);
  }
  row("KV attention, GB/s", "attention", "", true);
  for (const int batch : all) {
    const double service = of("service " + BatchName(batch));
    if (service == 0) continue;
    const double engine = of("engine " + BatchName(batch));
    std::printf("the service, %s: %.1f ms, the engine at the same depth %.1f ms: %.2f\n",
                BatchName(batch).c_str(), service, engine, engine / service);
  }
  std::printf("weights are read at %.2f of %.1f GB/s", of("weights") / of("read"), of("read"));
  for (const int batch : batches) {
    std::printf("; a step of %d takes %.2f times a step of 1", batch,
                of(BatchName(batch)) / of(BatchName(1)));
  }
  std::printf("\n");
}

int Main() {
  const std::string shape = absl::GetFlag(FLAGS_shape);
  std::string folder = absl::StrCat(BATON_SOURCE_DIR, "/tests/bench/shapes/", shape);
  if (!std::filesystem::exists(folder)) folder = shape;
  const std::string model = absl::GetFlag(FLAGS_model);
  if (!absl::GetFlag(FLAGS_programs).empty() && model.empty()) {
    RefuseToStart("--programs needs --model");
  }
  if (absl::GetFlag(FLAGS_llama).empty() != absl::GetFlag(FLAGS_gguf).empty()) {
    RefuseToStart("--llama and --gguf need one another");
  }
  for (const auto& [name, value] : {std::pair{"threads", absl::GetFlag(FLAGS_threads)},
                                    {"rounds", absl::GetFlag(FLAGS_rounds)},
                                    {"prompt", absl::GetFlag(FLAGS_prompt)},
                                    {"generate", absl::GetFlag(FLAGS_generate)},
                                    {"depth", absl::GetFlag(FLAGS_depth)},
                                    {"context", absl::GetFlag(FLAGS_context)}}) {
    if (value < 1 || value > 8000) {
      RefuseToStart(absl::StrCat("--", name, " is ", value, "; it takes 1 to 8000"));
    }
  }
  if (const std::string to = absl::GetFlag(FLAGS_write); !to.empty()) {
    std::error_code error;
    std::filesystem::create_directories(to, error);
    std::filesystem::copy_file(folder + "/config.json", to + "/config.json",
                               std::filesystem::copy_options::overwrite_existing, error);
    if (error) RefuseToStart(absl::StrCat(to, "/config.json: ", error.message()));
    const ModelConfig config = OrRefuse(ReadModelConfig(folder));
    if (absl::Status written = WriteRandomCheckpoint(config, kSeed, to); !written.ok()) {
      RefuseToStart(written.message());
    }
    return 0;
  }
  std::vector<int> batches, all = {1};
  for (const std::string& text : absl::GetFlag(FLAGS_batches)) {
    int batch = 0;
    if (!absl::SimpleAtoi(text, &batch) || batch < 2 || batch > 256) {
      RefuseToStart(absl::StrCat("--batches has '", text, "'; it takes numbers from 2 to 256"));
    }
    batches.push_back(batch);
  }
  std::sort(batches.begin(), batches.end());
  all.insert(all.end(), batches.begin(), batches.end());
  Measured ours(folder, all, absl::GetFlag(FLAGS_operations));
  std::printf("%s: %s\n", model.empty() ? shape.c_str() : model.c_str(), ours.Describe().c_str());
  std::optional<Service> service;
  if (!absl::GetFlag(FLAGS_programs).empty()) service.emplace();
  Figures figures;
  const int threads = absl::GetFlag(FLAGS_threads);
  ours.Prefill();  // Touches the memory of weights and pool for the first time.
  for (int round = 1; round <= absl::GetFlag(FLAGS_rounds); ++round) {
    figures["read"].push_back(ReadRate(threads) / 1e9);
    figures["fma"].push_back(FmaRate(threads) / 1e9);
    figures["prefill"].push_back(ours.Prefill());
    for (const int batch : all) {
      figures[BatchName(batch)].push_back(1e3 * ours.Decode(batch, absl::GetFlag(FLAGS_generate)));
    }
    figures["weights"].push_back(ours.weight_bytes() / figures[BatchName(1)].back() / 1e6);
    figures["attention"].push_back(ours.Attention() / 1e9);
    for (const int batch : all) {
      if (!service) continue;
      figures["engine " + BatchName(batch)].push_back(1e3 * ours.Decode(batch, StreamTokens()));
      figures["service " + BatchName(batch)].push_back(service->Step(batch));
    }
    if (!absl::GetFlag(FLAGS_llama).empty()) AskLlama(batches, &figures);
    std::printf("round %d:", round);
    for (const auto& [name, values] : figures) {
      std::printf(" %s %.1f;", name.c_str(), values.back());
    }
    std::printf("\n");
    std::fflush(stdout);
  }
  Print(batches, figures);
  if (absl::GetFlag(FLAGS_operations)) ours.PrintOperations(1e9 * Median(figures["read"]));
  return 0;
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) {
  const auto extra = baton::StartProgram(
      argc, argv,
      "shape_bench: measures prefill, decode and attention of a model, or of a shape with random "
      "weights\n"
      "  shape_bench --shape 1b --llama llama.cpp/build/bin --gguf 1b.gguf\n"
      "  shape_bench --model m.gguf --batches 8,16,32 --programs build/bin");
  if (!extra.empty()) baton::RefuseToStart(absl::StrCat("'", extra.front(), "' is not expected"));
  return baton::Main();
}
