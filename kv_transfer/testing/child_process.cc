#include "kv_transfer/testing/child_process.h"

#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <filesystem>

#include <sys/wait.h>
#include <unistd.h>

#include "common/base/check.h"

namespace baton {

std::string ProgramBeside(const std::string& name) {
  const auto path = std::filesystem::read_symlink("/proc/self/exe").replace_filename(name);
  BATON_CHECK(std::filesystem::exists(path)) << path;
  return path;
}

ChildProcess::ChildProcess(const std::vector<std::string>& command) {
  std::signal(SIGPIPE, SIG_IGN);
  int to[2], from[2];
  BATON_CHECK(pipe(to) == 0 && pipe(from) == 0) << "pipe";
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  pid_ = fork();
  if (pid_ == 0) {
    dup2(to[0], 0);
    dup2(from[1], 1);
    for (int fd = 3; fd < 1024; ++fd) close(fd);
    execv(words[0], words.data());
    _exit(127);
  }
  close(to[0]);
  close(from[1]);
  in_ = fdopen(to[1], "w");
  out_ = fdopen(from[0], "r");
}

ChildProcess::~ChildProcess() {
  Signal(SIGKILL);
  Reap();
  CloseInput();
  std::fclose(out_);
}

void ChildProcess::CloseInput() {
  if (in_ != nullptr) std::fclose(in_);
  in_ = nullptr;
}

void ChildProcess::Signal(int signal) {
  if (pid_ > 0) kill(pid_, signal);
}

void ChildProcess::Reap() {
  if (pid_ > 0) waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

void ChildProcess::Say(const std::string& line) {
  std::fprintf(in_, "%s\n", line.c_str());
  std::fflush(in_);
}

std::string ChildProcess::Hear() {
  char line[65536];
  if (std::fgets(line, sizeof(line), out_) == nullptr) return "";
  return line;
}

void ChildProcess::Send(const std::string& message) { SendMessage(in_, message); }

std::string ChildProcess::Receive() {
  std::string message;
  return ReceiveMessage(out_, &message) ? message : "";
}

void SendMessage(FILE* to, const std::string& message) {
  const uint32_t bytes = static_cast<uint32_t>(message.size());
  std::fwrite(&bytes, sizeof(bytes), 1, to);
  std::fwrite(message.data(), 1, message.size(), to);
  std::fflush(to);
}

bool ReceiveMessage(FILE* from, std::string* message) {
  uint32_t bytes = 0;
  if (std::fread(&bytes, sizeof(bytes), 1, from) != 1) return false;
  message->resize(bytes);
  return bytes == 0 || std::fread(message->data(), bytes, 1, from) == 1;
}

}  // namespace baton
