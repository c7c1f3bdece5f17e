#pragma once

namespace baton {

// Limits of a model's settings, far above any existing model. They are low enough that products of
// two sizes fit in 64 bits and offsets into activations fit in an int.
constexpr int kMaxLayers = 4096;
constexpr int kMaxHidden = 1 << 17;
constexpr int kMaxIntermediate = 1 << 20;
constexpr int kMaxHeads = 1024;
constexpr int kMaxHeadDim = 1024;
constexpr int kMaxVocab = 1 << 24;
constexpr int kMaxContext = 1 << 28;
constexpr double kLargestTheta = 1e12;
constexpr double kLargestFactor = 1e6;  // factor of rope scaling
constexpr double kSmallestFactor = 1e-6;

}  // namespace baton
