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

// Returns the path of baton-prefill-test or baton-decode-test (tests/programs). `programs` is the
// folder of the shipped programs. The folder of the test programs lies beside it, in a build as
// well as in a GPU archive.
std::string TestWorkerProgram(const std::string& role, const std::string& programs);

// A router and workers as processes on loopback, for tests that cross all modules.
class Cluster {
 public:
  struct Options {
    std::string model;     // folder; default: the demo model
    std::string programs;  // folder of the shipped programs; default: this build's
    // True if the workers are the programs of tests/programs, which support emulated devices.
    bool test_workers = false;
    int prefill = 1;
    int decode = 1;
    std::vector<std::string> router_flags;
    std::vector<std::string> prefill_flags;
    std::vector<std::string> decode_flags;
    // Value of --kv-bytes for every worker whose flags don't set it. Empty: the worker chooses. A
    // small default, since workers allocate their KV pool at start and tests run side by side.
    std::string kv_bytes = "64Mi";
    // Limit for each process to start, and for a first pair to serve.
    absl::Duration start_timeout = absl::Seconds(30);
    // False if the workers can't serve together. Start() then only waits until they are ready.
    bool pairs = true;
  };
  // Starts everything and waits until all workers are ready and at least one pair can serve.
  static absl::StatusOr<std::unique_ptr<Cluster>> Start(Options options);
  ~Cluster();

  // A worker is named by its role and index, as in prefill(0). A worker that is started again
  // listens at a new port.
  Process& router() { return *router_; }
  Process& prefill(int i) { return *prefill_[i]; }
  Process& decode(int i) { return *decode_[i]; }
  const std::string& prefill_address(int i) const { return prefill_addresses_[i]; }
  const std::string& decode_address(int i) const { return decode_addresses_[i]; }
  absl::Status RestartPrefill(int i);
  absl::Status RestartDecode(int i);
  // Starts the router again at the same address.
  absl::Status RestartRouter();
  // Waits until the router's log reports at least this many ready workers of each role, and a pair
  // that can serve.
  absl::Status WaitReady(int prefill, int decode, absl::Duration timeout);
  // Waits until the router's log reports fewer workers than this of at least one role.
  absl::Status WaitNotReady(int prefill, int decode, absl::Duration timeout);

  const std::string& address() const { return address_; }
  // Process ids of all processes that this cluster ever started.
  const std::set<pid_t>& pids() const { return pids_; }
  // Folder of the logs: router.log, prefill0.log, ...
  const std::string& folder() const { return folder_; }
  v1::Inference::Stub& stub() { return *stub_; }

 private:
  explicit Cluster(Options options) : options_(std::move(options)) {}
  absl::Status StartRouter(const std::string& listen);
  absl::Status StartWorker(const std::string& role, int i);
  // Counts of workers that the router's log reports.
  struct Counted {
    int prefill = 0, decode = 0;  // workers that can serve; ready workers if `pairs` is false
    bool pair = false;            // true if at least one pair of workers can serve
  };
  absl::Status WaitCounted(const std::function<bool(const Counted&)>& reached,
                           absl::Duration timeout);

  std::string WorkerProgram(const std::string& role) const;

  Options options_;
  std::string folder_;
  std::set<pid_t> pids_;
  std::string address_;
  std::unique_ptr<v1::Inference::Stub> stub_;
  std::unique_ptr<Process> router_;
  size_t router_lines_ = 0;  // lines of the router's log that have been read
  Counted counted_;          // counts of the newest line that has any
  std::vector<std::unique_ptr<Process>> prefill_, decode_;
  std::vector<std::string> prefill_addresses_, decode_addresses_;
};

// All events of one Generate call, put together.
struct Answer {
  absl::Status status;
  bool accepted = false;
  std::string text;
  std::vector<v1::Token> tokens;
  v1::Finished finished;
  v1::Summary summary;
  std::vector<v1::Token> prompt;  // prompt tokens with logprobs, if the request asked for them
  std::vector<Answer> others;     // answers 1 and up, without `status`, `accepted` and `prompt`

  std::vector<int32_t> ids() const;
};

// Runs one request to its end. Calls `on_token` with every token as it arrives, also with those of
// the prompt if they have logprobs. Returns an Internal status if the events break the protocol:
// wrong order, or positions that skip or repeat.
Answer Generate(v1::Inference::Stub& stub, const v1::GenerateRequest& request,
                absl::Duration deadline = absl::Seconds(120),
                const std::function<void(const v1::Token&)>& on_token = nullptr);

// Returns a greedy request for these token ids. It gets exactly `max_tokens` tokens, since it
// ignores the model's end tokens.
v1::GenerateRequest TokenRequest(const std::vector<int32_t>& ids, int max_tokens);

}  // namespace baton
