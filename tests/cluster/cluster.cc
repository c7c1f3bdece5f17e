#include "tests/cluster/cluster.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <utility>

#include <grpcpp/grpcpp.h>
#include <signal.h>
#include <stdlib.h>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/status_macros.h"
#include "common/rpc/dial.h"
#include "common/rpc/status.h"

namespace baton {
namespace {

constexpr char kDemoModel[] = BATON_SOURCE_DIR "/common/model/demo";

}  // namespace

std::string TestWorkerProgram(const std::string& role, const std::string& programs) {
  return absl::StrCat(programs, "/../tests/baton-", role, "-test");
}

absl::StatusOr<std::unique_ptr<Cluster>> Cluster::Start(Options options) {
  if (options.model.empty()) options.model = kDemoModel;
  if (options.programs.empty()) options.programs = BATON_BINARY_DIR;
  auto cluster = std::unique_ptr<Cluster>(new Cluster(std::move(options)));
  std::string folder =
      absl::StrCat(std::filesystem::temp_directory_path().string(), "/baton-cluster-XXXXXX");
  if (mkdtemp(folder.data()) == nullptr)
    return absl::ErrnoToStatus(errno, absl::StrCat("mkdtemp ", folder));
  cluster->folder_ = folder;
  RETURN_IF_ERROR(cluster->StartRouter("127.0.0.1:0"));
  cluster->prefill_.resize(cluster->options_.prefill);
  cluster->prefill_addresses_.resize(cluster->options_.prefill);
  cluster->decode_.resize(cluster->options_.decode);
  cluster->decode_addresses_.resize(cluster->options_.decode);
  for (int i = 0; i < cluster->options_.prefill; ++i) {
    RETURN_IF_ERROR(cluster->RestartPrefill(i));
  }
  for (int i = 0; i < cluster->options_.decode; ++i) {
    RETURN_IF_ERROR(cluster->RestartDecode(i));
  }
  const Options& wanted = cluster->options_;
  RETURN_IF_ERROR(cluster->WaitCounted(
      [&](const Counted& c) {
        return (c.pair || !wanted.pairs) && c.prefill >= wanted.prefill &&
               c.decode >= wanted.decode;
      },
      wanted.start_timeout));
  return cluster;
}

Cluster::~Cluster() {
  decode_.clear();
  prefill_.clear();
  router_ = nullptr;
  if (!folder_.empty() && getenv("BATON_KEEP_LOGS") == nullptr) {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
}

absl::Status Cluster::StartRouter(const std::string& listen) {
  std::vector<std::string> arguments = {absl::StrCat(options_.programs, "/baton-router"),
                                        absl::StrCat("--listen=", listen),
                                        absl::StrCat("--model=", options_.model)};
  if (options_.http) {
    arguments.push_back(absl::StrCat(
        "--http-listen=", http_address_.empty() ? "127.0.0.1:0" : http_address_.c_str()));
  }
  arguments.insert(arguments.end(), options_.router_flags.begin(), options_.router_flags.end());
  ASSIGN_OR_RETURN(std::unique_ptr<Process> router,
                   Process::Start(arguments, absl::StrCat(folder_, "/router.log")));
  router_ = std::move(router);
  router_lines_ = 0;
  counted_ = {};
  pids_.insert(router_->pid());
  ASSIGN_OR_RETURN(std::string address,
                   router_->WaitForLine("listening on ", options_.start_timeout));
  address_ = std::move(address);
  if (options_.http) {
    ASSIGN_OR_RETURN(http_address_,
                     router_->WaitForLine("listening for HTTP on ", options_.start_timeout));
  }
  // Makes the stub only once, because calls may still run on the stub of a router that died. The
  // stub reconnects to a new router at the same address.
  if (stub_ == nullptr) stub_ = v1::Inference::NewStub(Dial(address_));
  return absl::OkStatus();
}

std::string Cluster::WorkerProgram(const std::string& role) const {
  return options_.test_workers ? TestWorkerProgram(role, options_.programs)
                               : absl::StrCat(options_.programs, "/baton-", role);
}

absl::Status Cluster::StartWorker(const std::string& role, int i) {
  const bool is_prefill = role == "prefill";
  std::vector<std::string> arguments = {WorkerProgram(role), "--listen=127.0.0.1:0",
                                        absl::StrCat("--model=", options_.model),
                                        absl::StrCat("--routers=", address_), "--threads=1"};
  if (!options_.kv_bytes.empty()) {
    arguments.push_back(absl::StrCat("--kv-bytes=", options_.kv_bytes));
  }
  const std::vector<std::string>& flags =
      is_prefill ? options_.prefill_flags : options_.decode_flags;
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  ASSIGN_OR_RETURN(std::unique_ptr<Process> worker,
                   Process::Start(arguments, absl::StrCat(folder_, "/", role, i, ".log")));
  pids_.insert(worker->pid());
  ASSIGN_OR_RETURN(std::string address,
                   worker->WaitForLine("listening on ", options_.start_timeout));
  (is_prefill ? prefill_ : decode_)[i] = std::move(worker);
  (is_prefill ? prefill_addresses_ : decode_addresses_)[i] = std::move(address);
  return absl::OkStatus();
}

absl::Status Cluster::RestartPrefill(int i) {
  prefill_[i] = nullptr;
  return StartWorker("prefill", i);
}

absl::Status Cluster::RestartDecode(int i) {
  decode_[i] = nullptr;
  return StartWorker("decode", i);
}

absl::Status Cluster::RestartRouter() {
  router_ = nullptr;
  return StartRouter(address_);
}

absl::Status Cluster::WaitCounted(const std::function<bool(const Counted&)>& reached,
                                  absl::Duration timeout) {
  const absl::Time until = absl::Now() + timeout;
  // Only the newest line of the router's log counts. So all lines that the log already has are read
  // first.
  while (router_lines_ < router_->log().size() || !reached(counted_)) {
    const absl::StatusOr<std::string> line =
        router_->log().Line(router_lines_, until - absl::Now());
    if (!line.ok()) {
      return absl::Status(
          line.status().code(),
          absl::StrCat("the router counts ", counted_.prefill, " prefill and ", counted_.decode,
                       " decode workers and ", counted_.pair ? "a" : "no", " pair; ",
                       line.status().message()));
    }
    ++router_lines_;
    if (!absl::StrContains(*line, "serving prefill_workers=")) continue;
    counted_.pair = !absl::StrContains(*line, " not_serving ");
    // If the workers can't serve together, the router counts them as ready but not as serving.
    const std::string ready = options_.pairs ? "" : "ready_";
    if (!absl::SimpleAtoi(FieldOf(*line, absl::StrCat(ready, "prefill_workers")),
                          &counted_.prefill) ||
        !absl::SimpleAtoi(FieldOf(*line, absl::StrCat(ready, "decode_workers")),
                          &counted_.decode)) {
      return absl::InternalError(absl::StrCat("a line without counts: ", *line));
    }
  }
  return absl::OkStatus();
}

absl::Status Cluster::WaitReady(int prefill, int decode, absl::Duration timeout) {
  return WaitCounted(
      [=](const Counted& c) { return c.pair && c.prefill >= prefill && c.decode >= decode; },
      timeout);
}

absl::Status Cluster::WaitNotReady(int prefill, int decode, absl::Duration timeout) {
  return WaitCounted([=](const Counted& c) { return c.prefill < prefill || c.decode < decode; },
                     timeout);
}

std::vector<int32_t> Answer::ids() const {
  std::vector<int32_t> ids;
  for (const v1::Token& token : tokens) ids.push_back(token.token_id());
  return ids;
}

Answer Generate(v1::Inference::Stub& stub, const v1::GenerateRequest& request,
                absl::Duration deadline, const std::function<void(const v1::Token&)>& on_token) {
  Answer answer;
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + deadline));
  const auto reader = stub.Generate(&context, request);
  v1::GenerateEvent event;
  std::string broken;
  const size_t answers = std::max(1u, request.sampling().n());
  answer.others.resize(answers - 1);
  std::vector<bool> finished(answers), summarised(answers);
  const auto at = [&](size_t index) -> Answer& {
    if (index >= answers) broken = absl::StrCat("answer ", index, " of ", answers);
    return index == 0 || index >= answers ? answer : answer.others[index - 1];
  };
  while (broken.empty() && reader->Read(&event)) {
    if (answer.accepted == event.has_accepted()) broken = "Accepted is not the first event";
    if (event.has_accepted()) answer.accepted = true;
    for (const v1::Token& token : event.prompt_logprobs().tokens()) {
      if (!answer.tokens.empty()) broken = "a prompt's logprob after the first token";
      if (token.position() != answer.prompt.size()) {
        broken = absl::StrCat("prompt position ", token.position(), " after ", answer.prompt.size(),
                              " others");
      }
      answer.prompt.push_back(token);
      if (on_token) on_token(token);
    }
    if (event.has_delta()) {
      const size_t index = event.delta().index();
      Answer& one = at(index);
      if (!broken.empty()) break;
      if (finished[index]) broken = "Delta after Finished";
      one.text += event.delta().text();
      for (const v1::Token& token : event.delta().tokens()) {
        if (!one.tokens.empty() && token.position() != one.tokens.back().position() + 1) {
          broken =
              absl::StrCat("position ", token.position(), " after ", one.tokens.back().position());
        }
        one.tokens.push_back(token);
        if (on_token) on_token(token);
      }
    }
    if (event.has_finished()) {
      at(event.finished().index()).finished = event.finished();
      if (broken.empty()) finished[event.finished().index()] = true;
    }
    if (event.has_summary()) {
      at(event.summary().index()).summary = event.summary();
      if (!broken.empty()) break;
      if (!finished[event.summary().index()]) broken = "Summary before Finished";
      summarised[event.summary().index()] = true;
    }
  }
  if (!broken.empty()) {
    context.TryCancel();
    while (reader->Read(&event)) continue;
  }
  answer.status = FromGrpcStatus(reader->Finish());
  if (answer.status.ok() && std::count(summarised.begin(), summarised.end(), false) > 0) {
    broken = "OK without a Summary";
  }
  if (!broken.empty()) answer.status = absl::InternalError(broken);
  return answer;
}

v1::GenerateRequest TokenRequest(const std::vector<int32_t>& ids, int max_tokens) {
  v1::GenerateRequest request;
  request.mutable_token_ids()->mutable_ids()->Add(ids.begin(), ids.end());
  request.mutable_sampling()->set_max_tokens(static_cast<uint32_t>(max_tokens));
  request.mutable_sampling()->set_temperature(0);
  request.mutable_sampling()->set_ignore_eos(true);
  return request;
}

}  // namespace baton
