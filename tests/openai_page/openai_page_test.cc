// Runs docs/openai.md, and holds its tables to the code. README.md describes the kinds of blocks.
#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "common/base/error_details.h"
#include "common/base/scratch_folder.h"
#include "router/http/chat_request.h"
#include "router/http/completion_request.h"
#include "router/http/openai_error.h"
#include "router/http/refused_fields.h"
#include "tests/shell/run_shell.h"

namespace baton {
namespace {

using nlohmann::json;
using testing::HasSubstr;

constexpr char kPage[] = "docs/openai.md";
constexpr char kAddressOfPage[] = "127.0.0.1:8000";

std::string Contents(const std::string& path) {
  std::ifstream file(absl::StrCat(BATON_SOURCE_DIR "/", path));
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_FALSE(text.str().empty()) << path;
  return text.str();
}

// ---- blocks
// --------------------------------------------------------------------------------------

struct Block {
  std::string kind;  // The text behind the fence.
  std::string text;
  int line = 0;  // Number of the line of the fence.
};

std::vector<Block> BlocksOf(const std::string& path) {
  std::vector<Block> blocks;
  bool inside = false;
  int number = 0;
  for (const absl::string_view line : absl::StrSplit(Contents(path), '\n')) {
    ++number;
    if (absl::StartsWith(line, "```")) {
      inside = !inside;
      if (inside) blocks.push_back({std::string(line.substr(3)), "", number});
    } else if (inside) {
      absl::StrAppend(&blocks.back().text, line, "\n");
    }
  }
  EXPECT_FALSE(inside) << path;
  return blocks;
}

// Returns a JSON value with a type in place of each text and number. A list becomes the set of its
// elements' shapes. A number is one type, whether it has a fraction or not.
json ShapeOf(const json& value) {
  if (value.is_object()) {
    json shape = json::object();
    for (const auto& [key, member] : value.items()) shape[key] = ShapeOf(member);
    return shape;
  }
  if (value.is_array()) {
    std::set<json> shapes;
    for (const json& element : value) shapes.insert(ShapeOf(element));
    return json(shapes);
  }
  return value.is_number() ? "number" : value.type_name();
}

// Returns a text with the JSON of each event replaced by its shape.
std::string ShapeOfText(const std::string& text) {
  std::vector<std::string> lines = absl::StrSplit(absl::StrReplaceAll(text, {{"\r", ""}}), '\n');
  for (std::string& line : lines) {
    if (!absl::StartsWith(line, "data: {")) continue;
    line = ShapeOf(json::parse(line.substr(6), nullptr, false)).dump();
  }
  while (!lines.empty() && lines.back().empty()) lines.pop_back();
  return absl::StrJoin(lines, "\n");
}

class OpenaiPageTest : public testing::Test {
 protected:
  ~OpenaiPageTest() override { Stop(); }

  void SetUp() override {
    if (RunShell("command -v curl").exit_status != 0) {
      GTEST_SKIP() << "curl is not here (Debian: curl)";
    }
  }

  void Stop() {
    if (!address_.empty()) {
      Run("if [ -e router.pid ]; then kill $(cat router.pid); rm router.pid; else \"$BATON\" down; "
          "fi");
    }
    address_.clear();
  }

  // Runs commands of a page in the test's folder, with the address of the cluster that is up.
  Ended Run(const std::string& commands) const {
    const std::string here =
        absl::StrReplaceAll(commands, {{"./baton ", "\"$BATON\" "}, {kAddressOfPage, address_}});
    return RunShell(absl::StrCat("set -e; cd ", folder_.path(),
                                 "; unset BATON_API_KEY BATON_ATTACH_TOKEN; "
                                 "export no_proxy=127.0.0.1 BATON_BUILD=" BATON_BUILD_DIR
                                 " BATON=" BATON_SOURCE_DIR "/baton BATON_STATE=",
                                 folder_.File("state"), "\n", here));
  }

  void StartCluster(const Block& block) {
    Stop();
    address_ = "127.0.0.1:0";
    const Ended up =
        Run(absl::StrReplaceAll(block.text, {{"./baton up",
                                              "./baton up --detach --no-build --listen 127.0.0.1:0 "
                                              "--http-listen 127.0.0.1:0 --kv-bytes 16Mi"}}));
    ASSERT_EQ(up.exit_status, 0) << "line " << block.line << ": " << up.output;
    const Ended address =
        Run("sed -n 's/^listening for HTTP on //p' \"$BATON_STATE/log/router.log\" | tail -n 1");
    address_ = address.output.substr(0, address.output.find('\n'));
    ASSERT_THAT(address_, HasSubstr("127.0.0.1:"));
  }

  // Starts a router without workers in the background.
  void StartRouter(const Block& block) {
    Stop();
    address_ = "127.0.0.1:0";
    const std::string commands = absl::StrReplaceAll(
        absl::StripTrailingAsciiWhitespace(block.text),
        {{"build/bin/baton-router ", BATON_BUILD_DIR "/bin/baton-router --listen 127.0.0.1:0 "},
         {"common/model/demo", BATON_SOURCE_DIR "/common/model/demo"}});
    const Ended started = Run(absl::StrCat(
        ": > router.log\n", commands, " > router.log 2>&1 & echo $! > router.pid\n",
        "until grep -q '^listening for HTTP on ' router.log; do kill -0 $!; sleep 0.02; done\n"
        "sed -n 's/^listening for HTTP on //p' router.log"));
    address_ = started.output.substr(0, started.output.find('\n'));
    ASSERT_THAT(address_, HasSubstr("127.0.0.1:")) << "line " << block.line;
  }

  // Runs one block, and compares its output with `expected`.
  void RunBlock(const Block& block, const Block* expected) const {
    const Ended ended = Run(block.text);
    EXPECT_EQ(ended.exit_status, 0) << ended.output;
    if (expected == nullptr) return;
    if (expected->kind == "json") {
      const json got = json::parse(ended.output, nullptr, false);
      ASSERT_FALSE(got.is_discarded()) << ended.output;
      EXPECT_EQ(ShapeOf(got), ShapeOf(json::parse(expected->text))) << ended.output;
    } else {
      EXPECT_EQ(ShapeOfText(ended.output), ShapeOfText(expected->text));
    }
  }

  void RunPython(const Block& block) const {
    const char* const given = std::getenv("BATON_OPENAI_PYTHON");
    const std::string python = given == nullptr ? "python3" : given;
    if (Run(python + " -c 'import openai' 2>/dev/null").exit_status != 0) {
      std::printf("line %d was not run: %s has no package openai (set $BATON_OPENAI_PYTHON)\n",
                  block.line, python.c_str());
      return;
    }
    const Ended ended = Run(absl::StrCat(python, " - <<'PYTHON'\n", block.text, "PYTHON\n"));
    EXPECT_EQ(ended.exit_status, 0) << ended.output;
    EXPECT_THAT(ended.output, HasSubstr("ain")) << "it tells about rain";
  }

  void RunBlocks(const std::string& path, const std::vector<Block>& blocks) {
    for (size_t i = 0; i < blocks.size(); ++i) {
      const Block& block = blocks[i];
      SCOPED_TRACE(absl::StrCat(path, ":", block.line));
      const bool answered =
          i + 1 < blocks.size() && (blocks[i + 1].kind == "json" || blocks[i + 1].kind == "text");
      if (block.kind == "sh server") {
        StartCluster(block);
        if (HasFatalFailure()) return;
      } else if (block.kind == "sh router") {
        StartRouter(block);
        if (HasFatalFailure()) return;
      } else if (block.kind == "sh") {
        RunBlock(block, answered ? &blocks[i + 1] : nullptr);
        i += answered ? 1 : 0;
      } else if (block.kind == "python") {
        RunPython(block);
      } else {
        ADD_FAILURE() << "a block of the kind '" << block.kind << "' behind no command";
      }
    }
  }

  const ScratchFolder folder_;
  std::string address_;  // Address of the HTTP door of the cluster that is up; empty: none is.
};

TEST_F(OpenaiPageTest, EveryBlockGivesItsAnswer) {
  const std::vector<Block> blocks = BlocksOf(kPage);
  EXPECT_GE(blocks.size(), 20u);
  RunBlocks(kPage, blocks);
}

TEST_F(OpenaiPageTest, TheReadmesCurlGivesItsAnswer) {
  std::vector<Block> blocks;
  for (const Block& block : BlocksOf("README.md")) {
    const bool answer = block.kind == "json";
    const bool start = blocks.empty() && absl::StartsWith(block.text, "./baton up");
    if (start || absl::StrContains(block.text, kAddressOfPage) || answer) blocks.push_back(block);
  }
  ASSERT_GE(blocks.size(), 3u) << "the start, the curl, and its answer";
  blocks.resize(3);
  blocks[0].kind = "sh server";
  RunBlocks("README.md", blocks);
}

// ---- tables
// --------------------------------------------------------------------------------------

// Returns the cells of the rows of the table that begins with this header, without back quotes
// around a whole cell.
std::vector<std::vector<std::string>> TableWith(absl::string_view header) {
  std::vector<std::vector<std::string>> rows;
  const std::string page = Contents(kPage);
  const size_t begin = page.find(absl::StrCat("\n", header));
  EXPECT_NE(begin, std::string::npos) << header;
  if (begin == std::string::npos) return rows;
  int line_number = 0;
  for (const absl::string_view line :
       absl::StrSplit(absl::string_view(page).substr(begin + 1), '\n')) {
    if (!absl::StartsWith(line, "|")) break;
    if (++line_number <= 2) continue;
    std::vector<std::string> cells;
    for (absl::string_view cell : absl::StrSplit(line.substr(1), " |")) {
      cell = absl::StripAsciiWhitespace(cell);
      if (cell.size() > 1 && cell.front() == '`' && cell.back() == '`') {
        cell = cell.substr(1, cell.size() - 2);
      }
      cells.emplace_back(cell);
    }
    cells.resize(std::max<size_t>(cells.size(), 8));
    rows.push_back(std::move(cells));
  }
  EXPECT_FALSE(rows.empty()) << header;
  return rows;
}

std::set<std::string> FirstCells(const std::vector<std::vector<std::string>>& rows) {
  std::set<std::string> cells;
  for (const auto& row : rows) EXPECT_TRUE(cells.insert(row[0]).second) << row[0] << " twice";
  return cells;
}

// Returns the first group of each match in a source.
std::set<std::string> Matches(const std::string& path, const std::string& pattern) {
  const std::string text = Contents(path);
  const std::regex regex(pattern);
  std::set<std::string> found;
  for (std::sregex_iterator it(text.begin(), text.end(), regex), end; it != end; ++it) {
    found.insert((*it)[1]);
  }
  EXPECT_FALSE(found.empty()) << path << " has no " << pattern;
  return found;
}

// Returns the names of the fields that a source reads.
std::set<std::string> FieldNames(const std::string& path) {
  return Matches(path, "name == \"([a-z_]+)\"");
}

// Returns the names of the fields that all requests for answers have.
std::set<std::string> SharedFieldNames() {
  std::set<std::string> names = FieldNames("router/http/shared_fields.cc");
  for (const std::string& key : Matches("router/http/shared_fields.cc", "key == \"([a-z_]+)\"")) {
    names.insert(absl::StrCat("stream_options.", key));
  }
  return names;
}

absl::StatusOr<CompletionRequest> Parse(const std::string& members) {
  const CompletionSettings settings = {.refuse_unknown_fields = true, .context_tokens = 4096};
  const bool prompt = absl::StrContains(members, "\"prompt\":");
  return ParseCompletionRequest(absl::StrCat("{", prompt ? "" : "\"prompt\": \"a\"",
                                             !prompt && !members.empty() ? ", " : "", members, "}"),
                                settings);
}

absl::StatusOr<CompletionRequest> ParseChat(const std::string& members) {
  const CompletionSettings settings = {.refuse_unknown_fields = true, .context_tokens = 4096};
  const bool messages = absl::StrContains(members, "\"messages\":");
  const std::string hello = R"("messages": [{"role": "user", "content": "a"}])";
  return ParseChatRequest(absl::StrCat("{", messages ? "" : hello,
                                       !messages && !members.empty() ? ", " : "", members, "}"),
                          settings);
}

constexpr char kFields[] = "| field | example | default here |";
constexpr char kRefused[] = "| field | example that is refused |";
constexpr char kChatFields[] = "| field of a chat | example |";
constexpr char kRefusedInChats[] = "| field refused in a chat | example that is refused |";

TEST(OpenaiTablesTest, EveryFieldHasARowAndEveryRowIsAField) {
  const auto rows = TableWith(kFields);
  std::set<std::string> known = SharedFieldNames();
  known.merge(FieldNames("router/http/completion_request.cc"));
  EXPECT_EQ(FirstCells(rows), known);
  for (const auto& row : rows) {
    const std::string field = row[0].substr(row[0].rfind('.') + 1);
    EXPECT_THAT(row[1], HasSubstr(absl::StrCat("\"", field, "\":"))) << row[0];
    const bool echo = field == "max_tokens" && absl::StrContains(row[1], ": 0");
    const auto parsed = Parse(echo ? row[1] + ", \"echo\": true" : row[1]);
    EXPECT_TRUE(parsed.ok()) << row[0] << ": " << parsed.status();
    if (SharedFieldNames().count(row[0]) == 0) continue;
    const auto chat = ParseChat(row[1]);
    EXPECT_TRUE(chat.ok()) << row[0] << ": " << chat.status();
  }
}

TEST(OpenaiTablesTest, EveryFieldOfAChatHasARowAndEveryRowIsAField) {
  const auto rows = TableWith(kChatFields);
  std::set<std::string> known = FieldNames("router/http/chat_request.cc");
  known.merge(FieldNames("router/http/chat_fields.cc"));
  EXPECT_EQ(FirstCells(rows), known);
  for (const auto& row : rows) {
    EXPECT_THAT(row[1], HasSubstr(absl::StrCat("\"", row[0], "\":"))) << row[0];
    const auto parsed = ParseChat(row[1]);
    EXPECT_TRUE(parsed.ok()) << row[0] << ": " << parsed.status();
  }
}

TEST(OpenaiTablesTest, DefaultsAreThoseOfTheRequest) {
  std::map<std::string, std::string> defaults;
  for (const auto& row : TableWith(kFields)) defaults[row[0]] = row[2];
  const auto request = Parse("");
  ASSERT_TRUE(request.ok());
  const CompletionShape& shape = request->shape;
  const ClientRequest& prompt = request->prompts.at(0);
  EXPECT_EQ(defaults["max_tokens"], absl::StrCat(prompt.sampling.max_tokens()));
  EXPECT_EQ(defaults["n"], absl::StrCat(shape.n));
  EXPECT_THAT(defaults["temperature"],
              HasSubstr(absl::StrCat("else **", prompt.sampling.temperature(), "**")));
  EXPECT_EQ(defaults["skip_special_tokens"], prompt.skip_special ? "true" : "false");
  EXPECT_EQ(defaults["stream"], shape.stream ? "true" : "false");
  EXPECT_EQ(defaults["echo"], shape.echo ? "true" : "false");
  EXPECT_EQ(defaults["logprobs"], shape.logprobs ? "some" : "none");
  EXPECT_EQ(defaults["prompt_logprobs"], shape.prompt_logprobs ? "some" : "none");
}

// Holds a row of a table of refused fields to the parser of one of the two paths.
void ExpectRefused(const std::vector<std::string>& row, bool chat) {
  const auto parse = [chat](const std::string& members) {
    return chat ? ParseChat(members) : Parse(members);
  };
  const RefusedField* const refused = FindRefusedField(row[0], chat);
  ASSERT_NE(refused, nullptr) << row[0];
  EXPECT_EQ(row[3], refused->reason) << row[0];
  const absl::Status status = parse(row[1]).status();
  EXPECT_EQ(ParameterOf(status), row[0]) << row[1] << ": " << status;
  EXPECT_THAT(status.message(), HasSubstr(row[3]));
  for (const std::string& accepted : {row[2], absl::StrCat("\"", row[0], "\": null")}) {
    const auto parsed = parse(accepted);
    EXPECT_TRUE(parsed.ok()) << accepted << ": " << parsed.status();
  }
}

TEST(OpenaiTablesTest, EveryRefusedFieldHasARowWithItsReason) {
  const auto rows = TableWith(kRefused);
  const auto chat_rows = TableWith(kRefusedInChats);
  std::set<std::string> names = FirstCells(rows);
  names.merge(FirstCells(chat_rows));
  EXPECT_EQ(names, Matches("router/http/refused_fields.cc", "\\{\"([a-z_]+)\","));
  for (const auto& row : rows) {
    ExpectRefused(row, /*chat=*/false);
    if (FindRefusedField(row[0], /*chat=*/true) != nullptr) ExpectRefused(row, /*chat=*/true);
  }
  for (const auto& row : chat_rows) ExpectRefused(row, /*chat=*/true);
}

TEST(OpenaiTablesTest, EveryKindOfErrorHasARow) {
  std::set<std::vector<std::string>> rows;
  std::map<int, std::string> retried;
  for (const auto& row : TableWith("| HTTP | type | code | when | retried |")) {
    EXPECT_TRUE(rows.insert({row[0], row[1], row[2]}).second) << row[0] << " " << row[2];
    retried[std::stoi(row[0])] = row[4];
  }
  std::set<std::vector<std::string>> known;
  for (const OpenAiErrorKind& kind : OpenAiErrorKinds()) {
    known.insert({absl::StrCat(kind.http), std::string(kind.type),
                  kind.code.empty() ? "null" : std::string(kind.code)});
    const OpenAiError error = ToOpenAiError(absl::Status(kind.status, "x"));
    const bool told = std::any_of(error.fields.begin(), error.fields.end(), [](const auto& field) {
      return field.first == "x-should-retry";
    });
    // The rule of OpenAI's clients.
    const bool retries = (kind.http == 429 || kind.http >= 500) && !told;
    EXPECT_EQ(retried[kind.http], retries ? "yes" : "no") << kind.http;
  }
  for (const auto& kind : known) {
    EXPECT_EQ(rows.count(kind), 1u) << testing::PrintToString(kind) << " has no row";
  }
  // The other rows are errors of HTTP itself, or have a reason as their code.
  const std::string sources = absl::StrCat(
      Contents("common/base/error_details.h"), Contents("router/http/http_door.cc"),
      Contents("router/http/http_head_check.cc"), Contents("router/http/http_connection.cc"),
      Contents("router/http/http_request_reader.cc"), Contents("router/http/http_chunk_reader.cc"));
  for (const auto& row : rows) {
    if (known.count(row) > 0) continue;
    const std::string named = row[2] == "null" ? row[0] : absl::StrCat("\"", row[2], "\"");
    EXPECT_THAT(sources, HasSubstr(named)) << testing::PrintToString(row);
  }
}

TEST(OpenaiTablesTest, EveryPathHasARow) {
  std::set<std::string> rows;
  for (const auto& row : TableWith("| path | what it does |")) {
    const std::string path = row[0].substr(row[0].find(' ') + 1);
    rows.insert(absl::StrReplaceAll(path, {{"{id}", ""}}));
  }
  EXPECT_EQ(rows, Matches("router/http/http_door.cc", "\\{\"(/[a-z0-9/]+)\", (?:true|false)"));
}

TEST(OpenaiTablesTest, EveryHeaderAndMetricOfThePageIsInTheSources) {
  const std::string sources =
      absl::StrCat(Contents("router/http/http_door.cc"), Contents("router/http/openai_error.cc"),
                   Contents("router/door/door.cc"), Contents("router/door/request_check.h"));
  for (const std::string& header : FirstCells(TableWith("| header | direction | meaning |"))) {
    EXPECT_THAT(sources, HasSubstr(absl::StrCat("\"", header, "\"")));
  }
  EXPECT_EQ(FirstCells(TableWith("| metric | meaning |")),
            Matches("router/http/http_door.cc", "\"(baton_router_http_[a-z_]+)\""));
}

TEST(OpenaiTablesTest, EveryFlagOfThePageIsOneOfTheRouter) {
  const std::string help = RunShell(BATON_BUILD_DIR "/bin/baton-router --help").output;
  for (const std::string& flag : Matches(kPage, "`(--[a-z-]+)")) {
    EXPECT_THAT(help, HasSubstr(absl::StrCat("  ", flag, "\n")));
  }
}

// The records of both servers are in tests/openai, and a script makes the table of them.
TEST(OpenaiTablesTest, DifferencesFromLlamaServerAreThoseOfTheRecords) {
  const std::string page = Contents(kPage);
  const std::string command =
      "check_openai_client --differences --table tests/openai/baton.json "
      "tests/openai/llama-server.json";
  const size_t mark = page.find(absl::StrCat("<!-- ", command, " -->\n"));
  ASSERT_NE(mark, std::string::npos);
  const size_t begin = page.find('\n', mark) + 1, end = page.find("<!-- end -->", begin);
  ASSERT_NE(end, std::string::npos);
  if (RunShell("python3 -c 'import json'").exit_status != 0) GTEST_SKIP() << "no python3 is here";
  const Ended table =
      RunShell(absl::StrCat("cd " BATON_SOURCE_DIR " && python3 tests/openai/", command));
  EXPECT_EQ(table.exit_status, 0);
  EXPECT_TRUE(page.substr(begin, end - begin) == table.output)
      << "the table of the page is not that of: tests/openai/" << command;
}

}  // namespace
}  // namespace baton
