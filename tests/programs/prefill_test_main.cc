#include "prefill_worker/prefill_main.h"
#include "tests/programs/test_equipment.h"

int main(int argc, char** argv) { return baton::PrefillMain(argc, argv, baton::TestEquipment()); }
