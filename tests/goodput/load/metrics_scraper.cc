#include "tests/goodput/load/metrics_scraper.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "tests/goodput/load/http_get.h"
#include "tests/goodput/load/prometheus_text.h"

namespace baton {
namespace {

constexpr absl::Duration kTimeout = absl::Milliseconds(900);

}  // namespace

struct MetricsScraper::Page {
  std::string text;  // The URL as it was given.
  HttpUrl url;
  std::map<std::string, MetricSeries> series;
  int failures = 0;
  std::string why;  // Reason of the last failure.
  bool too_many = false;
};

MetricsScraper::MetricsScraper(const std::vector<std::string>& urls, Clock::time_point start)
    : start_(start) {
  for (const std::string& url : urls) {
    absl::StatusOr<HttpUrl> parsed = ParseHttpUrl(url);
    BATON_CHECK(parsed.ok()) << parsed.status();
    pages_.push_back(std::make_unique<Page>(Page{.text = url, .url = *std::move(parsed)}));
  }
  for (const auto& page : pages_) threads_.emplace_back([this, one = page.get()] { Scrape(one); });
}

MetricsScraper::~MetricsScraper() { Join(); }

void MetricsScraper::Join() {
  over_.Stop();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void MetricsScraper::Scrape(Page* page) {
  for (int second = 0;; ++second) {
    over_.WaitUntil(start_ + std::chrono::seconds(second));
    if (over_.stopped()) return;
    const absl::StatusOr<std::string> text = HttpGet(page->url, kTimeout);
    const double at_s = std::chrono::duration<double>(Clock::now() - start_).count();
    if (!text.ok()) {
      ++page->failures;
      page->why = std::string(text.status().message());
      continue;
    }
    for (auto& [name, value] : GaugesIn(*text, "baton_")) {
      auto series = page->series.find(name);
      if (series == page->series.end()) {
        if (page->series.size() == kMaxSeries) {
          page->too_many = true;
          continue;
        }
        series = page->series.emplace(name, MetricSeries{page->url.Authority(), name, {}}).first;
      }
      series->second.points.emplace_back(at_s, value);
    }
  }
}

std::vector<MetricSeries> MetricsScraper::Finish(std::vector<std::string>* remarks) {
  Join();
  std::vector<MetricSeries> timeline;
  for (const auto& page : pages_) {
    if (page->failures > 0) {
      remarks->push_back(
          absl::StrCat(page->text, " could not be read ", page->failures,
                       page->failures == 1 ? " time: " : " times, last: ", page->why));
    }
    if (page->too_many) {
      remarks->push_back(absl::StrCat(page->text, " has more than ", kMaxSeries,
                                      " gauges; the rest was left out"));
    }
    for (auto& [name, series] : page->series) timeline.push_back(std::move(series));
  }
  return timeline;
}

}  // namespace baton
