#include "storage/format/checkpoint_path.h"

#include "storage/format/text.h"
#include "tests/catch.h"

namespace ckptd {
namespace {

using namespace std::string_literals;

TEST_CASE("job names that could leave their folder, or are no plain names, are refused") {
  for (const std::string& bad :
       {""s, "."s, ".."s, "../x"s, "a/b"s, "/"s, "a\0b"s, ".hidden"s, "-rf"s, "a b"s, "a\nb"s,
        "k\xC3\xB6ln"s, std::string(129, 'a'), std::string(10'000, 'a')}) {
    const absl::Status status = ValidateJobName(bad);
    CHECK(absl::IsInvalidArgument(status));
    // Shortened and printable, whatever came.
    CHECK(status.message().size() < 500);
    for (const char c : status.message()) CHECK((c >= 0x20 && c < 0x7f));
  }
  for (const std::string& good : {"gpt"s, "GPT_3.5-run"s, "a..b"s, "0"s, std::string(128, 'a')}) {
    CHECK(ValidateJobName(good).ok());
  }
  CHECK(ValidateNodeName(std::string(63, 'n')).ok());
  CHECK_FALSE(ValidateNodeName(std::string(64, 'n')).ok());
}

TEST_CASE("an entry's name may have every character but NUL, in valid UTF-8, up to 4096 bytes") {
  std::string every;
  for (int c = 1; c < 0x80; ++c) every.push_back(static_cast<char>(c));
  CHECK(ValidateEntryName(every + "\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80").ok());
  CHECK(ValidateEntryName(std::string(4096, 'a')).ok());
  CHECK_FALSE(ValidateEntryName(std::string(4097, 'a')).ok());
  CHECK_FALSE(ValidateEntryName("").ok());
  CHECK_FALSE(ValidateEntryName("a\0b"s).ok());
  CHECK_FALSE(ValidateEntryName("\xFF").ok());
}

TEST_CASE("UTF-8 that is cut, too long, a surrogate or out of range is not valid") {
  for (const std::string& bad :
       {"\x80"s, "\xC3"s, "\xC0\x80"s, "\xC1\xBF"s, "\xE0\x80\x80"s, "\xE2\x82"s, "\xED\xA0\x80"s,
        "\xF0\x80\x80\x80"s, "\xF4\x90\x80\x80"s, "\xF5\x80\x80\x80"s, "\xF0\x9F\x98"s,
        "a\xC3("s}) {
    CHECK_FALSE(IsValidUtf8(bad));
  }
  CHECK(IsValidUtf8("\xEF\xBF\xBF\xF4\x8F\xBF\xBF\xED\x9F\xBF"));
}

TEST_CASE("step folders are parsed only as they are written") {
  CHECK(StepFolder(40) == "step-40");
  CHECK(ParseStepFolder("step-40") == 40);
  CHECK(ParseStepFolder(StepFolder(UINT64_MAX)) == UINT64_MAX);
  for (const char* bad : {"step-", "step-040", "step--1", "step-+1", "step-1x", "step 1", "Step-1",
                          "step-18446744073709551616", "", "step-0x1"}) {
    CHECK_FALSE(ParseStepFolder(bad).has_value());
  }
}

TEST_CASE("data file names come back as their parts, also with dashes in the node's name") {
  for (const std::string node : {"node0", "gpu-a-7", "a.b_c-0"}) {
    const std::string name = DataFileName(3, 12, node, 4);
    const auto parts = ParseDataFileName(name);
    REQUIRE(parts.has_value());
    CHECK(parts->epoch == 3);
    CHECK(parts->save_number == 12);
    CHECK(parts->node == node);
    CHECK(parts->index == 4);
  }
  CHECK(DataFileName(3, 12, "node0", 0) == "data-e3s12-node0-0.safetensors");
  for (const char* bad :
       {"manifest.pb", "data-e3s12-node0-0", "data-e3s12-0.safetensors",
        "data-e3s12--0.safetensors", "data-e03s12-n-0.safetensors", "data-e3-n-0.safetensors",
        "data-e3s12-n-00.safetensors", "data-e3s12-n-.safetensors", "data-e3s12-../x-0.safetensors",
        "data-e3s12-n-99999999999.safetensors", "data-es-n-0.safetensors", ".safetensors"}) {
    CHECK_FALSE(ParseDataFileName(bad).has_value());
  }
}

}  // namespace
}  // namespace ckptd
