#include "client/ctl/command_line.h"

#include "tests/catch.h"

namespace ckptd {
namespace {

using Catch::Matchers::Contains;

absl::StatusOr<CommandLine> Parse(const std::vector<std::string>& arguments) {
  return ParseCommandLine(arguments, "/run/ckptd");
}

std::string ErrorOf(const std::vector<std::string>& arguments) {
  return std::string(Parse(arguments).status().message());
}

TEST_CASE("commands and options may come in any order") {
  auto line = Parse({"--json", "show", "gpt", "--socket-dir", "/s", "40"});
  REQUIRE(line.ok());
  CHECK(line->action == Action::kShow);
  CHECK(line->job == "gpt");
  CHECK(line->step == 40);
  CHECK(line->json);
  CHECK(line->socket_dir == "/s");
}

TEST_CASE("latest is a step for show and verify, never for rm") {
  CHECK(Parse({"verify", "gpt", "latest"})->step == std::nullopt);
  CHECK_THAT(ErrorOf({"rm", "gpt", "latest"}), Contains("\"latest\" is no step"));
}

TEST_CASE("rm takes one step or a branch, not both and not neither") {
  CHECK(Parse({"rm", "gpt", "40"})->step == 40);
  CHECK(Parse({"rm", "gpt", "--after", "40"})->after_step == 40);
  CHECK_THAT(ErrorOf({"rm", "gpt"}), Contains("either one STEP or --after STEP"));
  CHECK_THAT(ErrorOf({"rm", "gpt", "1", "--after", "40"}), Contains("either one STEP"));
}

TEST_CASE("verify takes a committed checkpoint or a folder") {
  CHECK(Parse({"verify", "--folder", "/x/gpt/step-1"})->folder == "/x/gpt/step-1");
  CHECK_THAT(ErrorOf({"verify"}), Contains("either JOB STEP|latest or --folder PATH"));
  CHECK_THAT(ErrorOf({"verify", "gpt"}), Contains("either JOB"));
  CHECK_THAT(ErrorOf({"verify", "gpt", "1", "--folder=/x"}), Contains("either JOB"));
}

TEST_CASE("a misspelt command is answered with the nearest") {
  CHECK(ErrorOf({"verfy", "gpt", "1"}) == "\"verfy\" is no command; did you mean verify?");
}

TEST_CASE("a bad job and a bad step are reported together") {
  const std::string error = ErrorOf({"show", "../x", "-3x"});
  CHECK_THAT(error, Contains("-3x"));
  const std::string both = ErrorOf({"show", "../x", "3x"});
  CHECK_THAT(both, Contains("../x") && Contains("\"3x\" is no step"));
}

}  // namespace
}  // namespace ckptd
