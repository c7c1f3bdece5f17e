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

// Where a transport takes connections on one network interface.
struct TcpPlace {
  SocketAddress kv;       // where UCX listens
  SocketAddress greeter;  // where TcpGreetings listens
};

// A network interface of ours and one of a peer.
struct TcpWay {
  SocketAddress own_kv;
  TcpPlace peer;
};

// Finds out, before UCX connects two workers over TCP, whether each reaches the other: UCX 1.13
// aborts the process of a worker that is reached by one that it can't connect back to.
//
// A worker that asks connects to the port at which the peer's UCX listens, and closes that
// connection. It also asks the peer's greeter, from its own address for KV, to connect back to that
// address. A peer with several network interfaces is reached when one way works in each direction:
// which one UCX takes is not known before.
//
// Whoever reaches a greeter can make it
// - connect to the host that the question came from, and no other; only when the question bears
//   the id in the transport's address; one connection for each question, without sending a byte,
// - hold 64 connections, 16 of one host, for three seconds each.
//
// One thread. Nothing blocks.
class TcpGreetings {
 public:
  static constexpr absl::Duration kAskFor = absl::Seconds(3);
  // Less, so that its answer arrives in time.
  static constexpr absl::Duration kAnswerWithin = absl::Seconds(2);
  static constexpr int kAnswers = 64;
  static constexpr int kAnswersOfOneHost = 16;

  // Listens on the host of each of `kv`, at one of `ports`. Unavailable if none is free, or if
  // this process or user has no descriptors left.
  static absl::StatusOr<std::unique_ptr<TcpGreetings>> Listen(const std::vector<SocketAddress>& kv,
                                                              const PortRange& ports);
  ~TcpGreetings();
  TcpGreetings(const TcpGreetings&) = delete;
  TcpGreetings& operator=(const TcpGreetings&) = delete;

  // For the transport's address.
  const std::vector<TcpPlace>& places() const { return places_; }
  uint64_t id() const { return id_; }

  // Asks the peer of that id over all of `ways`, at least one, until kAskFor after `now`. `done` is
  // called once, from Progress, unless Forget comes first: OK, or Unavailable with the address and
  // the reason. Returns a number for Forget. `done` may call none of these.
  uint64_t Ask(uint64_t peer_id, const std::vector<TcpWay>& ways, absl::Time now,
               std::function<void(absl::Status)> done);
  void Forget(uint64_t question);

  // Moves everything on; true when something happened.
  bool Progress(absl::Time now);
  // Readable when Progress has something to do.
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
  int events_ = -1;  // epoll
  std::vector<int> listeners_;
  bool more_to_accept_ = false;  // connections that came, and of which no event will tell again
  std::vector<TcpPlace> places_;
  uint64_t next_question_ = 1;
  std::map<uint64_t, std::unique_ptr<Question>> questions_;
  std::vector<std::unique_ptr<Answer>> answers_;
  std::map<std::string, absl::Time> logged_;  // words, and when they may be logged again
};

}  // namespace baton
