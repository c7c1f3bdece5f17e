#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/hash.h"
#include "common/base/overloaded.h"
#include "common/rpc/limits.h"
#include "gtest/gtest.h"
#include "router/core/router_core.h"
#include "router/testing/event_log.h"

// Test equipment for RouterCore: workers and clients whose messages a test sends by hand, with
// their own clock.
namespace baton {

constexpr int kHarnessVocab = 1000;

// The model that these test workers serve. The next token is a hash of all earlier tokens and of
// the index of the answer.
inline TokenId NextToken(const std::vector<TokenId>& tokens, uint32_t answer = 0) {
  return static_cast<TokenId>((Hash64(tokens.data(), tokens.size() * sizeof(TokenId)) + answer) %
                              kHarnessVocab);
}

// Returns the `count` tokens of the model that follow `tokens`.
inline std::vector<TokenId> Continuation(std::vector<TokenId> tokens, int count,
                                         uint32_t answer = 0) {
  const size_t prompt = tokens.size();
  for (int i = 0; i < count; ++i) tokens.push_back(NextToken(tokens, answer));
  return {tokens.begin() + static_cast<ptrdiff_t>(prompt), tokens.end()};
}

// Everything that one client has seen.
struct ClientSide {
  std::map<uint32_t, ClientSide> others;  // Answers 1 and up: tokens, text, finished, summary.
  std::vector<TokenId> tokens;
  std::vector<uint32_t> positions;
  std::vector<v1::Token> scores;  // Prompt tokens with logprobs.
  std::string text;
  int accepted = 0;
  std::optional<AnswerFinished> finished;
  std::optional<AnswerSummary> summary;
  std::optional<absl::Status> status;
  bool reads = true;  // If true, takes every message as soon as it is sent.
  bool owes = false;  // A message was sent that this client has not taken.
  bool aborted = false;
  bool gone = false;
};

// A leg (RPC to a worker) that the core has started and that has not ended.
struct OpenLeg {
  bool prefill = false;
  WorkerName worker;
  v1::PrefillRequest prefill_request;
  v1::DecodeRequest decode_request;
  absl::Time deadline;
  bool cancelled = false;
  bool paused = false;

  std::vector<TokenId> tokens() const {
    const auto& ids = prefill ? prefill_request.token_ids() : decode_request.token_ids();
    return {ids.begin(), ids.end()};
  }
  size_t prompt() const {
    return prefill ? prefill_request.original_prompt_tokens()
                   : decode_request.original_prompt_tokens();
  }
  uint32_t answer() const {
    return prefill ? prefill_request.answer_index() : decode_request.answer_index();
  }
  // True if the worker has only to remove KV from its prefix cache.
  bool forgets() const {
    return (prefill ? prefill_request.cache() : decode_request.cache()).use() ==
           v1::CACHE_USE_FORGET;
  }
  int max_tokens() const {
    return static_cast<int>(
        (prefill ? prefill_request.sampling() : decode_request.sampling()).max_tokens());
  }
};

// A RouterCore with its workers and clients. The test sends events; the harness carries out the
// actions and fails the test if they break the rules of core_events.h. One thread.
class CoreHarness {
 public:
  // `log` outlives the harness; null: no log is kept.
  explicit CoreHarness(RouterCoreOptions options = Options(), EventLog* log = nullptr)
      : core(std::move(options), log) {}

  static RouterCoreOptions Options() {
    RouterCoreOptions options;
    options.model_name = "m";
    options.context_tokens = 4096;
    options.vocab = kHarnessVocab;
    // The text of token t is its number and a blank, so that a test can read texts back.
    options.new_decoder = [](absl::Span<const TokenId>, bool) {
      return TextDecoder{[](TokenId id) { return absl::StrCat(id, " "); },
                         [] { return std::string(); }};
    };
    return options;
  }

  // Passes an event to the core, and carries out the actions that follow.
  void Tell(CoreEvent event) {
    core.Handle(std::move(event), now);
    Settle();
  }
  // Moves the clock forward by `by`. On the way, runs the core at each time at which it has
  // something to do.
  void Advance(absl::Duration by) {
    const absl::Time until = now + by;
    while (core.NextWake() <= until) {
      now = std::max(now, core.NextWake());
      Settle();
    }
    now = until;
    Settle();
  }
  // Runs the core until it has nothing to do, and carries out all its actions.
  void Settle() {
    for (int turn = 0; turn < 1000; ++turn) {
      core.RunOnce(now);
      std::vector<CoreAction> actions = core.TakeActions();
      for (CoreAction& action : actions) CarryOut(action);
      if (actions.empty() && core.NextWake() > now) return;
    }
    FAIL() << "the core never comes to rest";
  }

  // Returns the registration of a worker. Workers of different roles can work together if their
  // `numerics` are equal.
  static v1::Registration WorkerOf(v1::WorkerRole role, const std::string& address,
                                   WorkerEpoch epoch, const std::string& numerics = "n") {
    v1::Registration registration;
    registration.set_role(role);
    registration.set_address(address);
    registration.set_epoch(epoch);
    registration.set_protocol_version(kProtocolVersion);
    registration.set_model("m");
    registration.set_model_fingerprint("f");
    registration.set_layout_fingerprint("l");
    registration.set_numerics_id(numerics);
    registration.set_total_blocks(1024);
    registration.set_block_tokens(16);
    registration.set_context_tokens(4096);
    registration.set_max_batch(64);
    return registration;
  }
  AttachKey Attach(v1::WorkerRole role, const std::string& address, WorkerEpoch epoch,
                   const std::vector<WorkerEpoch>& links = {}) {
    return Attach(WorkerOf(role, address, epoch), links);
  }
  AttachKey Attach(const v1::Registration& registration,
                   const std::vector<WorkerEpoch>& links = {}) {
    const AttachKey key = next_attach++;
    v1::LoadReport& load = loads[key];
    load.set_free_blocks(registration.total_blocks());
    load.set_total_blocks(registration.total_blocks());
    for (const WorkerEpoch epoch : links) {
      v1::PeerLink* link = load.add_links();
      link->set_epoch(epoch);
      link->set_link("shm");
    }
    Tell(WorkerAttached{key, registration});
    Report(key);
    return key;
  }
  void Report(AttachKey key) { Tell(WorkerReported{key, loads.at(key)}); }
  void ReportAll() {
    for (const auto& [key, load] : loads) {
      if (!closed.count(key)) Report(key);
    }
  }
  // Attaches two workers of each role with all links. The prefill workers are p1 and p2 with epochs
  // 1 and 2; the decode workers are d1 and d2 with epochs 11 and 12.
  void AttachFour() {
    p1 = Attach(v1::WORKER_ROLE_PREFILL, "p1:1", 1);
    p2 = Attach(v1::WORKER_ROLE_PREFILL, "p2:1", 2);
    d1 = Attach(v1::WORKER_ROLE_DECODE, "d1:1", 11, {1, 2});
    d2 = Attach(v1::WORKER_ROLE_DECODE, "d2:1", 12, {1, 2});
  }

  static CheckedRequest Request(std::vector<TokenId> prompt, int max_tokens) {
    CheckedRequest request;
    request.request_id = "r";
    request.prompt = std::move(prompt);
    request.sampling.max_tokens = max_tokens;
    request.sampling.seed = 7;
    return request;
  }
  RequestKey Arrive(CheckedRequest request) {
    const RequestKey key = next_request++;
    clients[key];
    request.arrival = now;
    Tell(ClientArrived{key, std::move(request)});
    return key;
  }
  RequestKey Arrive(std::vector<TokenId> prompt, int max_tokens) {
    return Arrive(Request(std::move(prompt), max_tokens));
  }
  // Lets a client that does not read by itself read everything that was sent to it.
  void Take(RequestKey key) {
    ClientSide& client = clients.at(key);
    if (!client.owes) return;
    client.owes = false;
    Tell(ClientWritable{key});
  }

  // PrefillLeg and DecodeLeg return the only open leg of that kind, or 0 if there is none. If two
  // are open, the test fails. Legs that only make a worker forget cached KV are not counted.
  LegKey PrefillLeg() const { return Only(true); }
  LegKey DecodeLeg() const { return Only(false); }
  OpenLeg& At(LegKey leg) { return legs.at(leg); }

  void Ticket(LegKey leg, uint32_t cached_tokens = 0) {
    v1::PrefillEvent event;
    event.set_cached_tokens(cached_tokens);
    event.mutable_ticket()->set_handover_id(leg);
    event.mutable_ticket()->set_tokens(static_cast<uint32_t>(At(leg).tokens().size()));
    Tell(PrefillSaid{leg, event});
  }
  static v1::Token MakeToken(TokenId id, size_t position) {
    v1::Token token;
    token.set_token_id(id);
    token.set_position(static_cast<uint32_t>(position));
    return token;
  }
  // Sends the logprobs of `count` prompt tokens, beginning with position `from`.
  void Scores(LegKey leg, int from, int count) {
    v1::PromptTokens scores;
    for (int i = from; i < from + count; ++i) {
      v1::Token* token = scores.add_tokens();
      *token = MakeToken(At(leg).tokens()[i], i);
      if (i > 0) token->set_logprob(-0.5f * static_cast<float>(i));
    }
    if (At(leg).prefill) {
      v1::PrefillEvent event;
      *event.mutable_prompt_tokens() = scores;
      Tell(PrefillSaid{leg, event});
    } else {
      v1::DecodeEvent event;
      *event.mutable_prompt_tokens() = scores;
      Tell(DecodeSaid{leg, event});
    }
  }
  void First(LegKey leg, v1::FinishReason reason = v1::FINISH_REASON_UNSPECIFIED) {
    const std::vector<TokenId> tokens = At(leg).tokens();
    v1::PrefillEvent event;
    *event.mutable_first_token()->mutable_token() =
        MakeToken(NextToken(tokens, At(leg).answer()), tokens.size());
    event.mutable_first_token()->set_finish_reason(reason);
    event.mutable_first_token()->set_queue_us(1000);
    event.mutable_first_token()->set_prefill_us(2000);
    Tell(PrefillSaid{leg, event});
  }
  void Reserve(LegKey leg) {
    v1::DecodeEvent event;
    event.mutable_reserved();
    Tell(DecodeSaid{leg, event});
  }
  // Sends `count` tokens that continue the tokens of this leg's request, beginning with the one at
  // index `from`, in one message.
  void Tokens(LegKey leg, int from, int count) {
    const std::vector<TokenId> tokens = At(leg).tokens();
    const std::vector<TokenId> next = Continuation(tokens, from + count, At(leg).answer());
    v1::DecodeEvent event;
    event.mutable_tokens();
    for (int i = from; i < from + count; ++i) {
      *event.mutable_tokens()->add_tokens() = MakeToken(next[i], tokens.size() + i);
    }
    Tell(DecodeSaid{leg, event});
  }
  void Token(LegKey leg, TokenId id, size_t position) {
    v1::DecodeEvent event;
    *event.mutable_tokens()->add_tokens() = MakeToken(id, position);
    Tell(DecodeSaid{leg, event});
  }
  void Outgrow(LegKey leg) {
    v1::DecodeEvent event;
    event.mutable_outgrown();
    Tell(DecodeSaid{leg, event});
  }
  void Finish(LegKey leg, v1::FinishReason reason = v1::FINISH_REASON_LENGTH) {
    v1::DecodeEvent event;
    event.mutable_finished()->set_reason(reason);
    event.mutable_finished()->set_handover_hidden_us(10);
    event.mutable_finished()->set_handover_exposed_us(20);
    event.mutable_finished()->set_decode_wait_us(30);
    event.mutable_finished()->set_decode_us(40);
    event.mutable_finished()->set_link("shm");
    Tell(DecodeSaid{leg, event});
  }
  void End(LegKey leg, absl::Status status) {
    legs.erase(leg);
    Tell(LegEnded{leg, std::move(status)});
  }
  // Plays the only request to its end, from its RPC to the prefill worker (the prefill leg) on.
  void RunToEnd() {
    const LegKey prefill = PrefillLeg();
    ASSERT_NE(prefill, 0u);
    RunToEnd(prefill);
  }
  // Runs a request to its end: sends the ticket and the first token on `prefill`, the RPC to its
  // prefill worker, and then all further tokens.
  void RunToEnd(LegKey prefill) {
    Ticket(prefill);
    First(prefill);
    FinishDecode(DecodeLegOf(prefill));
  }
  LegKey DecodeLegOf(LegKey prefill) const {
    for (const auto& [key, leg] : legs) {
      if (!leg.prefill && leg.decode_request.ticket().handover_id() == prefill) return key;
    }
    return 0;
  }
  LegKey PrefillLegOfAnswer(uint32_t index) const {
    for (const auto& [key, leg] : legs) {
      if (leg.prefill && leg.answer() == index) return key;
    }
    return 0;
  }
  void FinishDecode(LegKey decode) {
    ASSERT_NE(decode, 0u);
    Reserve(decode);
    const int left = At(decode).max_tokens() -
                     static_cast<int>(At(decode).tokens().size() - At(decode).prompt());
    Tokens(decode, 0, left);
    Finish(decode);
  }

  LoggedCore core;
  absl::Time now = absl::FromUnixSeconds(1000);
  std::map<RequestKey, ClientSide> clients;
  std::map<LegKey, OpenLeg> legs;
  std::map<AttachKey, v1::LoadReport> loads;
  std::map<AttachKey, v1::Peers> peers;
  std::map<AttachKey, absl::Status> closed;
  std::vector<WorkerKey> dropped;
  ServingChanged serving;
  AttachKey p1 = 0, p2 = 0, d1 = 0, d2 = 0;
  bool end_cancelled = true;  // If true, a cancelled leg ends immediately.
  bool leave = true;          // If true, a client that has its final status leaves immediately.

 private:
  LegKey Only(bool prefill) const {
    LegKey only = 0;
    for (const auto& [key, leg] : legs) {
      if (leg.prefill != prefill || leg.cancelled || leg.forgets()) continue;
      EXPECT_EQ(only, 0u) << "more than one leg of this kind";
      only = key;
    }
    return only;
  }

  void CarryOut(CoreAction& action) {
    if (auto* a = std::get_if<StartPrefill>(&action)) {
      OpenLeg& leg = legs[a->leg];
      leg.prefill = true;
      leg.worker = a->worker;
      leg.prefill_request = a->request;
      leg.deadline = a->deadline;
    } else if (auto* a = std::get_if<StartDecode>(&action)) {
      OpenLeg& leg = legs[a->leg];
      leg.worker = a->worker;
      leg.decode_request = a->request;
      leg.deadline = a->deadline;
    } else if (auto* a = std::get_if<CancelLeg>(&action)) {
      const auto leg = legs.find(a->leg);
      ASSERT_TRUE(leg != legs.end()) << "a leg was cancelled that had ended";
      ASSERT_FALSE(leg->second.cancelled) << "a leg was cancelled twice";
      leg->second.cancelled = true;
      if (end_cancelled) {
        legs.erase(leg);
        core.Handle(LegEnded{a->leg, absl::CancelledError("cancelled")}, now);
      }
    } else if (auto* a = std::get_if<PauseLeg>(&action)) {
      legs.at(a->leg).paused = true;
    } else if (auto* a = std::get_if<ResumeLeg>(&action)) {
      legs.at(a->leg).paused = false;
    } else if (auto* a = std::get_if<SendToClient>(&action)) {
      ToClient(a->request, a->event);
    } else if (auto* a = std::get_if<FinishClient>(&action)) {
      ClientSide& client = clients.at(a->request);
      ASSERT_FALSE(client.status) << "a client was finished twice";
      client.status = a->status;
      if (leave && client.reads) Leave(a->request);
    } else if (auto* a = std::get_if<AbortClient>(&action)) {
      clients.at(a->request).aborted = true;
      Leave(a->request);
    } else if (auto* a = std::get_if<SendPeers>(&action)) {
      peers[a->attach] = a->peers;
    } else if (auto* a = std::get_if<CloseAttach>(&action)) {
      closed[a->attach] = a->status;
      core.Handle(WorkerDetached{a->attach}, now);
    } else if (auto* a = std::get_if<DropWorker>(&action)) {
      dropped.push_back(a->worker);
    } else if (auto* a = std::get_if<ServingChanged>(&action)) {
      serving = *a;
    }
  }

  void Leave(RequestKey key) {
    ClientSide& client = clients.at(key);
    ASSERT_FALSE(client.gone);
    client.gone = true;
    core.Handle(ClientGone{key}, now);
  }

  void ToClient(RequestKey key, const ClientEvent& event) {
    ClientSide& client = clients.at(key);
    ASSERT_FALSE(client.status) << "something was sent after the status";
    const auto answer = [&client](uint32_t index) -> ClientSide& {
      return index == 0 ? client : client.others[index];
    };
    bool last = false;
    std::visit(Overloaded{[&](const AnswerAccepted&) { ++client.accepted; },
                          [&](const PromptLogprobs& scores) {
                            ASSERT_TRUE(client.tokens.empty());
                            client.scores.insert(client.scores.end(), scores.tokens.begin(),
                                                 scores.tokens.end());
                          },
                          [&](const AnswerDelta& delta) {
                            ClientSide& side = answer(delta.index);
                            ASSERT_FALSE(side.finished);
                            ASSERT_EQ(delta.text_ends.size(), delta.tokens.size());
                            side.text += delta.text;
                            for (const v1::Token& token : delta.tokens) {
                              side.tokens.push_back(token.token_id());
                              side.positions.push_back(token.position());
                            }
                          },
                          [&](const AnswerFinished& finished) {
                            ASSERT_FALSE(answer(finished.index).finished);
                            answer(finished.index).finished = finished;
                            last = true;
                          },
                          [&](const AnswerSummary& summary) {
                            ASSERT_TRUE(answer(summary.index).finished);
                            answer(summary.index).summary = summary;
                            last = true;
                          }},
               event);
    if (last) return;
    if (client.reads) {
      core.Handle(ClientWritable{key}, now);
    } else {
      client.owes = true;
    }
  }

  RequestKey next_request = 1;
  AttachKey next_attach = 1;
};

}  // namespace baton
