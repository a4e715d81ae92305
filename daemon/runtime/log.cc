#include "daemon/runtime/log.h"

#include <unistd.h>

#include <cerrno>

#include "daemon/runtime/json_writer.h"

namespace ckptd {
namespace {

std::string_view LevelName(LogLevel level) {
  switch (level) {
    case LogLevel::kInfo:
      return "INFO";
    case LogLevel::kWarning:
      return "WARNING";
    case LogLevel::kError:
      return "ERROR";
  }
  return "?";
}

bool IsPlain(std::string_view value) {
  if (value.empty()) return false;
  for (const char c : value) {
    if (static_cast<unsigned char>(c) <= ' ' || c == '"' || c == '\\' || c == '=' || c == 0x7F) {
      return false;
    }
  }
  return true;
}

// JSON's escapes: no control character, so no second line, comes out.
std::string Quoted(std::string_view value) { return JsonWriter().Text(value).text(); }

// A message is a sentence: its spaces need no quotes.
std::string Message(std::string_view message) {
  const std::string quoted = Quoted(message);
  return quoted.substr(1, quoted.size() - 2);
}

std::string TextLine(std::string_view time, LogLevel level, std::string_view message,
                     std::initializer_list<LogField> fields) {
  std::string line(time);
  line.append(" ").append(LevelName(level)).append(" ").append(Message(message));
  for (const LogField& field : fields) {
    line.append(" ").append(field.key).append("=");
    line.append(IsPlain(field.value) ? field.value : Quoted(field.value));
  }
  return line;
}

std::string JsonLine(std::string_view time, LogLevel level, std::string_view message,
                     std::initializer_list<LogField> fields) {
  JsonWriter json;
  json.BeginObject().Key("time").Text(time).Key("level").Text(LevelName(level));
  json.Key("message").Text(message);
  for (const LogField& field : fields) json.Key(field.key).Text(field.value);
  return json.EndObject().text();
}

}  // namespace

std::string FormatLogLine(LogFormat format, absl::Time now, LogLevel level,
                          std::string_view message, std::initializer_list<LogField> fields) {
  const std::string time = absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", now, absl::UTCTimeZone());
  std::string line = format == LogFormat::kText ? TextLine(time, level, message, fields)
                                                : JsonLine(time, level, message, fields);
  line += '\n';
  return line;
}

void DescriptorLog::Write(LogLevel level, std::string_view message,
                          std::initializer_list<LogField> fields) {
  const std::string line = FormatLogLine(format_, clock_.Now(), level, message, fields);
  std::string_view rest = line;
  absl::MutexLock lock(&mutex_);
  while (!rest.empty()) {
    const ssize_t written = ::write(descriptor_, rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;  // nobody reads the log: there is nowhere to say so
    rest.remove_prefix(static_cast<size_t>(written));
  }
}

}  // namespace ckptd
