// Tests with the configurations of models that people run. They check the host memory that workers
// plan to use, and the memory that the real processes then use. The tests that need many gigabytes
// and minutes run only by name:
//   BATON_SHAPES=all build/tests/shapes_test --gtest_filter='*RealShape*'

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <thread>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "common/base/byte_size.h"
#include "common/base/scratch_folder.h"
#include "common/rpc/dial.h"
#include "common/worker/host_memory_plan.h"
#include "common/worker/model_host.h"
#include "tests/cluster/cluster.h"
#include "tests/cluster/scrape.h"
#include "tests/shapes/control_group.h"
#include "tests/shapes/shape_folder.h"

namespace baton {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr uint64_t kGib = uint64_t{1} << 30;
constexpr int kBlockTokens = 16;

struct Shape {
  std::string name;
  uint64_t weight_bytes;    // Bytes of the published parameters in bf16.
  uint64_t kv_token_bytes;  // KV bytes per token: 2 x layers x KV heads x head size x 2 bytes.
  int context;
};

// The shapes, in the order of ShapeNames().
const std::vector<Shape>& Shapes() {
  static const auto* shapes =
      new std::vector<Shape>{{"qwen2.5-0.5b", 2 * uint64_t{494'032'768}, 12 << 10, 32768},
                             {"qwen3-0.6b", 2 * uint64_t{596'049'920}, 112 << 10, 40960},
                             {"llama-3.2-1b", 2 * uint64_t{1'235'814'400}, 32 << 10, 131072},
                             {"llama-3.2-3b", 2 * uint64_t{3'212'749'824}, 112 << 10, 131072},
                             {"phi-4-mini", 2 * uint64_t{3'836'021'760}, 128 << 10, 131072},
                             {"mistral-7b", 2 * uint64_t{7'248'023'552}, 128 << 10, 32768},
                             {"qwen2.5-7b-1m", 2 * uint64_t{7'615'616'512}, 56 << 10, 1010000},
                             {"llama-3.1-8b", 2 * uint64_t{8'030'261'248}, 128 << 10, 131072}};
  return *shapes;
}

ModelConfig ConfigOf(const std::string& shape) {
  const ScratchFolder folder;
  std::filesystem::copy_file(
      absl::StrCat(BATON_SOURCE_DIR, "/tests/shapes/configs/", shape, ".json"),
      folder.File("config.json"));
  return ReadModelConfig(folder.path()).value();
}

// Returns the options with which a prefill or decode worker plans its memory by default.
HostMemoryPlan::Options OptionsOf(const Shape& shape, bool prefill, uint64_t usable) {
  HostMemoryPlan::Options options;
  options.config = ConfigOf(shape.name);
  options.layout = Model::LayoutOf(options.config, kBlockTokens, DType::kBF16);
  options.usable = {.bytes = usable, .limit_bytes = usable, .limit = "made up"};
  options.weight_bytes = shape.weight_bytes;
  options.max = prefill ? StepSize(512, 64) : StepSize(64 + 256, 2 * 64);
  options.threads = 2;
  options.max_sequences = prefill ? 64 : 128;
  return options;
}

TEST(ShapesTest, ConfigurationsAreThoseOfThePublishedModels) {
  ASSERT_EQ(Shapes().size(), ShapeNames().size());
  for (size_t i = 0; i < Shapes().size(); ++i) {
    const Shape& shape = Shapes()[i];
    SCOPED_TRACE(shape.name);
    EXPECT_EQ(ShapeNames()[i], shape.name);
    const ModelConfig config = ConfigOf(shape.name);
    uint64_t bytes = 0;
    for (const TensorShape& tensor : Model::TensorsOf(config)) bytes += 2 * tensor.elements();
    EXPECT_EQ(bytes, shape.weight_bytes);
    const KvLayout layout = Model::LayoutOf(config, kBlockTokens, DType::kBF16);
    EXPECT_EQ(layout.BlockBytes(), kBlockTokens * shape.kv_token_bytes);
    EXPECT_EQ(config.context, shape.context);
  }
}

// Models of up to 3B parameters must start on a machine of 24 GiB, and models of up to 0.6B
// parameters in a container of 4 GiB.
TEST(ShapesTest, APairOfWorkersFitsWhereItHasTo) {
  for (const Shape& shape : Shapes()) {
    for (const uint64_t usable : {4 * kGib - kGib / 8, 23 * kGib}) {
      SCOPED_TRACE(absl::StrCat(shape.name, " in ", usable));
      const bool must_start = shape.weight_bytes < (usable < 4 * kGib ? 1'200'000'000 : 6.5e9);
      uint64_t together = shape.weight_bytes;
      bool both = true;
      for (const bool prefill : {true, false}) {
        const auto plan = HostMemoryPlan::Make(OptionsOf(shape, prefill, usable));
        EXPECT_TRUE(plan.ok() || !must_start) << plan.status();
        both &= plan.ok();
        if (!plan.ok()) continue;
        together += plan->kv_bytes + plan->rest_bytes;
        EXPECT_LE(plan->kv_bytes, 8 * kGib);
        EXPECT_GE(plan->context, 2048);
        EXPECT_EQ(plan->context, std::min(shape.context, plan->blocks * kBlockTokens));
      }
      if (both) {
        EXPECT_LE(together, usable);
      }
    }
  }
}

// The worker must refuse before it reads any weight, so the weights are a sparse file.
TEST(ShapesTest, EightBillionInTwelveGibAreRefusedInBothVersionsOfControlGroups) {
  const ScratchFolder folder;
  ASSERT_TRUE(WriteShapeFolder("llama-3.1-8b", ShapeWeights::kSparse, folder.path()).ok());
  for (const bool v2 : {false, true}) {
    const ScratchFolder root;
    root.Write("proc/meminfo", "MemTotal: 67108864 kB\nMemAvailable: 66060288 kB\n");
    root.Write("proc/self/cgroup", v2 ? "0::/\n" : "4:memory:/\n");
    root.Write(v2 ? "sys/fs/cgroup/memory.max" : "sys/fs/cgroup/memory/memory.limit_in_bytes",
               absl::StrCat(12 * kGib));
    ModelHost::Options options = {.model = folder.path(), .threads = 2};
    options.memory_root = root.path();
    options.max = {512, 64};
    options.max_sequences = 64;
    options.on_weights = [](uint64_t, uint64_t) { ADD_FAILURE() << "weights are read"; };
    const absl::Status status = ModelHost::Open(options).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(
        std::string(status.message()),
        AllOf(HasSubstr("the model does not fit: weights 16.1 GB (16060522496 bytes) + KV pool of "
                        "2048 tokens 270 MB ("),
              HasSubstr("the rest (activations, logits, gRPC, UCX)"),
              HasSubstr("this process may still use 12884901888 bytes (/sys/fs/cgroup/memory"),
              HasSubstr("bytes are missing; give this process a limit of 16Gi or more")));
  }
}

// Memory of a process, as the kernel reports it.
struct Taken {
  uint64_t own = 0;   // Heap and stacks.
  uint64_t file = 0;  // Mapped files, such as the weights.
  // Shared memory: the process's own KV pool, UCX's segments, and the pages of the peer's pool that
  // the process has read.
  uint64_t shared = 0;
  // The same as `shared`, but the size of each page is divided by the number of processes that map
  // it.
  uint64_t shared_part = 0;
  uint64_t major_faults = 0;
};

Taken TakenBy(pid_t pid) {
  Taken taken;
  std::ifstream status(absl::StrCat("/proc/", pid, "/status"));
  for (std::string line; std::getline(status, line);) {
    std::istringstream words(line);
    std::string name;
    uint64_t kib = 0;
    words >> name >> kib;
    if (name == "RssAnon:") taken.own = kib << 10;
    if (name == "RssFile:") taken.file = kib << 10;
    if (name == "RssShmem:") taken.shared = kib << 10;
  }
  std::ifstream rollup(absl::StrCat("/proc/", pid, "/smaps_rollup"));
  for (std::string line; std::getline(rollup, line);) {
    std::istringstream words(line);
    std::string name;
    uint64_t kib = 0;
    words >> name >> kib;
    if (name == "Pss_Shmem:") taken.shared_part = kib << 10;
  }
  std::ifstream stat(absl::StrCat("/proc/", pid, "/stat"));
  std::string line;
  std::getline(stat, line);
  // The fields of /proc/PID/stat that follow the process name, which is in brackets: state is field
  // 3, majflt is field 12.
  const std::vector<std::string> fields =
      absl::StrSplit(line.substr(std::min(line.size(), line.rfind(')') + 2)), ' ');
  if (fields.size() > 9) {
    EXPECT_TRUE(absl::SimpleAtoi(fields[9], &taken.major_faults));
  }
  return taken;
}

// Returns the bytes of a file that are in the page cache, whichever process maps them.
uint64_t CachedBytes(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  EXPECT_GE(fd, 0) << path;
  const size_t bytes = std::filesystem::file_size(path);
  void* const mapped = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0);
  close(fd);
  if (mapped == MAP_FAILED) return 0;
  std::vector<unsigned char> pages((bytes + 4095) / 4096);
  EXPECT_EQ(mincore(mapped, bytes, pages.data()), 0);
  munmap(mapped, bytes);
  return 4096 * static_cast<uint64_t>(std::count_if(pages.begin(), pages.end(),
                                                    [](unsigned char page) { return page & 1; }));
}

// Reads the program and the libraries of a process into the page cache, so that later page faults
// come from the data of the process.
void ReadPrograms(pid_t pid) {
  std::set<std::string> read;
  std::ifstream maps(absl::StrCat("/proc/", pid, "/maps"));
  for (std::string line; std::getline(maps, line);) {
    const size_t at = line.find('/');
    if (at == line.npos) continue;
    const std::string path = line.substr(at);
    std::error_code error;
    if (absl::EndsWith(path, ".safetensors") || !std::filesystem::is_regular_file(path, error) ||
        !read.insert(path).second) {
      continue;
    }
    std::ifstream file(path, std::ios::binary);
    std::vector<char> piece(1 << 20);
    while (file.read(piece.data(), static_cast<std::streamsize>(piece.size()))) continue;
  }
}

// Memory plan of a worker, read from its log.
struct Planned {
  uint64_t weights = 0, kv = 0, rest = 0, blocks = 0, context = 0;
};

Planned PlannedBy(const Process& worker) {
  const auto line = worker.log().WaitFor(" memory_plan ", absl::Seconds(10));
  EXPECT_TRUE(line.ok()) << line.status();
  Planned planned;
  if (!line.ok()) return planned;
  EXPECT_TRUE(absl::SimpleAtoi(FieldOf(*line, "weights_bytes"), &planned.weights));
  EXPECT_TRUE(absl::SimpleAtoi(FieldOf(*line, "kv_pool_bytes"), &planned.kv));
  EXPECT_TRUE(absl::SimpleAtoi(FieldOf(*line, "rest_bytes"), &planned.rest));
  EXPECT_TRUE(absl::SimpleAtoi(FieldOf(*line, "kv_blocks"), &planned.blocks));
  EXPECT_TRUE(absl::SimpleAtoi(FieldOf(*line, "context_tokens"), &planned.context));
  return planned;
}

// Checks that weights and pools are in memory, and that the processes use no more memory than they
// planned.
void ExpectPlansHold(const std::map<std::string, const Process*>& workers) {
  uint64_t taken_beside_weights = 0, planned_beside_weights = 0;
  for (const auto& [name, worker] : workers) {
    SCOPED_TRACE(name);
    const Planned planned = PlannedBy(*worker);
    const Taken taken = TakenBy(worker->pid());
    std::printf("%-10s planned: weights %s, KV %s, rest %s; taken: files %s, shared %s, own %s\n",
                name.c_str(), RoundedBytes(planned.weights).c_str(),
                RoundedBytes(planned.kv).c_str(), RoundedBytes(planned.rest).c_str(),
                RoundedBytes(taken.file).c_str(), RoundedBytes(taken.shared).c_str(),
                RoundedBytes(taken.own).c_str());
    // A worker that starts later may push some pages of the weights out of this worker's memory. So
    // only 95 % of the weights must be in memory.
    EXPECT_GE(taken.file, planned.weights / 20 * 19);
    EXPECT_GE(taken.shared, planned.kv);
    taken_beside_weights += taken.own + taken.shared_part;
    planned_beside_weights += planned.kv + planned.rest;
    EXPECT_LE(taken.own, planned.rest);
    EXPECT_LE(taken.file, planned.weights + (uint64_t{96} << 20)) << "programs and libraries";
  }
  EXPECT_LE(taken_beside_weights, planned_beside_weights);
}
void ExpectPlansHold(Cluster& cluster) {
  ExpectPlansHold({{"prefill", &cluster.prefill(0)}, {"decode", &cluster.decode(0)}});
}

// Sends `requests` requests at the same time, each with `prompt` prompt tokens and `answer` answer
// tokens. Returns the number of requests that failed. The time limit only ends the test if the
// cluster hangs: 50,000 tokens of a model of 0.5B take half an hour on two busy cores.
int AskMany(Cluster& cluster, int requests, int prompt, int answer) {
  std::vector<std::thread> clients;
  std::atomic<int> failed = 0;
  for (int i = 0; i < requests; ++i) {
    clients.emplace_back([&cluster, &failed, i, prompt, answer] {
      std::vector<int32_t> ids;
      for (int t = 0; t < prompt; ++t) ids.push_back((31 * t + 7 * i) % 256);
      const Answer got = Generate(cluster.stub(), TokenRequest(ids, answer), absl::Hours(3));
      if (got.status.ok() && static_cast<int>(got.tokens.size()) == answer) return;
      ++failed;
      ADD_FAILURE() << "request " << i << ": " << got.status << ", " << got.tokens.size();
    });
  }
  for (std::thread& client : clients) client.join();
  return failed;
}

int ListedContext(Cluster& cluster) {
  grpc::ClientContext context;
  v1::ListModelsResponse models;
  EXPECT_TRUE(cluster.stub().ListModels(&context, {}, &models).ok());
  return models.models_size() == 1 ? static_cast<int>(models.models(0).context_tokens()) : 0;
}

// A worker that lacks memory refuses to start, and says how much memory it needs. Compares this
// with the memory use of a real worker, for the demo model: its context is 4,096 tokens, and each
// token takes 1,536 bytes of KV.
TEST(SmallShapeTest, TheRefusalsArithmeticIsThatOfTheRealProcess) {
  const std::vector<std::string> flags = {
      absl::StrCat(BATON_BINARY_DIR, "/baton-decode"),
      "--listen=127.0.0.1:0",
      absl::StrCat("--model=", BATON_SOURCE_DIR, "/common/model/demo"),
      "--routers=127.0.0.1:1",
      "--threads=1",
      "--context=2048",
      "--kv-bytes=3Mi"};
  const ScratchFolder folder;
  std::vector<std::string> limited = flags;
  limited.push_back("--usable-memory=8Mi");
  const auto refused = Process::Start(limited, folder.File("refused.log"));
  ASSERT_TRUE(refused.ok()) << refused.status();
  const auto why = (*refused)->log().WaitFor("does not fit", absl::Seconds(60));
  ASSERT_TRUE(why.ok()) << why.status();
  EXPECT_EQ((*refused)->Wait(absl::Seconds(60)).value(), 2);

  const auto worker = Process::Start(flags, folder.File("worker.log"));
  ASSERT_TRUE(worker.ok()) << worker.status();
  ASSERT_TRUE((*worker)->WaitForLine("listening on ", absl::Seconds(60)).ok());
  const Planned planned = PlannedBy(**worker);
  for (const uint64_t bytes :
       {planned.weights, planned.kv, planned.rest, planned.weights + planned.kv + planned.rest}) {
    EXPECT_THAT(*why, HasSubstr(absl::StrCat(bytes, " bytes")));
  }
  ExpectPlansHold({{"decode", worker->get()}});
}

// Starts workers with KV pools of different sizes, and fills the pools until sequences are
// preempted. The context limit that the router lists must be the limit that requests meet,
// whichever pool is smaller.
class UnequalPoolsTest : public testing::TestWithParam<bool> {};

TEST_P(UnequalPoolsTest, TakeWhatWasPlannedAndWhatIsListed) {
  const bool prefill_smaller = GetParam();
  const std::string small = "--kv-bytes=3600Ki", large = "--kv-bytes=5Mi";
  auto started = Cluster::Start({.prefill_flags = {prefill_smaller ? small : large},
                                 .decode_flags = {prefill_smaller ? large : small}});
  ASSERT_TRUE(started.ok()) << started.status();
  Cluster& cluster = **started;
  constexpr int kSmall = 2400;  // Tokens in the smaller pool: 150 blocks of 24 KiB.
  EXPECT_EQ(ListedContext(cluster), kSmall);
  const auto warned = cluster.decode(0).log().WaitFor("context_shortened", absl::Seconds(10));
  ASSERT_TRUE(warned.ok()) << warned.status();
  EXPECT_EQ(FieldOf(*warned, "model_tokens"), "4096");
  EXPECT_EQ(FieldOf(*warned, "served_tokens"), prefill_smaller ? "3408" : "2400");

  const std::vector<int32_t> prompt(kSmall - 40, 5);
  for (const Process* worker : {&cluster.prefill(0), &cluster.decode(0)}) {
    ReadPrograms(worker->pid());
  }
  EXPECT_EQ(Generate(cluster.stub(), TokenRequest(prompt, 40)).tokens.size(), 40u);
  const Answer beyond = Generate(cluster.stub(), TokenRequest(prompt, 41));
  EXPECT_EQ(beyond.status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(beyond.status.message()), HasSubstr("the workers take 2400 tokens"));

  const uint64_t before = TakenBy(cluster.prefill(0).pid()).major_faults +
                          TakenBy(cluster.decode(0).pid()).major_faults;
  // The requests need three times the capacity of the smaller pool.
  EXPECT_EQ(AskMany(cluster, 12, 500, 100), 0);
  EXPECT_EQ(TakenBy(cluster.prefill(0).pid()).major_faults +
                TakenBy(cluster.decode(0).pid()).major_faults,
            before);
  ExpectPlansHold(cluster);
}

INSTANTIATE_TEST_SUITE_P(Smaller, UnequalPoolsTest, testing::Bool(),
                         [](const auto& smaller) { return smaller.param ? "Prefill" : "Decode"; });

// Tests with real processes of each shape. They run only by name.
class RealShapeTest : public testing::TestWithParam<Shape> {
 protected:
  void SetUp() override {
    const char* const named = std::getenv("BATON_SHAPES");
    const std::vector<std::string> names = absl::StrSplit(named == nullptr ? "" : named, ',');
    if (std::find(names.begin(), names.end(), GetParam().name) == names.end() &&
        std::find(names.begin(), names.end(), "all") == names.end()) {
      GTEST_SKIP() << "takes gigabytes and minutes: BATON_SHAPES=all, or names separated by commas";
    }
    const char* const kept = std::getenv("BATON_SHAPES_FOLDER");
    folder_ = absl::StrCat(kept == nullptr ? scratch_.path() : kept, "/", GetParam().name);
  }

  // Makes the folder with its weights, unless an earlier run has kept the folder. Then drops the
  // weights from the page cache. So the workers read them from disk, and the pages count in the
  // control group of the workers.
  void MakeFolder() {
    // Weights are random up to 3B. Larger models have only zeros and take no disk space.
    const bool sparse = GetParam().weight_bytes > 6'500'000'000;
    if (!std::filesystem::exists(folder_ + "/model.safetensors")) {
      const absl::Status written = WriteShapeFolder(
          GetParam().name, sparse ? ShapeWeights::kSparse : ShapeWeights::kRandom, folder_);
      ASSERT_TRUE(written.ok()) << written;
    }
    const int fd = open((folder_ + "/model.safetensors").c_str(), O_RDONLY | O_CLOEXEC);
    ASSERT_GE(fd, 0);
    fsync(fd);
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
  }

  // Starts a prefill worker and a decode worker without memory flags. Each of them has one thread,
  // because they share the machine.
  absl::StatusOr<std::unique_ptr<Cluster>> Start() {
    const std::vector<std::string> metrics = {"--metrics-listen=127.0.0.1:0"};
    return Cluster::Start({.model = folder_,
                           .prefill_flags = metrics,
                           .decode_flags = metrics,
                           .kv_bytes = "",
                           .start_timeout = absl::Minutes(10)});
  }

  const ScratchFolder scratch_;
  std::string folder_;
};

TEST_P(RealShapeTest, StartsWithoutAFlagOnThisMachine) {
  const UsableMemory usable = ReadUsableMemory();
  std::printf("%s: %s usable\n", GetParam().name.c_str(), RoundedBytes(usable.bytes).c_str());
  if (usable.bytes < 20 * kGib) GTEST_SKIP() << "less than 20 GiB are free here";
  ASSERT_NO_FATAL_FAILURE(MakeFolder());
  const absl::Time began = absl::Now();
  auto cluster = Start();
  const bool must_start = GetParam().weight_bytes < 6'500'000'000;
  if (!cluster.ok()) {
    std::printf("refused: %s\n", std::string(cluster.status().message()).c_str());
    EXPECT_FALSE(must_start) << cluster.status();
    return;
  }
  std::printf("started in %s, context %d of %d\n",
              absl::FormatDuration(absl::Now() - began).c_str(), ListedContext(**cluster),
              GetParam().context);
  EXPECT_GE(ListedContext(**cluster), 2048);
  EXPECT_GE(CachedBytes(folder_ + "/model.safetensors"), GetParam().weight_bytes);
  for (const Process* worker : {&(*cluster)->prefill(0), &(*cluster)->decode(0)}) {
    ReadPrograms(worker->pid());
  }
  EXPECT_EQ(AskMany(**cluster, 1, 16, 2), 0);
  const uint64_t before = TakenBy((*cluster)->prefill(0).pid()).major_faults +
                          TakenBy((*cluster)->decode(0).pid()).major_faults;
  EXPECT_EQ(AskMany(**cluster, 2, 64, 4), 0);
  EXPECT_EQ(TakenBy((*cluster)->prefill(0).pid()).major_faults +
                TakenBy((*cluster)->decode(0).pid()).major_faults,
            before);
  ExpectPlansHold(**cluster);
}

// Runs in a control group of 4 GiB, in the version that this machine has.
TEST_P(RealShapeTest, FillsItsPoolInAControlGroupOfFourGib) {
  if (GetParam().weight_bytes > 1'200'000'000) GTEST_SKIP() << "is larger than 0.6B";
  auto group = LimitedGroup::Make(4 * kGib);
  if (!group.ok()) GTEST_SKIP() << "no control group to be had: " << group.status();
  std::printf("%s, version %d\n", GetParam().name.c_str(), (*group)->version());
  ASSERT_NO_FATAL_FAILURE(MakeFolder());
  ASSERT_TRUE((*group)->Enter().ok());
  const absl::Time began = absl::Now();
  auto started = Start();
  ASSERT_TRUE(started.ok()) << started.status();
  Cluster& cluster = **started;
  const int context = ListedContext(cluster);
  std::printf("started in %s, context %d of %d\n",
              absl::FormatDuration(absl::Now() - began).c_str(), context, GetParam().context);
  EXPECT_GE(context, 2048);
  EXPECT_GE(CachedBytes(folder_ + "/model.safetensors"), GetParam().weight_bytes);
  for (const Process* worker : {&cluster.prefill(0), &cluster.decode(0)}) {
    ReadPrograms(worker->pid());
  }
  EXPECT_EQ(AskMany(cluster, 1, 16, 2), 0);
  const auto faults = [&] {
    return TakenBy(cluster.prefill(0).pid()).major_faults +
           TakenBy(cluster.decode(0).pid()).major_faults;
  };
  const uint64_t before = faults();

  // Many long answers at the same time fill the decode worker's pool soonest. There are a few more
  // answers than the pool can hold to their ends, so that the last ones are preempted and resumed.
  const Planned decode = PlannedBy(cluster.decode(0));
  const auto tokens = static_cast<int>(decode.blocks * kBlockTokens);
  constexpr int kPrompt = 40;
  const int hold = std::clamp(tokens / 260, 8, 64), requests = hold + 3;
  const int answer = tokens / hold - kPrompt;
  std::atomic<bool> over = false;
  double max_used = 0;
  std::thread watch([&] {
    while (!over) {
      if (const auto page = Scrape(cluster.decode(0)); page.ok()) {
        max_used = std::max(max_used, page->Value("baton_decode_kv_blocks_used", {}).value_or(0));
      }
      usleep(200'000);
    }
  });
  EXPECT_EQ(AskMany(cluster, requests, kPrompt, answer), 0);
  over = true;
  watch.join();
  std::printf(
      "%d requests of %d + %d tokens; at most %.0f of %d blocks in use; %d major faults; at most "
      "%s in the group, %d killed\n",
      requests, kPrompt, answer, max_used, static_cast<int>(decode.blocks),
      static_cast<int>(faults() - before), RoundedBytes((*group)->max_used_bytes()).c_str(),
      static_cast<int>((*group)->kills()));
  EXPECT_GE(max_used, 0.9 * static_cast<double>(decode.blocks));
  EXPECT_EQ(faults(), before);
  EXPECT_GE(CachedBytes(folder_ + "/model.safetensors"), GetParam().weight_bytes);
  EXPECT_EQ((*group)->kills(), 0);
  ExpectPlansHold(cluster);
  started->reset();
}

// A process that is limited to 7 GiB refuses to start, and says how much memory it needs. A process
// that has enough memory must use what the refusal says.
TEST_P(RealShapeTest, TakesWhatARefusalSays) {
  if (GetParam().weight_bytes < 7'000'000'000) GTEST_SKIP() << "fits";
  if (ReadUsableMemory().bytes < GetParam().weight_bytes + 2 * kGib)
    GTEST_SKIP() << "too large here";
  ASSERT_NO_FATAL_FAILURE(MakeFolder());
  const std::vector<std::string> flags = {absl::StrCat(BATON_BINARY_DIR, "/baton-decode"),
                                          "--listen=127.0.0.1:0",
                                          absl::StrCat("--model=", folder_),
                                          "--routers=127.0.0.1:1",
                                          "--context=2048",
                                          "--kv-bytes=256Mi"};
  std::vector<std::string> limited = flags;
  limited.push_back("--usable-memory=7Gi");
  const auto refused = Process::Start(limited, scratch_.File("refused.log"));
  ASSERT_TRUE(refused.ok()) << refused.status();
  const auto why = (*refused)->log().WaitFor("does not fit", absl::Minutes(1));
  ASSERT_TRUE(why.ok()) << why.status();
  std::printf("%s\n", why->c_str());
  const auto worker = Process::Start(flags, scratch_.File("worker.log"));
  ASSERT_TRUE(worker.ok()) << worker.status();
  ASSERT_TRUE((*worker)->WaitForLine("listening on ", absl::Minutes(10)).ok());
  const Planned planned = PlannedBy(**worker);
  for (const uint64_t bytes : {planned.weights, planned.kv, planned.rest}) {
    EXPECT_THAT(*why, HasSubstr(absl::StrCat("(", bytes, " bytes)")));
  }
  ExpectPlansHold({{"decode", worker->get()}});
}

INSTANTIATE_TEST_SUITE_P(Shapes, RealShapeTest, testing::ValuesIn(Shapes()), [](const auto& shape) {
  std::string name = shape.param.name;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return !std::isalnum(c); }, '_');
  return name;
});

}  // namespace
}  // namespace baton
