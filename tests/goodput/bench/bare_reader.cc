#include "tests/goodput/bench/bare_reader.h"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <thread>
#include <vector>

#include <grpcpp/grpcpp.h>

#include "absl/strings/str_cat.h"
#include "baton/v1/inference.grpc.pb.h"
#include "common/base/status_macros.h"
#include "tests/goodput/load/prompt_maker.h"
#include "tests/goodput/load/schedule.h"
#include "tests/goodput/load/stop_flag.h"

namespace baton {
namespace {

constexpr uint32_t kContext = 2048;

class Stream final : public grpc::ClientReadReactor<v1::GenerateEvent> {
 public:
  Stream(v1::Inference::Stub* stub, const v1::GenerateRequest& request, std::atomic<uint32_t>* open,
         std::atomic<uint32_t>* failed, StopFlag* changed)
      : open_(open), failed_(failed), changed_(changed) {
    stub->async()->Generate(&context_, &request, this);
    StartRead(&event_);
    StartCall();
  }

 private:
  void OnReadDone(bool ok) override {
    if (ok) StartRead(&event_);
  }
  void OnDone(const grpc::Status& status) override {
    *failed_ += !status.ok();
    StopFlag* const changed = changed_;
    --*open_;
    delete this;
    changed->Notify();
  }

  std::atomic<uint32_t>* const open_;
  std::atomic<uint32_t>* const failed_;
  StopFlag* const changed_;
  grpc::ClientContext context_;
  v1::GenerateEvent event_;
};

}  // namespace

absl::Status ReadBare(const LoadSpec& spec) {
  ASSIGN_OR_RETURN(const Schedule schedule, MakeSchedule(spec, kContext));
  const std::vector<int32_t> tokens = {5, 6, 7, 8, 9, 10, 11, 12};
  const PromptMaker maker(spec, schedule, tokens, "bare");
  std::vector<std::unique_ptr<v1::Inference::Stub>> stubs;
  for (int i = 0; i < spec.channels; ++i) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    const auto channel =
        grpc::CreateCustomChannel(spec.endpoint, grpc::InsecureChannelCredentials(), arguments);
    if (!channel->WaitForConnected(std::chrono::system_clock::now() + std::chrono::seconds(10)))
      return absl::UnavailableError(absl::StrCat("can't reach ", spec.endpoint));
    stubs.push_back(v1::Inference::NewStub(channel));
  }
  // Static, because the last stream may still notify this flag after the function has returned.
  static StopFlag changed;
  std::atomic<uint32_t> open = 0, failed = 0;
  const auto start = std::chrono::steady_clock::now();
  for (uint32_t i = 0; i < schedule.requests.size(); ++i) {
    const v1::GenerateRequest request = maker.Make(i);
    changed.WaitUntil(
        start + std::chrono::microseconds(static_cast<int64_t>(schedule.requests[i].at_s * 1e6)));
    ++open;
    new Stream(stubs[i % stubs.size()].get(), request, &open, &failed, &changed);
  }
  changed.WaitUntil(StopFlag::kForever, [&] { return open == 0; });
  if (failed > 0) return absl::UnavailableError(absl::StrCat(failed.load(), " streams failed"));
  std::printf("%zu\n", schedule.requests.size());
  return absl::OkStatus();
}

}  // namespace baton
