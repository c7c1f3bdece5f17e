#pragma once

#include <cstddef>

namespace baton {

inline constexpr int kMaxMessageBytes = 64 << 20;  // fits a prompt of millions of tokens
inline constexpr size_t kMaxReportBytes = 1 << 20;  // a message of a worker on its Attach stream
inline constexpr size_t kMaxCacheSaltBytes = 256;
inline constexpr size_t kMaxCacheChanges = 4096;  // names in one CacheChanges message
// Bytes of one stream that gRPC takes before somebody reads them.
inline constexpr int kUnreadBytes = 128 << 10;
inline constexpr int kKeepaliveMs = 2000;         // a silent peer is pinged after this time
// Time in which a peer must answer a keepalive ping. A peer that does not counts as lost.
inline constexpr int kKeepaliveTimeoutMs = 4000;
// Time limit of one connection attempt. It is generous because a busy machine answers late.
inline constexpr int kConnectLimitMs = 5000;
// Workers and routers with different protocol versions are never paired.
inline constexpr int kProtocolVersion = 5;

}  // namespace baton
