#include "prefill_worker/prefill_main.h"

int main(int argc, char** argv) {
  return baton::PrefillMain(argc, argv, baton::ShippedEquipment());
}
