#pragma once

#include <vector>

namespace baton {

class JsonReader;

// Rotary embedding (Su et al. 2021), and how config.json says that its frequencies are stretched
// for long contexts. The fields are those that modeling_rope_utils of transformers reads.
struct RopeConfig {
  enum class Type {
    kDefault,
    kLinear,   // all frequencies divided by `factor` (Chen et al. 2023)
    kDynamic,  // "dynamic NTK": theta grows with the sequence length
    // depending on its wavelength, each frequency is kept, divided by `factor`, or a blend of the
    // two (Peng et al. 2023)
    kYarn,
    kLongRope,  // one divisor per frequency; other divisors for long sequences (Ding et al. 2024)
    kLlama3,    // divisor depends on the wavelength, as in the Llama 3.1 model card
  };
  Type type = Type::kDefault;
  int dims = 0;  // number of rotated elements of a head, counted from its first; two per frequency
  double theta = 10000;
  // Context length in training, in tokens. For all types but kDefault and kLinear.
  int original_context = 0;
  double factor = 1;                                 // for kLinear, kDynamic, kYarn, kLlama3
  double low_freq_factor = 1, high_freq_factor = 4;  // for kLlama3
  double beta_fast = 32, beta_slow = 1;              // for kYarn
  bool truncate = true;                              // for kYarn
  std::vector<float> short_factor, long_factor;      // for kLongRope: [dims / 2]
  double attention_factor = 1;                       // multiplies cosines and sines
  // Divides the frequencies of kDefault and kLinear, [dims / 2], or empty. Only GGUF files have it.
  std::vector<float> divisors;
  // True if the elements of a pair lie beside each other in q and k, as in Su et al. and in GGUF
  // files of `llama`; otherwise `dims` / 2 elements apart, as in transformers.
  bool interleaved = false;

  bool operator==(const RopeConfig&) const = default;
};

// Values that ReadRopeConfig needs and that do not stand in the rope settings of config.json.
struct RopeSizes {
  int head_dim = 0;
  int max_position_embeddings = 0;
  bool partial = false;  // true if config.json may say that only a part of each head is rotated
  bool yarn_is_long = false;  // set for Phi-3: its old folders call longrope "su" or "yarn"
  int original_context = 0;   // default if config.json has none; 0: max_position_embeddings
};

// Reads `rope_theta` and `rope_scaling` as transformers 4 writes them, or `rope_parameters` as
// transformers 5 does. Errors are recorded in `json`.
RopeConfig ReadRopeConfig(JsonReader& json, const RopeSizes& sizes);

// Returns the context, in tokens, that the rope scaling is made for. The result may exceed an int.
double ScaledContext(const RopeConfig& rope, int max_position_embeddings);

// Returns the reach of the rotary table to use for a sequence of `tokens` tokens: the max number of
// tokens that a sequence may have with this table.
//
// Some rope types use different tables for different lengths, and KV of different tables can't be
// mixed. A sequence that grows beyond the reach is therefore computed anew from its first token,
// with the table of its new length. The same tokens must always give the same bits, so the table
// depends only on the length of the original prompt and on `tokens`. For all chunks of a prompt,
// `tokens` is the length of the whole prompt.
//   kLongRope  original_context, or kEndlessReach for longer sequences. transformers makes the same
//              choice for each forward pass
//   kDynamic   the smallest max(original_context, prompt_tokens) * 2^k that is at least `tokens`. A
//              long prompt uses the table of its own length, as in transformers. A growing answer
//              is computed anew a few times, instead of at every token
//   others     kEndlessReach
int RopeReach(const RopeConfig& rope, int prompt_tokens, int tokens);
constexpr int kEndlessReach = 1 << 30;

// Returns inverse_frequency of every rotated pair of a head, [dims / 2], in the rotary table for
// sequences of up to `reach` tokens.
std::vector<float> RopeInverseFrequency(const RopeConfig& rope, int reach);

}  // namespace baton
