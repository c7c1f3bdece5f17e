#include "common/model/source/rope_config.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/model/source/json_reader.h"
#include "common/model/source/model_limits.h"

namespace baton {
namespace {

constexpr char kOriginalContext[] = "original_max_position_embeddings";

void ReadLlama3(JsonReader& rope, RopeConfig& config) {
  config.factor = rope.Number("factor", 1, kLargestFactor);
  config.low_freq_factor = rope.Number("low_freq_factor", kSmallestFactor, kLargestFactor);
  config.high_freq_factor = rope.Number("high_freq_factor", kSmallestFactor, kLargestFactor);
  config.original_context = rope.Int(kOriginalContext, 1, kMaxContext);
  if (config.high_freq_factor <= config.low_freq_factor) {
    rope.Fail("high_freq_factor",
              absl::StrCat("more than low_freq_factor, ", config.low_freq_factor));
  }
}

// Returns the factor for attention scores when the context is `scale` times longer than in training
// (Peng et al. 2023, section 3.4).
double YarnMscale(double scale, double mscale) {
  return scale <= 1 ? 1 : 0.1 * mscale * std::log(scale) + 1;
}

void ReadYarn(JsonReader& rope, double ratio, RopeConfig& config) {
  config.factor =
      rope.Number("factor", 1, kLargestFactor, ratio > 1 ? std::optional(ratio) : std::nullopt);
  const double mscale = rope.Number("mscale", 0, kLargestFactor, 0);
  const double mscale_all_dim = rope.Number("mscale_all_dim", 0, kLargestFactor, 0);
  const double inferred =
      mscale != 0 && mscale_all_dim != 0
          ? YarnMscale(config.factor, mscale) / YarnMscale(config.factor, mscale_all_dim)
          : YarnMscale(config.factor, 1);
  config.attention_factor = rope.Number("attention_factor", 0, kLargestFactor, inferred);
  // In transformers, beta_fast or beta_slow 0 means the default.
  const double fast = rope.Number("beta_fast", 0, kLargestFactor, 0);
  const double slow = rope.Number("beta_slow", 0, kLargestFactor, 0);
  if (fast != 0) config.beta_fast = fast;
  if (slow != 0) config.beta_slow = slow;
  config.truncate = rope.Bool("truncate", true);
}

void ReadLongRope(JsonReader& rope, double ratio, bool ratio_first, RopeConfig& config) {
  const size_t pairs = config.dims / 2;
  config.short_factor = rope.Numbers("short_factor", kSmallestFactor, kLargestFactor, pairs);
  config.long_factor = rope.Numbers("long_factor", kSmallestFactor, kLargestFactor, pairs);
  const double named = rope.Number("factor", kSmallestFactor, kLargestFactor, ratio);
  const double factor = ratio_first ? ratio : named;
  const double inferred =
      factor <= 1 ? 1 : std::sqrt(1 + std::log(factor) / std::log(double(config.original_context)));
  config.attention_factor = rope.Number("attention_factor", 0, kLargestFactor, inferred);
  if (config.original_context < 2) rope.Fail(kOriginalContext, "at least 2");
}

// Returns the number of elements of a head that are rotated.
int ReadDims(JsonReader& rope, int head_dim, bool partial) {
  constexpr char key[] = "partial_rotary_factor";
  const double part = rope.Number(key, 0, 1, 1);
  const int dims = static_cast<int>(head_dim * part);
  if (part != 1 && !partial) rope.Fail(key, "1, or no such key");
  if (dims < 2 || dims % 2 != 0) {
    rope.Fail(key, absl::StrCat("an even number of at least 2 out of head_dim, ", head_dim));
    return 2;
  }
  return dims;
}

RopeConfig::Type ReadType(JsonReader& rope, bool yarn_is_long) {
  using Type = RopeConfig::Type;
  const char* key = !rope.Has("rope_type") && rope.Has("type") ? "type" : "rope_type";
  const std::string name = rope.String(key, "default");
  constexpr struct {
    const char* name;
    Type type;
  } kTypes[] = {{"default", Type::kDefault},   {"linear", Type::kLinear},
                {"dynamic", Type::kDynamic},   {"yarn", Type::kYarn},
                {"longrope", Type::kLongRope}, {"llama3", Type::kLlama3}};
  if (yarn_is_long && (name == "su" || name == "yarn")) return Type::kLongRope;
  for (const auto& known : kTypes) {
    if (name == known.name) return known.type;
  }
  rope.Fail(key, "\"default\", \"linear\", \"dynamic\", \"yarn\", \"longrope\" or \"llama3\"");
  return Type::kDefault;
}

// Computes theta^exponent in double, then rounds it to float. So the result is that of a correctly
// rounded float power.
float Power(float theta, float exponent) {
  return static_cast<float>(std::pow(double{theta}, double{exponent}));
}

// Returns the exponents of all rotated pairs, in float. Pair i has the exponent 2i / dims.
std::vector<float> Exponents(int dims) {
  std::vector<float> exponents(dims / 2);
  for (size_t i = 0; i < exponents.size(); ++i) {
    exponents[i] = static_cast<float>(2 * i) / static_cast<float>(dims);
  }
  return exponents;
}

// Scales frequencies with the same operations as _compute_llama3_parameters of transformers, all in
// float.
void ScaleLlama3(const RopeConfig& rope, std::vector<float>& frequencies) {
  const float original = rope.original_context;
  const float factor = rope.factor, low_freq_factor = rope.low_freq_factor;
  const float low_wavelength = rope.original_context / rope.low_freq_factor;
  const float high_wavelength = rope.original_context / rope.high_freq_factor;
  const float band = rope.high_freq_factor - rope.low_freq_factor;
  for (float& frequency : frequencies) {
    const float wavelength = (1.0f / frequency) * static_cast<float>(2 * M_PI);
    if (wavelength > low_wavelength) {
      frequency = frequency / factor;
    } else if (wavelength >= high_wavelength) {
      const float smooth = ((1.0f / wavelength) * original - low_freq_factor) / band;
      frequency = (1.0f - smooth) * frequency / factor + smooth * frequency;
    }
  }
}

// Computes frequencies as _compute_yarn_parameters of transformers. Frequencies that turn more than
// beta_fast times within the original context are kept. Those that turn less than beta_slow times
// are divided by `factor`. The frequencies between are blended.
std::vector<float> YarnFrequencies(const RopeConfig& rope) {
  const auto dim_of_turns = [&](double turns) {
    return rope.dims * std::log(rope.original_context / (turns * 2 * M_PI)) /
           (2 * std::log(rope.theta));
  };
  double low = dim_of_turns(rope.beta_fast), high = dim_of_turns(rope.beta_slow);
  if (rope.truncate) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0);
  high = std::min(high, rope.dims - 1.0);
  if (low == high) high += 0.001;
  std::vector<float> frequencies = Exponents(rope.dims);
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const float power = Power(rope.theta, frequencies[i]);
    const float ramp =
        (static_cast<float>(i) - static_cast<float>(low)) / static_cast<float>(high - low);
    const float kept = 1.0f - std::clamp(ramp, 0.0f, 1.0f);
    const float divided = 1.0f / (static_cast<float>(rope.factor) * power);
    frequencies[i] = divided * (1.0f - kept) + (1.0f / power) * kept;
  }
  return frequencies;
}

// Returns theta for sequences of `length` tokens, as _compute_dynamic_ntk_parameters of
// transformers does, in float.
float DynamicTheta(const RopeConfig& rope, int length) {
  const float stretch = static_cast<float>(rope.factor) * static_cast<float>(length) /
                            static_cast<float>(rope.original_context) -
                        static_cast<float>(rope.factor - 1);
  const double exponent = double(rope.dims) / (rope.dims - 2);
  return static_cast<float>(rope.theta) *
         static_cast<float>(std::pow(double{stretch}, double{static_cast<float>(exponent)}));
}

}  // namespace

RopeConfig ReadRopeConfig(JsonReader& json, const RopeSizes& sizes) {
  using Type = RopeConfig::Type;
  RopeConfig config;
  config.theta = json.Number("rope_theta", 1, kLargestTheta, config.theta);
  config.dims = ReadDims(json, sizes.head_dim, sizes.partial);
  const int outer_original = json.Int(kOriginalContext, 1, kMaxContext, sizes.original_context);
  // If config.json has both rope_scaling and rope_parameters, only rope_scaling is read, as in
  // versions 4 and 5 of transformers.
  // As in transformers, an empty rope_scaling is none.
  const bool scaling = json.Has("rope_scaling") && !json.Is("rope_scaling", "{}");
  const bool five = !scaling && json.Has("rope_parameters");
  if (!five && !scaling) return config;

  JsonReader rope = json.Object(five ? "rope_parameters" : "rope_scaling");
  for (const char* layer_type : {"full_attention", "sliding_attention"}) {
    if (rope.Has(layer_type))
      rope.Fail(layer_type, "no such key: one rotary embedding for all layers");
  }
  config.theta = rope.Number("rope_theta", 1, kLargestTheta, config.theta);
  if (rope.Has("partial_rotary_factor")) {
    config.dims = ReadDims(rope, sizes.head_dim, sizes.partial);
  }
  config.type = ReadType(rope, sizes.yarn_is_long);
  if (config.type == Type::kDefault) return config;
  const int inner_original = rope.Int(kOriginalContext, 1, kMaxContext, 0);
  config.original_context = outer_original > 0   ? outer_original
                            : inner_original > 0 ? inner_original
                                                 : sizes.max_position_embeddings;
  const double ratio = double(sizes.max_position_embeddings) / config.original_context;
  switch (config.type) {
    case Type::kDefault:
      break;
    case Type::kLinear:
      config.factor = rope.Number("factor", 1, kLargestFactor);
      break;
    case Type::kDynamic:
      config.factor = rope.Number("factor", 1, kLargestFactor);
      config.original_context = sizes.max_position_embeddings;
      if (config.dims < 4)
        rope.Fail("rope_type", "another type: \"dynamic\" rotates at least 4 elements of a head");
      break;
    case Type::kYarn:
      ReadYarn(rope, ratio, config);
      if (config.theta <= 1) {
        (rope.Has("rope_theta") ? rope : json).Fail("rope_theta", "more than 1");
      }
      break;
    case Type::kLongRope:
      ReadLongRope(rope, ratio, !five && outer_original > 0, config);
      break;
    case Type::kLlama3:
      ReadLlama3(rope, config);
      break;
  }
  return config;
}

double ScaledContext(const RopeConfig& rope, int max_position_embeddings) {
  switch (rope.type) {
    case RopeConfig::Type::kLinear:
    case RopeConfig::Type::kDynamic:
      return std::floor(max_position_embeddings * rope.factor);
    case RopeConfig::Type::kYarn:
      return std::max<double>(max_position_embeddings,
                              std::floor(rope.original_context * rope.factor));
    default:
      return max_position_embeddings;
  }
}

int RopeReach(const RopeConfig& rope, int prompt_tokens, int tokens) {
  if (rope.type == RopeConfig::Type::kLongRope) {
    return tokens <= rope.original_context ? rope.original_context : kEndlessReach;
  }
  if (rope.type != RopeConfig::Type::kDynamic) return kEndlessReach;
  int64_t reach = std::max({rope.original_context, prompt_tokens, 1});
  while (reach < tokens) reach *= 2;
  return static_cast<int>(std::min<int64_t>(reach, kEndlessReach));
}

std::vector<float> RopeInverseFrequency(const RopeConfig& rope, int reach) {
  if (rope.type == RopeConfig::Type::kYarn) return YarnFrequencies(rope);
  const bool is_long = reach > rope.original_context;
  const float theta = rope.type == RopeConfig::Type::kDynamic && is_long
                          ? DynamicTheta(rope, reach)
                          : static_cast<float>(rope.theta);
  std::vector<float> frequencies = Exponents(rope.dims);
  for (size_t i = 0; i < frequencies.size(); ++i) {
    float power = Power(theta, frequencies[i]);
    if (rope.type == RopeConfig::Type::kLongRope) {
      power *= (is_long ? rope.long_factor : rope.short_factor)[i];
    }
    if (!rope.divisors.empty()) power *= rope.divisors[i];
    frequencies[i] = 1.0f / power;
    if (rope.type == RopeConfig::Type::kLinear) frequencies[i] /= static_cast<float>(rope.factor);
  }
  if (rope.type == RopeConfig::Type::kLlama3) ScaleLlama3(rope, frequencies);
  return frequencies;
}

}  // namespace baton
