#pragma once

#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "common/base/mutex.h"

namespace baton {

// A request that HubForTests received.
struct HubRequest {
  std::string target;  // /path?query
  std::string range;   // the Range header, or empty
  std::string authorization;
};

struct HubAnswer {
  int status = 200;
  std::map<std::string, std::string> headers;
  std::string body;
  // If not negative, the connection is cut after this many bytes of the body.
  int cut_after = -1;
};

// An HTTP server for tests on 127.0.0.1, with one thread. It serves one request per connection,
// with the answer that a function returns.
class HubForTests {
 public:
  explicit HubForTests(std::function<HubAnswer(const HubRequest&)> answer);
  ~HubForTests();

  std::string address() const;               // http://127.0.0.1:PORT
  std::vector<HubRequest> requests() const;  // all requests so far

 private:
  void Run();

  const std::function<HubAnswer(const HubRequest&)> answer_;
  int listener_ = -1;
  int port_ = 0;
  mutable Mutex mutex_;
  std::vector<HubRequest> requests_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace baton
