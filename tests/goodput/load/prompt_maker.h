#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "baton/v1/inference.pb.h"
#include "tests/goodput/load/load_spec.h"
#include "tests/goodput/load/schedule.h"

namespace baton {

// Turns a planned request into the message to send. Prompts that come from no file are random ids
// of `ordinary_tokens`, and depend on the seed, the salt and the request's index alone. In a trace,
// the tokens of a block depend on the block's id instead of the index: equal ids give equal tokens.
class PromptMaker {
 public:
  // `spec`, `schedule` and `ordinary_tokens` must outlive this object. `ordinary_tokens` may be
  // empty if prompts are texts. The id of a request is `name`, a dash and the request's index.
  PromptMaker(const LoadSpec& spec, const Schedule& schedule,
              const std::vector<int32_t>& ordinary_tokens, std::string name)
      : spec_(spec), schedule_(schedule), tokens_(ordinary_tokens), name_(std::move(name)) {}

  v1::GenerateRequest Make(uint32_t index) const;

  // Returns a hash of prompt and options. It does not depend on the request's name and mode.
  static uint64_t Fingerprint(const v1::GenerateRequest& request);

 private:
  std::vector<int32_t> Tokens(uint32_t index) const;

  const LoadSpec& spec_;
  const Schedule& schedule_;
  const std::vector<int32_t>& tokens_;
  const std::string name_;
};

}  // namespace baton
