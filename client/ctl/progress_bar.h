// A bar on stderr for long work, only where that is a terminal.
#ifndef CKPTD_CLIENT_CTL_PROGRESS_BAR_H_
#define CKPTD_CLIENT_CTL_PROGRESS_BAR_H_

#include <cstdint>
#include <string>

namespace ckptd {

// "[#####.....]  50%  1.0 GiB of 2.0 GiB"
std::string ProgressLine(uint64_t done, uint64_t total);

// Calls must not overlap.
class ProgressBar {
 public:
  ProgressBar();
  ~ProgressBar();  // clears the line
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void Show(uint64_t done, uint64_t total);

 private:
  const bool on_terminal_;
  std::string shown_;
};

}  // namespace ckptd

#endif  // CKPTD_CLIENT_CTL_PROGRESS_BAR_H_
