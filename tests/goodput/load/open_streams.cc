#include "tests/goodput/load/open_streams.h"

#include <utility>

#include "common/base/check.h"
#include "tests/goodput/results/verdict.h"

namespace baton {

OpenStreams::~OpenStreams() { BATON_CHECK(open_ == 0) << "requests outlive their load"; }

void OpenStreams::Start(RequestRecord record, RequestStream::Clock::time_point start,
                        bool keep_token_ids, ServerConnection* server,
                        const OutgoingRequest& request, absl::Duration timeout) {
  ++sent_;
  ++open_;
  if (record.measured) ++open_measured_;
  auto owned = server->NewStream(std::move(record), start, keep_token_ids,
                                 [this](RequestStream* one) { OnEnd(one); });
  RequestStream* const stream = owned.get();
  {
    MutexLock lock(&mutex_);
    streams_.emplace(stream, std::move(owned));
  }
  stream->Start(request, timeout);
}

void OpenStreams::StopAll() {
  MutexLock lock(&mutex_);
  for (auto& [stream, owned] : streams_) stream->Stop();
  while (open_ > 0) none_open_.Wait(&mutex_);
}

void OpenStreams::OnEnd(RequestStream* stream) {
  const bool measured = stream->record().measured;
  if (measured) {
    ++ended_measured_;
    good_ += Judge(stream->record(), targets_).good;
  }
  std::unique_ptr<RequestStream> owned;
  {
    MutexLock lock(&mutex_);
    records_.push_back(std::move(stream->record()));
    owned = std::move(streams_.extract(stream).mapped());
  }
  owned.reset();
  // The lock is held to the end: as soon as it is released, StopAll may return, and its caller may
  // destroy this object and `changed_`.
  MutexLock lock(&mutex_);
  if (measured) --open_measured_;
  --open_;
  none_open_.SignalAll();
  changed_->Notify();
}

std::vector<RequestRecord> OpenStreams::TakeRecords() {
  BATON_CHECK(open_ == 0);
  MutexLock lock(&mutex_);
  return std::move(records_);
}

}  // namespace baton
