#include "common/rpc/connections.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"

namespace baton {
namespace {

// Bytes that accompany a message, such as the headers of its RPC.
constexpr uint64_t kBesideMessage = 512;
// Bytes per second that a connection sends besides messages, for example to confirm what it got.
constexpr double kOtherBytesPerSecond = 32 << 10;
// Time after which the server knows of an RPC that gRPC has read from a connection. On a busy
// machine it may be a second or two.
constexpr absl::Duration kLate = absl::Seconds(5);

// Returns the number of bytes that have come on a connection, or 0 if the kernel doesn't know it.
uint64_t BytesReceived(int fd) {
  tcp_info info{};
  socklen_t length = sizeof info;
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return 0;
  const size_t needed = offsetof(tcp_info, tcpi_bytes_received) + sizeof info.tcpi_bytes_received;
  return length < needed ? 0 : info.tcpi_bytes_received;
}

// Returns true if nothing more comes on a connection. gRPC then cancels its RPCs.
bool HasEnded(int fd) {
  pollfd end = {.fd = fd, .events = POLLRDHUP, .revents = 0};
  return poll(&end, 1, 0) > 0;
}

}  // namespace

Connections::Connections(ConnectionLimits limits, ConnectionCounts* counts)
    : limits_(limits),
      own_counts_(counts == nullptr
                      ? std::make_unique<ConnectionCounts>(limits.connections, limits.per_address)
                      : nullptr),
      counts_(counts == nullptr ? own_counts_.get() : counts) {}

Connections::~Connections() {
  for (const auto& [key, connection] : connections_) {
    close(connection.copy);
    counts_->Leave(connection.address);
  }
}

Connections::Verdict Connections::Enter(uint64_t key, const std::string& address, int port,
                                        int copy) {
  if (const Verdict verdict = counts_->Enter(address); verdict != Verdict::kTaken) return verdict;
  MutexLock lock(&mutex_);
  Connection connection;
  connection.address = address;
  connection.peer = absl::StrCat(address, ":", port);
  connection.copy = copy;
  if (ended_) shutdown(copy, SHUT_WR);
  key_of_[connection.peer] = key;  // an earlier connection of this peer has ended
  connections_[key] = std::move(connection);
  return Verdict::kTaken;
}

void Connections::Leave(uint64_t key) {
  MutexLock lock(&mutex_);
  const auto found = connections_.find(key);
  if (found == connections_.end()) return;
  const Connection& connection = found->second;
  without_request_ -= connection.without_request();
  close(connection.copy);
  counts_->Leave(connection.address);
  const auto key_of = key_of_.find(connection.peer);
  if (key_of != key_of_.end() && key_of->second == key) key_of_.erase(key_of);
  awaiting_.erase(key);
  connections_.erase(found);
}

void Connections::EndAll() {
  MutexLock lock(&mutex_);
  ended_ = true;
  for (const auto& [key, connection] : connections_) shutdown(connection.copy, SHUT_WR);
}

uint64_t Connections::RpcBegins(absl::string_view peer) {
  uint64_t key = 0;
  {
    MutexLock lock(&mutex_);
    const auto found = key_of_.find(peer);
    if (found == key_of_.end()) return 0;
    key = found->second;
    Connection& connection = connections_.at(key);
    if (++connection.rpcs <= limits_.cut_above() || !Cut(&connection)) return key;
  }
  Log(Severity::kWarning, "connection_cut",
      {{"peer", peer},
       {"because",
        absl::StrCat("it has more than ", limits_.cut_above(), " open RPCs, and was told that ",
                     limits_.streams, " is the limit")}});
  return key;
}

void Connections::RpcEnds(uint64_t key) {
  MutexLock lock(&mutex_);
  if (Connection* const connection = Find(key)) --connection->rpcs;
}

void Connections::RpcCancelled(uint64_t key, absl::Time now) {
  if (limits_.cancels_per_second == 0) return;
  std::string peer;
  {
    MutexLock lock(&mutex_);
    Connection* const connection = Find(key);
    if (connection == nullptr) return;
    if (now - connection->second_began >= absl::Seconds(1)) {
      connection->second_began = now;
      connection->cancelled = 0;
    }
    if (++connection->cancelled <= limits_.cancels_per_second) return;
    if (HasEnded(connection->copy) || !Cut(connection)) return;
    peer = connection->peer;
  }
  Log(Severity::kWarning, "connection_cut",
      {{"peer", peer},
       {"because", absl::StrCat("it cancelled more than ", limits_.cancels_per_second,
                                " RPCs within a second")}});
}

Connections::Awaited Connections::MessageAwaited(uint64_t key) {
  Awaited result;
  std::string cut;
  {
    MutexLock lock(&mutex_);
    const auto found = connections_.find(key);
    if (found == connections_.end()) return {};
    Connection& connection = found->second;
    if (connection.awaited.empty()) {
      connection.received = BytesReceived(connection.copy);
      connection.accounted = connection.received;
      connection.looked = absl::InfinitePast();
      connection.lately = connection.before = connection.received;
      connection.noted = absl::InfinitePast();
      awaiting_.insert(key);
    }
    connection.awaited.insert(connection.before);
    // The kernel is not asked for each message, so the number may be some milliseconds old.
    result = {.key = key, .received = connection.received, .before = connection.before};
    if (!connection.cut) cut = CountWithoutRequest();
  }
  LogWithoutRequest(cut);
  return result;
}

void Connections::StaysOpen(uint64_t key) {
  std::string cut;
  {
    MutexLock lock(&mutex_);
    Connection* const connection = Find(key);
    if (connection == nullptr) return;
    ++connection->staying;
    if (!connection->cut) cut = CountWithoutRequest();
  }
  LogWithoutRequest(cut);
}

void Connections::NoLongerStaysOpen(uint64_t key) {
  MutexLock lock(&mutex_);
  Connection* const connection = Find(key);
  if (connection == nullptr) return;
  --connection->staying;
  if (!connection->cut) --without_request_;
}

void Connections::MessageCame(const Awaited& awaited, size_t bytes) {
  MutexLock lock(&mutex_);
  const auto found = connections_.find(awaited.key);
  if (found == connections_.end()) return;
  Connection& connection = found->second;
  const auto wait = connection.awaited.find(awaited.before);
  if (wait == connection.awaited.end()) return;
  connection.awaited.erase(wait);
  if (!connection.cut) --without_request_;
  if (bytes > 0) connection.accounted += bytes + kBesideMessage;
  if (connection.awaited.empty()) {
    awaiting_.erase(awaited.key);
    connection.unfinished = 0;
  } else {
    connection.accounted = std::max(connection.accounted, *connection.awaited.begin());
  }
}

uint64_t Connections::BytesSince(const Awaited& awaited) const {
  MutexLock lock(&mutex_);
  const auto found = connections_.find(awaited.key);
  if (found == connections_.end()) return 0;
  const uint64_t received = BytesReceived(found->second.copy);
  return received - std::min(awaited.received, received);
}

uint64_t Connections::UnfinishedBytes(uint64_t key) const {
  MutexLock lock(&mutex_);
  const auto found = connections_.find(key);
  if (found == connections_.end() || found->second.awaited.empty()) return 0;
  const uint64_t received = BytesReceived(found->second.copy);
  return received - std::min(found->second.accounted, received);
}

void Connections::CutIfUnfinished(absl::Time now) {
  if (limits_.unfinished_bytes == 0 && limits_.all_unfinished_bytes == 0) return;
  std::vector<std::string> cut, largest;
  {
    MutexLock lock(&mutex_);
    uint64_t all = 0;
    for (const uint64_t key : awaiting_) {
      Connection& connection = connections_.at(key);
      const uint64_t received = BytesReceived(connection.copy);
      if (connection.looked > absl::InfinitePast()) {
        connection.accounted += static_cast<uint64_t>(
            kOtherBytesPerSecond * absl::ToDoubleSeconds(now - connection.looked));
      }
      connection.looked = now;
      connection.received = received;
      if (connection.noted == absl::InfinitePast()) connection.noted = now;
      if (now - connection.noted >= kLate) {
        connection.before = std::exchange(connection.lately, received);
        connection.noted = now;
      }
      connection.accounted = std::min(connection.accounted, received);
      connection.unfinished = received - connection.accounted;
      if (limits_.unfinished_bytes > 0 && connection.unfinished > limits_.unfinished_bytes &&
          Cut(&connection)) {
        cut.push_back(connection.peer);
      }
      if (!connection.cut) all += connection.unfinished;
    }
    while (limits_.all_unfinished_bytes > 0 && all > limits_.all_unfinished_bytes) {
      const Connection* const one =
          CutLargest([](const Connection& each) { return each.unfinished; });
      all -= one->unfinished;
      largest.push_back(one->peer);
    }
  }
  for (const std::string& peer : cut) {
    Log(Severity::kWarning, "connection_cut",
        {{"peer", peer},
         {"because", absl::StrCat("it has sent more than ", limits_.unfinished_bytes,
                                  " bytes of messages that are not complete")}});
  }
  for (const std::string& peer : largest) {
    Log(Severity::kWarning, "connection_cut",
        {{"peer", peer},
         {"because",
          absl::StrCat("all connections together had sent more than ", limits_.all_unfinished_bytes,
                       " bytes of messages that are not complete, and it had sent the most")}});
  }
}

Connections::Connection* Connections::Find(uint64_t key) {
  const auto found = connections_.find(key);
  return found == connections_.end() ? nullptr : &found->second;
}

bool Connections::Cut(Connection* connection) {
  if (connection->cut) return false;
  without_request_ -= connection->without_request();
  connection->cut = true;
  ++cut_;
  // A connection to no address resets the old one, and drops the bytes that nobody has read. After
  // shutdown() alone, gRPC would first read them, and begin the RPCs in them.
  const sockaddr none = {.sa_family = AF_UNSPEC, .sa_data = {}};
  if (connect(connection->copy, &none, sizeof none) != 0) shutdown(connection->copy, SHUT_RDWR);
  return true;
}

std::string Connections::CountWithoutRequest() {
  const auto limit = static_cast<size_t>(limits_.all_without_request);
  if (++without_request_ <= limit || limit == 0) return "";
  return CutLargest([](const Connection& one) { return one.without_request(); })->peer;
}

void Connections::LogWithoutRequest(const std::string& cut) const {
  if (cut.empty()) return;
  Log(Severity::kWarning, "connection_cut",
      {{"peer", cut},
       {"because",
        absl::StrCat("all connections together had more than ", limits_.all_without_request,
                     " RPCs whose request has not come, or Watch calls of the health service, "
                     "and the most were on it")}});
}

const Connections::Connection* Connections::CutLargest(
    absl::FunctionRef<uint64_t(const Connection&)> amount) {
  std::map<absl::string_view, uint64_t> of_address;
  for (const auto& [key, connection] : connections_) {
    if (!connection.cut) of_address[connection.address] += amount(connection);
  }
  Connection* largest = nullptr;
  std::pair<uint64_t, uint64_t> largest_amounts;  // Those of its address, and its own.
  for (auto& [key, connection] : connections_) {
    const std::pair amounts(of_address[connection.address], amount(connection));
    if (connection.cut || amounts.second == 0 || amounts < largest_amounts) continue;
    largest = &connection;
    largest_amounts = amounts;
  }
  if (largest != nullptr) Cut(largest);
  return largest;
}

ConnectionCounters Connections::counters() const {
  ConnectionCounters counters = counts_->counters();
  MutexLock lock(&mutex_);
  counters.cut = cut_;
  return counters;
}

size_t Connections::open() const {
  MutexLock lock(&mutex_);
  return connections_.size();
}

}  // namespace baton
