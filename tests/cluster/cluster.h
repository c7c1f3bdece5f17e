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
// folder of the shipped programs; the one of tests is beside it, in a build as in a GPU archive.
std::string TestWorkerProgram(const std::string& role, const std::string& programs);

// A router and workers as processes on loopback, for tests that cross all rooms.
class Cluster {
 public:
  struct Options {
    std::string model;     // folder; default: the demo model
    std::string programs;  // folder of the shipped programs; default: this build's
    // True if the workers are the programs of tests/programs, which know emulated devices.
    bool test_workers = false;
    int prefill = 1;
    int decode = 1;
    std::vector<std::string> router_flags;
    std::vector<std::string> prefill_flags;
    std::vector<std::string> decode_flags;
    // --kv-bytes of every worker whose flags don't say it: workers take what they may use at start,
    // and tests run side by side. Empty: as a worker chooses.
    std::string kv_bytes = "64Mi";
    absl::Duration start_timeout = absl::Seconds(30);  // of each process, and until a pair serves
    bool pairs = true;  // false: of workers that can't serve together; they are only waited for
  };
  // Starts everything and waits until all workers are ready and some pair can serve.
  static absl::StatusOr<std::unique_ptr<Cluster>> Start(Options options);
  ~Cluster();

  // Role and index name a worker: "prefill" 0 ... A worker started again listens at a new port.
  Process& router() { return *router_; }
  Process& prefill(int i) { return *prefill_[i]; }
  Process& decode(int i) { return *decode_[i]; }
  const std::string& prefill_address(int i) const { return prefill_addresses_[i]; }
  const std::string& decode_address(int i) const { return decode_addresses_[i]; }
  absl::Status RestartPrefill(int i);
  absl::Status RestartDecode(int i);
  // At the address it had.
  absl::Status RestartRouter();
  // Until the router's log says that it counts at least this many ready workers of each role, and a
  // pair among them.
  absl::Status WaitReady(int prefill, int decode, absl::Duration timeout);
  // Until it says that it counts fewer of one role or the other.
  absl::Status WaitNotReady(int prefill, int decode, absl::Duration timeout);

  const std::string& address() const { return address_; }
  // Of every process that was ever started here.
  const std::set<pid_t>& pids() const { return pids_; }
  const std::string& folder() const { return folder_; }  // logs: router.log, prefill0.log, ...
  v1::Inference::Stub& stub() { return *stub_; }

 private:
  explicit Cluster(Options options) : options_(std::move(options)) {}
  absl::Status StartRouter(const std::string& listen);
  absl::Status StartWorker(const std::string& role, int i);
  // What the router says of its workers.
  struct Counted {
    int prefill = 0, decode = 0;  // ready ones
    bool pair = false;            // some two of them can serve
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
  size_t router_lines_ = 0;  // of its log, that have been read
  Counted counted_;          // as they said
  std::vector<std::unique_ptr<Process>> prefill_, decode_;
  std::vector<std::string> prefill_addresses_, decode_addresses_;
};

// Everything that one Generate call gave.
struct Answer {
  absl::Status status;
  bool accepted = false;
  std::string text;
  std::vector<v1::Token> tokens;
  v1::Finished finished;
  v1::Summary summary;
  std::vector<v1::Token> prompt;  // with logprobs, if they were asked for
  std::vector<Answer> others;     // answers 1 and on, without `status`, `accepted` and `prompt`

  std::vector<int32_t> ids() const;
};

// Runs one request to its end. `on_token` sees every token as it arrives, those of the prompt with
// their logprobs too. A broken promise of the protocol (events out of order, positions that skip or
// repeat) turns into an Internal status.
Answer Generate(v1::Inference::Stub& stub, const v1::GenerateRequest& request,
                absl::Duration deadline = absl::Seconds(120),
                const std::function<void(const v1::Token&)>& on_token = nullptr);

// A request of token ids, greedy, `max_tokens` long whatever the model says.
v1::GenerateRequest TokenRequest(const std::vector<int32_t>& ids, int max_tokens);

}  // namespace baton
