#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "baton/v1/inference.grpc.pb.h"
#include "tests/cluster/process.h"

namespace baton {

// Returns the path of the program baton-prefill-test or baton-decode-test (tests/programs).
// `programs` is the folder of the shipped programs. The folder of the test programs lies beside it,
// in a build and also in a GPU archive.
std::string TestWorkerProgram(const std::string& role, const std::string& programs);

// A router and workers as processes on loopback, for tests that cross all modules.
class Cluster {
 public:
  struct Options {
    std::string model;     // Folder of the model; default: the demo model.
    std::string programs;  // Folder of the shipped programs; default: the programs of this build.
    // True if the workers are the programs of tests/programs, which support emulated devices.
    bool test_workers = false;
    int prefill = 1;
    int decode = 1;
    std::vector<std::string> router_flags;
    std::vector<std::string> prefill_flags;
    std::vector<std::string> decode_flags;
    // Value of --kv-bytes for every worker whose flags don't set it. If empty, the worker chooses.
    // The default is small, because workers allocate their KV pool at start and tests run in
    // parallel.
    std::string kv_bytes = "64Mi";
    // Time limit for each process to start, and for the first pair of workers to serve.
    absl::Duration start_timeout = absl::Seconds(30);
    bool http = false;  // True if the router also serves HTTP.
    // False if the workers can't serve together. Start() then only waits until all workers are
    // ready.
    bool pairs = true;
  };
  // Starts the router and the workers. Returns when all workers are ready and at least one pair can
  // serve.
  static absl::StatusOr<std::unique_ptr<Cluster>> Start(Options options);
  ~Cluster();

  // The processes. Workers of a role are numbered from 0. A worker that is started again listens at
  // a new port.
  Process& router() { return *router_; }
  Process& prefill(int i) { return *prefill_[i]; }
  Process& decode(int i) { return *decode_[i]; }
  const std::string& prefill_address(int i) const { return prefill_addresses_[i]; }
  const std::string& decode_address(int i) const { return decode_addresses_[i]; }
  absl::Status RestartPrefill(int i);
  absl::Status RestartDecode(int i);
  // Starts the router again at the same addresses.
  absl::Status RestartRouter();
  // Waits until the router's log reports at least this many ready workers of each role, and a pair
  // that can serve.
  absl::Status WaitReady(int prefill, int decode, absl::Duration timeout);
  // Waits until the router's log reports fewer than `prefill` prefill workers or fewer than
  // `decode` decode workers.
  absl::Status WaitNotReady(int prefill, int decode, absl::Duration timeout);

  const std::string& address() const { return address_; }
  // Address for HTTP; empty unless Options::http is set.
  const std::string& http_address() const { return http_address_; }
  // Process ids of all processes that this cluster ever started.
  const std::set<pid_t>& pids() const { return pids_; }
  // Folder of the logs, which are router.log, prefill0.log and so on.
  const std::string& folder() const { return folder_; }
  v1::Inference::Stub& stub() { return *stub_; }

 private:
  explicit Cluster(Options options) : options_(std::move(options)) {}
  absl::Status StartRouter(const std::string& listen);
  absl::Status StartWorker(const std::string& role, int i);
  // Numbers of workers that the router's log reports.
  struct Counted {
    // Numbers of workers that can serve or, if Options::pairs is false, of workers that are ready.
    int prefill = 0, decode = 0;
    bool pair = false;  // True if at least one pair of workers can serve.
  };
  absl::Status WaitCounted(const std::function<bool(const Counted&)>& reached,
                           absl::Duration timeout);

  std::string WorkerProgram(const std::string& role) const;

  Options options_;
  std::string folder_;
  std::set<pid_t> pids_;
  std::string address_, http_address_;
  std::unique_ptr<v1::Inference::Stub> stub_;
  std::unique_ptr<Process> router_;
  size_t router_lines_ = 0;  // Number of lines of the router's log that have been read.
  Counted counted_;          // The counts in the newest log line that has counts.
  std::vector<std::unique_ptr<Process>> prefill_, decode_;
  std::vector<std::string> prefill_addresses_, decode_addresses_;
};

// All events of one Generate call, collected in one object.
struct Answer {
  absl::Status status;
  bool accepted = false;
  std::string text;
  std::vector<v1::Token> tokens;
  v1::Finished finished;
  v1::Summary summary;
  // Tokens of the prompt with their logprobs, if the request asked for them.
  std::vector<v1::Token> prompt;
  // If the request asked for several answers, all answers after the first one. In these, `status`,
  // `accepted` and `prompt` are not set.
  std::vector<Answer> others;

  std::vector<int32_t> ids() const;
};

// Runs one request to its end. Calls `on_token` with every token as it arrives, and also with the
// tokens of the prompt if they have logprobs. Returns an Internal status if the events break the
// protocol: if they come in a wrong order, or if positions skip or repeat.
Answer Generate(v1::Inference::Stub& stub, const v1::GenerateRequest& request,
                absl::Duration deadline = absl::Seconds(120),
                const std::function<void(const v1::Token&)>& on_token = nullptr);

// Returns a greedy request whose prompt has the given token ids. The answer has exactly
// `max_tokens` tokens, since the request ignores the model's end tokens.
v1::GenerateRequest TokenRequest(const std::vector<int32_t>& ids, int max_tokens);

}  // namespace baton
