#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "common/metrics/counter.h"
#include "common/metrics/metric_registry.h"
#include "router/door/api_keys.h"
#include "router/door/door.h"
#include "router/door/shared_budget.h"
#include "router/http/completion_request.h"
#include "router/http/http_server.h"

namespace baton {

// The OpenAI API over HTTP for text completions and chats, in front of a Door. docs/openai.md
// describes it.
class HttpDoor {
 public:
  struct Options {
    std::string listen;  // HOST:PORT; port 0 takes any free port.
    // Decides which connections are taken. Outlives the object, as do `keys`.
    ConnectionCounts* counts = nullptr;
    const ApiKeys* keys = nullptr;
    absl::Duration connection_age = absl::InfiniteDuration();
    // The origin whose pages browsers may show the answers to, "*" for all; empty: none.
    std::string allow_origin;
    bool refuse_unknown_fields = false;
    size_t max_body_bytes = 64 << 20;
    // Max memory of answers that are not streamed, of which one caller gets three quarters.
    size_t max_answer_bytes = 256 << 20;
    // True while a request can be served, and while the router works at all. Any thread.
    std::function<bool()> serves, alive;
    // The text of /metrics; empty: there is no such path. Any thread.
    std::function<std::string()> metrics;
  };
  // Listens, and answers once Serve() is called. Returns InvalidArgument or Unavailable if it can't
  // listen. `door` outlives the object.
  static absl::StatusOr<std::unique_ptr<HttpDoor>> Listen(Door* door, Options options);
  // Ends all connections.
  ~HttpDoor();

  void Serve() { server_->Serve(); }
  // See HttpServer.
  void Shutdown(absl::Duration grace) { server_->Shutdown(grace); }
  const std::string& address() const { return server_->address(); }
  int64_t exchanges() const { return server_->exchanges(); }
  // Adds the metrics of this door. `this` outlives the registry's last Text().
  void AddTo(MetricRegistry* registry) const;

 private:
  struct Route;
  HttpDoor(Door* door, Options options);
  static const std::vector<Route>& Routes();
  const Route* Find(const HttpHead& head) const;
  // Answers requests that need no body, and refuses those that are wrong before their body comes.
  std::optional<HttpResponse> Check(const HttpHead& head);
  std::optional<HttpResponse> CheckBrowser(const HttpHead& head, const Route& route) const;
  HttpResponse NotFound(const HttpHead& head) const;
  void Handle(const std::shared_ptr<HttpExchange>& exchange);
  void Complete(const std::shared_ptr<HttpExchange>& exchange, const std::string& caller);
  // Answers a request that only needs the tokeniser.
  void AnswerText(const std::shared_ptr<HttpExchange>& exchange, const std::string& caller,
                  const std::function<absl::StatusOr<std::string>()>& work);
  absl::StatusOr<std::string> Tokenize(HttpExchange& exchange, IgnoredFields* ignored) const;
  absl::StatusOr<std::string> Detokenize(HttpExchange& exchange, IgnoredFields* ignored) const;
  HttpResponse Models(const std::string& id) const;
  // Adds the fields that each answer has.
  HttpResponse Finish(const HttpHead& head, HttpResponse response) const;
  HttpResponse Error(const HttpHead& head, const absl::Status& status) const;
  void NoteIgnored(const IgnoredFields& ignored);
  CompletionSettings SettingsNow() const;

  Door* const door_;
  const Options options_;
  const int64_t created_;  // Unix time, seconds.
  SharedBudget whole_answers_;
  Counter requests_, refused_, ignored_fields_;
  Mutex mutex_;
  std::set<std::string> named_ ABSL_GUARDED_BY(mutex_);  // Ignored fields that the log has named.
  std::unique_ptr<HttpServer> server_;                   // Last, so that its thread ends first.
};

}  // namespace baton
