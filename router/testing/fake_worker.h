#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "baton/v1/decode_worker.grpc.pb.h"
#include "baton/v1/prefill_worker.grpc.pb.h"
#include "common/base/block_name.h"
#include "common/base/check.h"
#include "common/base/hash.h"
#include "common/base/mutex.h"
#include "common/base/random.h"
#include "common/base/types.h"
#include "common/rpc/attach_client.h"
#include "common/rpc/limits.h"
#include "common/rpc/rpc_server.h"
#include "common/rpc/stream_writer.h"
#include "common/rpc/worker_identity.h"

// Test equipment for the router over gRPC: a prefill and a decode worker in this process, without
// KV.
namespace baton {

// Returns the next token: a hash of all tokens before it, less than `vocab`.
inline TokenId FakeNextToken(const std::vector<TokenId>& tokens, int vocab) {
  return static_cast<TokenId>(Hash64(tokens.data(), tokens.size() * sizeof(TokenId)) %
                              static_cast<uint64_t>(vocab));
}

// Returns the `count` tokens that follow `tokens`.
inline std::vector<TokenId> FakeContinuation(std::vector<TokenId> tokens, int count, int vocab) {
  const size_t prompt = tokens.size();
  while (tokens.size() < prompt + static_cast<size_t>(count)) {
    tokens.push_back(FakeNextToken(tokens, vocab));
  }
  return {tokens.begin() + static_cast<ptrdiff_t>(prompt), tokens.end()};
}

// A prefill and a decode worker that are attached to a router from construction to destruction.
class FakeWorkers {
 public:
  struct Options {
    std::string router;
    std::string token;
    std::string model = "demo";
    int vocab = 4096;
    // The decode worker falls silent after this many tokens, until the call is cancelled. -1:
    // never.
    int stop_after = -1;
    // The decode worker ends the answer with STOP after this many tokens, without a stop token. -1:
    // never.
    int lies_after = -1;
    // Each worker tells the router of this many blocks in its prefix cache, one in each message.
    uint64_t cached_blocks = 0;
  };

  explicit FakeWorkers(Options options)
      : options_(std::move(options)), prefill_(this), decode_(this) {
    prefill_server_ = Serve(&prefill_, &prefill_identity_);
    decode_server_ = Serve(&decode_, &decode_identity_);
    Attach(v1::WORKER_ROLE_PREFILL, prefill_epoch_, prefill_server_->address());
    Attach(v1::WORKER_ROLE_DECODE, decode_epoch_, decode_server_->address());
  }
  ~FakeWorkers() {
    attached_.clear();
    prefill_server_->Shutdown(absl::ZeroDuration());
    decode_server_->Shutdown(absl::ZeroDuration());
  }

  // Number of open Prefill and Decode streams. Any thread.
  int open() {
    MutexLock lock(&mutex_);
    return open_;
  }
  // Blocks until a worker sends its next load report.
  void AwaitLoadReport() {
    MutexLock lock(&mutex_);
    const uint64_t seen = reports_;
    while (reports_ == seen) changed_.Wait(&mutex_);
  }
  // Blocks until `count` streams are open.
  void WaitForOpen(int count) {
    MutexLock lock(&mutex_);
    while (open_ != count) changed_.Wait(&mutex_);
  }

 private:
  using PrefillWriter = StreamWriter<v1::PrefillEvent>;
  using DecodeWriter = StreamWriter<v1::DecodeEvent>;

  class PrefillDoor final : public v1::PrefillWorker::CallbackService {
   public:
    explicit PrefillDoor(FakeWorkers* all) : all_(all) {}

   private:
    grpc::ServerWriteReactor<v1::PrefillEvent>* Prefill(
        grpc::CallbackServerContext* context, const v1::PrefillRequest* request) override {
      return all_->OnPrefill(context, *request);
    }
    FakeWorkers* const all_;
  };
  class DecodeDoor final : public v1::DecodeWorker::CallbackService {
   public:
    explicit DecodeDoor(FakeWorkers* all) : all_(all) {}

   private:
    grpc::ServerWriteReactor<v1::DecodeEvent>* Decode(grpc::CallbackServerContext* context,
                                                      const v1::DecodeRequest* request) override {
      return all_->OnDecode(context, *request);
    }
    FakeWorkers* const all_;
  };

  static std::unique_ptr<RpcServer> Serve(grpc::Service* service, grpc::Service* identity) {
    auto server = RpcServer::Start({.listen = "127.0.0.1:0", .services = {service, identity}});
    BATON_CHECK(server.ok()) << server.status();
    return *std::move(server);
  }

  void Attach(v1::WorkerRole role, WorkerEpoch epoch, const std::string& address) {
    const bool prefill = role == v1::WORKER_ROLE_PREFILL;
    v1::Registration registration;
    registration.set_role(role);
    registration.set_address(address);
    registration.set_epoch(epoch);
    registration.set_protocol_version(kProtocolVersion);
    registration.set_model(options_.model);
    registration.set_model_fingerprint("fingerprint");
    registration.set_numerics_id("numerics");
    registration.set_total_blocks(4096);
    registration.set_block_tokens(16);
    registration.set_context_tokens(4096);
    registration.set_max_batch(1000);
    AttachClient::Options attach = {
        .routers = {options_.router}, .registration = registration, .token = options_.token};
    if (options_.cached_blocks > 0) {
      attach.report_interval = attach.cache_interval = absl::Milliseconds(10);
      attach.new_cache_reader = [this] { return NewCacheReader(); };
    }
    attached_.push_back(std::make_unique<AttachClient>(
        attach,
        [this, prefill, prefill_epoch = prefill_epoch_] {
          {
            MutexLock lock(&mutex_);
            ++reports_;
            changed_.SignalAll();
          }
          v1::LoadReport load;
          load.set_free_blocks(4096);
          load.set_total_blocks(4096);
          if (!prefill) {
            load.add_links()->set_epoch(prefill_epoch);
            load.mutable_links(0)->set_link("inproc");
          }
          return load;
        },
        [](const v1::Peers&) {}));
  }

  // Returns a reader that tells of one block in each message.
  AttachClient::CacheReader NewCacheReader() const {
    return
        [last = uint64_t{0},
         blocks = options_.cached_blocks]() mutable -> std::optional<AttachClient::CacheMessage> {
          if (last == blocks) return std::nullopt;
          AttachClient::CacheMessage message;
          message.changes.set_after(last);
          message.changes.set_last(++last);
          AppendBytes(BlockName{last, last}, message.changes.add_added()->mutable_names());
          return message;
        };
  }

  void Opened(int by) {
    MutexLock lock(&mutex_);
    open_ += by;
    changed_.SignalAll();
  }

  grpc::ServerWriteReactor<v1::PrefillEvent>* OnPrefill(grpc::CallbackServerContext*,
                                                        const v1::PrefillRequest& request) {
    const auto writer = PrefillWriter::Create();
    uint64_t id = 0;
    {
      MutexLock lock(&mutex_);
      id = next_id_++;
      leases_[id] = writer;
    }
    Opened(1);
    writer->SetCancelled([this, id] { EndLease(id, absl::CancelledError("cancelled")); });
    v1::PrefillEvent ticket;
    ticket.mutable_ticket()->set_handover_id(id);
    writer->Send(ticket);
    const std::vector<TokenId> tokens(request.token_ids().begin(), request.token_ids().end());
    v1::PrefillEvent first;
    v1::Token* token = first.mutable_first_token()->mutable_token();
    token->set_token_id(FakeNextToken(tokens, options_.vocab));
    token->set_position(static_cast<uint32_t>(tokens.size()));
    if (request.sampling().max_tokens() == tokens.size() + 1 - request.original_prompt_tokens()) {
      first.mutable_first_token()->set_finish_reason(v1::FINISH_REASON_LENGTH);
    }
    writer->Send(first);
    return writer.get();
  }

  void EndLease(uint64_t id, const absl::Status& status) {
    std::shared_ptr<PrefillWriter> writer;
    {
      MutexLock lock(&mutex_);
      const auto found = leases_.find(id);
      if (found == leases_.end()) return;
      writer = std::move(found->second);
      leases_.erase(found);
    }
    writer->End(status);
    Opened(-1);
  }

  grpc::ServerWriteReactor<v1::DecodeEvent>* OnDecode(grpc::CallbackServerContext*,
                                                      const v1::DecodeRequest& request) {
    const auto writer = DecodeWriter::Create();
    v1::DecodeEvent reserved;
    reserved.mutable_reserved();
    writer->Send(reserved);
    const std::vector<TokenId> tokens(request.token_ids().begin(), request.token_ids().end());
    const int left =
        static_cast<int>(request.sampling().max_tokens()) -
        (request.token_ids_size() - static_cast<int>(request.original_prompt_tokens()));
    const std::vector<TokenId> next = FakeContinuation(tokens, left, options_.vocab);
    int count = options_.stop_after < 0 ? left : std::min(left, options_.stop_after);
    const bool lies = options_.lies_after >= 0 && options_.lies_after < left;
    if (lies) count = options_.lies_after;
    for (int i = 0; i < count; ++i) {
      v1::DecodeEvent event;
      v1::Token* token = event.mutable_tokens()->add_tokens();
      token->set_token_id(next[static_cast<size_t>(i)]);
      token->set_position(static_cast<uint32_t>(tokens.size()) + static_cast<uint32_t>(i));
      writer->Send(event);
    }
    if (count < left && !lies) {
      Opened(1);
      writer->SetCancelled([this, writer = std::weak_ptr<DecodeWriter>(writer)] {
        if (const auto held = writer.lock()) held->End(absl::CancelledError("cancelled"));
        Opened(-1);
      });
      return writer.get();
    }
    v1::DecodeEvent finished;
    finished.mutable_finished()->set_reason(lies ? v1::FINISH_REASON_STOP
                                                 : v1::FINISH_REASON_LENGTH);
    finished.mutable_finished()->set_link("inproc");
    writer->Send(finished);
    writer->End(absl::OkStatus());
    EndLease(request.ticket().handover_id(), absl::OkStatus());
    return writer.get();
  }

  const Options options_;
  PrefillDoor prefill_;
  DecodeDoor decode_;
  const WorkerEpoch prefill_epoch_ = RandomU64() | 1, decode_epoch_ = RandomU64() | 1;
  WorkerIdentityService prefill_identity_{options_.token, prefill_epoch_};
  WorkerIdentityService decode_identity_{options_.token, decode_epoch_};
  Mutex mutex_;
  CondVar changed_;
  int open_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t reports_ ABSL_GUARDED_BY(mutex_) = 0;  // Load reports of both workers.
  uint64_t next_id_ ABSL_GUARDED_BY(mutex_) = 1;
  std::map<uint64_t, std::shared_ptr<PrefillWriter>> leases_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<RpcServer> prefill_server_, decode_server_;
  std::vector<std::unique_ptr<AttachClient>> attached_;
};

}  // namespace baton
