#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "baton/v1/inference.pb.h"
#include "common/base/json.h"

namespace baton {

// Builds the answer to one request, or its several answers, from the events of one stream. Not
// thread-safe. Functions that need a complete answer do not check that: they would show defaults
// for the parts that have not arrived.
class ReceivedAnswer {
 public:
  // `sent` is the time at which the client sent the request. `answers` is the number of answers
  // that it asks for.
  explicit ReceivedAnswer(absl::Time sent, size_t answers = 1) : sent_(sent), answers_(answers) {}

  // Takes the next event of the stream. Returns DataLoss for an event out of order, or for a token
  // whose position does not follow the previous token. After an error a part of the event may have
  // been taken: call nothing more of this object.
  absl::Status Add(const v1::GenerateEvent& event, absl::Time now);

  // Returns true once every answer has arrived completely.
  bool complete() const;
  // Returns the text that has come since the last call. Several answers are returned one after the
  // other in order of index, each after a line "[index]". Text of a later answer waits until the
  // earlier answers are complete.
  std::string TakePrintable();

  // Returns lines for people about each answer that has no text, which say how many tokens it has
  // and why it ended (a terminal would otherwise show nothing), and about each answer that a limit
  // of the model's own ended. Each line begins with `indent`. The answer must be complete.
  std::string NoteLines(absl::string_view indent) const;

  // Returns true if an answer ended because the request or the model's context allows no more
  // tokens. The answer must be complete.
  bool cut_short() const;

  // Returns one JSON object with the fields request_id, model, text, token_ids, finish_reason,
  // logprobs, usage, seed, timing_us, workers, link and migrations, and with prompt_logprobs if the
  // request asked for it. For several answers, the object has request_id, model, answers, and
  // usage, which is the sum. Each entry of answers has its index and the other fields;
  // prompt_logprobs come before the answers. The answer must be complete.
  nlohmann::ordered_json ToJson() const;
  // Returns a small table for people that shows where the time went, ending in a newline. TTFT and
  // TPOT are as this client saw them, the phases as the router reports them. The answer must be
  // complete.
  std::string TimingTable() const;
  // Returns the ids of all tokens that have a log probability, alternatives included. Each id
  // occurs once. The answer must be complete.
  std::vector<int32_t> LogprobIds() const;
  // Returns a line for each token: its text, id and log probability, then the same for its
  // alternatives. `pieces` has the bytes of each id; an id without bytes is shown as a number.
  // Several answers each follow a line "[index]". The answer must be complete.
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
  // Returns the answer with this index. Null if there is none, or if it is not at `stage`.
  One* At(uint32_t index, Stage stage);
  absl::Status AddTokens(One* one, const v1::Delta& delta, absl::Time now);
  nlohmann::ordered_json AnswerJson(const One& one) const;
  std::string TimingTable(const One& one) const;

  absl::Time sent_;
  bool has_accepted_ = false;
  v1::Accepted accepted_;
  std::vector<v1::Token> prompt_;
  std::vector<One> answers_;
  size_t printing_ = 0;  // Index of the answer whose text TakePrintable returns next.
  size_t printed_ = 0;   // Bytes of that answer's text that were printed.
  bool headed_ = false;  // The line "[index]" of that answer was printed.
};

}  // namespace baton
