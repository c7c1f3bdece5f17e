#include "decode_worker/decode_main.h"
#include "tests/programs/test_equipment.h"

int main(int argc, char** argv) { return baton::DecodeMain(argc, argv, baton::TestEquipment()); }
