#include "common/rpc/grpc_log.h"

#include <grpc/support/log.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/log.h"

namespace baton {
namespace {

// Maps gRPC's errors to warnings: the caller of gRPC also gets the error, and knows how serious it
// is.
Severity SeverityOf(gpr_log_severity severity) {
  return severity == GPR_LOG_SEVERITY_ERROR  ? Severity::kWarning
         : severity == GPR_LOG_SEVERITY_INFO ? Severity::kInfo
                                             : Severity::kDebug;
}

void Write(gpr_log_func_args* said) {
  absl::string_view file = said->file;
  if (const size_t slash = file.rfind('/'); slash != file.npos) file.remove_prefix(slash + 1);
  Log(SeverityOf(said->severity), "grpc",
      {{"says", said->message}, {"at", absl::StrCat(file, ":", said->line)}});
}

}  // namespace

void LogGrpc() { [[maybe_unused]] static const bool set = (gpr_set_log_function(Write), true); }

}  // namespace baton
