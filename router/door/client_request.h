#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "baton/v1/sampling.pb.h"
#include "common/base/types.h"
#include "common/chat/chat.h"
#include "router/core/serving_mode.h"

namespace baton {

// A client's request, whatever protocol it came by. Nothing of it is checked yet; CheckRequest()
// does that.
struct ClientRequest {
  std::string request_id;  // Name in logs and answers. Empty: the router makes one.
  std::string model;       // Empty: the model that is served.
  // Text (UTF-8), token ids or a conversation; nothing if the client gave no prompt.
  std::variant<std::monostate, std::string, std::vector<TokenId>, Chat> prompt;
  // For text only: special tokens that it spells become their ids, and the tokeniser adds its own
  // (BOS), which is the default.
  bool parse_special = false;
  std::optional<bool> add_special;
  v1::SamplingParams sampling;  // A field that is not set has the model's default.
  // False: special tokens of the answer are part of its text.
  bool skip_special = true;
  ServingMode mode = ServingMode::kUnspecified;
  std::optional<double> ttft_ms, tpot_ms;  // Latency targets, milliseconds.
  std::string cache_salt;    // Requests share cached KV only if their salts are equal.
  bool prefix_cache = true;  // False: finds no cached KV, and leaves none.
};

}  // namespace baton
