#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/goodput/load/stop_flag.h"
#include "tests/goodput/results/record.h"

namespace baton {

// Reads the gauges baton_* from pages in Prometheus' text format, once a second while a load runs.
// One thread per page. If a page can't be read, its series have a gap and the results a remark.
class MetricsScraper {
 public:
  using Clock = std::chrono::steady_clock;

  // `urls` must have passed ParseHttpUrl. Times count from `start`.
  MetricsScraper(const std::vector<std::string>& urls, Clock::time_point start);
  ~MetricsScraper();

  // Stops reading. Returns the series, page by page and sorted by name.
  std::vector<MetricSeries> Finish(std::vector<std::string>* remarks);

  // Max number of series kept per page; further series are ignored.
  static constexpr size_t kMaxSeries = 2000;

 private:
  struct Page;
  void Scrape(Page* page);
  void Join();

  const Clock::time_point start_;
  StopFlag over_;
  std::vector<std::unique_ptr<Page>> pages_;
  std::vector<std::thread> threads_;
};

}  // namespace baton
