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

// The token ids of the answers to a load, for comparison with the answers to another load, such as
// the same load under faults. The file has one line of JSON per request. A request's key is its
// index and a hash of its prompt and options, so that only answers to the same request are
// compared.
class ExpectFile {
 public:
  // Returns NotFound, or InvalidArgument with "path:line: what".
  static absl::StatusOr<ExpectFile> Read(const std::string& path);

  // Keeps the records that completed. `fingerprints` holds PromptMaker::Fingerprint for each
  // record.
  static ExpectFile Of(const std::vector<RequestRecord>& records,
                       const std::vector<uint64_t>& fingerprints);

  absl::Status Write(const std::string& path) const;

  // Compares the tokens of each record with the expected ones. If a request failed, the tokens
  // before the failure must be the beginning of the expected ones.
  ExpectResult Compare(const std::vector<RequestRecord>& records,
                       const std::vector<uint64_t>& fingerprints) const;

  size_t size() const { return tokens_.size(); }

 private:
  std::map<std::pair<uint32_t, uint64_t>, std::vector<int32_t>> tokens_;
};

}  // namespace baton
