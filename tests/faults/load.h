#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "tests/cluster/cluster.h"
#include "tests/faults/cases.h"
#include "tests/goodput/http/http_caller.h"

namespace baton {

// Time limit for each event that must happen soon, such as the next tokens of the load.
#ifdef __SANITIZE_ADDRESS__  // programs run several times slower then
constexpr absl::Duration kPatience = absl::Minutes(4);
#else
constexpr absl::Duration kPatience = absl::Seconds(60);
#endif

// Counts what the clients have received: all tokens, and for each worker the answers that it helped
// to compute. Any thread.
class Seen {
 public:
  void AddToken();
  void AddAnswer(const v1::Summary& summary);
  int all_answers();
  int answers(const std::string& address);
  // Waits for `more` more tokens. Returns false if they have not come within kPatience.
  bool AwaitTokens(int more);
  bool AwaitAnswers(const std::string& address, int more);

 private:
  bool Await(const std::function<bool()>& reached) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Mutex mutex_;
  CondVar changed_;
  int64_t tokens_ ABSL_GUARDED_BY(mutex_) = 0;
  int all_answers_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::string, int> answers_ ABSL_GUARDED_BY(mutex_);
};

struct Tally {
  std::atomic<int> right = 0, right_by_http = 0, wrong = 0, failed = 0, cut_off = 0, migrated = 0;
};

// Sums over the requests of one kind: the tokens that they found in prefix caches. Only complete
// answers count, and of several answers to a request only the first.
struct Found {
  int requests = 0;
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;         // At the workers that computed the prompts.
  int64_t decode_cached_tokens = 0;  // At the decode workers.
};

// The kind of the later turns of a conversation that has a salt of its own. Only earlier turns of
// the same conversation can have left what these turns find.
inline constexpr char kLaterTurns[] = "later turns with a salt of their own";

// Clients that send requests until the load is stopped. Half of them send one case after another.
// The others hold conversations: they send the next turn when they have the answer to the last one.
// Half of the former and about a quarter of the conversations go to the router's door for HTTP, as
// far as it has fields for what a case asks for.
class Load {
 public:
  // The arguments must outlive the object.
  Load(Cluster& cluster, const Cases& cases, Seen& seen);
  ~Load() { Stop(); }

  void Stop();
  // Call just before a router is killed. Requests in flight may then end with Unavailable. New
  // requests wait until RouterIsBack().
  void RouterDies();
  void RouterIsBack();
  // Returns the sums so far, by kind of request.
  std::map<std::string, Found> found();

  Tally tally;

 private:
  enum class Outcome { kRight, kWrong, kCutOff };

  // Waits while the router is down. Returns the number of routers that have died so far, or nothing
  // if the clients must stop.
  std::optional<int> AwaitRouter();
  int router_deaths();
  // Sends a request and checks its answer, which is stored in `answer`. `deaths_before` is the
  // number that AwaitRouter() returned. `kind` and `name` describe the request. It goes to the door
  // for HTTP if `http` is true and the door can take it.
  Outcome Ask(const Case& c, int deaths_before, std::string kind, const std::string& name,
              bool http, Answer* answer);
  void SendAlone(bool http);
  void HoldConversations();
  // Returns false if the clients must stop.
  bool HoldConversation(size_t number);

  Cluster& cluster_;
  const Cases& cases_;
  Seen& seen_;
  std::unique_ptr<HttpCaller> http_;
  std::atomic<size_t> next_ = 0, next_conversation_ = 0;
  Mutex mutex_;
  CondVar changed_;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  bool router_down_ ABSL_GUARDED_BY(mutex_) = false;
  int router_deaths_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::string, Found> found_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::thread> threads_;
};

}  // namespace baton
