#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kv_transfer/transport/port_range.h"
#include "kv_transfer/transport/socket_address.h"

namespace baton {

// Addresses at which a transport takes connections on one network interface: one for UCX, one for
// TcpGreetings.
struct TcpPlace {
  SocketAddress kv;       // Address at which UCX listens.
  SocketAddress greeter;  // Address at which TcpGreetings listens.
};

// A possible TCP path: one of our network interfaces and one of a peer's.
struct TcpWay {
  SocketAddress own_kv;
  TcpPlace peer;
};

// Finds out, before UCX connects two workers over TCP, whether each can connect to the other. UCX
// 1.13 aborts the process of a worker if a peer connects to it that it can't connect back to.
//
// To find out, a worker connects to the port at which the peer's UCX listens, and closes that
// connection. From its own KV address it also sends a question to the peer's TcpGreetings: can the
// peer connect back to that address? If the workers have several network interfaces, one working
// path in each direction is enough, because it is not known in advance which one UCX takes.
//
// Limits on abuse: a host that can reach a TcpGreetings can make it
// - connect to the host that the question came from, and to no other. It does so only if the
//   question carries the id from the transport's address. It makes one connection per question and
//   sends no bytes over it.
// - hold 64 connections, 16 from one host, for three seconds each.
//
// One thread. Never blocks.
class TcpGreetings {
 public:
  static constexpr absl::Duration kAskFor = absl::Seconds(3);
  // Time limit for answering a question. Shorter than kAskFor, so that the answer arrives in time.
  static constexpr absl::Duration kAnswerWithin = absl::Seconds(2);
  static constexpr int kAnswers = 64;
  static constexpr int kAnswersOfOneHost = 16;

  // Listens on the host of each address in `kv`, at one of `ports`. Returns Unavailable if no port
  // is free, or if this process or user has no descriptors left.
  static absl::StatusOr<std::unique_ptr<TcpGreetings>> Listen(const std::vector<SocketAddress>& kv,
                                                              const PortRange& ports);
  ~TcpGreetings();
  TcpGreetings(const TcpGreetings&) = delete;
  TcpGreetings& operator=(const TcpGreetings&) = delete;

  // places() and id() return values that become part of the transport's address.
  const std::vector<TcpPlace>& places() const { return places_; }
  uint64_t id() const { return id_; }

  // Finds out if this worker and the peer `peer_id` can connect to each other over `ways`, the
  // possible paths (at least one). Gives up kAskFor after `now`. Calls `done` once, from Progress,
  // unless Forget comes first. The status is OK, or Unavailable with the address and the reason.
  // `done` may not call any function of this object. Returns a number for Forget.
  uint64_t Ask(uint64_t peer_id, const std::vector<TcpWay>& ways, absl::Time now,
               std::function<void(absl::Status)> done);
  void Forget(uint64_t question);

  // Does what can be done now for this worker's questions and for the answers to questions of
  // others. Returns true if anything happened.
  bool Progress(absl::Time now);
  // Returns a file descriptor that becomes readable when Progress has something to do.
  int fd() const { return events_; }
  // True if a question or an answer is under way.
  bool busy() const { return more_to_accept_ || !questions_.empty() || !answers_.empty(); }
  // The time at which Progress has something to do even if fd() is not readable; InfiniteFuture if
  // nothing is under way.
  absl::Time deadline() const;

 private:
  struct Question;
  struct Answer;
  enum class Said : uint8_t;

  explicit TcpGreetings(int events);
  void Accept(absl::Time now);
  void MoveAnswer(Answer* answer, absl::Time now);
  void TakeQuestion(Answer* answer, absl::Time now);
  void Reply(Answer* answer, Said said, const std::string& words, absl::Time now);
  void LogNoWayBack(const SocketAddress& kv, const std::string& why, absl::Time now);

  const uint64_t id_;
  int events_ = -1;  // epoll descriptor
  std::vector<int> listeners_;
  // True if the last call of Accept accepted the max number of connections. More connections may be
  // waiting, and the edge-triggered epoll does not report these a second time.
  bool more_to_accept_ = false;
  std::vector<TcpPlace> places_;
  uint64_t next_question_ = 1;
  std::map<uint64_t, std::unique_ptr<Question>> questions_;
  std::vector<std::unique_ptr<Answer>> answers_;
  // Texts of warnings, and the time until which each is not logged again.
  std::map<std::string, absl::Time> logged_;
};

}  // namespace baton
