// gguf_tokens FILE: encodes texts with the tokeniser of a GGUF file. Each line of the standard
// input is a text as JSON. Each line of the standard output has the ids of one text: those of its
// characters alone, and those with its special tokens read and BOS and EOS around it, as
// [[...],[...]]. For tests/models/check_gguf_tokenizers.
#include <iostream>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"
#include "common/model/source/gguf_file.h"
#include "common/model/source/gguf_tokenizer.h"
#include "common/tokenizer/tokenizer.h"

namespace baton {
namespace {

absl::Status EncodeLines(const std::string& path) {
  ASSIGN_OR_RETURN(const auto file, GgufFile::Open(path));
  ASSIGN_OR_RETURN(const std::string json, TokenizerJsonOfGguf(*file));
  ASSIGN_OR_RETURN(const auto tokenizer, Tokenizer::FromJson(json, path));
  for (std::string line; std::getline(std::cin, line);) {
    const std::string text = nlohmann::json::parse(line).get<std::string>();
    ASSIGN_OR_RETURN(const auto plain, tokenizer->Encode(text, {.add_special = false}));
    ASSIGN_OR_RETURN(const auto whole, tokenizer->Encode(text, {.parse_special = true}));
    std::cout << "[[" << absl::StrJoin(plain, ",") << "],[" << absl::StrJoin(whole, ",") << "]]\n";
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: gguf_tokens FILE <TEXTS\n";
    return 2;
  }
  const absl::Status status = baton::EncodeLines(argv[1]);
  if (status.ok()) return 0;
  std::cerr << status.message() << "\n";
  return 1;
}
