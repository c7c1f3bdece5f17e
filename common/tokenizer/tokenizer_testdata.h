#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/tokenizer/tokenizer.h"

namespace baton {

// The tokenisers of testdata/.
inline constexpr const char* kTestTokenizers[] = {"gpt2", "llama3", "qwen2", "o200k", "flags"};

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

}  // namespace baton
