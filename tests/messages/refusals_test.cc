// Checks docs/refusals.md against the sources of `common/model` and `common/tokenizer`: every
// refusal is in a table there, and every row is a refusal.

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "gtest/gtest.h"
#include "tests/messages/source_messages.h"
#include "tests/messages/troubleshooting.h"

namespace baton {
namespace {

namespace fs = std::filesystem;

constexpr char kTable[] = "docs/refusals.md";

std::string SourceText(const fs::path& path) {
  std::ifstream file(fs::path(BATON_SOURCE_DIR) / path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// A row of docs/refusals.md.
struct RefusalRow {
  int line = 0;
  std::string file;  // heading above the row
  std::string text;  // beginning of the refusal
  int calls = 1;     // number of calls with this text
  std::string reference, why;
  int found = 0;
};

// Reads the tables whose first column is called "refusal". The first cell of a row has the text
// between backquotes, and "(2 calls)" behind it if the source has it twice.
std::vector<RefusalRow> ReadRefusals() {
  std::vector<RefusalRow> rows;
  std::string file;
  bool in_table = false;
  int line_number = 0;
  const std::string text = SourceText(kTable);
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++line_number;
    if (absl::ConsumePrefix(&line, "## ")) file = std::string(line);
    if (!absl::StartsWith(line, "|")) in_table = false;
    if (absl::StartsWith(line, "| refusal |")) in_table = true;
    if (!in_table || !absl::ConsumePrefix(&line, "| `")) continue;
    RefusalRow row{.line = line_number, .file = file};
    const size_t end = line.find('`');
    row.text = std::string(line.substr(0, end));
    const std::vector<absl::string_view> cells = absl::StrSplit(line.substr(end + 1), '|');
    absl::string_view calls = absl::StripAsciiWhitespace(cells[0]);
    if (absl::ConsumePrefix(&calls, "(") && absl::ConsumeSuffix(&calls, " calls)")) {
      EXPECT_TRUE(absl::SimpleAtoi(calls, &row.calls)) << kTable << ":" << line_number;
    }
    EXPECT_EQ(cells.size(), 4u) << kTable << ":" << line_number << " has other than three cells";
    if (cells.size() != 4) continue;
    row.reference = std::string(absl::StripAsciiWhitespace(cells[1]));
    row.why = std::string(absl::StripAsciiWhitespace(cells[2]));
    rows.push_back(std::move(row));
  }
  return rows;
}

// Returns the sources that read a model's folder. Left out are tests with what they need, the
// forward pass, whose errors are about a step, and what reads GGUF files.
std::vector<std::string> SourcesThatRefuse() {
  std::vector<std::string> paths;
  for (const char* folder : {"common/model", "common/model/source", "common/tokenizer"}) {
    for (const auto& entry : fs::directory_iterator(fs::path(BATON_SOURCE_DIR) / folder)) {
      const std::string name = entry.path().filename();
      if (!absl::EndsWith(name, ".cc") && !absl::EndsWith(name, ".h")) continue;
      if (absl::StrContains(name, "_test") || absl::StrContains(name, "_bench") ||
          absl::StartsWith(name, "test_") || absl::StartsWith(name, "reference_backend.") ||
          absl::StartsWith(name, "forward_pass.") || absl::StartsWith(name, "gguf_") ||
          absl::StartsWith(name, "model_folder.")) {
        continue;
      }
      paths.push_back(absl::StrCat(folder, "/", name));
    }
  }
  absl::c_sort(paths);
  return paths;
}

std::vector<SourceMessage> RefusalsIn(const std::string& path) {
  // In these files, functions put a message together and return it as a text.
  const bool returned =
      absl::EndsWith(path, "/folder_advice.cc") || absl::EndsWith(path, "/safetensors_file.cc");
  return RefusalsOf(SourceText(path), returned);
}

// Returns the row with the longest text that begins `refusal`, or nullptr.
RefusalRow* RowOf(const std::string& file, const std::string& refusal,
                  std::vector<RefusalRow>* rows) {
  RefusalRow* longest = nullptr;
  for (RefusalRow& row : *rows) {
    if (row.file != file || !absl::StartsWith(refusal, row.text)) continue;
    if (longest == nullptr || row.text.size() > longest->text.size()) longest = &row;
  }
  return longest;
}

TEST(RefusalsTest, EveryRefusalIsInTheTableAndEveryRowIsARefusal) {
  std::vector<RefusalRow> rows = ReadRefusals();
  size_t refusals = 0;
  for (const std::string& path : SourcesThatRefuse()) {
    for (const SourceMessage& refusal : RefusalsIn(path)) {
      ++refusals;
      RefusalRow* const row = RowOf(path, refusal.text, &rows);
      EXPECT_TRUE(row != nullptr)
          << path << ":" << refusal.line << ": " << kTable << " has no row under '" << path
          << "' for this refusal. Add one that says what the reference does with such a file:\n| `"
          << refusal.text << "` | refuses | |";
      if (row != nullptr) ++row->found;
    }
  }
  for (const RefusalRow& row : rows) {
    EXPECT_EQ(row.found, row.calls) << kTable << ":" << row.line << ": `" << row.text << "` in "
                                    << row.file << ": calls found, and calls that the row names";
  }
  EXPECT_GT(refusals, 180u);
}

TEST(RefusalsTest, EveryRowSaysWhatTheReferenceDoes) {
  for (const RefusalRow& row : ReadRefusals()) {
    const auto begins = [&](absl::string_view word) {
      return absl::StartsWith(row.reference, word);
    };
    EXPECT_TRUE(begins("refuses") || begins("loads") || begins("no file") || begins("passes on"))
        << kTable << ":" << row.line << ": " << row.reference;
    EXPECT_TRUE(!row.why.empty() || begins("refuses") || begins("passes on"))
        << kTable << ":" << row.line << ": the reference does not refuse: why does Baton?";
  }
}

// A file that was cut short, or that does not parse, may be whole at its source. Any other file is
// the same after another download.
TEST(RefusalsTest, OnlyABrokenFileIsToBeFetchedAgain) {
  const auto is_broken = [](absl::string_view message) {
    for (const absl::string_view sign : {"cut short", "is not valid JSON", "is empty"}) {
      if (absl::StrContains(message, sign)) return true;
    }
    return false;
  };
  int found = 0;
  for (const std::string& path : SourcesThatRefuse()) {
    for (const SourceMessage& refusal : RefusalsIn(path)) {
      if (!absl::StrContains(refusal.text, "fetch it again")) continue;
      ++found;
      EXPECT_TRUE(is_broken(refusal.text)) << path << ":" << refusal.line << ": " << refusal.text;
    }
  }
  EXPECT_GE(found, 3);
  for (const KnownMessage& message : TroubleshootingMessages()) {
    if (message.section != "The model's folder") continue;
    EXPECT_TRUE(!absl::StrContains(message.advice, "fetch it again") || is_broken(message.text))
        << message.text << ": " << message.advice;
    EXPECT_FALSE(absl::StrContains(message.advice, "fetch the file again")) << message.text;
  }
}

}  // namespace
}  // namespace baton
