#include "router/http/http_connection.h"

#include <algorithm>
#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/socket_base.hpp>
#include <poll.h>
#include <sys/socket.h>

#include "absl/strings/str_cat.h"
#include "common/base/steady_time.h"

namespace baton {
namespace {

using boost::asio::ip::tcp;
using boost::system::error_code;

// Max bytes that are kept of the requests behind the one that is answered.
constexpr size_t kPipelinedBytes = 16 << 10;
// A body of at most this size is read before `check` refuses its request, so that the connection
// can go on.
constexpr uint64_t kShortBody = 16 << 10;
// Numbers of reads, requests and pieces of an answer after which other connections have their turn.
constexpr int kReadsPerTurn = 16, kRequestsPerTurn = 64, kPiecesPerTurn = 8;
// Time between two looks at a connection whose client may have left, while there is no room for
// further bytes.
constexpr auto kLook = std::chrono::milliseconds(50);
constexpr char kGoOn[] = "HTTP/1.1 100 Continue\r\n\r\n";

bool WouldBlock(const error_code& error) {
  return error == boost::asio::error::would_block || error == boost::asio::error::try_again ||
         error == boost::asio::error::interrupted;
}

}  // namespace

HttpConnection::HttpConnection(HttpConnectionShare* share, tcp::socket socket, std::string address,
                               int port)
    : share_(share),
      socket_(std::move(socket)),
      timer_(share->io),
      address_(std::move(address)),
      port_(port) {}

void HttpConnection::Start() {
  share_->connections.insert(this);
  ++share_->open;
  SetDeadline(share_->options.idle_time);
  AwaitReadable();
}

bool HttpConnection::busy() const {
  return phase_ == Phase::kAnswering || (phase_ == Phase::kReading && reader_ != nullptr);
}

void HttpConnection::CloseIfIdle() {
  const auto self = shared_from_this();
  OnReadable();  // A request may have come in this moment.
  if (phase_ == Phase::kReading && reader_ == nullptr) return Close(false);
  Continue();
}

void HttpConnection::Close(bool reset) {
  if (phase_ == Phase::kClosed) return;
  const auto self = shared_from_this();
  phase_ = Phase::kClosed;
  error_code ignored;
  if (reset) socket_.set_option(boost::asio::socket_base::linger(true, 0), ignored);
  socket_.close(ignored);
  timer_.cancel();
  if (leave_timer_ != nullptr) leave_timer_->cancel();
  share_->connections.erase(this);
  --share_->open;
  share_->options.counts->Leave(address_);
  answer_.reset();
  DropReader();
  after_body_.reset();
  in_ = std::string();
  if (const auto exchange = std::move(exchange_)) {
    --share_->exchanges;
    exchange->EndWith(PendingExchange::End::kLeft);
  }
  if (share_->changed) share_->changed();
}

void HttpConnection::Continue() {
  Write();
  Advance();
  if (phase_ == Phase::kClosed) return;
  if (in_.empty() && in_.capacity() > sizeof(std::string)) in_ = std::string();
  AwaitReadable();
}

// Bytes.

size_t HttpConnection::Room() const {
  // A request that is being read takes its bytes at once, or is refused.
  if (phase_ != Phase::kAnswering && (reader_ != nullptr || in_.empty())) {
    return share_->scratch.size();
  }
  return kPipelinedBytes - std::min(in_.size(), kPipelinedBytes);
}

void HttpConnection::AwaitReadable() {
  if (awaits_readable_ || phase_ == Phase::kClosed) return;
  if (Room() == 0) return AwaitLeave();
  awaits_readable_ = true;
  socket_.async_wait(tcp::socket::wait_read, [self = shared_from_this()](error_code) {
    self->awaits_readable_ = false;
    self->OnReadable();
    self->Continue();
  });
}

void HttpConnection::AwaitLeave() {
  if (awaits_leave_) return;
  awaits_leave_ = true;
  if (leave_timer_ == nullptr) {
    leave_timer_ = std::make_unique<boost::asio::steady_timer>(share_->io);
  }
  leave_timer_->expires_after(kLook);
  leave_timer_->async_wait([self = shared_from_this()](error_code) {
    self->awaits_leave_ = false;
    if (self->phase_ == Phase::kClosed) return;
    pollfd end = {.fd = self->socket_.native_handle(), .events = POLLRDHUP, .revents = 0};
    if (self->Room() == 0 && poll(&end, 1, 0) > 0) return self->Close(false);
    self->AwaitReadable();
  });
}

void HttpConnection::OnReadable() {
  for (int i = 0; i < kReadsPerTurn && ReadSome(); ++i) {
    // Only bodies are worth more than one read, and bytes that are dropped.
    if (phase_ == Phase::kAnswering) break;
  }
}

bool HttpConnection::ReadSome() {
  if (phase_ == Phase::kClosed) return false;
  const size_t room = Room();
  if (room == 0) return false;
  error_code error;
  const size_t size = socket_.read_some(boost::asio::buffer(share_->scratch.data(), room), error);
  if (WouldBlock(error)) return false;
  if (error) {
    Close(false);  // The client has left.
    return false;
  }
  if (phase_ == Phase::kLingering) {
    lingered_bytes_ += size;
    if (lingered_bytes_ > share_->options.linger_bytes) Close(true);
    return phase_ != Phase::kClosed;
  }
  in_.append(share_->scratch.data(), size);
  Advance();
  return size == room;
}

// Requests.

void HttpConnection::Advance() {
  int requests = 0;
  while (phase_ == Phase::kReading && ReadRequest()) {
    if (phase_ != Phase::kReading || reader_ != nullptr || ++requests < kRequestsPerTurn) continue;
    boost::asio::post(share_->io, [self = shared_from_this()] { self->Continue(); });
    return;
  }
}

bool HttpConnection::ReadRequest() {
  if (reader_ == nullptr) {
    // Some clients send a line end after a body (RFC 9112, section 2.2).
    if (in_.compare(0, 2, "\r\n") == 0) in_.erase(0, 2);
    if (in_.empty() || in_ == "\r") return false;
    reader_ = std::make_unique<HttpRequestReader>(
        HttpRequestReader::Limits{.head_bytes = share_->options.max_head_bytes,
                                  .body_bytes = share_->options.max_body_bytes});
    SetDeadline(share_->options.request_time);
  }
  using State = HttpRequestReader::State;
  const State before = reader_->state();
  const size_t taken = reader_->Read(in_);
  in_.erase(0, taken);
  CountBody();
  if (phase_ != Phase::kReading) return true;
  if (reader_->state() == State::kRefused) {
    const HttpRefusal refusal = reader_->refusal();
    Refuse(refusal.status, refusal.message);
    return true;
  }
  if (before == State::kHead && reader_->state() != State::kHead) {
    OnHead();
    if (phase_ != Phase::kReading || reader_ == nullptr) return true;
  }
  if (reader_->state() == State::kComplete) {
    OnRequest();
    return true;
  }
  return taken > 0 && !in_.empty();
}

void HttpConnection::CountBody() {
  const size_t bytes = reader_->body_bytes();
  share_->coming_bytes += bytes - std::exchange(body_bytes_, bytes);
  const size_t limit = std::max(share_->options.max_coming_bytes, share_->options.max_body_bytes);
  if (share_->coming_bytes <= limit) return;
  HttpConnection* longest = this;
  for (HttpConnection* const each : share_->connections) {
    if (each->body_bytes_ > longest->body_bytes_) longest = each;
  }
  const auto kept = longest->shared_from_this();
  longest->Refuse(503,
                  absl::StrCat("the bodies of requests that are coming have more than ", limit,
                               " bytes together, and this one has the most; come again later"));
  if (longest != this) longest->Continue();
}

void HttpConnection::DropReader() {
  reader_.reset();
  share_->coming_bytes -= std::exchange(body_bytes_, 0);
}

void HttpConnection::OnHead() {
  HttpHead& head = reader_->head();
  head.peer = address_;
  head.peer_port = port_;
  terms_ = {.http10 = reader_->framing().http10,
            .head_only = head.method == "HEAD",
            .keep_alive = reader_->keep_alive()};
  const bool has_body = reader_->state() == HttpRequestReader::State::kBody;
  const HttpFraming& framing = reader_->framing();
  if (std::optional<HttpResponse> response = share_->options.check(head)) {
    if (!has_body) return BeginAnswer(*std::move(response), nullptr, terms_.keep_alive);
    if (framing.expects_continue || framing.content_length.value_or(UINT64_MAX) > kShortBody) {
      return BeginAnswer(*std::move(response), nullptr, false);
    }
    after_body_ = std::move(response);
  } else if (has_body && framing.expects_continue && in_.empty()) {
    SendContinue();
  }
}

void HttpConnection::SendContinue() {
  // Nothing else is being written, so there is room in the socket, unless the client does not read.
  error_code error;
  const size_t size = sizeof kGoOn - 1;
  const size_t sent = socket_.write_some(boost::asio::buffer(kGoOn, size), error);
  // Without this line, clients send their body after a while. Half of it would break the answer.
  if (WouldBlock(error) || (!error && sent == size)) return;
  Close(true);
}

void HttpConnection::OnRequest() {
  if (after_body_) {
    return BeginAnswer(*std::exchange(after_body_, std::nullopt), nullptr, terms_.keep_alive);
  }
  exchange_ = std::make_shared<PendingExchange>(share_->inbox, this, std::move(reader_->head()),
                                                std::move(reader_->body()));
  DropReader();
  ++share_->exchanges;
  phase_ = Phase::kAnswering;
  SetDeadline(absl::InfiniteDuration());
  share_->options.handle(exchange_);
}

void HttpConnection::Refuse(int status, absl::string_view message) {
  after_body_.reset();
  terms_ = {.http10 = reader_->framing().http10,
            .head_only = reader_->head().method == "HEAD",
            .keep_alive = false};
  BeginAnswer(share_->options.error(status, message), nullptr, false);
}

// Answers.

void HttpConnection::OnSaid(PendingExchange::Said said) {
  const auto self = shared_from_this();
  if (said.cut) return Close(true);
  if (said.response) {
    BeginAnswer(*std::move(said.response), std::move(said.stream), terms_.keep_alive);
  }
  Continue();
}

void HttpConnection::BeginAnswer(HttpResponse response, std::shared_ptr<HttpStream> stream,
                                 bool keep_alive) {
  terms_.keep_alive = keep_alive;
  DropReader();
  phase_ = Phase::kAnswering;
  SetDeadline(stream == nullptr ? share_->options.take_time : absl::InfiniteDuration());
  answer_ = std::make_unique<HttpAnswer>(std::move(response), std::move(stream), terms_);
  Write();
}

void HttpConnection::Write() {
  if (phase_ != Phase::kAnswering || answer_ == nullptr || awaits_writable_) return;
  const auto self = shared_from_this();
  for (int pieces = 0;;) {
    while (answer_->pending_bytes() > 0) {
      const std::array<absl::string_view, 3> parts = answer_->Pending();
      std::array<boost::asio::const_buffer, 3> buffers;
      for (size_t i = 0; i < parts.size(); ++i) buffers[i] = {parts[i].data(), parts[i].size()};
      error_code error;
      const size_t sent = socket_.write_some(buffers, error);
      if (WouldBlock(error)) {
        awaits_writable_ = true;
        return socket_.async_wait(tcp::socket::wait_write, [self](error_code) {
          self->awaits_writable_ = false;
          self->Continue();
        });
      }
      if (error) return Close(false);  // The client has left.
      if (!answer_->streamed()) SetDeadline(share_->options.take_time);
      answer_->Written(sent);
    }
    if (answer_->complete()) return Complete();
    if (++pieces > kPiecesPerTurn) {
      return boost::asio::post(share_->io, [self] { self->Continue(); });
    }
    const bool old = absl::FromChrono(Clock::now() - began_) > share_->options.max_age;
    if (!answer_->MakePiece(share_->ending || old, SystemNow()) && !answer_->complete()) return;
  }
}

void HttpConnection::Complete() {
  const bool closes = answer_->closes();
  answer_.reset();
  phase_ = Phase::kReading;
  if (const auto exchange = std::move(exchange_)) {
    --share_->exchanges;
    exchange->EndWith(PendingExchange::End::kComplete);
  }
  if (closes) {
    Linger();
  } else {
    SetDeadline(share_->options.idle_time);
    // The server has begun to shut down since the head of this answer was made.
    if (share_->ending && in_.empty()) Linger();
  }
  if (share_->changed) share_->changed();
}

void HttpConnection::Linger() {
  phase_ = Phase::kLingering;
  error_code ignored;
  socket_.shutdown(tcp::socket::shutdown_send, ignored);
  in_ = std::string();
  SetDeadline(share_->options.linger_time);
}

// Time.

void HttpConnection::SetDeadline(absl::Duration from_now) {
  if (from_now >= absl::Hours(24 * 365)) {
    deadline_ = Clock::time_point::max();
    return;
  }
  deadline_ = Clock::now() + absl::ToChronoNanoseconds(from_now);
  // A timer that ends earlier looks at the deadline, so it needs no change.
  if (deadline_ < timer_until_) AwaitDeadline();
}

void HttpConnection::AwaitDeadline() {
  timer_until_ = deadline_;
  timer_.expires_at(deadline_);
  timer_.async_wait([self = shared_from_this()](error_code error) {
    if (error || self->phase_ == Phase::kClosed) return;
    self->timer_until_ = Clock::time_point::max();
    if (Clock::now() >= self->deadline_) {
      self->OnDeadline();
    } else if (self->deadline_ < Clock::time_point::max()) {
      self->AwaitDeadline();
    }
  });
}

void HttpConnection::OnDeadline() {
  if (phase_ == Phase::kReading && reader_ != nullptr) {
    Refuse(408, absl::StrCat("the request did not come as a whole within ",
                             absl::FormatDuration(share_->options.request_time)));
    return Continue();
  }
  Close(phase_ == Phase::kAnswering);
}

}  // namespace baton
