#pragma once

#include <google/protobuf/message_lite.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/proto_buffer_reader.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace baton {

// Parses the message that a raw method received. gRPC itself would answer a message that does not
// parse with Unimplemented; this returns InvalidArgument with the reason.
inline absl::Status ParseRequest(const grpc::ByteBuffer& bytes,
                                 google::protobuf::MessageLite* request) {
  grpc::ByteBuffer copy = bytes;  // the copy shares the slices of `bytes`
  grpc::ProtoBufferReader reader(&copy);
  if (reader.status().ok() && request->ParseFromZeroCopyStream(&reader)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the request of ", bytes.Length(), " bytes is not a valid ",
                   request->GetTypeName(), ": it was cut short, or has text that is not UTF-8"));
}

}  // namespace baton
