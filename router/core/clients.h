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

// Owns the clients and their requests. A client has one request for each answer, with its own place
// in the queue, its own attempts and its own samples. Decides what is sent to the client, in one
// stream for all its answers. Core's loop thread only.
//
// A request lives from Add to Remove, whether it is queued, running or finished. A failed request
// stays until its client has left. As soon as one of a client's requests fails, the client gets the
// status of this failure. TakeFailed tells the caller to fail the client's other requests.
class Clients {
 public:
  // `core` outlives the object.
  explicit Clients(CoreContext* core) : core_(core) {}

  // Adds a client that wants `answers` answers. The caller must then call Add() for each answer,
  // until a request has failed. Aborts on a key that is 0, needs more than Request::kClientBits
  // bits, or is in use.
  void Open(RequestKey client, int answers);
  // Adds the request for answer `index`. The request stays at its address until Remove.
  Request& Add(RequestKey client, int index, std::shared_ptr<const CheckedRequest> checked);
  // Forgets the client and its requests, because its RPC is over. All requests must be finished.
  void Remove(RequestKey client);

  // Returns the client's requests, one for each answer; none if the client has left. The pointers
  // are valid until Remove.
  std::vector<Request*> RequestsOf(RequestKey client) const;
  std::map<RequestKey, Request>& all() { return requests_; }
  size_t size() const { return requests_.size(); }

  // Binds all requests of the client to `identity`, the identity of the worker that gets `request`.
  // Aborts if the client is bound to another identity.
  void Bind(Request& request, const ModelIdentity& identity);
  // Notes the worker that the request was given, so that the client's other answers prefer it.
  void NoteWorker(const Request& request, LegKind leg, WorkerKey worker);
  std::set<ModelIdentity> bound() const;  // Identities that requests are bound to.

  // --- Messages to the client ---
  // Counts the prompt, and tells the client that its request is in the queue.
  void Accept(Request& request);
  // If the client can take more, sends one message with the text and tokens that wait for it.
  // Returns true if so much is left that the decode worker has to pause.
  bool Flush(Request& request);
  // Finishes the request with a complete answer: sends the rest of the answer, its end and its
  // Summary.
  void Answer(Request& request, const AnswerEnd& end);
  // Finishes the request with a failure.
  void Fail(Request& request, const absl::Status& status);
  // Cuts the client's RPC, because the client did not read even its final status in time.
  void Abort(Request& request);
  // Returns true if any request of the client has failed.
  bool Failed(RequestKey client) const;
  // Returns the clients with several answers of which one has failed since the last call. The
  // caller has to fail their other answers. Fail() does not, because its caller may be iterating
  // over the queue.
  std::vector<std::pair<RequestKey, absl::StatusCode>> TakeFailed() {
    return std::exchange(failed_, {});
  }
  // Number of tokens that wait for the client to read them: tokens of the answer, and prompt tokens
  // with logprobs.
  static size_t WaitingTokens(const Request& request);

 private:
  // State of one Generate call.
  struct Client {
    int answers = 0;                     // Answers that the client wants.
    std::vector<Request*> requests;      // One request for each answer that was added.
    int done = 0;                        // Number of answers that have ended with OK.
    uint64_t completion_tokens = 0;      // Tokens of the answers that have ended with OK.
    std::optional<absl::Status> status;  // Status that ended the RPC.
    bool aborted = false;
  };

  Client& ClientOf(const Request& request) { return clients_.at(request.client_key()); }
  void Send(Request& request, ClientEvent event);
  void SendScores(Request& request);
  void SendTokens(Request& request);
  void ShowFirst(Request& request, const AttemptTimes& attempt);
  // Finishes the request. The client gets its status when all its requests are finished, or as soon
  // as one of them has failed.
  void End(Request& request, absl::Duration leave_limit, const absl::Status& status,
           const SloVerdict* verdict);
  // Returns the metrics for the mode of the request's latest attempt, or for the mode that the
  // request asks for if it had no attempt.
  RequestMetrics::Served& ServedOf(const Request& request);

  CoreContext* const core_;
  std::map<RequestKey, Request> requests_;
  std::map<RequestKey, Client> clients_;
  std::vector<std::pair<RequestKey, absl::StatusCode>> failed_;
  std::map<ModelIdentity, int> bound_;  // Number of requests bound to each identity.
};

}  // namespace baton
