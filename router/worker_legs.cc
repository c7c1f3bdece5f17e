#include "router/worker_legs.h"

#include <utility>

#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/codegen/proto_utils.h>
#include <grpcpp/support/client_callback.h>
#include <grpcpp/support/proto_buffer_reader.h>

#include "absl/strings/str_cat.h"
#include "baton/v1/decode_worker.pb.h"
#include "baton/v1/prefill_worker.pb.h"
#include "common/base/check.h"
#include "common/base/steady_time.h"
#include "common/rpc/dial.h"
#include "common/rpc/status.h"

namespace baton {
namespace {

// One RPC to a prefill or decode worker. A hold (AddHold) keeps gRPC from ending the call while no
// read is pending. When a read fails, the hold is removed. Reads raw bytes: if gRPC gets a message
// that does not parse, it fails the read, and then waits for the worker to end the call.
template <typename RequestProto, typename EventProto, typename Said>
class StreamLeg final : public grpc::ClientReadReactor<grpc::ByteBuffer>, public WorkerLegs::Leg {
 public:
  StreamLeg(LegKey key, RequestProto request, absl::Time deadline, const std::string& token,
            std::function<void(CoreEvent)> tell)
      : key_(key), request_(std::move(request)), tell_(std::move(tell)) {
    AddToken(&context_, token);
    if (deadline != absl::InfiniteFuture())
      context_.set_deadline(absl::ToChronoTime(FromSteady(deadline)));
  }

  // Starts the RPC of this method.
  void Start(grpc::Channel* channel, const grpc::internal::RpcMethod& method,
             std::shared_ptr<StreamLeg> self) {
    self_ = std::move(self);
    grpc::internal::ClientCallbackReaderFactory<grpc::ByteBuffer>::Create(
        channel, method, &context_, &request_, this);
    AddHold();
    StartRead(&event_);
    StartCall();
  }

  void Cancel() override { context_.TryCancel(); }
  void Read() override { StartRead(&event_); }

 private:
  void OnReadDone(bool ok) override {
    if (!ok) return RemoveHold();
    EventProto event;
    grpc::ProtoBufferReader reader(&event_);
    if (reader.status().ok() && event.ParseFromZeroCopyStream(&reader)) {
      event_.Clear();
      return tell_(Said{key_, std::move(event)});
    }
    garbage_ = absl::InternalError(absl::StrCat("the worker sent a message of ", event_.Length(),
                                                " bytes that is not a ", event.GetTypeName()));
    context_.TryCancel();
    RemoveHold();
  }
  void OnDone(const grpc::Status& status) override {
    const std::shared_ptr<StreamLeg> self = std::move(self_);
    tell_(LegEnded{key_, garbage_.ok() ? FromGrpcStatus(status) : garbage_});
  }

  const LegKey key_;
  const RequestProto request_;
  const std::function<void(CoreEvent)> tell_;
  grpc::ClientContext context_;
  grpc::ByteBuffer event_;  // Owned by the pending read.
  absl::Status garbage_;    // Not OK: the worker sent a message that does not parse.
  std::shared_ptr<StreamLeg> self_;
};

using PrefillLeg = StreamLeg<v1::PrefillRequest, v1::PrefillEvent, PrefillSaid>;
using DecodeLeg = StreamLeg<v1::DecodeRequest, v1::DecodeEvent, DecodeSaid>;

}  // namespace

struct WorkerLegs::Worker {
  explicit Worker(const std::string& address)
      : channel(Dial(address)),
        prefill("/baton.v1.PrefillWorker/Prefill", grpc::internal::RpcMethod::SERVER_STREAMING,
                channel),
        decode("/baton.v1.DecodeWorker/Decode", grpc::internal::RpcMethod::SERVER_STREAMING,
               channel) {}
  std::shared_ptr<grpc::Channel> channel;
  grpc::internal::RpcMethod prefill, decode;
};

WorkerLegs::WorkerLegs(std::string token, std::function<void(CoreEvent)> tell)
    : token_(std::move(token)), tell_(std::move(tell)) {}

WorkerLegs::~WorkerLegs() { BATON_CHECK(legs_.empty()) << legs_.size() << " legs are still open"; }

WorkerLegs::Worker& WorkerLegs::Channel(const WorkerName& name) {
  std::unique_ptr<Worker>& worker = workers_[name.key];
  if (worker == nullptr) worker = std::make_unique<Worker>(name.address);
  return *worker;
}

void WorkerLegs::Start(StartPrefill start) {
  Worker& worker = Channel(start.worker);
  auto leg = std::make_shared<PrefillLeg>(start.leg, std::move(start.request), start.deadline,
                                          token_, tell_);
  legs_[start.leg].leg = leg;
  leg->Start(worker.channel.get(), worker.prefill, leg);
}

void WorkerLegs::Start(StartDecode start) {
  Worker& worker = Channel(start.worker);
  auto leg = std::make_shared<DecodeLeg>(start.leg, std::move(start.request), start.deadline,
                                         token_, tell_);
  legs_[start.leg].leg = leg;
  leg->Start(worker.channel.get(), worker.decode, leg);
}

void WorkerLegs::Cancel(LegKey key) {
  const auto found = legs_.find(key);
  if (found == legs_.end()) return;
  State& state = found->second;
  state.cancelled = true;
  state.leg->Cancel();
  // A paused leg has no pending read, and gRPC ends the call only after a read has failed. The call
  // is cancelled, so this read fails.
  if (std::exchange(state.read_due, false)) state.leg->Read();
}

void WorkerLegs::Pause(LegKey key) {
  if (const auto found = legs_.find(key); found != legs_.end()) found->second.paused = true;
}

void WorkerLegs::Resume(LegKey key) {
  const auto found = legs_.find(key);
  if (found == legs_.end()) return;
  found->second.paused = false;
  if (std::exchange(found->second.read_due, false)) found->second.leg->Read();
}

void WorkerLegs::Taken(LegKey key) {
  const auto found = legs_.find(key);
  BATON_CHECK(found != legs_.end()) << "leg " << key << " sent an event after its end";
  State& state = found->second;
  if (state.paused && !state.cancelled) {
    state.read_due = true;
  } else {
    state.leg->Read();
  }
}

void WorkerLegs::Ended(LegKey key) { legs_.erase(key); }

void WorkerLegs::DropWorker(WorkerKey worker) { workers_.erase(worker); }

}  // namespace baton
