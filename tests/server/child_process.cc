#include "tests/server/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <stdexcept>

extern char** environ;

namespace ckptd {

ChildProcess::ChildProcess(const std::vector<std::string>& arguments) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
  output_.reset(ends[0]);
  UniqueFd child_output(ends[1]);
  errors_.reset(::memfd_create("stderr", MFD_CLOEXEC));

  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, child_output.get(), STDOUT_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, errors_.get(), STDERR_FILENO);
  std::vector<char*> words;
  words.reserve(arguments.size() + 1);
  for (const std::string& argument : arguments) {
    words.push_back(const_cast<char*>(argument.c_str()));
  }
  words.push_back(nullptr);
  const int error = ::posix_spawn(&pid_, words[0], &actions, nullptr, words.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (error != 0) throw std::runtime_error("can't start " + arguments[0]);
}

ChildProcess::~ChildProcess() {
  if (pid_ < 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

std::string ChildProcess::ReadLine() {
  std::string line;
  char c = 0;
  while (::read(output_.get(), &c, 1) == 1 && c != '\n') line += c;
  return line;
}

void ChildProcess::Signal(int number) { ::kill(pid_, number); }

int ChildProcess::Wait() {
  int status = 0;
  ::waitpid(pid_, &status, 0);
  pid_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

std::string ChildProcess::ReadErrors() {
  std::string text(static_cast<size_t>(::lseek(errors_.get(), 0, SEEK_END)), '\0');
  const ssize_t size = ::pread(errors_.get(), text.data(), text.size(), 0);
  text.resize(size < 0 ? 0 : static_cast<size_t>(size));
  return text;
}

}  // namespace ckptd
