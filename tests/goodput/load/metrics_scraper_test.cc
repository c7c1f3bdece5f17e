#include "tests/goodput/load/metrics_scraper.h"

#include <atomic>
#include <functional>
#include <thread>

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "tests/goodput/load/http_get.h"

namespace baton {
namespace {

using testing::HasSubstr;

// Answers every connection with the same bytes.
class Page {
 public:
  explicit Page(std::string answer) : answer_(std::move(answer)) {
    fd_ = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(listen(fd_, 16), 0);
    getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size);
    url_ = absl::StrCat("http://127.0.0.1:", ntohs(address.sin_port), "/metrics");
    thread_ = std::thread([this] { Serve(); });
  }
  ~Page() {
    shutdown(fd_, SHUT_RDWR);
    thread_.join();
    close(fd_);
  }
  const std::string& url() const { return url_; }
  int served() const { return served_; }

 private:
  void Serve() {
    while (true) {
      const int connection = accept(fd_, nullptr, nullptr);
      if (connection < 0) return;
      std::string request;
      char buffer[1024];
      while (request.find("\r\n\r\n") == request.npos) {
        const ssize_t bytes = read(connection, buffer, sizeof buffer);
        if (bytes <= 0) break;
        request.append(buffer, static_cast<size_t>(bytes));
      }
      EXPECT_THAT(request, testing::StartsWith("GET /metrics HTTP/1.1\r\n"));
      send(connection, answer_.data(), answer_.size(), MSG_NOSIGNAL);
      close(connection);
      ++served_;
    }
  }

  const std::string answer_;
  int fd_ = -1;
  std::string url_;
  std::atomic<int> served_ = 0;
  std::thread thread_;
};

absl::StatusOr<std::string> Get(const std::string& url) {
  return HttpGet(ParseHttpUrl(url).value(), absl::Seconds(10));
}

TEST(HttpGetTest, TakesWholeAndChunkedBodies) {
  const Page whole("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc");
  EXPECT_EQ(Get(whole.url()).value(), "abc");
  const Page chunked(
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: "
      "chunked\r\n\r\n3\r\nabc\r\na;x=y\r\n0123456789\r\n0\r\n\r\n");
  EXPECT_EQ(Get(chunked.url()).value(), "abc0123456789");
}

TEST(HttpGetTest, NamesWhatWentWrong) {
  const auto why = [](const std::string& answer) {
    const Page page(answer);
    return std::string(Get(page.url()).status().message());
  };
  EXPECT_THAT(why("HTTP/1.1 404 Not Found\r\n\r\n"), HasSubstr("HTTP/1.1 404 Not Found"));
  EXPECT_THAT(why("SSH-2.0\r\n"), HasSubstr("not HTTP"));
  EXPECT_THAT(why("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\nabc"),
              HasSubstr("cut short"));
  std::string gone;
  {
    const Page page("");
    gone = page.url();
  }
  EXPECT_THAT(std::string(Get(gone).status().message()), HasSubstr("Connection refused"));
}

TEST(HttpGetTest, UrlsAreTakenApart) {
  const HttpUrl url = ParseHttpUrl("http://[::1]:9/m?x").value();
  EXPECT_EQ(url.host, "::1");
  EXPECT_EQ(url.port, "9");
  EXPECT_EQ(url.path, "/m?x");
  EXPECT_EQ(url.Authority(), "[::1]:9");
  EXPECT_EQ(ParseHttpUrl("http://host")->port, "80");
  for (const char* bad :
       {"", "host:9", "https://host", "http://", "http://h:0/", "http://h:x", "http://h/a b"})
    EXPECT_FALSE(ParseHttpUrl(bad).ok()) << bad;
}

TEST(MetricsScraperTest, LeavesSeriesAndSaysWhatItCouldNotRead) {
  const Page page(
      "HTTP/1.1 200 OK\r\n\r\n# TYPE baton_waiting gauge\nbaton_waiting{pool=\"a\"} 4\n");
  const Page broken("nothing");
  MetricsScraper scraper({page.url(), broken.url()}, std::chrono::steady_clock::now());
  while (page.served() == 0 || broken.served() == 0) std::this_thread::yield();
  std::vector<std::string> remarks;
  const std::vector<MetricSeries> timeline = scraper.Finish(&remarks);
  ASSERT_EQ(timeline.size(), 1u);
  EXPECT_EQ(timeline[0].name, "baton_waiting{pool=\"a\"}");
  EXPECT_EQ(timeline[0].points[0].second, 4);
  ASSERT_EQ(remarks.size(), 1u);
  EXPECT_THAT(remarks[0], HasSubstr(broken.url() + " could not be read"));
}

}  // namespace
}  // namespace baton
