#include "kv_transfer/transport/tcp_greetings.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include <netinet/in.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/log.h"
#include "common/base/random.h"
#include "kv_transfer/transport/byte_packer.h"
#include "kv_transfer/transport/tcp_connecting.h"

namespace baton {
namespace {

// The magic numbers at the start of questions and answers also stand for the version of the format:
// increment them with every change.
constexpr uint32_t kQuestionMagic = 0xBA706001;
constexpr uint32_t kAnswerMagic = 0xBA706101;
constexpr size_t kQuestionBytes = 4 + 8 + SocketAddress::kPackedBytes;
constexpr size_t kAnswerHeadBytes = 4 + 1 + 1;
constexpr size_t kMaxWords = 200;
// Time that the asking side has to read the answer and close the connection. It should close first:
// the side that closes first keeps its port for a minute (TIME_WAIT), and this worker's listening
// port must be free again immediately.
constexpr absl::Duration kToTakeTheAnswer = absl::Seconds(1);
constexpr absl::Duration kSameWords = absl::Seconds(60);
constexpr size_t kWordsKept = 64;
constexpr int kAcceptsPerCall = 64;  // max connections accepted per call, for each listener
constexpr char kOpenThere[] = ": unless it has ended or hangs, open --kv-ports there";

std::string Words(int error) { return std::strerror(error); }

}  // namespace

enum class TcpGreetings::Said : uint8_t {
  kReached = 1,
  kNotReached = 2,   // the answer's text says why
  kOtherSource = 3,  // the answer's text is the address that the question came from
  kSomeoneElse = 4,  // the question was for a transport with another id
};

// State of one call of Ask, from the call until `done`.
struct TcpGreetings::Question {
  // A connection to one of the peer's addresses at which the peer's TcpGreetings listens, and the
  // answer that came over it.
  struct Asked {
    SocketAddress own_kv;
    TcpConnecting connecting;
    bool sent = false;
    std::string received;
    bool reached = false;
    std::string why;  // reason of the failure; empty while there is none
  };

  uint64_t peer_id = 0;
  absl::Time deadline;
  std::function<void(absl::Status)> done;
  std::vector<TcpConnecting> there;  // connections to the ports at which the peer's UCX listens
  std::vector<Asked> back;

  std::optional<absl::Status> Move(int events, absl::Time now);
  static void MoveAsked(Asked* asked, uint64_t peer_id, int events);
  static void TakeAnswer(Asked* asked);
};

// State of one connection over which another worker asks whether this one can connect back.
struct TcpGreetings::Answer {
  Socket socket;
  SocketAddress from;
  absl::Time deadline;
  std::string received;
  std::unique_ptr<TcpConnecting> back;
  bool replied = false;
  bool over = false;
};

void TcpGreetings::Question::TakeAnswer(Asked* asked) {
  ByteUnpacker in(asked->received);
  const uint32_t magic = in.Get<uint32_t>();
  const Said said = static_cast<Said>(in.Get<uint8_t>());
  const uint8_t bytes = in.Get<uint8_t>();
  if (!in.ok()) return;
  const std::string greeter = asked->connecting.to().ToString();
  if (magic != kAnswerMagic) {
    asked->why =
        absl::StrCat("the program that listens at ", greeter, " is not a worker of this version");
    return;
  }
  const std::string words(in.GetFixed(bytes));
  if (!in.ok()) return;
  const std::string own = asked->own_kv.ToString();
  if (!in.at_end()) {
    asked->why = absl::StrCat(greeter, " sent more bytes than an answer has");
  } else if (said == Said::kReached) {
    asked->reached = true;
  } else if (said == Said::kNotReached) {
    asked->why = absl::StrCat("the other worker can't connect back to ", own,
                              ", where this one takes KV: ", words,
                              ": open --kv-ports here for the other worker");
  } else if (said == Said::kOtherSource) {
    asked->why = absl::StrCat("the other worker sees this one at ", words, " and not at ", own,
                              ", where it takes KV: workers can't reach each other through "
                              "translated addresses (NAT)");
  } else {
    asked->why = absl::StrCat("another worker listens at ", greeter, " by now");
  }
}

void TcpGreetings::Question::MoveAsked(Asked* asked, uint64_t peer_id, int events) {
  TcpConnecting& connecting = asked->connecting;
  const auto fail = [&](absl::string_view why) {
    asked->why = absl::StrCat("can't ask ", connecting.to().ToString(),
                              " whether the other worker reaches this one: ", why, kOpenThere);
    connecting.Close();
  };
  if (asked->reached || !asked->why.empty()) return;
  connecting.Move();
  if (connecting.failed()) return fail(connecting.why());
  if (!connecting.connected()) return;
  if (!asked->sent) {
    BytePacker out;
    out.Put<uint32_t>(kQuestionMagic);
    out.Put<uint64_t>(peer_id);
    asked->own_kv.Pack(&out);
    const std::string bytes = out.Take();
    // The send buffer of a new connection always has space for these few bytes.
    if (send(connecting.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL) !=
        static_cast<ssize_t>(bytes.size())) {
      return fail(Words(errno));
    }
    asked->sent = true;
    const int error = WatchSocket(events, connecting.fd(), EPOLLIN);
    if (error != 0) return fail(Words(error));
  }
  char bytes[kAnswerHeadBytes + kMaxWords];
  const ssize_t got = recv(connecting.fd(), bytes, sizeof(bytes), 0);
  if (got == 0)
    return fail("it closed the connection, as a worker does when too many others connect");
  if (got < 0) {
    if (errno != EAGAIN && errno != EINTR) fail(Words(errno));
    return;
  }
  asked->received.append(bytes, got);
  TakeAnswer(asked);
  if (asked->reached || !asked->why.empty()) connecting.Close();
}

std::optional<absl::Status> TcpGreetings::Question::Move(int events, absl::Time now) {
  for (TcpConnecting& one : there) {
    one.Move();
    if (one.connected()) one.Close();
  }
  for (Asked& one : back) MoveAsked(&one, peer_id, events);
  const bool reaches = std::any_of(there.begin(), there.end(),
                                   [](const TcpConnecting& one) { return one.connected(); });
  const bool is_reached =
      std::any_of(back.begin(), back.end(), [](const Asked& one) { return one.reached; });
  if (reaches && is_reached) return absl::OkStatus();
  const bool over = now >= deadline;
  const std::string late = absl::StrCat("no answer in ", absl::FormatDuration(kAskFor));
  if (!reaches) {
    const auto waits = std::find_if(there.begin(), there.end(),
                                    [](const TcpConnecting& one) { return !one.failed(); });
    if (waits == there.end() || over) {
      const TcpConnecting& worst = waits == there.end() ? there.front() : *waits;
      return absl::UnavailableError(absl::StrCat(
          "can't connect to ", worst.to().ToString(),
          ", where the other worker takes KV: ", worst.failed() ? worst.why() : late, kOpenThere));
    }
  }
  if (!is_reached) {
    const auto waits =
        std::find_if(back.begin(), back.end(), [](const Asked& one) { return one.why.empty(); });
    if (waits == back.end()) return absl::UnavailableError(back.front().why);
    if (over) {
      return absl::UnavailableError(
          absl::StrCat("can't ask ", waits->connecting.to().ToString(),
                       " whether the other worker reaches this one: ", late, kOpenThere));
    }
  }
  return std::nullopt;
}

TcpGreetings::TcpGreetings(int events) : id_(RandomU64()), events_(events) {}

TcpGreetings::~TcpGreetings() {
  for (const int listener : listeners_) close(listener);
  close(events_);
}

absl::StatusOr<std::unique_ptr<TcpGreetings>> TcpGreetings::Listen(
    const std::vector<SocketAddress>& kv, const PortRange& ports) {
  const int events = epoll_create1(EPOLL_CLOEXEC);
  if (events < 0) {
    return absl::UnavailableError(absl::StrCat("listening for other workers: ", Words(errno)));
  }
  std::unique_ptr<TcpGreetings> greetings(new TcpGreetings(events));
  for (const SocketAddress& place : kv) {
    Socket listener;
    const int count = ports.any() ? 1 : ports.last - ports.first + 1;
    // Workers that start at the same time try different ports first.
    const int start = static_cast<int>(RandomU64() % count);
    int error = EADDRINUSE;
    for (int i = 0; i < count && error == EADDRINUSE; ++i) {
      const SocketAddress at = place.WithPort(ports.any() ? 0 : ports.first + (start + i) % count);
      listener =
          Socket(socket(place.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP));
      // Lets us listen although connections of a killed worker still use the port.
      const int yes = 1;
      const bool listens =
          listener.fd() >= 0 &&
          setsockopt(listener.fd(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) == 0 &&
          bind(listener.fd(), at.data(), at.size()) == 0 && listen(listener.fd(), SOMAXCONN) == 0;
      error = listens ? 0 : errno;
    }
    if (error == EADDRINUSE && !ports.any()) return ports.Taken();
    const auto at = error == 0 ? SocketAddress::Of(listener.fd()) : std::nullopt;
    // Edge-triggered: with level-triggered events a process without free descriptors would spin.
    if (at) error = WatchSocket(events, listener.fd(), EPOLLIN | EPOLLET);
    if (!at || error != 0) {
      return absl::UnavailableError(
          absl::StrCat("listening for other workers at ", place.ToString(), ": ", Words(error)));
    }
    greetings->places_.push_back({place, *at});
    greetings->listeners_.push_back(listener.Release());
  }
  return greetings;
}

uint64_t TcpGreetings::Ask(uint64_t peer_id, const std::vector<TcpWay>& ways, absl::Time now,
                           std::function<void(absl::Status)> done) {
  BATON_CHECK(!ways.empty());
  auto question = std::make_unique<Question>();
  question->peer_id = peer_id;
  question->deadline = now + kAskFor;
  question->done = std::move(done);
  for (const TcpWay& way : ways) {
    const auto& there = question->there;
    const bool known = std::any_of(there.begin(), there.end(), [&](const TcpConnecting& one) {
      return one.to().ToString() == way.peer.kv.ToString();
    });
    if (!known) question->there.emplace_back(events_, nullptr, way.peer.kv);
    question->back.push_back(
        {way.own_kv, TcpConnecting(events_, &way.own_kv, way.peer.greeter), false, "", false, ""});
  }
  questions_.emplace(next_question_, std::move(question));
  return next_question_++;
}

void TcpGreetings::Forget(uint64_t question) { questions_.erase(question); }

absl::Time TcpGreetings::deadline() const {
  if (more_to_accept_) return absl::InfinitePast();
  absl::Time first = absl::InfiniteFuture();
  for (const auto& [number, question] : questions_) first = std::min(first, question->deadline);
  for (const auto& answer : answers_) first = std::min(first, answer->deadline);
  return first;
}

bool TcpGreetings::Progress(absl::Time now) {
  epoll_event events[16];
  const int happened = epoll_wait(events_, events, 16, 0);
  if (happened <= 0 && !more_to_accept_ && now < deadline()) return false;
  Accept(now);
  for (auto& answer : answers_) MoveAnswer(answer.get(), now);
  answers_.erase(std::remove_if(answers_.begin(), answers_.end(),
                                [](const auto& answer) { return answer->over; }),
                 answers_.end());
  std::vector<std::pair<std::function<void(absl::Status)>, absl::Status>> ended;
  for (auto it = questions_.begin(); it != questions_.end();) {
    std::optional<absl::Status> result = it->second->Move(events_, now);
    if (!result) {
      ++it;
      continue;
    }
    ended.emplace_back(std::move(it->second->done), *std::move(result));
    it = questions_.erase(it);
  }
  for (auto& [done, result] : ended) done(std::move(result));
  return true;
}

void TcpGreetings::Accept(absl::Time now) {
  more_to_accept_ = false;
  for (const int listener : listeners_) {
    for (int accepted = 0;; ++accepted) {
      if (accepted == kAcceptsPerCall) {  // A flood of connections must not hold up the KV thread.
        more_to_accept_ = true;
        break;
      }
      Socket socket(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (socket.fd() < 0) {
        if (errno == EINTR || errno == ECONNABORTED) continue;
        break;
      }
      const auto from = SocketAddress::PeerOf(socket.fd());
      if (!from) continue;
      const auto of_that_host =
          std::count_if(answers_.begin(), answers_.end(),
                        [&](const auto& answer) { return answer->from.SameHost(*from); });
      if (answers_.size() >= kAnswers || of_that_host >= kAnswersOfOneHost) continue;
      if (WatchSocket(events_, socket.fd(), EPOLLIN) != 0) continue;
      answers_.push_back(std::make_unique<Answer>(
          Answer{std::move(socket), *from, now + kAnswerWithin, "", nullptr, false, false}));
    }
  }
}

void TcpGreetings::MoveAnswer(Answer* answer, absl::Time now) {
  char bytes[kQuestionBytes + 1];
  const ssize_t got = recv(answer->socket.fd(), bytes, sizeof(bytes), 0);
  if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) {
    answer->over = true;
    return;
  }
  if (got > 0) {
    answer->received.append(bytes, got);
    if (answer->received.size() > kQuestionBytes) {
      answer->over = true;
      return;
    }
    if (answer->received.size() == kQuestionBytes) TakeQuestion(answer, now);
  }
  if (answer->back != nullptr && !answer->replied) {
    TcpConnecting& back = *answer->back;
    back.Move();
    if (back.connected()) {
      Reply(answer, Said::kReached, "", now);
    } else if (back.failed() || now >= answer->deadline) {
      const std::string why =
          back.failed() ? back.why()
                        : absl::StrCat("no answer in ", absl::FormatDuration(kAnswerWithin));
      LogNoWayBack(back.to(), why, now);
      Reply(answer, Said::kNotReached, why, now);
    }
    if (answer->replied) back.Close();
  }
  if (now >= answer->deadline) answer->over = true;
}

void TcpGreetings::TakeQuestion(Answer* answer, absl::Time now) {
  ByteUnpacker in(answer->received);
  const uint32_t magic = in.Get<uint32_t>();
  const uint64_t id = in.Get<uint64_t>();
  const auto kv = SocketAddress::Unpack(&in);
  if (magic != kQuestionMagic || !kv) {
    answer->over = true;
  } else if (id != id_) {
    Reply(answer, Said::kSomeoneElse, "", now);
  } else if (!kv->SameHost(answer->from)) {
    Reply(answer, Said::kOtherSource, answer->from.ToString(), now);
  } else {
    answer->back = std::make_unique<TcpConnecting>(events_, nullptr, *kv);
  }
}

void TcpGreetings::Reply(Answer* answer, Said said, const std::string& words, absl::Time now) {
  BytePacker out;
  out.Put<uint32_t>(kAnswerMagic);
  out.Put<uint8_t>(static_cast<uint8_t>(said));
  out.Put<uint8_t>(std::min(words.size(), kMaxWords));
  out.PutFixed(absl::string_view(words).substr(0, kMaxWords));
  const std::string bytes = out.Take();
  // Nothing has been sent over this connection, so its send buffer has space for these few bytes.
  (void)!send(answer->socket.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  answer->replied = true;
  answer->deadline = now + kToTakeTheAnswer;
}

void TcpGreetings::LogNoWayBack(const SocketAddress& kv, const std::string& why, absl::Time now) {
  std::string words = absl::StrCat(kv.ToString(), " ", why);
  for (auto it = logged_.begin(); it != logged_.end();) {
    it = now < it->second ? std::next(it) : logged_.erase(it);
  }
  if (logged_.size() >= kWordsKept || !logged_.emplace(std::move(words), now + kSameWords).second) {
    return;
  }
  Log(Severity::kWarning, "kv_no_way_back",
      {{"to", kv.ToString()},
       {"why", absl::StrCat("another worker reaches this one, but this one can't connect to ",
                            kv.ToString(), ", where that worker takes KV: ", why,
                            ": open --kv-ports there; until then no KV passes between the two")}});
}

}  // namespace baton
