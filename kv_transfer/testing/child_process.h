#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include <sys/types.h>

namespace baton {

// Returns the path of the program `name` in the folder of the running program. Aborts if it does
// not exist.
std::string ProgramBeside(const std::string& name);

// A child process of a test, with pipes to its standard input and output. The destructor kills it.
class ChildProcess {
 public:
  // `command` is the path of the program, followed by its arguments.
  explicit ChildProcess(const std::vector<std::string>& command);
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }
  void Signal(int signal);
  // Waits for the process to end. The caller must have made it end, for example with a signal.
  void Reap();

  void Say(const std::string& line);
  // Returns the next line that the child wrote, with its newline, or "" if the child is gone.
  std::string Hear();
  // Closes the child's standard input. A child that reads its input takes this as the order to end.
  void CloseInput();
  // Sends a message of any bytes, preceded by its length.
  void Send(const std::string& message);
  // Returns the next message that the child sent with SendMessage, or "" if the child is gone.
  std::string Receive();

 private:
  pid_t pid_ = -1;
  FILE* in_ = nullptr;
  FILE* out_ = nullptr;
};

// SendMessage and ReceiveMessage are for the child process. They exchange messages with the
// parent's Receive and Send, over standard output and standard input.
void SendMessage(FILE* to, const std::string& message);
bool ReceiveMessage(FILE* from, std::string* message);

}  // namespace baton
