#include "tests/faults/load.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/check.h"
#include "common/base/host_port.h"
#include "gtest/gtest.h"
#include "tests/faults/completion_client.h"

namespace baton {
namespace {

constexpr int kStreams = 12;

}  // namespace

void Seen::AddToken() {
  MutexLock lock(&mutex_);
  ++tokens_;
  changed_.SignalAll();
}

void Seen::AddAnswer(const v1::Summary& summary) {
  MutexLock lock(&mutex_);
  ++all_answers_;
  ++answers_[summary.prefill_worker()];
  ++answers_[summary.decode_worker()];
  changed_.SignalAll();
}

int Seen::all_answers() {
  MutexLock lock(&mutex_);
  return all_answers_;
}

int Seen::answers(const std::string& address) {
  MutexLock lock(&mutex_);
  return answers_[address];
}

bool Seen::AwaitTokens(int more) {
  MutexLock lock(&mutex_);
  const int64_t wanted = tokens_ + more;
  return Await([&]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return tokens_ >= wanted; });
}

bool Seen::AwaitAnswers(const std::string& address, int more) {
  MutexLock lock(&mutex_);
  const int wanted = answers_[address] + more;
  return Await([&]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return answers_[address] >= wanted; });
}

bool Seen::Await(const std::function<bool()>& reached) {
  const absl::Time until = absl::Now() + kPatience;
  while (!reached()) {
    const absl::Duration left = until - absl::Now();
    if (left <= absl::ZeroDuration()) return false;
    changed_.WaitFor(&mutex_, left);
  }
  return true;
}

Load::Load(Cluster& cluster, const Cases& cases, Seen& seen)
    : cluster_(cluster), cases_(cases), seen_(seen) {
  const std::string& address = cluster.http_address();
  auto http = HttpCaller::Start(HostOf(address), absl::StrCat(PortOf(address)), address);
  BATON_CHECK(http.ok()) << http.status();
  http_ = *std::move(http);
  for (int i = 0; i < kStreams; ++i) {
    threads_.emplace_back(
        [this, i] { i % 2 == 0 ? SendAlone(/*http=*/i % 4 == 0) : HoldConversations(); });
  }
}

void Load::Stop() {
  {
    MutexLock lock(&mutex_);
    stop_ = true;
    changed_.SignalAll();
  }
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void Load::RouterDies() {
  MutexLock lock(&mutex_);
  router_down_ = true;
  ++router_deaths_;
}

void Load::RouterIsBack() {
  MutexLock lock(&mutex_);
  router_down_ = false;
  changed_.SignalAll();
}

std::optional<int> Load::AwaitRouter() {
  MutexLock lock(&mutex_);
  while (router_down_ && !stop_) changed_.Wait(&mutex_);
  return stop_ ? std::nullopt : std::make_optional(router_deaths_);
}

int Load::router_deaths() {
  MutexLock lock(&mutex_);
  return router_deaths_;
}

std::map<std::string, Found> Load::found() {
  MutexLock lock(&mutex_);
  return found_;
}

Load::Outcome Load::Ask(const Case& c, int deaths_before, std::string kind, const std::string& name,
                        bool http, Answer* answer) {
  constexpr absl::Duration kDeadline = absl::Seconds(300);
  const v1::GenerateRequest request = c.Request();
  const auto on_token = [this](const v1::Token&) { seen_.AddToken(); };
  http = http && IsCompletion(request);
  if (http) kind += " by HTTP";
  *answer = http ? Complete(*http_, request, kDeadline, on_token)
                 : Generate(cluster_.stub(), request, kDeadline, on_token);
  const std::string prompt =
      absl::StrCat(name, http ? " by HTTP" : "", ", prompt of ", c.prompt.size(), " tokens");
  if (answer->status.ok()) {
    const v1::Summary& summary = answer->summary;
    seen_.AddAnswer(summary);
    uint32_t migrations = summary.migrations();
    for (const Answer& other : answer->others) migrations += other.summary.migrations();
    if (migrations > 0) ++tally.migrated;
    const std::string wrong =
        c.Is(*answer) ? c.WrongAboutCache(*answer, http) : "wrong tokens or logprobs";
    if (!wrong.empty()) {
      ++tally.wrong;
      ADD_FAILURE() << prompt << ": " << wrong << "; " << migrations << " migrations, "
                    << summary.usage().cached_tokens() << " tokens cached, and "
                    << summary.decode_cached_tokens() << " at the decode worker";
      return Outcome::kWrong;
    }
    ++tally.right;
    if (http) ++tally.right_by_http;
    MutexLock lock(&mutex_);
    Found& found = found_[kind];
    ++found.requests;
    found.prompt_tokens += summary.usage().prompt_tokens();
    found.cached_tokens += summary.usage().cached_tokens();
    found.decode_cached_tokens += summary.decode_cached_tokens();
    return Outcome::kRight;
  }
  if (absl::IsUnavailable(answer->status) && router_deaths() != deaths_before) {
    ++tally.cut_off;
    if (c.Begins(*answer)) return Outcome::kCutOff;
    ++tally.wrong;
    ADD_FAILURE() << prompt << ": wrong tokens before its router died";
    return Outcome::kWrong;
  }
  ++tally.failed;
  ADD_FAILURE() << prompt << ": " << answer->status;
  return Outcome::kWrong;
}

void Load::SendAlone(bool http) {
  while (const std::optional<int> deaths_before = AwaitRouter()) {
    const size_t i = next_++ % cases_.alone.size();
    const Case& c = cases_.alone[i];
    const std::string kind = !c.prefix_cache ? "requests without the cache"
                             : c.sampling.prompt_logprobs.has_value()
                                 ? "requests for prompt logprobs"
                                 : "other single requests";
    Answer answer;
    Ask(c, *deaths_before, kind, absl::StrCat("case ", i), http, &answer);
  }
}

void Load::HoldConversations() {
  while (HoldConversation(next_conversation_++)) continue;
}

bool Load::HoldConversation(size_t number) {
  const size_t index = number % cases_.conversations.size();
  // In each round over all conversations, another half of them has a salt of its own.
  const bool own_salt = (index + number / cases_.conversations.size()) % 2 == 0;
  const std::string salt = own_salt ? absl::StrCat("conversation ", number) : "";
  std::vector<TokenId> text;
  bool first = true;  // The first request of this conversation.
  for (size_t turn = 0; turn < cases_.conversations[index].size();) {
    const std::optional<int> deaths_before = AwaitRouter();
    if (!deaths_before) return false;
    Case c = cases_.conversations[index][turn];
    // The prompt holds the answers that came. They can differ from the expected ones if the case
    // has a judge.
    std::copy(text.begin(), text.end(), c.prompt.begin());
    c.cache_salt = salt;
    c.first_of_its_salt = std::exchange(first, false) && own_salt;
    const std::string kind = !c.prefix_cache ? "requests without the cache"
                             : turn == 0     ? "first turns"
                             : own_salt      ? kLaterTurns
                                             : "other later turns";
    Answer answer;
    const Outcome outcome =
        Ask(c, *deaths_before, kind,
            absl::StrCat("turn ", turn, " of conversation ", number, " (", index, ")"),
            /*http=*/!own_salt && number % 2 == 0, &answer);
    if (outcome == Outcome::kWrong) return true;
    if (outcome == Outcome::kCutOff) continue;  // A client whose router died asks again.
    text = std::move(c.prompt);
    const std::vector<TokenId> ids = answer.ids();
    text.insert(text.end(), ids.begin(), ids.end());
    ++turn;
  }
  return true;
}

}  // namespace baton
