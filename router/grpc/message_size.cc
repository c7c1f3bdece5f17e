#include "router/grpc/message_size.h"

#include <algorithm>
#include <cstdint>

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

#include "absl/strings/str_cat.h"
#include "baton/v1/inference.pb.h"

namespace baton {

size_t MaxBytesBesideText(int context) {
  constexpr size_t kIdBytes = 6;  // An id as a field of its own, of up to 28 bits.
  constexpr size_t kOtherFields = 1 << 20;
  return kIdBytes * static_cast<size_t>(context) + kOtherFields;
}

absl::Status CheckBytesBesideText(google::protobuf::io::ZeroCopyInputStream* message, size_t size,
                                  int context) {
  using Wire = google::protobuf::internal::WireFormatLite;
  const size_t max = MaxBytesBesideText(context);
  if (size <= max) return absl::OkStatus();
  size_t text = 0;
  google::protobuf::io::CodedInputStream in(message);
  // Stops at the end of the message, or where it is not valid. What follows there counts as other
  // fields.
  while (const uint32_t tag = in.ReadTag()) {
    if (tag ==
        Wire::MakeTag(v1::GenerateRequest::kTextFieldNumber, Wire::WIRETYPE_LENGTH_DELIMITED)) {
      int length = 0;
      if (!in.ReadVarintSizeAsInt(&length)) break;
      text +=
          std::min(static_cast<size_t>(length), size - static_cast<size_t>(in.CurrentPosition()));
      if (!in.Skip(length)) break;
    } else if (!Wire::SkipField(&in, tag)) {
      break;
    }
  }
  if (size - text <= max) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "the request has ", size - text, " bytes beside its text; for a model with a context of ",
      context, " tokens it takes up to ", max));
}

}  // namespace baton
