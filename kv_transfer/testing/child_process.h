#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include <sys/types.h>

namespace baton {

// Path of a program beside the running one, wherever the two were copied. Dies where it is not.
std::string ProgramBeside(const std::string& name);

// A program of a test as a child, with its standard input and output in hand. Killed when this
// goes.
class ChildProcess {
 public:
  // `command`: path and arguments.
  explicit ChildProcess(const std::vector<std::string>& command);
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }
  void Signal(int signal);
  // Waits for its end, which somebody must have seen to.
  void Reap();

  void Say(const std::string& line);
  // The next line, with its end; empty when the child is gone.
  std::string Hear();
  // Nothing more is said, which a child that listens takes for the end.
  void CloseInput();
  // A message of any bytes, behind its length.
  void Send(const std::string& message);
  // The next such message; empty when the child is gone.
  std::string Receive();

 private:
  pid_t pid_ = -1;
  FILE* in_ = nullptr;
  FILE* out_ = nullptr;
};

// The child's side: sends and receives messages over its own ends of the pipes.
void SendMessage(FILE* to, const std::string& message);
bool ReceiveMessage(FILE* from, std::string* message);

}  // namespace baton
