#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "router/core/core_context.h"
#include "router/core/request.h"

namespace baton {

// Owns the clients and their requests: one for each answer, with its own place in the queue,
// attempts and draws. Decides what a client is told of them, which is one stream. Runs on the
// core's loop thread.
//
// A request lives here from Add to Remove, whether it is queued, running or finished. One that has
// failed stays until its client has left. The client gets the status of its first failure at once;
// TakeFailed tells the caller to fail its other requests.
class Clients {
 public:
  explicit Clients(CoreContext* core) : core_(core) {}

  // Adds a client that wants `answers` answers. Add() follows for each, until one has failed.
  void Open(RequestKey client, int answers);
  Request& Add(RequestKey client, int index, CheckedRequest checked);
  // The RPC is over: forgets the client and its finished requests.
  void Remove(RequestKey client);

  // The client's requests, one for each answer. None if the client has left.
  std::vector<Request*> RequestsOf(RequestKey client) const;
  std::map<RequestKey, Request>& all() { return requests_; }
  size_t size() const { return requests_.size(); }

  // Binds all requests of the client to the identity of the worker that one of them is given to.
  void Bind(Request& request, const ModelIdentity& identity);
  std::set<ModelIdentity> bound() const;  // identities that requests are bound to

  // --- What a client is told ---
  // The request is taken into the queue.
  void Accept(Request& request);
  // Sends what has gathered if the client takes more. True if so much is left that the decode
  // worker has to pause.
  bool Flush(Request& request);
  // The answer is complete: sends what is left of it, its end and its Summary.
  void Answer(Request& request, const AnswerEnd& end);
  // The request has failed.
  void Fail(Request& request, const absl::Status& status);
  // The client does not even take its status.
  void Abort(Request& request);
  // A request of the client has failed, and with it the client.
  bool Failed(RequestKey client) const;
  // Such clients since the last call, whose other requests the caller has to fail. They are not
  // failed where the first one is, since the caller may be walking through the queue.
  std::vector<std::pair<RequestKey, absl::StatusCode>> TakeFailed() {
    return std::exchange(failed_, {});
  }
  // Tokens that wait for the client to read: of the answer, and of the prompt with their logprobs.
  static size_t WaitingTokens(const Request& request);

 private:
  // One Generate call.
  struct Client {
    int answers = 0;                     // how many it wants
    std::vector<Request*> requests;      // one for each answer that was added
    int done = 0;                        // answers that have ended with OK
    uint64_t completion_tokens = 0;      // tokens of those answers
    std::optional<absl::Status> status;  // what it was sent at the end
    bool aborted = false;
  };

  Client& ClientOf(const Request& request) { return clients_.at(request.client_key()); }
  void Send(Request& request, v1::GenerateEvent event);
  void SendScores(Request& request);
  void SendTokens(Request& request);
  void ShowFirst(Request& request, const AttemptTimes& attempt);
  // The request is over. The client gets its status when all its requests are, or at once with the
  // first that failed.
  void End(Request& request, absl::Duration leave_limit, const absl::Status& status,
           const v1::SloVerdict* verdict);
  // The metrics of the mode of the request's latest attempt, or, if there was none, of the mode
  // that the request asks for.
  RequestMetrics::Served& ServedOf(const Request& request);

  CoreContext* const core_;
  std::map<RequestKey, Request> requests_;
  std::map<RequestKey, Client> clients_;
  std::vector<std::pair<RequestKey, absl::StatusCode>> failed_;
  std::map<ModelIdentity, int> bound_;  // how many requests are bound to each
};

}  // namespace baton
