#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "common/rpc/connection_counts.h"

namespace baton {

// Limits of the connections of a server.
struct ConnectionLimits {
  int connections = 4096;  // max open connections; each one takes two descriptors
  int per_address = 0;     // max open connections from one IP address; 0: no limit
  // Max RPCs that are open on one connection at the same time. gRPC tells it to the clients, and
  // itself ends the connection of a client that has confirmed it and goes on.
  int streams = 4096;
  // Returns the number of open RPCs above which a connection is cut. For gRPC and its clients, an
  // RPC has ended as soon as it was cancelled or its status was sent, and another one may begin.
  // The server hears of the end later, so a client that keeps to the limit may replace all its RPCs
  // at once. Besides, up to about a thousand cancelled ones may wait with long texts for their
  // turn.
  int cut_above() const { return 2 * streams + 1024; }
  // Max RPCs that a client may cancel on one connection within a second. If it cancels more, the
  // connection is cut. RPCs that end because of their deadline do not count, nor do those that end
  // because their connection has ended. 0: no limit.
  int cancels_per_second = 200;
  // Max bytes that the server holds of messages that are still coming on one connection. If it has
  // sent more, the connection is cut. 0: no limit.
  uint64_t unfinished_bytes = 160 << 20;
  // Max RPCs whose request has not come, and max bytes of messages that are still coming, of all
  // connections together. When there are more, the address that has the most loses its connection
  // that has the most, and so on until there are not. 0: no limit. A stream on which messages come
  // again and again counts as an RPC whose request has not come, and so does one that stays open
  // (see Connections::StaysOpen).
  int all_without_request = 0;
  uint64_t all_unfinished_bytes = 0;
  // Time in which a client must begin to speak HTTP/2.
  absl::Duration handshake = absl::Seconds(5);
};

// The open connections of a gRPC server. ConnectionCounts decides which ones are taken; this class
// cuts those that do too much. Any thread.
class Connections {
 public:
  // Without `counts`, counts its connections by itself, with the limits in `limits`. With `counts`,
  // which outlives this object, the limits of `counts` hold in place of `limits.connections` and
  // `limits.per_address`: other servers may share it.
  explicit Connections(ConnectionLimits limits, ConnectionCounts* counts = nullptr);
  // Closes the descriptors that it has.
  ~Connections();

  // The counts of connections, which other servers may share.
  ConnectionCounts& counts() { return *counts_; }
  const ConnectionLimits& limits() const { return limits_; }

  using Verdict = ConnectionCounts::Verdict;
  // Enters a connection. If it is taken, this object owns `copy`, a copy of its descriptor. A
  // connection has a key of its own, which is not 0; an address is what gRPC writes, for example
  // ipv4:127.0.0.1.
  Verdict Enter(uint64_t key, const std::string& address, int port, int copy);
  // Forgets a connection, and closes the copy. Does nothing if there is none with this key.
  void Leave(uint64_t key);
  // See ConnectionCounts.
  void NoDescriptor() { counts_->NoDescriptor(); }

  // Tells all clients, also those that connect later, that nothing more comes on their connections.
  // They get what was sent before, and then take RPCs that have no status as Unavailable.
  void EndAll();

  // Tells of an RPC that a client has begun. The connection is cut if it has far more open RPCs
  // than the limit. Returns the key of the newest connection of this peer, or 0 if it has ended.
  // `peer` is ServerContext::peer(), for example ipv4:127.0.0.1:5000.
  uint64_t RpcBegins(absl::string_view peer);
  // Tell of an RPC that its client has cancelled, and of one that has ended. The connection is cut
  // if too many were cancelled. These and the functions below do nothing for a connection that has
  // ended.
  void RpcCancelled(uint64_t key, absl::Time now);
  void RpcEnds(uint64_t key);

  // A message for which the server waits.
  struct Awaited {
    uint64_t key = 0;       // the connection
    uint64_t received = 0;  // bytes that the connection had sent when the wait began
    // The same, but some seconds earlier. All bytes of the message came later: gRPC reads the first
    // ones before the server knows of the RPC.
    uint64_t before = 0;
  };
  // Tell that the server waits for a message on an RPC of this connection, and that it no longer
  // does, because the message has come with this number of bytes or won't come (0).
  //
  // gRPC 1.51 knows the length of a message when it begins, but compares it with the limit only
  // when it has read all of it. So the kernel is asked how much each connection has sent. It can't
  // tell how much of that belongs to a message that won't come. But when a wait ends, all bytes
  // that came some seconds before the waits that go on belong to no message that is still coming.
  Awaited MessageAwaited(uint64_t key);
  void MessageCame(const Awaited& awaited, size_t bytes);
  // Call StaysOpen when the request of an RPC has come and the RPC stays open for as long as its
  // client likes. Call NoLongerStaysOpen when that RPC ends.
  void StaysOpen(uint64_t key);
  void NoLongerStaysOpen(uint64_t key);
  // Returns the number of bytes that the connection has sent since the wait began, or 0 if it has
  // ended.
  uint64_t BytesSince(const Awaited& awaited) const;
  // Returns the number of bytes that CutIfUnfinished compares with the limit: at most as many does
  // the server hold of messages of this connection that are still coming.
  uint64_t UnfinishedBytes(uint64_t key) const;
  // The longest message that the server takes. Called before there are connections.
  void SetMaxMessage(size_t bytes) { max_message_bytes_ = bytes; }
  size_t max_message_bytes() const { return max_message_bytes_; }
  // Cuts connections that have sent more than the limits of messages that are still coming. Called
  // every kLook, as long as there are connections.
  static constexpr absl::Duration kLook = absl::Milliseconds(20);
  void CutIfUnfinished(absl::Time now);

  // Returns the numbers of all servers that share the counts. `cut` counts this server alone.
  ConnectionCounters counters() const;
  // Returns the number of connections of this server.
  size_t open() const;

 private:
  struct Connection {
    std::string address;
    std::string peer;  // address and port
    int copy = -1;
    int rpcs = 0;                                    // open
    absl::Time second_began = absl::InfinitePast();  // the second of `cancelled`
    int cancelled = 0;                               // RPCs, in that second
    bool cut = false;
    size_t staying = 0;               // RPCs of StaysOpen()
    std::multiset<uint64_t> awaited;  // Awaited::before of each message
    // Bytes that the connection has sent and that belong to no message that is still coming: those
    // from before any of these messages began, and those of messages that have come.
    uint64_t accounted = 0;
    uint64_t received = 0;  // at the last look
    absl::Time looked = absl::InfinitePast();
    uint64_t unfinished = 0;  // bytes of messages that are still coming, at the last look
    // Bytes that the connection had sent at `noted`, and those that it had sent kLate or more
    // before that.
    uint64_t lately = 0, before = 0;
    absl::Time noted = absl::InfinitePast();

    // Number of this connection's RPCs that ConnectionLimits::all_without_request counts.
    size_t without_request() const { return cut ? 0 : awaited.size() + staying; }
  };

  // Returns a connection, or null if it has ended.
  Connection* Find(uint64_t key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Cuts a connection: the client gets a reset, and bytes that nobody has read are dropped. gRPC
  // then gets an error, and cancels the RPCs that are open on it. Returns false if the connection
  // has been cut before.
  bool Cut(Connection* connection) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Counts one more RPC without request, on a connection that is not cut. If there are too many,
  // cuts a connection and returns its peer; otherwise returns "".
  std::string CountWithoutRequest() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void LogWithoutRequest(const std::string& cut) const;
  // Cuts the connection that has the most of something, of those of the address that has the most.
  // Returns it, or null if no connection has any.
  const Connection* CutLargest(absl::FunctionRef<uint64_t(const Connection&)> amount)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const ConnectionLimits limits_;
  const std::unique_ptr<ConnectionCounts> own_counts_;  // Null if the counts are shared.
  ConnectionCounts* const counts_;
  std::atomic<size_t> max_message_bytes_ = SIZE_MAX;
  mutable Mutex mutex_;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;  // EndAll was called.
  std::map<uint64_t, Connection> connections_ ABSL_GUARDED_BY(mutex_);
  // Key of each peer's connection.
  std::map<std::string, uint64_t, std::less<>> key_of_ ABSL_GUARDED_BY(mutex_);
  std::set<uint64_t> awaiting_ ABSL_GUARDED_BY(mutex_);  // Keys of connections that owe a message.
  // Number of RPCs without request on all connections that are not cut.
  size_t without_request_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t cut_ ABSL_GUARDED_BY(mutex_) = 0;  // See ConnectionCounters.
};

}  // namespace baton
