#include "tests/goodput/traces/length_distribution.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"

namespace baton {
namespace {

bool IsLength(double tokens) { return tokens >= 1 && tokens <= LengthDistribution::kLongest; }

absl::Status NotALength(absl::string_view text) {
  return absl::InvalidArgumentError(
      absl::StrCat("'", text, "' is not a length: a length is a number of tokens from 1 to ",
                   LengthDistribution::kLongest,
                   ", uniform:LOW,HIGH, lognormal:MEDIAN,SIGMA or quantiles:FILE"));
}

using Table = std::vector<std::pair<double, double>>;

absl::StatusOr<Table> ReadTable(const std::string& path) {
  std::ifstream file(path);
  if (!file)
    return absl::NotFoundError(
        absl::StrCat("can't read the length table ", path, ": ", std::strerror(errno)));
  Table table;
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    const auto refuse = [&](absl::string_view why) {
      return absl::InvalidArgumentError(absl::StrCat(path, ":", number, ": ", why));
    };
    const std::vector<absl::string_view> words =
        absl::StrSplit(absl::string_view(line).substr(0, line.find('#')), absl::ByAnyChar(" \t\r"),
                       absl::SkipEmpty());
    if (words.empty()) continue;
    double share = 0, tokens = 0;
    if (words.size() != 2 || !absl::SimpleAtod(words[0], &share) ||
        !absl::SimpleAtod(words[1], &tokens)) {
      return refuse("a line is SHARE TOKENS, such as 0.5 1020");
    }
    if (!(share >= 0 && share <= 1))
      return refuse(absl::StrCat("share ", words[0], " is not from 0 to 1"));
    if (!IsLength(tokens)) {
      return refuse(absl::StrCat(words[1], " is not a number of tokens from 1 to ",
                                 LengthDistribution::kLongest));
    }
    if (!table.empty() && (share <= table.back().first || tokens < table.back().second))
      return refuse("shares must rise, and tokens not fall");
    table.emplace_back(share, tokens);
  }
  if (table.size() < 2 || table.front().first != 0 || table.back().first != 1)
    return absl::InvalidArgumentError(absl::StrCat(path, ": the shares must go from 0 to 1"));
  return table;
}

}  // namespace

absl::StatusOr<LengthDistribution> LengthDistribution::Parse(absl::string_view text) {
  LengthDistribution lengths;
  absl::string_view rest = text;
  if (absl::ConsumePrefix(&rest, "quantiles:")) {
    ASSIGN_OR_RETURN(Table table, ReadTable(std::string(rest)));
    lengths.kind_ = Kind::kQuantiles;
    lengths.table_ = std::move(table);
    return lengths;
  }
  size_t wanted = 1;
  if (absl::ConsumePrefix(&rest, "uniform:")) {
    lengths.kind_ = Kind::kUniform;
    wanted = 2;
  } else if (absl::ConsumePrefix(&rest, "lognormal:")) {
    lengths.kind_ = Kind::kLognormal;
    wanted = 2;
  }
  const std::vector<absl::string_view> words = absl::StrSplit(rest, ',');
  if (words.size() != wanted || !absl::SimpleAtod(words[0], &lengths.a_) || !IsLength(lengths.a_))
    return NotALength(text);
  if (wanted == 2 && (!absl::SimpleAtod(words[1], &lengths.b_) || !std::isfinite(lengths.b_)))
    return NotALength(text);
  if (lengths.kind_ == Kind::kUniform && (!IsLength(lengths.b_) || lengths.b_ < lengths.a_))
    return NotALength(text);
  if (lengths.kind_ == Kind::kLognormal && (lengths.b_ < 0 || lengths.b_ > 10))
    return NotALength(text);
  if (lengths.kind_ != Kind::kLognormal &&
      (lengths.a_ != std::floor(lengths.a_) || lengths.b_ != std::floor(lengths.b_)))
    return NotALength(text);
  return lengths;
}

uint32_t LengthDistribution::Draw(RandomStream* random) const {
  // Takes a uniform and a normal random number, although no distribution needs both. So the numbers
  // that later calls get do not depend on the kind of this distribution.
  const double uniform = random->Uniform();
  const double normal = random->Normal();
  double tokens = a_;
  if (kind_ == Kind::kUniform) {
    tokens = a_ + std::min(std::floor((1 - uniform) * (b_ - a_ + 1)), b_ - a_);
  } else if (kind_ == Kind::kLognormal) {
    tokens = std::round(a_ * std::exp(b_ * normal));
  } else if (kind_ == Kind::kQuantiles) {
    const auto upper =
        std::lower_bound(table_.begin() + 1, table_.end() - 1, std::make_pair(uniform, 0.0));
    const auto lower = upper - 1;
    const double along = (uniform - lower->first) / (upper->first - lower->first);
    tokens = std::round(lower->second + along * (upper->second - lower->second));
  }
  return static_cast<uint32_t>(std::clamp(tokens, 1.0, static_cast<double>(kLongest)));
}

}  // namespace baton
