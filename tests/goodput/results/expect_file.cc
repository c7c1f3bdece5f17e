#include "tests/goodput/results/expect_file.h"

#include <algorithm>
#include <charconv>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/json.h"
#include "tests/goodput/results/object_reader.h"
#include "tests/goodput/results/run_file.h"

namespace baton {
namespace {

using json = nlohmann::ordered_json;

constexpr int kVersion = 1;
constexpr size_t kMaxDifferences = 20;

absl::Status ReadHeader(const json& line) {
  absl::Status status;
  ObjectReader reader(&line, "", &status);
  const int64_t version = reader.Int("baton_goodput_expect");
  if (status.ok() && version != kVersion) {
    return absl::InvalidArgumentError(
        absl::StrCat("baton_goodput_expect is ", version, "; this tool reads ", kVersion));
  }
  return status;
}

// Returns a description of the first difference between the lists. Returns an empty text if they
// are equal, or if one list begins with the other and the answer need not be complete.
std::string Difference(uint32_t index, const std::vector<int32_t>& expected,
                       const std::vector<int32_t>& found, bool complete) {
  const size_t common = std::min(expected.size(), found.size());
  for (size_t i = 0; i < common; ++i) {
    if (expected[i] != found[i]) {
      return absl::StrCat("request ", index, ", token ", i, ": expected ", expected[i], ", found ",
                          found[i]);
    }
  }
  if (found.size() > expected.size() || (complete && found.size() < expected.size())) {
    return absl::StrCat("request ", index, ", token ", common, ": expected ", expected.size(),
                        " tokens, found ", found.size());
  }
  return "";
}

}  // namespace

absl::StatusOr<ExpectFile> ExpectFile::Read(const std::string& path) {
  std::ifstream file(path);
  if (!file) {
    return absl::NotFoundError(
        absl::StrCat("can't read the expected tokens in ", path, "; --expect-write makes them"));
  }
  ExpectFile expect;
  std::string text;
  for (int number = 1; std::getline(file, text); ++number) {
    const auto refuse = [&](absl::string_view why) {
      return absl::InvalidArgumentError(absl::StrCat(path, ":", number, ": ", why));
    };
    const json line = json::parse(text, nullptr, false);
    if (line.is_discarded() || !line.is_object()) return refuse("the line is not a JSON object");
    if (number == 1) {
      if (absl::Status status = ReadHeader(line); !status.ok()) return refuse(status.message());
      continue;
    }
    absl::Status status;
    ObjectReader reader(&line, "", &status);
    const uint32_t index = reader.Uint("index");
    const std::string hex = reader.String("request");
    uint64_t fingerprint = 0;
    const auto parsed = std::from_chars(hex.data(), hex.data() + hex.size(), fingerprint, 16);
    if (parsed.ptr != hex.data() + hex.size() || hex.size() != 16)
      reader.Refuse("request", absl::StrCat("'", hex, "' is not a hash of 16 digits"));
    std::vector<int32_t> tokens;
    for (const double token : reader.Numbers("tokens")) {
      if (!(token >= 0 && token <= 0x7fffffff)) reader.Refuse("tokens", "holds no token ids");
      if (!status.ok()) break;
      tokens.push_back(static_cast<int32_t>(token));
    }
    if (!status.ok()) return refuse(status.message());
    if (!expect.tokens_.emplace(std::make_pair(index, fingerprint), std::move(tokens)).second)
      return refuse(absl::StrCat("request ", index, " occurs twice"));
  }
  if (expect.tokens_.empty())
    return absl::InvalidArgumentError(absl::StrCat(path, ": no expected tokens"));
  return expect;
}

ExpectFile ExpectFile::Of(const std::vector<RequestRecord>& records,
                          const std::vector<uint64_t>& fingerprints) {
  ExpectFile expect;
  for (size_t i = 0; i < records.size(); ++i) {
    if (records[i].outcome != Outcome::kCompleted) continue;
    expect.tokens_[{records[i].index, fingerprints[i]}] = records[i].token_ids;
  }
  return expect;
}

absl::Status ExpectFile::Write(const std::string& path) const {
  std::string text = absl::StrCat(json{{"baton_goodput_expect", kVersion}}.dump(), "\n");
  for (const auto& [key, tokens] : tokens_) {
    absl::StrAppend(&text,
                    json{{"index", key.first},
                         {"request", absl::StrFormat("%016x", key.second)},
                         {"tokens", tokens}}
                        .dump(),
                    "\n");
  }
  return WriteWhole(path, text);
}

ExpectResult ExpectFile::Compare(const std::vector<RequestRecord>& records,
                                 const std::vector<uint64_t>& fingerprints) const {
  ExpectResult result;
  for (size_t i = 0; i < records.size(); ++i) {
    const RequestRecord& record = records[i];
    const bool complete = record.outcome == Outcome::kCompleted;
    result.failed += !complete;
    const auto expected = tokens_.find({record.index, fingerprints[i]});
    if (expected == tokens_.end()) {
      ++result.unknown;
      continue;
    }
    ++result.compared;
    const std::string difference =
        Difference(record.index, expected->second, record.token_ids, complete);
    if (difference.empty()) {
      result.equal += complete;
    } else {
      ++result.different;
      if (result.differences.size() < kMaxDifferences) result.differences.push_back(difference);
    }
  }
  return result;
}

}  // namespace baton
