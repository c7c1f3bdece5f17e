#pragma once

#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "router/core_context.h"
#include "router/request.h"

namespace baton {

// Owns the requests: one for each answer to a client, each with its own place in the queue,
// attempts and draws. Decides what the client is told of them, which is one stream. A request lives
// here from Add to Remove, whether it is queued, running or finished. Owner thread of the core
// only.
class Clients {
 public:
  explicit Clients(CoreContext* core) : core_(core) {}

  // A client that wants so many answers. Add follows for each, until one has failed.
  void Open(RequestKey client, int answers);
  Request& Add(RequestKey client, int index, CheckedRequest checked);
  // The RPC is over: forgets the client and its finished requests.
  void Remove(RequestKey client);

  // The client's requests, one for each answer.
  std::vector<Request*> RequestsOf(RequestKey client);
  std::map<RequestKey, Request>& all() { return requests_; }
  size_t size() const { return requests_.size(); }

  // Binds all requests of the client to the identity of the worker that one of them is given to.
  void Bind(Request& request, const ModelIdentity& identity);
  std::set<ModelIdentity> bound() const;  // identities that requests are bound to

  // --- What a client is told ---
  void Accept(Request& request);
  // Sends what has gathered if the client takes more. True if so much is left that the decode
  // worker has to pause.
  bool Flush(Request& request);
  // The answer is complete: sends what is left of it, its end and its Summary. `finished`: the
  // decode worker's last word, if it came.
  void Answer(Request& request, const AnswerEnd& end,
              const std::optional<v1::DecodeFinished>& finished);
  // The request has failed.
  void Fail(Request& request, const absl::Status& status);
  // The client does not even take its status.
  void Abort(Request& request);
  // A request of a client that wants several answers has failed, and with it the client.
  bool Failed(RequestKey client) const;
  // Such clients since the last call, whose other requests the caller has to fail. They are not
  // failed where the first one is, since the caller may be walking through the queue.
  std::vector<std::pair<RequestKey, absl::StatusCode>> TakeFailed() {
    return std::exchange(failed_, {});
  }
  // Tokens that wait for the client to read: of the answer, and of the prompt with their logprobs.
  static size_t WaitingTokens(const Request& request);

 private:
  // A client that wants several answers.
  struct Group {
    int answers = 0, added = 0;
    int done = 0;                        // with OK
    std::optional<absl::Status> status;  // the client has it coming
    bool aborted = false;
    uint64_t completion_tokens = 0;  // of those that are done
  };

  Group* GroupOf(const Request& request);
  void Send(Request& request, v1::GenerateEvent event);
  void SendScores(Request& request);
  void SendTokens(Request& request);
  void ShowFirst(Request& request, const AttemptTimes& attempt);
  // The request is over. The client gets its status when all its requests are, or at once with the
  // first that failed.
  void End(Request& request, absl::Duration leave_limit, const absl::Status& status,
           const v1::SloVerdict* verdict);
  // Of the mode of its latest attempt; without one, of the mode that it asks for.
  RequestMetrics::Served& ServedOf(const Request& request);

  CoreContext* const core_;
  std::map<RequestKey, Request> requests_;
  std::map<RequestKey, Group> groups_;
  std::vector<std::pair<RequestKey, absl::StatusCode>> failed_;
  std::map<ModelIdentity, int> bound_;  // how many requests are bound to each
};

}  // namespace baton
