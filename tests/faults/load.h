#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "tests/cluster/cluster.h"
#include "tests/faults/cases.h"

namespace baton {

// Time limit for each event that must happen soon, such as the next tokens of the load.
constexpr absl::Duration kPatience = absl::Seconds(60);

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
  std::atomic<int> right = 0, wrong = 0, failed = 0, cut_off = 0, migrated = 0;
};

// Clients that send one case after another until the load is stopped.
class Load {
 public:
  // The arguments must outlive the object.
  Load(Cluster& cluster, const std::vector<Case>& cases, Seen& seen);
  ~Load() { Stop(); }

  void Stop();
  // Call just before a router is killed. Requests in flight may then end with Unavailable. New
  // requests wait until RouterIsBack().
  void RouterDies();
  void RouterIsBack();

  Tally tally;

 private:
  // Waits while the router is down. Returns the number of routers that have died so far, or nothing
  // if the clients must stop.
  std::optional<int> AwaitRouter();
  int router_deaths();
  void Ask();

  Cluster& cluster_;
  const std::vector<Case>& cases_;
  Seen& seen_;
  std::atomic<size_t> next_ = 0;
  Mutex mutex_;
  CondVar changed_;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  bool router_down_ ABSL_GUARDED_BY(mutex_) = false;
  int router_deaths_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<std::thread> threads_;
};

}  // namespace baton
