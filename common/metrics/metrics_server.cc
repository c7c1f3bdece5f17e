#include "common/metrics/metrics_server.h"

#include <algorithm>
#include <list>
#include <optional>
#include <sstream>
#include <thread>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <pthread.h>

#include "absl/strings/str_cat.h"
#include "common/base/host_port.h"
#include "common/base/listen_check.h"
#include "common/base/status_macros.h"

namespace baton {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::ip::tcp;

// pause in accepting after an error such as EMFILE
constexpr auto kAcceptPause = std::chrono::milliseconds(100);
constexpr char kTextType[] = "text/plain; charset=utf-8";
constexpr char kMetricsType[] = "text/plain; version=0.0.4; charset=utf-8";

using Response = http::response<http::string_body>;

Response Answer(http::status status, std::string body, const char* type = kTextType) {
  Response response(status, 11);
  response.set(http::field::content_type, type);
  response.set(http::field::connection, "close");
  response.body() = std::move(body);
  response.prepare_payload();
  return response;
}

}  // namespace

namespace {

class Connection;

}  // namespace

struct MetricsServer::Parts {
  explicit Parts(Options o) : options(std::move(o)) {}

  absl::Status Listen();
  void Accept();
  // If there are as many connections as there may be, closes the oldest one that has not sent its
  // whole request, or else the oldest one.
  void MakePlace();

  const Options options;
  std::function<std::string()> text;
  // Open connections, the oldest one first. Declared before `io`, because the connections use this
  // field until they end with `io`.
  std::list<Connection*> connections;
  asio::io_context io{1};
  tcp::acceptor acceptor{io};
  asio::steady_timer pause{io};
  std::thread thread;
};

namespace {

// One connection: reads one request, sends one answer, and closes.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(tcp::socket socket, const MetricsServer::Options* options,
             const std::function<std::string()>* text, std::list<Connection*>* all)
      : stream_(std::move(socket)),
        options_(options),
        text_(text),
        all_(all),
        place_(all->insert(all->end(), this)),
        buffer_(options->max_request_bytes) {
    parser_.header_limit(static_cast<uint32_t>(options->max_request_bytes));
    parser_.body_limit(0);
  }
  ~Connection() {
    if (place_) all_->erase(*place_);
  }

  bool has_request() const { return has_request_; }
  // Closes the connection now, and takes it off the list.
  void Abandon() {
    all_->erase(*place_);
    place_ = std::nullopt;
    stream_.close();
  }

  void Start() {
    stream_.expires_after(absl::ToChronoMilliseconds(options_->time_limit));
    http::async_read_header(
        stream_, buffer_, parser_,
        [self = shared_from_this()](beast::error_code error, size_t) { self->OnRequest(error); });
  }

 private:
  void OnRequest(beast::error_code error) {
    has_request_ = true;
    if (error == http::error::header_limit || error == http::error::buffer_overflow) {
      Send(
          Answer(http::status::request_header_fields_too_large,
                 absl::StrCat("a request of more than ", options_->max_request_bytes, " bytes\n")));
    } else if (error == http::error::body_limit) {
      Send(Answer(http::status::payload_too_large, "a request for /metrics has no body\n"));
    } else if (error &&
               error.category() != http::make_error_code(http::error::bad_value).category()) {
      // The client has gone or was too slow, so no answer is sent.
    } else if (error) {
      Send(Answer(http::status::bad_request, absl::StrCat("no HTTP: ", error.message(), "\n")));
    } else {
      Send(Respond());
    }
  }

  Response Respond() {
    const auto& request = parser_.get();
    beast::string_view path = request.target();
    path = path.substr(0, path.find('?'));
    if (path != "/metrics") {
      return Answer(http::status::not_found, "there is only /metrics\n");
    }
    if (request.method() != http::verb::get && request.method() != http::verb::head) {
      Response refusal = Answer(http::status::method_not_allowed, "/metrics takes GET and HEAD\n");
      refusal.set(http::field::allow, "GET, HEAD");
      return refusal;
    }
    if (!parser_.is_done()) {  // a chunked body would follow
      return Answer(http::status::payload_too_large, "a request for /metrics has no body\n");
    }
    return Answer(http::status::ok, (*text_)(), kMetricsType);
  }

  // Writes the answer as one string. Beast's code for writing a message in parts would add 400 KB
  // to every program.
  void Send(Response response) {
    std::ostringstream head;
    head << response.base();
    answer_ = std::move(head).str();
    if (parser_.get().method() != http::verb::head) answer_ += response.body();
    stream_.expires_after(absl::ToChronoMilliseconds(options_->time_limit));
    asio::async_write(stream_, asio::buffer(answer_),
                      [self = shared_from_this()](beast::error_code error, size_t) {
                        if (!error) self->Close();
                      });
  }

  // Tells the client that no more bytes follow, and waits for it to close first, until the time
  // limit. Closing a socket with unread bytes could make the client lose the answer.
  void Close() {
    beast::error_code ignored;
    stream_.socket().shutdown(tcp::socket::shutdown_send, ignored);
    Drain();
  }
  void Drain() {
    stream_.async_read_some(asio::buffer(sink_),
                            [self = shared_from_this()](beast::error_code error, size_t) {
                              if (!error) self->Drain();
                            });
  }

  beast::tcp_stream stream_;
  const MetricsServer::Options* const options_;
  const std::function<std::string()>* const text_;
  std::list<Connection*>* const all_;
  std::optional<std::list<Connection*>::iterator> place_;
  bool has_request_ = false;
  beast::flat_buffer buffer_;
  http::request_parser<http::empty_body> parser_;
  std::string answer_;
  char sink_[1024];
};

}  // namespace

absl::Status MetricsServer::Parts::Listen() {
  RETURN_IF_ERROR(CheckListen(options.listen));
  beast::error_code error;
  tcp::resolver resolver(io);
  const auto found =
      resolver.resolve(HostOf(options.listen), absl::StrCat(PortOf(options.listen)),
                       tcp::resolver::passive | tcp::resolver::numeric_service, error);
  const auto refused = [&](absl::string_view what) {
    return absl::UnavailableError(
        absl::StrCat(what, " ", options.listen, " for metrics: ", error.message()));
  };
  if (error) return refused("can't resolve");
  const tcp::endpoint endpoint = found.begin()->endpoint();
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(asio::socket_base::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (error) return refused("can't listen on");
  return absl::OkStatus();
}

void MetricsServer::Parts::MakePlace() {
  if (connections.size() < static_cast<size_t>(options.max_connections)) return;
  const auto silent = std::find_if(connections.begin(), connections.end(),
                                   [](const Connection* c) { return !c->has_request(); });
  (silent == connections.end() ? connections.front() : *silent)->Abandon();
}

void MetricsServer::Parts::Accept() {
  acceptor.async_accept([this](beast::error_code error, tcp::socket socket) {
    if (error == asio::error::operation_aborted) return;
    if (error) {
      pause.expires_after(kAcceptPause);
      pause.async_wait([this](beast::error_code stopped) {
        if (!stopped) Accept();
      });
      return;
    }
    MakePlace();
    std::make_shared<Connection>(std::move(socket), &options, &text, &connections)->Start();
    Accept();
  });
}

absl::StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::Listen(Options options) {
  auto parts = std::make_unique<Parts>(std::move(options));
  RETURN_IF_ERROR(parts->Listen());
  return std::unique_ptr<MetricsServer>(new MetricsServer(std::move(parts)));
}

MetricsServer::MetricsServer(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {
  beast::error_code error;
  address_ = WithPort(parts_->options.listen, parts_->acceptor.local_endpoint(error).port());
}

void MetricsServer::Serve(std::function<std::string()> text) {
  parts_->text = std::move(text);
  parts_->Accept();
  parts_->thread = std::thread([p = parts_.get()] {
    pthread_setname_np(pthread_self(), "metrics");
    p->io.run();
  });
}

MetricsServer::~MetricsServer() {
  parts_->io.stop();
  if (parts_->thread.joinable()) parts_->thread.join();
}

}  // namespace baton
