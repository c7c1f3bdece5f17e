#include "common/tokenizer/post_processor.h"

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace baton {
namespace {

constexpr int kMaxPostProcessorDepth = 8;
constexpr size_t kMaxAdded = 64;  // max number of tokens that a template adds to a text

// Appends the ids of a special token to `out`. `use` is {"id": NAME, ...}, and `tokens` has an
// entry for each NAME.
absl::Status ReadSpecial(const JsonNode& use, const JsonNode& tokens, const Vocabulary& vocabulary,
                         std::vector<TokenId>* out) {
  ASSIGN_OR_RETURN(const auto name_node, use.Get("id"));
  ASSIGN_OR_RETURN(const auto name, name_node.String());
  ASSIGN_OR_RETURN(const auto token, tokens.Get(name));
  ASSIGN_OR_RETURN(const auto ids_node, token.Get("ids"));
  ASSIGN_OR_RETURN(const auto ids, ids_node.Array());
  for (const JsonNode& id_node : ids) {
    ASSIGN_OR_RETURN(const auto id, id_node.Int(0, kMaxVocabSize - 1));
    if (!vocabulary.Contains(static_cast<TokenId>(id)))
      return id_node.Error(absl::StrCat("no token has id ", id));
    if (out->size() == kMaxAdded)
      return id_node.Error(absl::StrCat("more than ", kMaxAdded, " added tokens"));
    out->push_back(static_cast<TokenId>(id));
  }
  return absl::OkStatus();
}

absl::Status ReadTemplate(const JsonNode& node, const Vocabulary& vocabulary,
                          PostProcessor* result) {
  ASSIGN_OR_RETURN(const auto single, node.Get("single"));
  ASSIGN_OR_RETURN(const auto pieces, single.Array());
  std::vector<TokenId> before, behind;
  bool seen_text = false;
  for (const JsonNode& piece : pieces) {
    ASSIGN_OR_RETURN(const auto sequence, piece.Find("Sequence"));
    if (sequence) {
      ASSIGN_OR_RETURN(const auto id, sequence->Get("id"));
      ASSIGN_OR_RETURN(const auto name, id.String());
      if (name != "A") return id.Unsupported("\"A\"");
      if (seen_text) return piece.Error("the text occurs twice");
      seen_text = true;
      continue;
    }
    ASSIGN_OR_RETURN(const auto use, piece.Get("SpecialToken"));
    ASSIGN_OR_RETURN(const auto tokens, node.Get("special_tokens"));
    RETURN_IF_ERROR(ReadSpecial(use, tokens, vocabulary, seen_text ? &behind : &before));
  }
  if (!seen_text) return single.Error("the text (Sequence A) is missing");
  result->before = std::move(before);
  result->behind = std::move(behind);
  return absl::OkStatus();
}

absl::Status Read(const JsonNode& node, const Vocabulary& vocabulary, int depth,
                  bool* seen_template, PostProcessor* result) {
  ASSIGN_OR_RETURN(const auto type, node.Get("type"));
  ASSIGN_OR_RETURN(const auto name, type.String());
  if (name == "ByteLevel") return absl::OkStatus();
  if (name == "TemplateProcessing") {
    if (*seen_template) return node.Error("a second TemplateProcessing is not supported");
    *seen_template = true;
    return ReadTemplate(node, vocabulary, result);
  }
  if (name != "Sequence")
    return type.Unsupported("\"TemplateProcessing\", \"ByteLevel\", \"Sequence\"");
  if (depth > kMaxPostProcessorDepth) return node.Error("sequences nested too deeply");
  ASSIGN_OR_RETURN(const auto list, node.Get("processors"));
  ASSIGN_OR_RETURN(const auto parts, list.Array());
  for (const JsonNode& part : parts) {
    RETURN_IF_ERROR(Read(part, vocabulary, depth + 1, seen_template, result));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<PostProcessor> PostProcessor::FromJson(const std::optional<JsonNode>& node,
                                                      const Vocabulary& vocabulary) {
  PostProcessor result;
  if (node) {
    bool seen_template = false;
    RETURN_IF_ERROR(Read(*node, vocabulary, 0, &seen_template, &result));
  }
  return result;
}

}  // namespace baton
