#include "tests/numerics/numerics_case.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include <gtest/gtest.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/model/model_folder.h"
#include "tests/numerics/long_model.h"

namespace baton {

using Isa = CpuBackendOptions::Isa;

std::string NumericsCase::Name() const {
  const std::string name = absl::StrCat(CpuNumericsName(numerics), "_", model);
  return absl::StrReplaceAll(name, {{"-", "_"}, {".", "_"}});
}

std::string NumericsCase::Folder() const {
  if (IsLong()) return LongModelFolder(model == "long_bf16" ? DType::kBF16 : DType::kF32);
  const std::string common = absl::StrCat(BATON_SOURCE_DIR, "/common/model/");
  return common + (model == "demo" ? model : absl::StrCat("testdata/", model));
}

bool NumericsCase::IsLong() const { return model == "long_f32" || model == "long_bf16"; }

std::vector<Isa> NumericsCase::Isas() const {
  std::vector<Isa> isas;
  for (const Isa isa : {Isa::kAuto, Isa::kAmx, Isa::kAvx512, Isa::kAvx2}) {
    if (CreateCpuBackend({1, isa, numerics}).ok()) isas.push_back(isa);
  }
  return isas;
}

std::vector<NumericsCase> AllNumericsCases() {
  std::vector<std::string> models;
  std::vector<NumericsCase> cases;
  for (const auto& entry : std::filesystem::directory_iterator(
           absl::StrCat(BATON_SOURCE_DIR, "/common/model/testdata"))) {
    const std::string model = entry.path().filename();
    if (entry.is_directory()) models.push_back(model);
    if (entry.path().extension() == ".gguf" &&
        IsQuantised(ModelFolder::Open(entry.path())->checkpoint->MatrixFormat())) {
      cases.push_back({CpuNumerics::kQ8, model});
    }
  }
  // In f32, weights of every format are widened in the same way. This file has two formats.
  cases.push_back({CpuNumerics::kF32, "qwen2.Q4_K_M.gguf"});
  std::sort(models.begin(), models.end());
  models.insert(models.begin(), {"demo", "long_bf16", "long_f32"});
  for (const std::string& model : models) {
    cases.push_back({CpuNumerics::kF32, model});
    const bool bf16 = cases.back().IsLong()
                          ? model == "long_bf16"
                          : ModelFolder::Open(cases.back().Folder())->checkpoint->MatrixFormat() ==
                                WeightFormat::kBF16;
    if (!bf16) continue;
    cases.push_back({CpuNumerics::kAmx, model});
    cases.push_back({CpuNumerics::kAvx512Bf16, model});
  }
  return cases;
}

uint32_t FromEnvironment(const char* name, uint32_t otherwise) {
  const char* text = std::getenv(name);
  uint32_t value = otherwise;
  EXPECT_TRUE(text == nullptr || absl::SimpleAtoi(text, &value)) << name << "=" << text;
  return value;
}

}  // namespace baton
