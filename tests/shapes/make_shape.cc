// Makes a model folder with the configuration of a well-known model and random or zero weights, so
// that Baton can serve a model of this size.

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/program.h"
#include "tests/shapes/shape_folder.h"

ABSL_FLAG(bool, sparse, false, "makes a file with weights of zero that takes no space on disk");

int main(int argc, char** argv) {
  using namespace baton;
  const std::string usage = absl::StrCat(
      "make_shape: makes a model folder with the shape of a well-known model.\n",
      "  make_shape SHAPE FOLDER [--sparse]\n", "Shapes: ", absl::StrJoin(ShapeNames(), ", "));
  const auto arguments = StartProgram(argc, argv, usage.c_str());
  if (arguments.size() != 2)
    RefuseToStart("it takes a shape and a folder; --help lists the shapes");
  const absl::Status status = WriteShapeFolder(
      arguments[0], absl::GetFlag(FLAGS_sparse) ? ShapeWeights::kSparse : ShapeWeights::kRandom,
      arguments[1]);
  if (!status.ok()) RefuseToStart(status.message());
  return 0;
}
