#include "common/worker/worker_equipment.h"

#include "kernels/cuda/open_device.h"

namespace baton {

WorkerEquipment ShippedEquipment() {
  return {.backends = {{.name = "cuda", .open_device = OpenCudaDevice}}};
}

}  // namespace baton
