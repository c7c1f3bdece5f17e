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
  // The copy on the heap has exactly the input's size, so that the address sanitizer detects a read
  // beyond the end.
  const std::vector<uint8_t> copy(bytes.begin(), bytes.end());
  LLVMFuzzerTestOneInput(copy.data(), copy.size());
}

// The corpus holds inputs that once caused a fault, and inputs from which the fuzzers start. No
// input may cause a fault.
TEST(FuzzReplayTest, EveryInputOfTheCorpusIsTakenOrRefused) {
  int inputs = 0;
  for (const auto& file : std::filesystem::directory_iterator(BATON_FUZZ_CORPUS)) {
    SCOPED_TRACE(file.path().string());
    std::ifstream in(file.path(), std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(in), {}};
    Feed(bytes);
    // Also runs the first part of the input alone, as a broken download may leave it.
    for (const int eighth : {0, 1, 4, 7}) Feed(bytes.substr(0, bytes.size() * eighth / 8));
    ++inputs;
  }
  EXPECT_GT(inputs, 0);
}

}  // namespace
}  // namespace baton
