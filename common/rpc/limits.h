#pragma once

namespace baton {

inline constexpr int kMaxMessageBytes = 64 << 20;  // a prompt of millions of tokens still fits
inline constexpr int kKeepaliveMs = 2000;  // a peer that vanished without a word is noticed after
inline constexpr int kKeepaliveTimeoutMs = 4000;  // these two together
// Longest time that one attempt at connecting may take; a busy machine needs more than a moment.
inline constexpr int kConnectLimitMs = 5000;
// Workers and routers whose protocols differ are never paired.
inline constexpr int kProtocolVersion = 3;

}  // namespace baton
