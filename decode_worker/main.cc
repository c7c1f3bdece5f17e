#include "decode_worker/decode_main.h"

int main(int argc, char** argv) { return baton::DecodeMain(argc, argv, baton::ShippedEquipment()); }
