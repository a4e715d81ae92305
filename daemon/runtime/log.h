// The daemons' log: one line per event, for people (text) or for machines (JSON).
//
//   2026-12-01T11:45:12.123Z INFO checkpoint committed job=gpt step=40
//   {"time":"2026-12-01T11:45:12.123Z","level":"INFO","message":"checkpoint
//   committed","job":"gpt","step":"40"}
#ifndef CKPTD_DAEMON_RUNTIME_LOG_H_
#define CKPTD_DAEMON_RUNTIME_LOG_H_

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "daemon/runtime/clock.h"

namespace ckptd {

enum class LogLevel { kInfo, kWarning, kError };
enum class LogFormat { kText, kJson };

struct LogField {
  // Anything that absl::StrCat takes.
  template <typename Value>
  LogField(std::string_view k, const Value& v) : key(k), value(absl::StrCat(v)) {}
  std::string_view key;  // a literal
  std::string value;
};

// Thread-safe. Logging never fails as far as the caller can see.
class Log {
 public:
  virtual ~Log() = default;
  virtual void Write(LogLevel level, std::string_view message,
                     std::initializer_list<LogField> fields) = 0;

  void Info(std::string_view message, std::initializer_list<LogField> fields = {}) {
    Write(LogLevel::kInfo, message, fields);
  }
  void Warning(std::string_view message, std::initializer_list<LogField> fields = {}) {
    Write(LogLevel::kWarning, message, fields);
  }
  void Error(std::string_view message, std::initializer_list<LogField> fields = {}) {
    Write(LogLevel::kError, message, fields);
  }
};

// One line, with its newline. In text, what holds spaces, quotes or control
// characters is quoted and escaped: an event is always exactly one line.
std::string FormatLogLine(LogFormat format, absl::Time now, LogLevel level,
                          std::string_view message, std::initializer_list<LogField> fields);

// Writes to a file descriptor that it does not own. Lines are whole: other
// processes' lines on the same pipe or file do not tear them (up to PIPE_BUF).
class DescriptorLog : public Log {
 public:
  DescriptorLog(int descriptor, LogFormat format, const Clock& clock)
      : descriptor_(descriptor), format_(format), clock_(clock) {}
  void Write(LogLevel level, std::string_view message,
             std::initializer_list<LogField> fields) override;

 private:
  const int descriptor_;
  const LogFormat format_;
  const Clock& clock_;
  absl::Mutex mutex_;  // one line at a time
};

// For tests and tools that want no log.
class NullLog : public Log {
 public:
  void Write(LogLevel, std::string_view, std::initializer_list<LogField>) override {}
};

}  // namespace ckptd

#endif  // CKPTD_DAEMON_RUNTIME_LOG_H_
