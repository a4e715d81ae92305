#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "client/cpp/ckptd_client.h"
#include "tests/catch.h"

namespace {

ckptd_string View(const std::string& text) { return {text.data(), text.size()}; }

// Code and message, freed.
struct Taken {
  explicit Taken(ckptd_error* error) {
    if (error == nullptr) return;
    code = static_cast<absl::StatusCode>(ckptd_error_code(error));
    const ckptd_string text = ckptd_error_message(error);
    message.assign(text.data, text.size);
    ckptd_error_free(error);
  }
  absl::StatusCode code = absl::StatusCode::kOk;
  std::string message;
};

TEST_CASE("opening a client where no daemon listens says how to start one") {
  const std::string folder = "/nonexistent/ckptd-test";
  const std::string store = "default";
  const std::string token = "token";
  const ckptd_client_options options = {View(folder), View(store), View(token), 0, 1, 0, 0, 5.0};
  ckptd_client* client = nullptr;
  const Taken error(ckptd_client_open(&options, &client));
  CHECK(error.code == absl::StatusCode::kUnavailable);
  CHECK(absl::StrContains(error.message, "ckptd standalone"));
  CHECK(absl::StrContains(error.message, folder));
  CHECK(client == nullptr);
}

TEST_CASE("a layout is made from arrays, and a bad one names its tensor") {
  const std::string names = "ab";
  const std::vector<uint64_t> ends = {1, 2};
  std::vector<uint8_t> types = {14, 12};
  const std::vector<uint32_t> dimensions = {2, 1};
  const std::vector<int64_t> shapes = {4, 4, 9};
  const std::vector<int64_t> offsets = {0, 2, 3};
  std::vector<int64_t> lengths = {4, 2, 3};
  const std::vector<int64_t> aliases = {-1, -1};
  const ckptd_names none = {0, nullptr, nullptr};
  const ckptd_layout_spec spec = {{2, names.data(), ends.data()},
                                  types.data(),
                                  dimensions.data(),
                                  shapes.data(),
                                  offsets.data(),
                                  lengths.data(),
                                  aliases.data(),
                                  none,
                                  nullptr,
                                  nullptr,
                                  nullptr,
                                  nullptr,
                                  none};
  ckptd_layout* layout = nullptr;
  REQUIRE(ckptd_layout_create(&spec, &layout) == nullptr);
  ckptd_layout_free(layout);

  lengths[2] = 7;  // [3, 10) of 9
  const Taken error(ckptd_layout_create(&spec, &layout));
  CHECK(error.code == absl::StatusCode::kInvalidArgument);
  CHECK(absl::StrContains(error.message, "tensor b"));
}

}  // namespace
