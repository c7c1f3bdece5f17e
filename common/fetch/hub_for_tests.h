#pragma once

#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "common/base/mutex.h"

namespace baton {

// A request that a HubForTests got.
struct HubRequest {
  std::string target;  // /path?query
  std::string range;   // the header, or empty
  std::string authorization;
};

struct HubAnswer {
  int status = 200;
  std::map<std::string, std::string> headers;
  std::string body;
  // Where it is not negative, the connection is cut after so many bytes of the body.
  int cut_after = -1;
};

// An HTTP server of one thread at 127.0.0.1 that answers as it is told, one request a connection.
class HubForTests {
 public:
  explicit HubForTests(std::function<HubAnswer(const HubRequest&)> answer);
  ~HubForTests();

  std::string address() const;               // http://127.0.0.1:PORT
  std::vector<HubRequest> requests() const;  // all so far

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
