#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "baton/v1/inference.pb.h"
#include "nlohmann/json.hpp"

namespace baton {

// The answer to one request, or its several answers, put together from the events of one stream.
// One thread.
class ReceivedAnswer {
 public:
  // `sent` is when the request left.
  explicit ReceivedAnswer(absl::Time sent, size_t answers = 1) : sent_(sent), answers_(answers) {}

  // DataLoss for an event out of its order, or a token that does not follow the one before it; then
  // the answer is not to be trusted.
  absl::Status Add(const v1::GenerateEvent& event, absl::Time now);

  // All of every answer has arrived.
  bool complete() const;
  // The text that came since the last call. Of several answers, one after the other in order of
  // their indexes, each under a line "[index]": a later one waits for those before it.
  std::string TakePrintable();

  // Once complete: one object with request_id, model, text, token_ids, finish_reason, logprobs,
  // usage, seed, timing_us, workers, link and migrations, and prompt_logprobs if they were asked
  // for. Of several answers: request_id, model, answers, each with its index and the rest of that,
  // and usage, which is the sum; prompt_logprobs come before the answers.
  nlohmann::ordered_json ToJson() const;
  // Once complete: a small table for people of where the time went, ending in a newline. TTFT and
  // TPOT are as they were seen here; the phases, as the router tells them.
  std::string TimingTable() const;
  // Once complete: the ids of all tokens with a log probability, alternatives included, each once.
  std::vector<int32_t> LogprobIds() const;
  // Once complete: a line for each token with its text, its id and its log probability, and those
  // of the alternatives behind it. `pieces` has the bytes of each id; others are shown by id alone.
  // Of several answers, each under a line "[index]".
  std::string LogprobTable(const std::map<int32_t, std::string>& pieces) const;

 private:
  enum class Stage { kAccepted, kFinished, kSummary };
  struct One {
    Stage stage = Stage::kAccepted;
    absl::Time first_token = absl::InfinitePast();
    absl::Time last_token = absl::InfinitePast();
    std::string text;
    std::vector<v1::Token> tokens;
    v1::Finished finished;
    v1::Summary summary;
  };
  // The answer that an event is of. Null when there is none, or it is not at `stage`.
  One* At(uint32_t index, Stage stage);
  absl::Status AddTokens(One* one, const v1::Delta& delta, absl::Time now);
  nlohmann::ordered_json AnswerJson(const One& one) const;
  std::string TimingTable(const One& one) const;

  absl::Time sent_;
  bool has_accepted_ = false;
  v1::Accepted accepted_;
  std::vector<v1::Token> prompt_;
  std::vector<One> answers_;
  size_t printing_ = 0;  // the answer whose text is being printed
  size_t printed_ = 0;   // bytes of it
  bool headed_ = false;  // its line with the index has been printed
};

}  // namespace baton
