// A program of the build folder as a child of the test: its output line by line,
// its end by status. Killed if the test leaves it running.
#ifndef CKPTD_TESTS_SERVER_CHILD_PROCESS_H_
#define CKPTD_TESTS_SERVER_CHILD_PROCESS_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "proto/rpc/unique_fd.h"

namespace ckptd {

class ChildProcess {
 public:
  // arguments[0] is the program's path.
  explicit ChildProcess(const std::vector<std::string>& arguments);
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }
  // The next line of stdout without its end; empty when the program closed it. Waits.
  std::string ReadLine();
  void Signal(int number);
  // Waits for the end. The exit status, or 128 + the signal.
  int Wait();
  // All of stderr. After Wait.
  std::string ReadErrors();

 private:
  pid_t pid_ = -1;
  UniqueFd output_;
  UniqueFd errors_;  // an unlinked file: never full
};

}  // namespace ckptd

#endif  // CKPTD_TESTS_SERVER_CHILD_PROCESS_H_
