#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include "absl/status/status.h"
#include "common/rpc/connection_counts.h"

struct sockaddr_storage;

namespace baton {

// Accepts connections on all addresses of one HOST:PORT. I/O thread, except for Listen().
class HttpListener {
 public:
  // Takes a connection that the counts have taken. Returns false, and closes `fd`, if no descriptor
  // can be watched any more; the listener then takes it out of the counts.
  using Take = std::function<bool(int fd, const std::string& address, int port)>;
  // Tells a client that there are too many connections. Does not own `fd`, and does not block.
  using TooMany = std::function<void(int fd)>;

  HttpListener(boost::asio::io_context* io, ConnectionCounts* counts);
  ~HttpListener();

  // Fails as CheckListen does. Clients that connect wait until Start().
  absl::Status Listen(const std::string& listen);
  int port() const { return port_; }
  void Start(Take take, TooMany too_many);
  // Takes the connections that wait, and closes the listening sockets.
  void Stop();

 private:
  struct Listener {
    boost::asio::posix::stream_descriptor socket;
    bool awaited = false;  // The end of an async_wait is still to come.
  };
  void Await(Listener* listener);
  // Waits for some time before it accepts again.
  void Rest();
  // Returns false if connections wait that can be neither taken nor refused.
  bool AcceptAll(int listener);
  // Uses the spare descriptor to accept and close one connection. Returns false if it can't.
  bool RefuseWithSpare(int listener);
  void Offer(int fd, const sockaddr_storage& peer);

  boost::asio::io_context* const io_;
  ConnectionCounts* const counts_;
  int port_ = 0;
  Take take_;
  TooMany too_many_;
  std::vector<std::unique_ptr<Listener>> listeners_;
  boost::asio::steady_timer rest_;
  bool rests_ = false;
  int spare_ = -1;  // Closed for a moment to refuse a connection when no descriptor is left.
  RefusalLog limit_of_all_{"too many connections"};
  RefusalLog limit_of_one_{"too many connections from this address"};
  RefusalLog no_descriptor_{"this process has no descriptor left"};
  RefusalLog not_watched_{"epoll can't watch more descriptors (/proc/sys/fs/epoll)"};
};

}  // namespace baton
