#include "router/model_text.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/model/source/model_name.h"
#include "common/model/source/model_source.h"

namespace baton {
namespace {

absl::Status OfModel(const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat("--model: ", status.message()));
}

}  // namespace

absl::StatusOr<ModelText> OpenModelText(const std::string& path, bool defaults,
                                        const std::string& chat_template) {
  ModelText text;
  text.name = ModelNameAt(path);
  const auto source = ModelSource::Open(path);
  if (!source.ok()) return OfModel(source.status());
  auto config = (*source)->ReadConfig();
  if (!config.ok()) return OfModel(config.status());
  text.config = *std::move(config);
  if (defaults) {
    const absl::Status read = (*source)->ReadDefaults(&text.config);
    if (!read.ok()) return OfModel(read);
  }
  text.defaults_file = (*source)->DefaultsFile();
  const auto json = (*source)->ReadTokenizer();
  if (!json.ok()) return OfModel(json.status());
  auto tokenizer = Tokenizer::FromJson(json->json, json->place);
  if (!tokenizer.ok()) return OfModel(tokenizer.status());
  text.tokenizer = *std::move(tokenizer);
  ChatTexts chat;
  if (chat_template != "none") {
    auto texts = (*source)->ReadChatTexts();
    if (!texts.ok()) return OfModel(texts.status());
    chat = *std::move(texts);
  }
  ASSIGN_OR_RETURN(text.chat, ChatRenderer::Load(chat, chat_template));
  for (const std::string& warning : text.tokenizer->warnings()) {
    Log(Severity::kWarning, "odd_tokenizer", {{"because", warning}});
  }
  const int ids = text.tokenizer->vocab_size(), vocab = text.config.vocab;
  if (ids > vocab) {
    Log(Severity::kWarning, "odd_tokenizer",
        {{"because", absl::StrCat(json->place, ": has ids up to ", ids - 1, ", the model ", vocab,
                                  " tokens: texts that need a higher id are refused")}});
  }
  return text;
}

}  // namespace baton
