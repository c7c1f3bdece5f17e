#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "baton/v1/inference.pb.h"
#include "nlohmann/json.hpp"

namespace baton {

// One answer, put together from the events of its stream. One thread.
class ReceivedAnswer {
 public:
  // `sent` is when the request left.
  explicit ReceivedAnswer(absl::Time sent) : sent_(sent) {}

  // DataLoss for an event out of its order, or a token that does not follow the one before it; then
  // the answer is not to be trusted.
  absl::Status Add(const v1::GenerateEvent& event, absl::Time now);

  // The whole answer has arrived.
  bool complete() const { return stage_ == Stage::kSummary; }
  const std::string& text() const { return text_; }

  // Once complete: one object with request_id, model, text, token_ids, finish_reason, logprobs,
  // usage, seed, timing_us, workers, link and migrations.
  nlohmann::ordered_json ToJson() const;
  // Once complete: a small table for people of where the time went, ending in a newline. TTFT and
  // TPOT are as they were seen here; the phases, as the router tells them.
  std::string TimingTable() const;

 private:
  enum class Stage { kNothing, kAccepted, kFinished, kSummary };

  absl::Time sent_;
  absl::Time first_token_ = absl::InfinitePast();
  absl::Time last_token_ = absl::InfinitePast();
  Stage stage_ = Stage::kNothing;
  v1::Accepted accepted_;
  std::string text_;
  std::vector<v1::Token> tokens_;
  v1::Finished finished_;
  v1::Summary summary_;
};

}  // namespace baton
