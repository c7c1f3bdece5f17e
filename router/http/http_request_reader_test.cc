#include "router/http/http_request_reader.h"

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace baton {
namespace {

using State = HttpRequestReader::State;

// The findings of a reader.
struct Found {
  State state = State::kHead;
  int refusal = 0;
  std::string method, path, query, body;
  size_t fields = 0, taken = 0;

  bool operator==(const Found&) const = default;
};

// Feeds `bytes` to a reader. Each time, `more` says how many further bytes come.
template <typename More>
Found Feed(absl::string_view bytes, More more) {
  HttpRequestReader reader({.head_bytes = 2000, .body_bytes = 5000});
  Found found;
  std::string in;
  size_t come = 0;
  while (true) {
    size_t taken = 0;
    do {
      taken = reader.Read(in);
      in.erase(0, taken);
      found.taken += taken;
    } while (taken > 0);
    found.state = reader.state();
    if (found.state == State::kComplete || found.state == State::kRefused || come == bytes.size()) {
      break;
    }
    const size_t size = std::min(more(), bytes.size() - come);
    in.append(bytes.data() + come, size);
    come += size;
  }
  if (found.state == State::kRefused) {
    // A refusal may come earlier or later, depending on what is read first.
    return {.state = State::kRefused};
  }
  found.method = reader.head().method;
  found.path = reader.head().path;
  found.query = reader.head().query;
  found.fields = reader.head().fields.size();
  if (found.state == State::kComplete) found.body = reader.body();
  return found;
}

TEST(HttpRequestReaderTest, TargetsAreSplit) {
  const std::vector<std::tuple<std::string, std::string, std::string>> cases = {
      {"/", "/", ""},
      {"/a/b?c", "/a/b", "c"},
      {"/a?b?c", "/a", "b?c"},
      {"/?", "/", ""},
      {"*", "*", ""},
      {"//a/b", "//a/b", ""},
      {"/http://x/", "/http://x/", ""},
      {"http://X:80", "/", ""},
      {"http://x:80?a", "/", "a"},
      {"HTTPS://x:80/a/b?c", "/a/b", "c"}};
  for (const auto& [target, path, query] : cases) {
    const std::string request = absl::StrCat("GET ", target, " HTTP/1.1\r\nHost: x:80\r\n\r\n");
    const Found found = Feed(request, [] { return size_t{1000}; });
    EXPECT_EQ(found.state, State::kComplete) << target;
    EXPECT_EQ(found.path, path);
    EXPECT_EQ(found.query, query);
  }
}

TEST(HttpRequestReaderTest, TakesNothingBeyondTheRequest) {
  for (const std::string request :
       {"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc",
        "GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"}) {
    const Found found =
        Feed(absl::StrCat(request, "GET / HTTP/1.1\r\n"), [] { return size_t{1000}; });
    EXPECT_EQ(found.state, State::kComplete) << request;
    EXPECT_EQ(found.taken, request.size()) << request;
  }
}

// The bytes come in other pieces each time, and what is found must not depend on them.
TEST(HttpRequestReaderTest, PiecesDoNotMatter) {
  const uint32_t seed = 43;
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const auto below = [&](size_t n) {
    return std::uniform_int_distribution<size_t>(0, n - 1)(random);
  };
  const std::vector<std::string> requests = {
      "POST /v1/x?a=b HTTP/1.1\r\nHost: x\r\nA: b\r\nContent-Length: "
      "20\r\n\r\n01234567890123456789",
      "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
      "5\r\nhello\r\n10;a=\"b\\\"c\"\r\n0123456789abcdef\r\n0\r\nA: b\r\nC: d\r\n\r\n",
      "GET http://x/y HTTP/1.0\r\nConnection: keep-alive, x\r\nHost: x\r\n\r\n",
  };
  int complete = 0, refused = 0;
  for (int round = 0; round < 30000; ++round) {
    std::string bytes = requests[below(requests.size())];
    for (size_t i = below(4); i > 0; --i) {
      constexpr absl::string_view kTelling = "\r\n\t :;,0aF/\"\\=x";
      bytes[below(bytes.size())] =
          below(4) == 0 ? static_cast<char>(below(256)) : kTelling[below(kTelling.size())];
    }
    if (below(4) == 0) bytes.erase(below(bytes.size()), below(5));
    bytes += "GET / HTTP/1.1\r\n";
    const Found whole = Feed(bytes, [&] { return bytes.size(); });
    const Found single = Feed(bytes, [] { return size_t{1}; });
    const Found pieces = Feed(bytes, [&] { return 1 + below(20); });
    ASSERT_TRUE(whole == single && whole == pieces)
        << bytes << "\nstates " << static_cast<int>(whole.state) << " "
        << static_cast<int>(single.state) << " " << static_cast<int>(pieces.state) << " taken "
        << whole.taken << " " << single.taken << " " << pieces.taken;
    complete += whole.state == State::kComplete;
    refused += whole.state == State::kRefused;
  }
  EXPECT_GT(complete, 3000);
  EXPECT_GT(refused, 3000);
}

}  // namespace
}  // namespace baton
