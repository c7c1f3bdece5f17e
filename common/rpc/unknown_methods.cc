#include "common/rpc/unknown_methods.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "common/base/steady_time.h"

namespace baton {

class UnknownMethods::Call final : public grpc::ServerGenericBidiReactor {
 public:
  Call(Connections* connections, const grpc::GenericCallbackServerContext& context)
      : connections_(connections), connection_(connections->RpcBegins(context.peer())) {
    Finish({grpc::StatusCode::UNIMPLEMENTED,
            absl::StrCat("this server has no method ", context.method())});
  }

 private:
  void OnCancel() override { connections_->RpcCancelled(connection_, SteadyNow()); }
  void OnDone() override {
    connections_->RpcEnds(connection_);
    delete this;
  }

  Connections* const connections_;
  const uint64_t connection_;
};

grpc::ServerGenericBidiReactor* UnknownMethods::CreateReactor(
    grpc::GenericCallbackServerContext* context) {
  return new Call(connections_, *context);
}

}  // namespace baton
