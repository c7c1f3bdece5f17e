#include "common/tokenizer/post_processor.h"

#include "absl/strings/str_cat.h"

namespace baton {
namespace {

constexpr int kMaxDepth = 8;
constexpr size_t kMaxAdded = 64;  // tokens in all

// Appends the ids of the special token that `use` ({"id": NAME, ...}) names in `tokens`.
absl::Status ReadSpecial(const JsonNode& use, const JsonNode& tokens, const Vocabulary& vocabulary,
                         std::vector<TokenId>* out) {
  const auto name_node = use.Get("id");
  if (!name_node.ok()) return name_node.status();
  const auto name = name_node->String();
  if (!name.ok()) return name.status();
  const auto token = tokens.Get(*name);
  if (!token.ok()) return token.status();
  const auto ids_node = token->Get("ids");
  if (!ids_node.ok()) return ids_node.status();
  const auto ids = ids_node->Array();
  if (!ids.ok()) return ids.status();
  for (const JsonNode& id_node : *ids) {
    const auto id = id_node.Int(0, kMaxVocabSize - 1);
    if (!id.ok()) return id.status();
    if (!vocabulary.Contains(static_cast<TokenId>(*id)))
      return id_node.Error(absl::StrCat("no token has id ", *id));
    if (out->size() == kMaxAdded)
      return id_node.Error(absl::StrCat("more than ", kMaxAdded, " added tokens"));
    out->push_back(static_cast<TokenId>(*id));
  }
  return absl::OkStatus();
}

absl::Status ReadTemplate(const JsonNode& node, const Vocabulary& vocabulary,
                          PostProcessor* result) {
  const auto single = node.Get("single");
  if (!single.ok()) return single.status();
  const auto pieces = single->Array();
  if (!pieces.ok()) return pieces.status();
  std::vector<TokenId> before, behind;
  bool seen_text = false;
  for (const JsonNode& piece : *pieces) {
    const auto sequence = piece.Find("Sequence");
    if (!sequence.ok()) return sequence.status();
    if (*sequence) {
      const auto id = (*sequence)->Get("id");
      if (!id.ok()) return id.status();
      const auto name = id->String();
      if (!name.ok()) return name.status();
      if (*name != "A") return id->Unsupported("\"A\"");
      if (seen_text) return piece.Error("the text stands there twice");
      seen_text = true;
      continue;
    }
    const auto use = piece.Get("SpecialToken");
    if (!use.ok()) return use.status();
    const auto tokens = node.Get("special_tokens");
    if (!tokens.ok()) return tokens.status();
    if (absl::Status read = ReadSpecial(*use, *tokens, vocabulary, seen_text ? &behind : &before);
        !read.ok()) {
      return read;
    }
  }
  if (!seen_text) return single->Error("the text (Sequence A) is missing");
  result->before = std::move(before);
  result->behind = std::move(behind);
  return absl::OkStatus();
}

absl::Status Read(const JsonNode& node, const Vocabulary& vocabulary, int depth,
                  bool* seen_template, PostProcessor* result) {
  const auto type = node.Get("type");
  if (!type.ok()) return type.status();
  const auto name = type->String();
  if (!name.ok()) return name.status();
  if (*name == "ByteLevel") return absl::OkStatus();
  if (*name == "TemplateProcessing") {
    if (*seen_template) return node.Error("a second TemplateProcessing is not supported");
    *seen_template = true;
    return ReadTemplate(node, vocabulary, result);
  }
  if (*name != "Sequence")
    return type->Unsupported("\"TemplateProcessing\", \"ByteLevel\", \"Sequence\"");
  if (depth > kMaxDepth) return node.Error("sequences nested too deeply");
  const auto list = node.Get("processors");
  if (!list.ok()) return list.status();
  const auto parts = list->Array();
  if (!parts.ok()) return parts.status();
  for (const JsonNode& part : *parts) {
    if (absl::Status read = Read(part, vocabulary, depth + 1, seen_template, result); !read.ok())
      return read;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<PostProcessor> PostProcessor::FromJson(const std::optional<JsonNode>& node,
                                                      const Vocabulary& vocabulary) {
  PostProcessor result;
  if (node) {
    bool seen_template = false;
    if (absl::Status read = Read(*node, vocabulary, 0, &seen_template, &result); !read.ok())
      return read;
  }
  return result;
}

}  // namespace baton
