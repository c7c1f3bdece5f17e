#include "tests/faults/completion_client.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "common/base/mutex.h"
#include "tests/goodput/http/sse_parser.h"

namespace baton {
namespace {

using nlohmann::json;

bool IsStreamed(const v1::GenerateRequest& request) {
  return !request.sampling().has_prompt_logprobs() && request.token_ids().ids_size() % 4 != 0;
}

HttpCall CallOf(const v1::GenerateRequest& request) {
  const v1::SamplingParams& sampling = request.sampling();
  const auto& ids = request.token_ids().ids();
  json body = {{"prompt", std::vector<int32_t>(ids.begin(), ids.end())},
               {"max_tokens", sampling.max_tokens()},
               {"min_tokens", sampling.min_tokens()},
               {"temperature", sampling.temperature()},
               {"top_p", sampling.top_p()},
               {"top_k", sampling.top_k()},
               {"min_p", sampling.min_p()},
               {"seed", sampling.seed()},
               {"n", std::max(1u, sampling.n())},
               {"repetition_penalty", sampling.repetition_penalty()},
               {"presence_penalty", sampling.presence_penalty()},
               {"frequency_penalty", sampling.frequency_penalty()},
               {"ignore_eos", sampling.ignore_eos()},
               {"return_token_ids", true}};
  if (sampling.has_prompt_logprobs()) body["prompt_logprobs"] = sampling.prompt_logprobs();
  if (!request.cache_salt().empty()) body["cache_salt"] = request.cache_salt();
  if (IsStreamed(request)) {
    body["stream"] = true;
    body["stream_options"] = {{"include_usage", true}};
  }
  return {.method = "POST",
          .target = "/v1/completions",
          .fields = {{"Content-Type", "application/json"}},
          .body = body.dump()};
}

absl::Status StatusOf(const json& error) {
  const std::string text = error.dump();
  return error.value("code", json()) == "unavailable" ? absl::UnavailableError(text)
                                                      : absl::InternalError(text);
}

// Puts the parts of an answer together.
class CompletionReader {
 public:
  CompletionReader(const v1::GenerateRequest& request,
                   const std::function<void(const v1::Token&)>& on_token)
      : request_(request), on_token_(on_token) {
    answer_.others.resize(std::max(1u, request.sampling().n()) - 1);
  }

  // Takes an event of a stream or a whole answer.
  absl::Status Take(absl::string_view text) {
    const json event = json::parse(text.begin(), text.end(), nullptr, false);
    if (event.is_discarded()) return absl::InternalError(absl::StrCat("no JSON: ", text));
    if (event.contains("error")) return StatusOf(event["error"]);
    for (const json& choice : event.at("choices")) TakeChoice(choice);
    if (const json usage = event.value("usage", json()); !usage.is_null()) {
      v1::Usage& sum = *answer_.summary.mutable_usage();
      sum.set_prompt_tokens(usage.at("prompt_tokens"));
      sum.set_completion_tokens(usage.at("completion_tokens"));
      sum.set_cached_tokens(usage.at("prompt_tokens_details").at("cached_tokens"));
      has_usage_ = true;
    }
    return absl::OkStatus();
  }

  Answer End(absl::Status status) {
    answer_.status = std::move(status);
    if (answer_.status.ok() && (!has_usage_ || finished_ != answer_.others.size() + 1)) {
      answer_.status = absl::InternalError("the answer has ended before its end");
    }
    return std::move(answer_);
  }

 private:
  void TakeChoice(const json& choice) {
    const size_t index = choice.at("index");
    Answer& one = index == 0 ? answer_ : answer_.others.at(index - 1);
    one.text += choice.at("text").get<std::string>();
    for (const json& id : choice.at("token_ids")) {
      v1::Token token;
      token.set_token_id(id);
      one.tokens.push_back(token);
      if (IsStreamed(request_)) on_token_(token);
    }
    if (!choice.at("finish_reason").is_null()) ++finished_;
    if (index > 0) return;
    for (const json& score : choice.value("prompt_logprobs", json::array())) {
      v1::Token token;
      token.set_token_id(request_.token_ids().ids(static_cast<int>(one.prompt.size())));
      if (!score.is_null()) {
        token.set_logprob(score.at(absl::StrCat(token.token_id())).at("logprob"));
      }
      one.prompt.push_back(token);
    }
  }

  const v1::GenerateRequest& request_;
  const std::function<void(const v1::Token&)>& on_token_;
  Answer answer_;
  bool has_usage_ = false;
  size_t finished_ = 0;
};

// Receives an answer for the thread that waits for it.
class CompletionReceiver final : public HttpReceiver {
 public:
  CompletionReceiver(const v1::GenerateRequest& request, CompletionReader* reader)
      : streamed_(IsStreamed(request)), reader_(reader) {}

  void OnSend(Time) override {}
  void OnHead(int status) override { status_ = status; }
  bool OnBody(absl::string_view bytes, Time) override {
    if (!streamed_ || status_ != 200) {
      body_.append(bytes.data(), bytes.size());
      return true;
    }
    failure_ = parser_.Feed(bytes, [&](absl::string_view data) {
      if (data != "[DONE]") return reader_->Take(data);
      done_ = true;
      return absl::OkStatus();
    });
    return failure_.ok();
  }
  void OnEnd(absl::Status status) override {
    if (failure_.ok() && status.ok() && (!streamed_ || status_ != 200)) {
      failure_ = reader_->Take(body_);
      done_ = true;
    }
    MutexLock lock(&mutex_);
    result_ = failure_.ok() ? std::move(status) : failure_;
    if (result_.ok() && !done_) result_ = absl::InternalError("no [DONE]");
    ended_ = true;
    changed_.SignalAll();
  }

  absl::Status Wait() {
    MutexLock lock(&mutex_);
    while (!ended_) changed_.Wait(&mutex_);
    return result_;
  }

 private:
  const bool streamed_;
  CompletionReader* const reader_;
  int status_ = 0;
  bool done_ = false;
  SseParser parser_;
  std::string body_;
  absl::Status failure_;

  Mutex mutex_;
  CondVar changed_;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status result_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

bool IsCompletion(const v1::GenerateRequest& request) {
  return request.sampling().bad_word_ids().empty() &&
         (!request.has_prefix_cache() || request.prefix_cache());
}

Answer Complete(HttpCaller& http, const v1::GenerateRequest& request, absl::Duration deadline,
                const std::function<void(const v1::Token&)>& on_token) {
  CompletionReader reader(request, on_token);
  CompletionReceiver receiver(request, &reader);
  http.Send(http.NewId(), CallOf(request), &receiver,
            std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(deadline));
  return reader.End(receiver.Wait());
}

}  // namespace baton
