#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <gtest/gtest.h>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace baton {
namespace {

void Feed(const std::string& bytes) {
  // The heap copy has exactly this size, so that the address sanitizer sees a read beyond it.
  const std::vector<uint8_t> copy(bytes.begin(), bytes.end());
  LLVMFuzzerTestOneInput(copy.data(), copy.size());
}

// The corpus holds inputs that once broke something, and inputs from which fuzzing starts.
TEST(FuzzReplayTest, EveryInputOfTheCorpusIsTakenOrRefused) {
  int inputs = 0;
  for (const auto& file : std::filesystem::directory_iterator(BATON_FUZZ_CORPUS)) {
    SCOPED_TRACE(file.path().string());
    std::ifstream in(file.path(), std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(in), {}};
    Feed(bytes);
    // The input is also cut short, as by a broken download.
    for (const int eighth : {0, 1, 4, 7}) Feed(bytes.substr(0, bytes.size() * eighth / 8));
    ++inputs;
  }
  EXPECT_GT(inputs, 0);
}

}  // namespace
}  // namespace baton
