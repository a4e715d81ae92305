// Command-line options, declared in one place with name, unit, default, check and
// help. A declaration binds a variable; what it holds then is the default.
//
//   absl::Duration drain_timeout = absl::Minutes(2);
//   FlagSet flags;
//   flags.Duration("drain-timeout", "how long ...", {absl::ZeroDuration(), absl::Hours(1)},
//                  drain_timeout);
//   absl::StatusOr<std::vector<std::string>> operands = flags.Parse(arguments);
//
// Accepted forms: --name=value, --name value, --switch, and -- before operands.
#ifndef CKPTD_DAEMON_RUNTIME_FLAGS_H_
#define CKPTD_DAEMON_RUNTIME_FLAGS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace ckptd {

// Not thread-safe. The bound variables must outlive it.
class FlagSet {
 public:
  using Check = std::function<absl::Status(std::string_view value)>;
  template <typename Value>
  struct Range {
    Value least;
    Value most;
  };

  // `value_name` is the unit or kind as help shows it: "PATH", "HOST:PORT".
  void Text(std::string name, std::string value_name, std::string help, std::string& value,
            Check check = nullptr);
  // May be given several times; the first one given replaces the default.
  void Repeated(std::string name, std::string value_name, std::string help,
                std::vector<std::string>& values, Check check = nullptr);
  void Bytes(std::string name, std::string help, Range<uint64_t> range, uint64_t& value);
  void Duration(std::string name, std::string help, Range<absl::Duration> range,
                absl::Duration& value);
  void Choice(std::string name, std::vector<std::string> choices, std::string help,
              std::string& value);
  // Without a value; false unless given.
  void Switch(std::string name, std::string help, bool& value);

  // The operands, in order. INVALID_ARGUMENT whose message lists everything that
  // is wrong, one problem a line; a bound variable keeps its default where its
  // value was wrong.
  absl::StatusOr<std::vector<std::string>> Parse(const std::vector<std::string>& arguments);

  // "  --drain-timeout DURATION   how long ... (default 2m)", one a line.
  std::string Help() const;

 private:
  struct Flag {
    std::string name;
    std::string value_name;  // empty: a switch
    std::string help;
    std::string default_text;
    std::function<absl::Status(const std::string& value)> set;
    bool repeatable = false;
    bool given = false;
  };

  void Add(Flag flag);
  Flag* Find(std::string_view name);
  std::string Unknown(std::string_view name) const;
  absl::Status Set(Flag& flag, const std::string& value);

  std::vector<Flag> flags_;
};

// The entry of `known` nearest to `word`; empty where none is near (more than a
// third of its letters differ).
std::string NearestName(std::string_view word, const std::vector<std::string>& known);

}  // namespace ckptd

#endif  // CKPTD_DAEMON_RUNTIME_FLAGS_H_
