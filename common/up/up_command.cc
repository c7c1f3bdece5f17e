#include "common/up/up_command.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/inotify.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/check.h"
#include "common/base/steady_time.h"
#include "common/up/child_process.h"
#include "common/up/process_log.h"
#include "common/up/processes.h"
#include "common/up/start_progress.h"
#include "common/up/state_folder.h"
#include "common/up/supervisor.h"
#include "common/up/wording.h"

namespace baton {
namespace {

constexpr int kDefaultPort = 50051;
constexpr int kDefaultHttpPort = 8000;
constexpr char kAskedFor[] = "Tell me a story about a fox";  // in the commands that are suggested
// Time between two reads of the logs if the system has no inotify instance left.
constexpr absl::Duration kLogPause = absl::Milliseconds(50);
constexpr int kAnswerTokens = 200;  // max length of the first answer, in tokens

sigset_t WatchedSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int number : {SIGCHLD, SIGTERM, SIGINT, SIGHUP}) sigaddset(&signals, number);
  return signals;
}

bool PortIsFree(int port) {
  const int probe = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (probe < 0) return true;  // the router will report the error
  const int on = 1;
  setsockopt(probe, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const bool bound = bind(probe, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 &&
                     ::listen(probe, 1) == 0;
  close(probe);
  return bound;
}

class Up {
 public:
  // If --detach is given, `front` is one end of a socket pair. The command that the user started
  // holds the other end, and waits there until this process serves. If --detach is not given,
  // `front` is -1.
  Up(const UpOptions& options, const std::string& programs, const std::string& state, int front)
      : options_(options), programs_(programs), state_(state), front_(front) {}

  ~Up() {
    for (const int file : {signals_, watch_, front_}) {
      if (file >= 0) close(file);
    }
  }

  int Run() {
    if (absl::Status taken = state_.Take(); !taken.ok()) return RefuseTaken(taken);
    const sigset_t signals = WatchedSignals();
    sigprocmask(SIG_BLOCK, &signals, nullptr);
    signal(SIGPIPE, SIG_IGN);
    signals_ = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
    BATON_CHECK(signals_ >= 0) << errno;
    watch_ = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    ChooseListen();
    ChooseHttpListen();
    MakeSupervisor();
    supervisor_->Begin(SteadyNow());
    while (!supervisor_->done() || prompter_ > 0) Turn();
    state_.Clear();
    if (say_stopped_) Say("stopped");
    return exit_status_;
  }

 private:
  enum class Phase { kStarting, kPrompting, kServing, kStopping };

  int RefuseTaken(const absl::Status& taken) {
    if (taken.code() != absl::StatusCode::kAlreadyExists) {
      SayFailure(taken.message());
      return 1;
    }
    if (state_.Stopping()) {
      SayFailure(absl::StrCat("the cluster is being stopped; wait until ", CalledAs(),
                              " status says that nothing is up, then start it again"));
      return 1;
    }
    const std::string address = state_.RouterAddress();
    SayFailure(
        absl::StrCat("the cluster is up already",
                     address.empty() ? ", and still starting" : absl::StrCat(", at ", address),
                     "; ", CalledAs(), " status shows it, and ", CalledAs(), " down stops it"));
    return 1;
  }

  void ChooseListen() {
    listen_ = options_.listen;
    if (!listen_.empty()) return;
    listen_ = absl::StrCat("127.0.0.1:", kDefaultPort);
    if (PortIsFree(kDefaultPort)) return;
    Say(absl::StrCat(listen_, " is taken; the router listens on a free port"));
    listen_ = "127.0.0.1:0";
  }

  // Chooses the address for HTTP. Another process of this cluster may have been given the default
  // port, too.
  void ChooseHttpListen() {
    if (options_.http_listen.has_value()) {
      http_listen_ = *options_.http_listen;
      return;
    }
    http_listen_ = absl::StrCat("127.0.0.1:", kDefaultHttpPort);
    if (!Claims(options_, kDefaultHttpPort) && PortIsFree(kDefaultHttpPort)) return;
    Say(absl::StrCat(http_listen_, " is taken; the router serves HTTP on a free port"));
    http_listen_ = "127.0.0.1:0";
  }

  void MakeSupervisor() {
    std::vector<Supervisor::Process> processes;
    for (ProcessSpec& spec : ProcessesOf(options_)) {
      logs_.emplace(spec.name, ProcessLog(state_.LogFile(spec.name)));
      const absl::Duration limit = StopLimit(options_, spec.role);
      processes.push_back({.spec = std::move(spec), .stop_limit = limit});
    }
    supervisor_ = std::make_unique<Supervisor>(
        std::move(processes),
        Supervisor::Callbacks{
            .start = [this](const Supervisor::Process& process) { StartProcess(process); },
            .signal =
                [this](const Supervisor::Process& process, int number) {
                  const auto pid = pids_.find(process.spec.name);
                  if (pid != pids_.end()) kill(pid->second, number);
                },
            .note = [this](absl::string_view line) { Note(line); }});
  }

  void StartProcess(const Supervisor::Process& process) {
    const std::string name = process.spec.name;
    ProcessLog& log = logs_.at(name);
    log.BeginRun();
    const bool is_router = process.spec.role == Role::kRouter;
    const std::string router = supervisor_->router_address();
    const absl::StatusOr<pid_t> pid = StartChild(
        {.program = absl::StrCat(programs_, "/", ProgramOf(process.spec.role)),
         .arguments = is_router
                          ? RouterArguments(options_, router.empty() ? listen_ : router,
                                            http_address_.empty() ? http_listen_ : http_address_)
                          : WorkerArguments(options_, process.spec.role, router),
         .log = log.path()});
    if (!pid.ok()) {
      supervisor_->OnStartFailed(name, pid.status().message(), SteadyNow());
      return;
    }
    pids_[name] = *pid;
  }

  // Waits for the next event, and handles all events that have happened.
  void Turn() {
    WatchLogs();
    pollfd files[3] = {{.fd = signals_, .events = POLLIN},
                       {.fd = watched_ >= 0 ? watch_ : -1, .events = POLLIN},
                       {.fd = front_, .events = POLLIN}};
    const absl::Duration wait = NextTime() - SteadyNow();
    poll(files, 3,
         wait == absl::InfiniteDuration()
             ? -1
             : static_cast<int>(std::clamp<int64_t>(
                   absl::ToInt64Milliseconds(absl::Ceil(wait, absl::Milliseconds(1))), 0,
                   3600 * 1000)));
    const absl::Time now = SteadyNow();
    TakeSignals(now);
    if (front_ >= 0 && files[2].revents != 0) {  // the waiting --detach command has died
      close(front_);
      front_ = -1;
      StopBy(SIGHUP, now);
    }
    DrainWatch();
    ReadLogs(now);
    supervisor_->OnTime(now);
    Advance(now);
    WriteState();
  }

  absl::Time NextTime() const {
    absl::Time next = supervisor_->NextTime();
    if (phase_ == Phase::kStarting) next = std::min(next, progress_.NextTime());
    if (watching_ && watched_ < 0) next = std::min(next, SteadyNow() + kLogPause);
    return next;
  }

  // Watches the logs, but only while the cluster waits for a line in them.
  void WatchLogs() {
    bool wanted = phase_ == Phase::kStarting;
    for (const Supervisor::Process& process : supervisor_->processes()) {
      wanted |= process.state == Supervisor::State::kRunning && !process.has_address;
    }
    if (wanted == watching_) return;
    watching_ = wanted;
    if (wanted && watch_ >= 0) {
      watched_ = inotify_add_watch(watch_, state_.File("log").c_str(), IN_MODIFY);
      ReadLogs(SteadyNow());  // reads the lines that were written before the watch began
    } else if (!wanted && watched_ >= 0) {
      inotify_rm_watch(watch_, watched_);
      watched_ = -1;
    }
  }

  void DrainWatch() {
    alignas(inotify_event) char events[4096];
    while (watch_ >= 0 && read(watch_, events, sizeof events) > 0) {
    }
  }

  void ReadLogs(absl::Time now) {
    if (!watching_) return;
    for (const Supervisor::Process& process : supervisor_->processes()) {
      if (process.state != Supervisor::State::kRunning) continue;
      ProcessLog& log = logs_.at(process.spec.name);
      log.ReadNew();
      if (!process.has_address && log.address().has_value()) {
        supervisor_->OnAddress(process.spec.name, *log.address(), now);
      }
      if (log.http_address().has_value()) http_address_ = *log.http_address();
    }
  }

  void TakeSignals(absl::Time now) {
    signalfd_siginfo came;
    while (read(signals_, &came, sizeof came) == sizeof came) {
      const int number = static_cast<int>(came.ssi_signo);
      if (number == SIGCHLD) {
        Reap(now);
      } else {
        StopBy(number, now);
      }
    }
  }

  void StopBy(int number, absl::Time now) {
    const bool starting = phase_ == Phase::kStarting || phase_ == Phase::kPrompting;
    if (starting) exit_status_ = 128 + number;
    const bool again = phase_ == Phase::kStopping;
    // The terminal has written ^C, so what follows must begin on a new line.
    if (number == SIGINT && isatty(STDERR_FILENO) != 0 && !status_line_) std::fputc('\n', stderr);
    EndStatusLine();
    Say(again      ? "stopping at once"
        : starting ? "stopping"
                   : "stopping once running answers have ended; a second Ctrl-C does not wait "
                     "for them");
    say_stopped_ = true;
    Stop(now);
  }

  void Stop(absl::Time now) {
    EndStatusLine();
    phase_ = Phase::kStopping;
    state_.SetStopping();
    for (const pid_t client : {waiter_, prompter_}) {
      if (client > 0) kill(client, SIGTERM);
    }
    supervisor_->Stop(now);
  }

  // Makes the start fail. Prints `message` first, so that the user reads what went wrong before
  // anything else.
  void Fail(absl::string_view message, absl::Time now) {
    EndStatusLine();
    SayFailure(message);
    exit_status_ = 1;
    Stop(now);
  }

  void Reap(absl::Time now) {
    int status = 0;
    std::vector<std::pair<std::string, int>> ended;
    for (const auto& [name, pid] : pids_) {
      if (waitpid(pid, &status, WNOHANG) == pid) ended.emplace_back(name, status);
    }
    for (const auto& [name, end] : ended) {
      pids_.erase(name);
      logs_.at(name).ReadNew();
      supervisor_->OnEnd(name, end, now);
    }
    if (waiter_ > 0 && waitpid(waiter_, &status, WNOHANG) == waiter_) {
      waiter_ = 0;
      can_serve_ = status == 0;
      if (!can_serve_ && phase_ == Phase::kStarting && supervisor_->failed() == nullptr) {
        Fail(absl::StrCat("baton-client wait ", DescribeEnd(status), "; its log is ",
                          state_.LogFile("wait")),
             now);
      }
    }
    if (prompter_ > 0 && waitpid(prompter_, &status, WNOHANG) == prompter_) {
      prompter_ = 0;
      if (phase_ == Phase::kPrompting) OnAnswer(status, now);
    }
  }

  void Advance(absl::Time now) {
    if (phase_ != Phase::kStarting) return;
    if (const Supervisor::Process* failed = supervisor_->failed(); failed != nullptr) {
      const ProcessLog& log = logs_.at(failed->spec.name);
      const std::string reason = log.reason().empty() ? failed->last_end : log.reason();
      Fail(failed->state == Supervisor::State::kRefused
               ? absl::StrCat(failed->spec.name, " refused to start: ", reason)
               : absl::StrCat(failed->spec.name, " ended ", failed->starts_without_address,
                              " times before it listened, the last time it ", failed->last_end,
                              log.reason().empty() ? "" : absl::StrCat(": ", log.reason())),
           now);
      Say(absl::StrCat("its log is ", log.path()));
      return;
    }
    const std::vector<Missing> missing = FindMissing();
    if (phase_ != Phase::kStarting) return;  // baton-client could not be started
    if (missing.empty()) {
      BeginPrompt(now);
    } else if (std::optional<std::string> line = progress_.Line(missing, now)) {
      ShowStatusLine(*line);
    }
  }

  // Returns what the start still waits for before it can send the first prompt.
  std::vector<Missing> FindMissing() {
    std::vector<Missing> missing;
    for (const Supervisor::Process& process : supervisor_->processes()) {
      if (process.has_address || process.state == Supervisor::State::kWaiting) continue;
      const std::string& progress = logs_.at(process.spec.name).progress();
      const bool tells = process.state == Supervisor::State::kRunning && !progress.empty();
      missing.push_back({process.spec.name, tells ? progress : WhyAway(process)});
    }
    // The router tells its address for HTTP after its other address.
    if (missing.empty() && !http_listen_.empty() && http_address_.empty()) {
      missing.push_back({"the router to serve HTTP", logs_.at("router").progress()});
    }
    if (!missing.empty()) return missing;
    if (waiter_ == 0 && !can_serve_) StartWaiter();
    if (!can_serve_) {
      TellRoutersWarning();
      missing.push_back(
          {"the router to serve", told_warning_.empty() ? logs_.at("router").progress() : ""});
    }
    return missing;
  }

  // Prints, once and in full, the router's warning about why it can't serve. A line of progress
  // would be too short for it.
  void TellRoutersWarning() {
    const std::string& warning = logs_.at("router").last_warning();
    if (warning == told_warning_) return;
    told_warning_ = warning;
    EndStatusLine();
    if (!warning.empty()) Say(absl::StrCat("the router warns: ", warning));
  }

  std::string WhyAway(const Supervisor::Process& process) const {
    const std::string& line = logs_.at(process.spec.name).last_line();
    const std::string said = line.empty() ? "" : absl::StrCat(": ", line);
    switch (process.state) {
      case Supervisor::State::kWaiting:
        return "starts once the router listens";
      case Supervisor::State::kRunning:
        return line.empty() ? "it has logged nothing yet" : line;
      case Supervisor::State::kPausing:
        return absl::StrCat("it ", process.last_end, " and will be started again", said);
      case Supervisor::State::kRefused:
        return absl::StrCat("it refused to start: ", logs_.at(process.spec.name).reason());
      case Supervisor::State::kEnded:
        return "it has ended";
    }
    return "";
  }

  std::string Client() const { return absl::StrCat(programs_, "/baton-client"); }
  std::string RouterFlag() const {
    return absl::StrCat("--router=", ReachableAddress(supervisor_->router_address()));
  }

  void StartWaiter() {
    const absl::StatusOr<pid_t> pid =
        StartChild({.program = Client(),
                    .arguments = {"wait", RouterFlag(), "--timeout=inf"},
                    .log = state_.LogFile("wait")});
    if (!pid.ok()) return Fail(pid.status().message(), SteadyNow());
    waiter_ = *pid;
  }

  void BeginPrompt(absl::Time now) {
    EndStatusLine();
    std::string text = absl::StrCat("serving ", options_.model, " at\n");
    for (const Supervisor::Process& process : supervisor_->processes()) {
      absl::StrAppendFormat(&text, "  %-10s %s\n", process.spec.name, process.address);
      if (process.spec.role == Role::kRouter && !http_address_.empty()) {
        absl::StrAppendFormat(&text, "  %-10s %s\n", "http", http_address_);
      }
    }
    Say(absl::StrCat(text, "> ", options_.prompt));
    phase_ = Phase::kPrompting;
    WriteState();
    const absl::StatusOr<pid_t> pid = StartChild(
        {.program = Client(),
         .arguments = {"generate", RouterFlag(), "--timing", "--chat=auto",
                       absl::StrCat("--max-tokens=", kAnswerTokens), "--", options_.prompt},
         .own_group = false});
    if (!pid.ok()) return Fail(pid.status().message(), now);
    prompter_ = *pid;
  }

  void OnAnswer(int status, absl::Time now) {
    const bool answered = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (options_.once) {
      exit_status_ = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
      Stop(now);
    } else if (!answered) {
      Fail(absl::StrCat("the first prompt failed: baton-client generate ", DescribeEnd(status)),
           now);
    } else {
      BeginServing();
    }
  }

  void BeginServing() {
    phase_ = Phase::kServing;
    supervisor_->Serving();
    Say(absl::StrCat(options_.detach
                         ? absl::StrCat("it serves until ", CalledAs(), " down; try:")
                         : "it serves until Ctrl-C (a second Ctrl-C does not wait for running "
                           "answers); in another terminal:",
                     "\n", Suggestions()));
    if (!options_.detach) return;
    const char serving = 1;
    [[maybe_unused]] const ssize_t told = write(front_, &serving, 1);
    close(front_);
    front_ = -1;
    const int nowhere = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (const int file : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(nowhere, file);
    close(nowhere);
  }

  // Returns commands to try, one a line, without the last line end.
  std::string Suggestions() const {
    std::string lines = absl::StrCat(
        "  ", AskCommand("generate", ReachableAddress(supervisor_->router_address())), " \"", kAskedFor,
        "\"\n  ", AskCommand("chat", ReachableAddress(supervisor_->router_address())));
    if (http_address_.empty()) return lines;
    const std::string http = ReachableAddress(http_address_);
    absl::StrAppend(&lines, "\n  ", CurlCommand(http, kAskedFor),
                    "\nand for clients of OpenAI's API:", "\n  ", OpenAiExports(http));
    return lines;
  }

  void WriteState() {
    std::vector<ProcessRecord> records;
    std::string all = absl::StrCat(http_address_, "|");
    for (const Supervisor::Process& process : supervisor_->processes()) {
      const auto pid = pids_.find(process.spec.name);
      records.push_back({.name = process.spec.name,
                         .address = process.address,
                         .pid = pid == pids_.end() ? 0 : pid->second,
                         .note = process.has_address ? "" : WhyAway(process)});
      const ProcessRecord& record = records.back();
      absl::StrAppend(&all, record.address, "|", record.pid, "|", record.note, "|");
    }
    if (all == written_) return;
    written_ = all;
    const std::string& router = supervisor_->router_address();
    state_.Write(records, router.empty() ? "" : ReachableAddress(router),
                 http_address_.empty() ? "" : ReachableAddress(http_address_));
  }

  // Tells the user, and the supervisor's log, that something happened to a process. Adds the time.
  void Note(absl::string_view line) {
    const std::string timed =
        absl::StrCat(absl::FormatTime("%H:%M:%S", absl::Now(), absl::LocalTimeZone()), " ", line);
    std::ofstream(state_.LogFile("supervisor"), std::ios::app) << timed << "\n";
    EndStatusLine();
    Say(timed);
  }

  // Shows a line of progress. On a terminal, the line replaces the one before.
  void ShowStatusLine(const std::string& line) {
    if (isatty(STDERR_FILENO) == 0) return Say(line);
    std::fprintf(stderr, "\r\033[K%s", line.c_str());
    std::fflush(stderr);
    status_line_ = true;
  }
  void EndStatusLine() {
    if (!status_line_) return;
    std::fputs("\r\033[K", stderr);
    std::fflush(stderr);
    status_line_ = false;
  }

  const UpOptions& options_;
  const std::string programs_;
  StateFolder state_;
  int front_;
  int signals_ = -1;
  // watch_ is the descriptor of inotify. watched_ is inotify's watch of the log folder; -1: none.
  int watch_ = -1, watched_ = -1;
  bool watching_ = false;
  std::string listen_, http_listen_;  // addresses with which the router is started first
  std::string http_address_;          // the router's address for HTTP; empty until it is known
  std::map<std::string, ProcessLog> logs_;
  std::map<std::string, pid_t> pids_;  // ids of the running processes
  std::unique_ptr<Supervisor> supervisor_;
  Phase phase_ = Phase::kStarting;
  // On a terminal the line of progress replaces itself, so it may change every second. Elsewhere,
  // as in a log, every line stays.
  StartProgress progress_{SteadyNow(), absl::Seconds(isatty(STDERR_FILENO) != 0 ? 1 : 5)};
  std::string told_warning_;  // the router's last warning that was printed
  // process ids of baton-client: one waits for the router, one sends the first prompt
  pid_t waiter_ = 0, prompter_ = 0;
  bool can_serve_ = false;    // true once the router has reported that it can serve
  bool say_stopped_ = false;  // true if a signal asked for the stop
  bool status_line_ = false;
  int exit_status_ = 0;
  std::string written_;
};

// Waits until the supervisor in the background serves or has ended. Passes signals on to it.
int WaitForStart(pid_t supervisor, int socket) {
  sigset_t signals = WatchedSignals();
  sigdelset(&signals, SIGCHLD);
  const int came_signals = signalfd(-1, &signals, SFD_CLOEXEC);
  BATON_CHECK(came_signals >= 0) << errno;
  while (true) {
    pollfd files[2] = {{.fd = came_signals, .events = POLLIN}, {.fd = socket, .events = POLLIN}};
    if (poll(files, 2, -1) < 0) continue;
    signalfd_siginfo came;
    if (files[0].revents != 0 && read(came_signals, &came, sizeof came) == sizeof came) {
      kill(supervisor, static_cast<int>(came.ssi_signo));
    }
    if (files[1].revents == 0) continue;
    char serving = 0;
    if (read(socket, &serving, 1) == 1) return 0;
    int status = 0;
    while (waitpid(supervisor, &status, 0) < 0 && errno == EINTR) {
    }
    if (WIFEXITED(status)) return WEXITSTATUS(status);
    SayFailure(absl::StrCat("the supervisor ", DescribeEnd(status)));
    return 1;
  }
}

int RunInBackground(const UpOptions& options, const std::string& programs,
                    const std::string& state) {
  const sigset_t signals = WatchedSignals();
  sigprocmask(SIG_BLOCK, &signals, nullptr);  // blocked before the fork, so that no signal is lost
  int ends[2];
  BATON_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0) << errno;
  const pid_t supervisor = fork();
  if (supervisor < 0) {
    SayFailure(absl::StrCat("can't start a process: errno ", errno));
    return 1;
  }
  if (supervisor == 0) {
    close(ends[0]);
    setsid();
    const int status = Up(options, programs, state, ends[1]).Run();
    _exit(status);
  }
  close(ends[1]);
  return WaitForStart(supervisor, ends[0]);
}

}  // namespace

int RunUp(const UpOptions& options, const std::string& programs, const std::string& state) {
  for (const char* program : {"baton-router", "baton-prefill", "baton-decode", "baton-client"}) {
    const std::string path = absl::StrCat(programs, "/", program);
    if (access(path.c_str(), X_OK) == 0) continue;
    SayFailure(absl::StrCat(
        path, " is not there",
        CalledAs() == "baton-up" ? "; baton-up needs it beside itself" : "; leave out --no-build"));
    return 1;
  }
  if (options.detach) return RunInBackground(options, programs, state);
  return Up(options, programs, state, -1).Run();
}

}  // namespace baton
