#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tests/goodput/results/record.h"

namespace baton {

// The token ids of the answers to a load, for comparison with those to another load: for example a
// load without faults, and the same load under faults. The file has a line of JSON per request. Its
// key is the request's index with a hash of its prompt and options, so that answers are only
// compared with answers to the same question.
class ExpectFile {
 public:
  // NotFound, or InvalidArgument with "path:line: what".
  static absl::StatusOr<ExpectFile> Read(const std::string& path);

  // `fingerprints` are PromptMaker's, by record. Holds the records that completed.
  static ExpectFile Of(const std::vector<RequestRecord>& records,
                       const std::vector<uint64_t>& fingerprints);

  absl::Status Write(const std::string& path) const;

  // Compares the tokens of each record with the expected ones. Where a request failed, the tokens
  // that came before that must be the beginning of the expected ones.
  ExpectResult Compare(const std::vector<RequestRecord>& records,
                       const std::vector<uint64_t>& fingerprints) const;

  size_t size() const { return tokens_.size(); }

 private:
  std::map<std::pair<uint32_t, uint64_t>, std::vector<int32_t>> tokens_;
};

}  // namespace baton
