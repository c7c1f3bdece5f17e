#include "common/rpc/reflection_service.h"

#include <utility>

#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>
#include <grpcpp/impl/rpc_service_method.h>
#if __has_include(<grpcpp/impl/server_callback_handlers.h>)
#include <grpcpp/impl/server_callback_handlers.h>
#else
#include <grpcpp/impl/codegen/server_callback_handlers.h>  // up to gRPC 1.51
#endif

#include "absl/strings/str_cat.h"
#include "common/base/steady_time.h"
#include "common/rpc/raw_request.h"
#include "common/rpc/status.h"
#include "grpc/reflection/v1alpha/reflection.pb.h"

namespace baton {
namespace {

using ::google::protobuf::Descriptor;
using ::google::protobuf::DescriptorPool;
using ::google::protobuf::FieldDescriptor;
using ::google::protobuf::FileDescriptor;
using ::grpc::reflection::v1alpha::ServerReflectionRequest;
using ::grpc::reflection::v1alpha::ServerReflectionResponse;

constexpr absl::Duration kIdleLimit = absl::Minutes(1);
// Longest request that is parsed. Names of files and symbols are shorter.
constexpr size_t kMaxReflectionBytes = 4096;

// Adds a file after the files that it imports, each once.
void AddFile(const FileDescriptor* file, std::set<const FileDescriptor*>* seen,
             ServerReflectionResponse* response) {
  if (!seen->insert(file).second) return;
  for (int i = 0; i < file->dependency_count(); ++i) AddFile(file->dependency(i), seen, response);
  google::protobuf::FileDescriptorProto proto;
  file->CopyTo(&proto);
  response->mutable_file_descriptor_response()->add_file_descriptor_proto(
      proto.SerializeAsString());
}

void NotFound(absl::string_view what, ServerReflectionResponse* response) {
  response->mutable_error_response()->set_error_code(grpc::StatusCode::NOT_FOUND);
  response->mutable_error_response()->set_error_message(absl::StrCat("this server has no ", what));
}

ServerReflectionResponse AnswerTo(const ServerReflectionRequest& request,
                                  const std::vector<std::string>& services) {
  const DescriptorPool& pool = *DescriptorPool::generated_pool();
  ServerReflectionResponse response;
  response.set_valid_host(request.host());
  *response.mutable_original_request() = request;
  const auto answer_file = [&](const FileDescriptor* file, const std::string& what) {
    if (file == nullptr) return NotFound(what, &response);
    std::set<const FileDescriptor*> seen;
    AddFile(file, &seen, &response);
  };
  switch (request.message_request_case()) {
    case ServerReflectionRequest::kFileByFilename:
      answer_file(pool.FindFileByName(request.file_by_filename()),
                  absl::StrCat("file '", request.file_by_filename(), "'"));
      break;
    case ServerReflectionRequest::kFileContainingSymbol:
      answer_file(pool.FindFileContainingSymbol(request.file_containing_symbol()),
                  absl::StrCat("symbol '", request.file_containing_symbol(), "'"));
      break;
    case ServerReflectionRequest::kFileContainingExtension: {
      const auto& wanted = request.file_containing_extension();
      const Descriptor* type = pool.FindMessageTypeByName(wanted.containing_type());
      const FieldDescriptor* extension =
          type == nullptr ? nullptr : pool.FindExtensionByNumber(type, wanted.extension_number());
      answer_file(extension == nullptr ? nullptr : extension->file(),
                  absl::StrCat("extension ", wanted.extension_number(), " of '",
                               wanted.containing_type(), "'"));
      break;
    }
    case ServerReflectionRequest::kAllExtensionNumbersOfType: {
      const std::string& name = request.all_extension_numbers_of_type();
      const Descriptor* type = pool.FindMessageTypeByName(name);
      if (type == nullptr) {
        NotFound(absl::StrCat("message '", name, "'"), &response);
        break;
      }
      std::vector<const FieldDescriptor*> extensions;
      pool.FindAllExtensions(type, &extensions);
      auto* numbers = response.mutable_all_extension_numbers_response();
      numbers->set_base_type_name(name);
      for (const FieldDescriptor* extension : extensions) {
        numbers->add_extension_number(extension->number());
      }
      break;
    }
    case ServerReflectionRequest::kListServices:
      for (const std::string& service : services) {
        response.mutable_list_services_response()->add_service()->set_name(service);
      }
      break;
    case ServerReflectionRequest::MESSAGE_REQUEST_NOT_SET:
      response.mutable_error_response()->set_error_code(grpc::StatusCode::INVALID_ARGUMENT);
      response.mutable_error_response()->set_error_message("the request asks for nothing");
      break;
  }
  return response;
}

std::vector<std::string> WithReflection(std::vector<std::string> services) {
  services.push_back("grpc.reflection.v1alpha.ServerReflection");
  return services;
}

}  // namespace

// Reads a request, writes its response, and so on.
class ReflectionService::Stream final
    : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  Stream(ReflectionService* service, uint64_t connection)
      : service_(service), connection_(connection), heard_(SteadyNow()) {
    MutexLock lock(&service_->mutex_);
    service_->streams_.insert(this);
    if (++service_->streams_of_[connection_] > kStreams) {
      End({grpc::StatusCode::RESOURCE_EXHAUSTED,
           absl::StrCat("this connection has more than ", kStreams,
                        " streams of server reflection")});
    } else {
      Read();
    }
  }

  void EndIdle(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(service_->mutex_) {
    if (now < heard_ + kIdleLimit) return;
    End({grpc::StatusCode::DEADLINE_EXCEEDED,
         absl::StrCat("no request came for ", absl::FormatDuration(kIdleLimit))});
  }

 private:
  void Read() {
    awaited_ = service_->connections_->MessageAwaited(connection_);
    StartRead(&request_);
  }
  void OnReadDone(bool ok) override {
    service_->connections_->MessageCame(awaited_, ok ? request_.Length() : 0);
    MutexLock lock(&service_->mutex_);
    if (finished_) return;
    if (!ok) return End(grpc::Status::OK);
    heard_ = SteadyNow();
    ServerReflectionRequest request;
    const absl::Status status =
        request_.Length() > kMaxReflectionBytes
            ? absl::InvalidArgumentError(absl::StrCat("the request has ", request_.Length(),
                                                      " bytes, limit ", kMaxReflectionBytes))
            : ParseRequest(request_, &request);
    if (!status.ok()) return End(ToGrpcStatus(status));
    const grpc::Slice bytes(AnswerTo(request, service_->services_).SerializeAsString());
    response_ = grpc::ByteBuffer(&bytes, 1);
    StartWrite(&response_);
  }
  void OnWriteDone(bool ok) override {
    MutexLock lock(&service_->mutex_);
    if (finished_) return;
    if (!ok) return End(grpc::Status::CANCELLED);
    Read();
  }
  void OnCancel() override {
    service_->connections_->RpcCancelled(connection_, SteadyNow());
    MutexLock lock(&service_->mutex_);
    End(grpc::Status::CANCELLED);
  }
  void OnDone() override {
    service_->connections_->RpcEnds(connection_);
    {
      MutexLock lock(&service_->mutex_);
      service_->streams_.erase(this);
      const auto of = service_->streams_of_.find(connection_);
      if (--of->second == 0) service_->streams_of_.erase(of);
    }
    delete this;
  }
  void End(grpc::Status status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(service_->mutex_) {
    if (!std::exchange(finished_, true)) Finish(std::move(status));
  }

  ReflectionService* const service_;
  const uint64_t connection_;
  Connections::Awaited awaited_;  // Belongs to the pending read.
  absl::Time heard_ ABSL_GUARDED_BY(service_->mutex_);
  bool finished_ ABSL_GUARDED_BY(service_->mutex_) = false;
  grpc::ByteBuffer request_, response_;  // Owned by the pending read, and by the pending write.
};

ReflectionService::ReflectionService(Connections* connections, std::vector<std::string> services)
    : connections_(connections), services_(WithReflection(std::move(services))) {
  int methods = 0;
  for (const char* name : {"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
                           "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"}) {
    AddMethod(new grpc::internal::RpcServiceMethod(name, grpc::internal::RpcMethod::BIDI_STREAMING,
                                                   nullptr));
    MarkMethodRawCallback(
        methods++, new grpc::internal::CallbackBidiHandler<grpc::ByteBuffer, grpc::ByteBuffer>(
                       [this](grpc::CallbackServerContext* context) { return Open(context); }));
  }
}

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* ReflectionService::Open(
    grpc::CallbackServerContext* context) {
  return new Stream(this, connections_->RpcBegins(context->peer()));
}

void ReflectionService::EndIdle(absl::Time now) {
  MutexLock lock(&mutex_);
  for (Stream* stream : streams_) stream->EndIdle(now);
}

}  // namespace baton
