#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/tokenizer/tokenizer.h"

namespace baton {

// The tokenisers of testdata/, or those that BATON_TOKENIZERS names, with commas between them.
std::vector<std::string> TestTokenizers();

// A file of testdata/, or of the folder that BATON_TOKENIZER_TESTDATA names. Dies where it is
// missing.
std::string ReadTestData(const std::string& name);
std::unique_ptr<const Tokenizer> LoadTestTokenizer(const std::string& name);
// The texts of corpus.jsonl.
std::vector<std::string> TestCorpus();

// The generator of make_goldens.py: the same draws in both languages.
class TestLcg {
 public:
  explicit TestLcg(uint64_t seed) : state_(seed) {}
  uint64_t Below(uint64_t n);

 private:
  uint64_t state_;
};
std::string RandomTestText(TestLcg* rng);

// FNV-1a, as make_goldens.py hashes. An id counts as its four bytes, the lowest first.
inline constexpr uint64_t kFnvStart = 0xCBF29CE484222325;
uint64_t Fnv(uint64_t hash, absl::string_view bytes);
uint64_t Fnv(uint64_t hash, TokenId id);

}  // namespace baton
