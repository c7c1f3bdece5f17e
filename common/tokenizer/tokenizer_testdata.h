#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/tokenizer/tokenizer.h"

namespace baton {

// Returns the tokenisers of testdata/, or those listed in BATON_TOKENIZERS, separated by commas.
std::vector<std::string> TestTokenizers();

// Reads a file of testdata/, or of the folder BATON_TOKENIZER_TESTDATA. Aborts if it is missing.
std::string ReadTestData(const std::string& name);
std::unique_ptr<const Tokenizer> LoadTestTokenizer(const std::string& name);
// Returns the texts of corpus.jsonl.
std::vector<std::string> TestCorpus();

// The same random generator as in make_goldens.py. C++ and Python get the same numbers.
class TestLcg {
 public:
  explicit TestLcg(uint64_t seed) : state_(seed) {}
  uint64_t Below(uint64_t n);

 private:
  uint64_t state_;
};
std::string RandomTestText(TestLcg* rng);

// Start value of the FNV-1a hash, as in make_goldens.py. Ids are hashed as four bytes, lowest
// first.
inline constexpr uint64_t kFnvStart = 0xCBF29CE484222325;
uint64_t Fnv(uint64_t hash, absl::string_view bytes);
uint64_t Fnv(uint64_t hash, TokenId id);

}  // namespace baton
