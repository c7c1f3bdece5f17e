#include "common/rpc/unknown_methods.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/steady_time.h"

namespace baton {

class UnknownMethods::Call final : public grpc::ServerGenericBidiReactor {
 public:
  Call(Connections* connections, const grpc::GenericCallbackServerContext& context)
      : connections_(connections), peer_(context.peer()) {
    connections_->RpcBegins(peer_);
    Finish({grpc::StatusCode::UNIMPLEMENTED,
            absl::StrCat("this server has no method ", context.method())});
  }

 private:
  void OnCancel() override { connections_->RpcCancelled(peer_, SteadyNow()); }
  void OnDone() override {
    connections_->RpcEnds(peer_);
    delete this;
  }

  Connections* const connections_;
  const std::string peer_;
};

grpc::ServerGenericBidiReactor* UnknownMethods::CreateReactor(
    grpc::GenericCallbackServerContext* context) {
  return new Call(connections_, *context);
}

}  // namespace baton
