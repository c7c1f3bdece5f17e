#include "tests/e2e/served_folder.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>

#include "common/base/json.h"

namespace baton {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

// Returns a tokenizer with one token for each byte below `vocab_size`, and no merges. This is
// enough for a router that only receives token ids. If `vocab_size` is below 256, all other bytes
// become "!".
json ByteTokenizer(uint32_t vocab_size) {
  json vocab;
  // In GPT-2's alphabet, a printable byte is written as the character with this code. The other
  // bytes are written as the characters from code 256 on.
  uint32_t next = 256;
  const uint32_t bytes = std::min(vocab_size, 256u);
  for (uint32_t byte = 0; byte < bytes; ++byte) {
    const bool printed = (byte > 32 && byte < 127) || (byte > 160 && byte != 173);
    const uint32_t code = printed ? byte : next++;
    std::string character;
    if (code < 0x80) {
      character = static_cast<char>(code);
    } else {
      character = {static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 63))};
    }
    vocab[character] = byte;
  }
  const json byte_level = {{"type", "ByteLevel"},
                           {"add_prefix_space", false},
                           {"trim_offsets", false},
                           {"use_regex", false}};
  json model = {{"type", "BPE"}, {"vocab", vocab}, {"merges", json::array()}};
  if (bytes < 256) model["unk_token"] = "!";
  return {{"version", "1.0"},
          {"added_tokens", json::array()},
          {"normalizer", nullptr},
          {"pre_tokenizer", byte_level},
          {"post_processor", nullptr},
          {"decoder", byte_level},
          {"model", model}};
}

}  // namespace

ServedFolder::ServedFolder(absl::string_view folder) {
  // If `folder` is an absolute path, the operator / ignores the path on its left.
  fs::copy(fs::path(BATON_SOURCE_DIR "/common/model/testdata") / std::string(folder), path());
  const uint32_t vocab_size = json::parse(Read("config.json"))["vocab_size"];
  Write("tokenizer.json", ByteTokenizer(vocab_size).dump());
}

}  // namespace baton
