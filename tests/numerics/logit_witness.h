#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "common/base/hash.h"
#include "kernels/backend/forwarding_backend.h"

namespace baton {

// A backend that forwards to another backend and passes a hash of every row of logits to the
// callback `hear`. A row covers the whole vocabulary, before anything is sampled from it.
class LogitWitness final : public ForwardingBackend {
 public:
  using Hear = std::function<void(uint64_t hash)>;
  LogitWitness(std::unique_ptr<Backend> backend, Hear hear)
      : ForwardingBackend(std::move(backend)), hear_(std::move(hear)) {}

  absl::Status Logits(const LogitsArgs& args) override {
    const absl::Status status = ForwardingBackend::Logits(args);
    const size_t vocab = args.head.rows;
    for (size_t row = 0; status.ok() && row < args.rows.size(); ++row) {
      hear_(Hash64(args.out.data() + row * vocab, vocab * sizeof(float)));
    }
    return status;
  }

 private:
  const Hear hear_;
};

}  // namespace baton
