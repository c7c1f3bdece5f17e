#include "router/http/http_exchange_inbox.h"

#include <boost/asio/post.hpp>

#include "router/http/http_connection.h"

namespace baton {

void HttpExchangeInbox::Push(std::shared_ptr<PendingExchange> exchange) {
  MutexLock lock(&mutex_);
  if (io_ == nullptr) return;
  said_.push_back(std::move(exchange));
  if (said_.size() > 1) return;  // Deliver() has been posted.
  boost::asio::post(*io_, [self = shared_from_this()] { self->Deliver(); });
}

void HttpExchangeInbox::Close() {
  std::vector<std::shared_ptr<PendingExchange>> dropped;
  MutexLock lock(&mutex_);
  io_ = nullptr;
  dropped.swap(said_);
}

void HttpExchangeInbox::Deliver() {
  std::vector<std::shared_ptr<PendingExchange>> said;
  {
    MutexLock lock(&mutex_);
    said.swap(said_);
  }
  for (const std::shared_ptr<PendingExchange>& exchange : said) {
    PendingExchange::Said news = exchange->Take();
    if (HttpConnection* const connection = exchange->connection()) {
      connection->OnSaid(std::move(news));
    } else {
      exchange->CallLateGone();
    }
  }
}

void PendingExchange::Respond(HttpResponse response) {
  if (Answer(std::move(response), nullptr)) Tell();
}

void PendingExchange::RespondWith(HttpResponse head, std::shared_ptr<HttpStream> stream) {
  if (Answer(std::move(head), std::move(stream))) Tell();
}

bool PendingExchange::Answer(HttpResponse response, std::shared_ptr<HttpStream> stream) {
  MutexLock lock(&mutex_);
  if (answered_ || end_) return false;
  answered_ = true;
  said_.response = std::move(response);
  said_.stream = std::move(stream);
  return true;
}

void PendingExchange::Wake() {
  {
    MutexLock lock(&mutex_);
    if (end_) return;
    said_.woken = true;
  }
  Tell();
}

void PendingExchange::WhenGone(std::function<void()> gone) {
  {
    MutexLock lock(&mutex_);
    if (end_ == End::kComplete) return;
    gone_.swap(gone);  // The old one, if any, is destroyed after the lock.
    if (!end_) return;
  }
  Tell();
}

void PendingExchange::Cut() {
  {
    MutexLock lock(&mutex_);
    if (end_) return;
    said_.cut = true;
  }
  Tell();
}

void PendingExchange::Tell() {
  {
    MutexLock lock(&mutex_);
    if (told_) return;
    told_ = true;
  }
  inbox_->Push(shared_from_this());
}

PendingExchange::Said PendingExchange::Take() {
  MutexLock lock(&mutex_);
  told_ = false;
  return std::exchange(said_, {});
}

void PendingExchange::EndWith(End end) {
  connection_ = nullptr;
  Said dropped;
  std::function<void()> gone;
  {
    MutexLock lock(&mutex_);
    end_ = end;
    dropped = std::exchange(said_, {});
    gone.swap(gone_);
  }
  if (end == End::kLeft && gone) gone();
}

void PendingExchange::CallLateGone() {
  std::function<void()> gone;
  {
    MutexLock lock(&mutex_);
    gone.swap(gone_);
  }
  if (gone) gone();
}

}  // namespace baton
