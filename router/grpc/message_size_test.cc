#include "router/grpc/message_size.h"

#include <string>

#include <gmock/gmock.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <gtest/gtest.h>

#include "baton/v1/inference.pb.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

constexpr int kContext = 1000;

absl::Status CheckBytes(const std::string& message, int block = -1) {
  google::protobuf::io::ArrayInputStream in(message.data(), static_cast<int>(message.size()),
                                            block);
  return CheckBytesBesideText(&in, message.size(), kContext);
}

TEST(CheckBytesBesideTextTest, ATextOfAnyLengthPasses) {
  v1::GenerateRequest request;
  request.set_text(std::string(5 << 20, 'a'));
  request.set_model("demo");
  request.mutable_sampling()->add_stop(std::string(MaxBytesBesideText(kContext) - 100, 'a'));
  const std::string message = request.SerializeAsString();
  for (const int block : {-1, 16 << 10, 1000}) {
    EXPECT_TRUE(CheckBytes(message, block).ok()) << CheckBytes(message, block);
  }
  request.mutable_sampling()->add_stop(std::string(100, 'a'));
  const absl::Status status = CheckBytes(request.SerializeAsString());
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("bytes beside its text; for a model with a context of 1000 tokens it takes "
                        "up to 1054576"));
}

// The longest prompt has `kContext` ids. A program may send each of them as a field of its own.
TEST(CheckBytesBesideTextTest, AsManyIdsAsTheContextPassAndManyMoreDoNot) {
  const auto ids = [](int count, const std::string& id) {
    std::string list;
    for (int i = 0; i < count; ++i) list += id;
    std::string message = "\x22";  // token_ids
    google::protobuf::io::StringOutputStream out(&message);
    google::protobuf::io::CodedOutputStream coded(&out);
    coded.WriteVarint32(static_cast<uint32_t>(list.size()));
    coded.WriteString(list);
    coded.Trim();
    return message;
  };
  const std::string id = "\x08\xff\xff\xff\x7f";
  v1::GenerateRequest request;
  ASSERT_TRUE(request.ParseFromString(ids(kContext, id)));
  EXPECT_EQ(request.token_ids().ids_size(), kContext);
  EXPECT_TRUE(CheckBytes(ids(kContext, id)).ok());
  const std::string many = ids(300 * kContext, id);
  EXPECT_EQ(CheckBytes(many).code(), absl::StatusCode::kInvalidArgument);
  // Everything behind the first fault of a message counts as other fields than the text, so this
  // message is refused too.
  EXPECT_EQ(CheckBytes(many.substr(0, many.size() - 1)).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(CheckBytes(std::string(many.size(), '\0')).code(), absl::StatusCode::kInvalidArgument);
}

// The parser then says what is wrong.
TEST(CheckBytesBesideTextTest, AMessageThatIsNotValidPassesIfItIsShort) {
  v1::GenerateRequest request;
  request.set_text(std::string(5 << 20, 'a'));
  const std::string message = request.SerializeAsString();
  EXPECT_TRUE(CheckBytes(message.substr(0, message.size() - 1)).ok());
  EXPECT_TRUE(CheckBytes(message + "\xff\xff\xff").ok());
  EXPECT_TRUE(CheckBytes("\x1a\x7f").ok());
  // The length of this text is that of none: it is negative.
  EXPECT_FALSE(CheckBytes("\x1a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01" + message).ok());
}

}  // namespace
}  // namespace baton
