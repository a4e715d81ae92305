#include "daemon/runtime/log.h"

#include "tests/catch.h"

namespace ckptd {
namespace {

const absl::Time kTime = absl::FromUnixMillis(1'800'000'000'123);

TEST_CASE("a text line carries time, level, message and fields") {
  CHECK(FormatLogLine(LogFormat::kText, kTime, LogLevel::kInfo, "checkpoint committed",
                      {{"job", "gpt"}, {"step", 40}}) ==
        "2027-01-15T08:00:00.123Z INFO checkpoint committed job=gpt step=40\n");
}

TEST_CASE("an event is one line whatever its fields hold") {
  CHECK(FormatLogLine(LogFormat::kText, kTime, LogLevel::kError, "a\nb",
                      {{"reason", "no \"space\"\nleft"}, {"empty", ""}}) ==
        "2027-01-15T08:00:00.123Z ERROR a\\nb reason=\"no \\\"space\\\"\\nleft\" empty=\"\"\n");
}

TEST_CASE("a JSON line is one object, valid also for bytes that are no UTF-8") {
  CHECK(FormatLogLine(LogFormat::kJson, kTime, LogLevel::kWarning, "bad name",
                      {{"name", std::string("\xff\x01\xc3\xa4", 4)}}) ==
        "{\"time\":\"2027-01-15T08:00:00.123Z\",\"level\":\"WARNING\",\"message\":\"bad name\","
        "\"name\":\"\xEF\xBF\xBD\\u0001\xc3\xa4\"}\n");
}

}  // namespace
}  // namespace ckptd
