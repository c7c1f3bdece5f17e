#include "tests/goodput/stop_on_signal.h"

#include <thread>

#include "common/base/program.h"

namespace baton {

StopFlag* StopOnSignal() {
  BlockStopSignals();
  static auto* const stop = new StopFlag;
  std::thread([] {
    WaitForStop();
    stop->Stop();
  }).detach();
  return stop;
}

}  // namespace baton
