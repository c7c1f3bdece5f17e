#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "kernels/backend/forwarding_backend.h"

namespace baton {

// A backend that measures how long each kind of operation takes. The backend inside must have done
// an operation when its function returns, as the one for the CPU has.
class TimedBackend final : public ForwardingBackend {
 public:
  struct Time {
    int64_t calls = 0;
    double seconds = 0;
    double weight_bytes = 0;  // bytes of the weights that were multiplied
  };
  using ForwardingBackend::ForwardingBackend;

  // Times since the last call of Take(), by name.
  std::map<std::string, Time> Take() { return std::exchange(times_, {}); }

  absl::Status Embed(const EmbedArgs& args) override {
    return Measure("embedding", 0, [&] { return ForwardingBackend::Embed(args); });
  }
  absl::Status RmsNorm(const RmsNormArgs& args) override {
    return Measure("norms", 0, [&] { return ForwardingBackend::RmsNorm(args); });
  }
  absl::Status Gemm(const GemmArgs& args) override {
    return Measure("one product", Bytes(args.weight),
                   [&] { return ForwardingBackend::Gemm(args); });
  }
  absl::Status Gemms(absl::Span<const GemmArgs> all) override {
    double bytes = 0;
    for (const GemmArgs& args : all) bytes += Bytes(args.weight);
    return Measure(absl::StrCat(all.size(), " products together"), bytes,
                   [&] { return ForwardingBackend::Gemms(all); });
  }
  absl::Status RopeAndWriteKv(const RopeAndWriteKvArgs& args) override {
    return Measure("rope, KV", 0, [&] { return ForwardingBackend::RopeAndWriteKv(args); });
  }
  absl::Status Attention(const AttentionArgs& args) override {
    return Measure("attention", 0, [&] { return ForwardingBackend::Attention(args); });
  }
  absl::Status SiluMul(const SiluMulArgs& args) override {
    return Measure("silu", 0, [&] { return ForwardingBackend::SiluMul(args); });
  }
  absl::Status Logits(const LogitsArgs& args) override {
    return Measure("logits", Bytes(args.head), [&] { return ForwardingBackend::Logits(args); });
  }

 private:
  static double Bytes(const Matrix& weight) {
    return static_cast<double>(RowBytes(weight.format, weight.cols)) * weight.rows;
  }
  template <typename Operation>
  absl::Status Measure(const std::string& name, double weight_bytes, const Operation& operation) {
    const auto start = std::chrono::steady_clock::now();
    const absl::Status status = operation();
    Time& time = times_[name];
    ++time.calls;
    time.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    time.weight_bytes += weight_bytes;
    return status;
  }

  std::map<std::string, Time> times_;
};

}  // namespace baton
