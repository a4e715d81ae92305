#include "daemon/runtime/flags.h"

#include "daemon/runtime/quantity.h"
#include "tests/catch.h"

namespace ckptd {
namespace {

struct Sample {
  std::string name = "host";
  uint64_t size = 4096;
  absl::Duration wait = absl::Seconds(30);
  std::vector<std::string> stores = {"default=/x"};
  std::string format = "text";
  bool loud = false;

  FlagSet Declare() {
    FlagSet flags;
    flags.Text("node-name", "NAME", "a name", name);
    flags.Bytes("arena-bytes", "a size", {1, uint64_t{1} << 40}, size);
    flags.Duration("drain-timeout", "a wait", {absl::ZeroDuration(), absl::Hours(1)}, wait);
    flags.Repeated("store", "NAME=PATH", "a store", stores);
    flags.Choice("log-format", {"text", "json"}, "a form", format);
    flags.Switch("loud", "a switch", loud);
    return flags;
  }
};

TEST_CASE("flags take a value after a space or an equals sign, and units") {
  Sample sample;
  auto operands =
      sample.Declare().Parse({"--arena-bytes=8GiB", "--drain-timeout", "1m30s", "--store", "a=/a",
                              "--store=b=/b", "--loud", "operand", "--", "--node-name"});
  REQUIRE(operands.ok());
  CHECK(*operands == std::vector<std::string>{"operand", "--node-name"});
  CHECK(sample.size == uint64_t{8} << 30);
  CHECK(sample.wait == absl::Seconds(90));
  CHECK(sample.stores == std::vector<std::string>{"a=/a", "b=/b"});
  CHECK(sample.loud);
  CHECK(sample.name == "host");
}

TEST_CASE("all wrong flags are reported at once and change nothing") {
  Sample sample;
  auto operands =
      sample.Declare().Parse({"--arena-byte=1", "--arena-bytes=8 parsecs", "--drain-timeout=2h",
                              "--log-format=xml", "--loud=yes", "--node-name"});
  REQUIRE(absl::IsInvalidArgument(operands.status()));
  CHECK(operands.status().message() ==
        "--arena-byte is no option here; did you mean --arena-bytes?\n"
        "--arena-bytes: \"8 parsecs\" is no size; write it as 4096, 64MiB or 1.5GiB\n"
        "--drain-timeout: 2h is not between 0 and 1h\n"
        "--log-format: \"xml\" is none of text, json\n"
        "--loud takes no value\n"
        "--node-name needs a value: NAME");
  CHECK(sample.size == 4096);
  CHECK(sample.wait == absl::Seconds(30));
  CHECK(sample.format == "text");
}

TEST_CASE("a flag that is like no other gets no suggestion") {
  Sample sample;
  auto operands = sample.Declare().Parse({"--zzzzzz"});
  CHECK(operands.status().message() == "--zzzzzz is no option here; --help lists them all");
}

TEST_CASE("a flag that can't be repeated is refused the second time") {
  Sample sample;
  auto operands = sample.Declare().Parse({"--node-name=a", "--node-name=b"});
  CHECK(operands.status().message() == "--node-name was given twice");
}

TEST_CASE("help shows each flag's unit and default") {
  Sample sample;
  const std::string help = sample.Declare().Help();
  CHECK_THAT(help, Catch::Matchers::Contains("--arena-bytes SIZE") &&
                       Catch::Matchers::Contains("a size (default 4KiB)") &&
                       Catch::Matchers::Contains("a wait (default 30s)") &&
                       Catch::Matchers::Contains("may be repeated"));
}

TEST_CASE("sizes are read with binary and decimal units and refused without sense") {
  CHECK(*ParseByteSize("0") == 0);
  CHECK(*ParseByteSize("64KiB") == 65536);
  CHECK(*ParseByteSize("1.5GiB") == 3 * (uint64_t{1} << 29));
  CHECK(*ParseByteSize("2GB") == 2'000'000'000);
  for (const char* wrong : {"", "GiB", "-1", "1 GiB", "1gib", "99999999999999TiB", "1..5GiB"}) {
    INFO(wrong);
    CHECK_FALSE(ParseByteSize(wrong).ok());
  }
}

TEST_CASE("a size written exactly reads back as itself") {
  for (const uint64_t bytes : {uint64_t{0}, uint64_t{1}, uint64_t{1000}, uint64_t{4096},
                               uint64_t{3} << 30, ~uint64_t{0}}) {
    CHECK(*ParseByteSize(ExactByteSize(bytes)) == bytes);
  }
}

TEST_CASE("durations need a unit and an end") {
  CHECK(*ParseDuration("7d") == absl::Hours(168));
  CHECK(*ParseDuration("500ms") == absl::Milliseconds(500));
  CHECK_FALSE(ParseDuration("30").ok());
  CHECK_FALSE(ParseDuration("inf").ok());
  CHECK_FALSE(ParseDuration("").ok());
}

}  // namespace
}  // namespace ckptd
