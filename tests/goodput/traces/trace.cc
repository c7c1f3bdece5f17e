#include "tests/goodput/traces/trace.h"

#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"
#include "tests/goodput/results/object_reader.h"
#include "tests/goodput/traces/length_distribution.h"

namespace baton {
namespace {

constexpr absl::string_view kAzureHeader = "TIMESTAMP,ContextTokens,GeneratedTokens";
constexpr size_t kMaxRows = 10'000'000;

absl::Status CheckLength(const char* name, uint64_t tokens) {
  if (tokens >= 1 && tokens <= LengthDistribution::kLongest) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, " is ", tokens, "; it takes 1 to ", LengthDistribution::kLongest));
}

// Parses a row of an Azure trace. In the result, `at_s` counts from the Unix epoch.
absl::StatusOr<TraceRow> AzureRow(absl::string_view line) {
  const std::vector<absl::string_view> words = absl::StrSplit(line, ',');
  if (words.size() != 3) {
    return absl::InvalidArgumentError(
        absl::StrCat(words.size(), " columns instead of the 3 of ", kAzureHeader));
  }
  absl::Time at;
  std::string why;
  if (!absl::ParseTime("%Y-%m-%d %H:%M:%E*S", words[0], &at, &why)) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", words[0], "' is not a time like 2023-11-16 18:17:03.9799600"));
  }
  TraceRow row;
  row.at_s = absl::ToDoubleSeconds(at - absl::UnixEpoch());
  if (!absl::SimpleAtoi(words[1], &row.prompt_tokens)) {
    return absl::InvalidArgumentError(
        absl::StrCat("ContextTokens '", words[1], "' is not a whole number from 0"));
  }
  if (!absl::SimpleAtoi(words[2], &row.output_tokens)) {
    return absl::InvalidArgumentError(
        absl::StrCat("GeneratedTokens '", words[2], "' is not a whole number from 0"));
  }
  absl::Status status = CheckLength("ContextTokens", row.prompt_tokens);
  status.Update(CheckLength("GeneratedTokens", row.output_tokens));
  RETURN_IF_ERROR(status);
  return row;
}

absl::StatusOr<TraceRow> MooncakeRow(absl::string_view line) {
  const auto json = nlohmann::ordered_json::parse(line.begin(), line.end(), nullptr, false);
  if (json.is_discarded() || !json.is_object())
    return absl::InvalidArgumentError("the line is not a JSON object");
  absl::Status status;
  ObjectReader reader(&json, "", &status);
  TraceRow row;
  row.at_s = reader.Double("timestamp") / 1e3;
  row.prompt_tokens = reader.Uint("input_length");
  row.output_tokens = reader.Uint("output_length");
  if (reader.Has("hash_ids")) {
    for (const double id : reader.Numbers("hash_ids")) {
      if (!(id >= 0 && id < 0x1p53 && id == std::floor(id)))
        reader.Refuse("hash_ids", "holds other values than whole numbers from 0");
      if (!status.ok()) break;
      row.blocks.push_back(static_cast<uint64_t>(id));
    }
    const uint64_t blocks =
        (uint64_t{row.prompt_tokens} + Trace::kBlockTokens - 1) / Trace::kBlockTokens;
    if (status.ok() && row.blocks.size() != blocks) {
      reader.Refuse("hash_ids", absl::StrCat(row.blocks.size(), " ids for ", row.prompt_tokens,
                                             " tokens, which are ", blocks, " blocks of ",
                                             Trace::kBlockTokens));
    }
  }
  if (!std::isfinite(row.at_s) || row.at_s < 0) reader.Refuse("timestamp", "is below 0");
  status.Update(CheckLength("input_length", row.prompt_tokens));
  status.Update(CheckLength("output_length", row.output_tokens));
  RETURN_IF_ERROR(status);
  return row;
}

}  // namespace

double Trace::Period() const {
  const double span_s = rows.back().at_s;
  if (rows.size() < 2 || span_s <= 0) return 1;
  return span_s * static_cast<double>(rows.size()) / static_cast<double>(rows.size() - 1);
}

absl::StatusOr<Trace> ReadTrace(const std::string& path) {
  std::ifstream file(path);
  if (!file)
    return absl::NotFoundError(
        absl::StrCat("can't read the trace ", path, ": ", std::strerror(errno)));
  const bool is_mooncake = file.peek() == '{';
  Trace trace;
  std::string text;
  for (int number = 1; std::getline(file, text); ++number) {
    const auto refuse = [&](absl::string_view why) {
      return absl::InvalidArgumentError(absl::StrCat(path, ":", number, ": ", why));
    };
    const absl::string_view line = absl::StripTrailingAsciiWhitespace(text);
    if (!is_mooncake && number == 1) {
      if (line != kAzureHeader) {
        return refuse(
            absl::StrCat("neither a Mooncake trace, whose lines begin with {, nor an "
                         "Azure one, which begins with ",
                         kAzureHeader));
      }
      continue;
    }
    if (line.empty()) continue;
    absl::StatusOr<TraceRow> row = is_mooncake ? MooncakeRow(line) : AzureRow(line);
    if (!row.ok()) return refuse(row.status().message());
    if (!trace.rows.empty() && row->at_s < trace.rows.back().at_s)
      return refuse("earlier than the line before");
    if (trace.rows.size() == kMaxRows) return refuse(absl::StrCat("more than ", kMaxRows, " rows"));
    trace.rows.push_back(*std::move(row));
  }
  if (trace.rows.empty()) return absl::InvalidArgumentError(absl::StrCat(path, ": no requests"));
  const double first_s = trace.rows.front().at_s;
  for (TraceRow& row : trace.rows) row.at_s -= first_s;
  return trace;
}

}  // namespace baton
