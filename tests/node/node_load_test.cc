#include <fcntl.h>
#include <unistd.h>

#include "storage/format/checksum.h"
#include "tests/catch.h"
#include "tests/node/node_fixture.h"
#include "tests/node/pattern.h"

namespace ckptd {
namespace {

TEST_CASE("invariant 3: what is loaded is what was saved, bit for bit") {
  NodeFixture fixture;
  TestTrainer trainer(fixture, 0);
  REQUIRE(trainer.Join("gpt", 1).Get().ok());
  const std::string state = Pattern(7'654'321);
  trainer.SetState({{"w", state}}, {});
  REQUIRE(trainer.Save(1, 1)->phase() == v1::SAVE_PHASE_DURABLE);
  absl::StatusOr<std::string> loaded = trainer.Load("w", state.size(), 1);
  INFO(loaded.status().ToString());
  REQUIRE(loaded.ok());
  CHECK(*loaded == state);
  CHECK(fixture.node->Status().arena_used_bytes() == 0);
}

TEST_CASE("invariant 3: a flipped byte fails the load, naming file, chunk and tensor") {
  NodeFixture fixture;
  TestTrainer trainer(fixture, 0);
  REQUIRE(trainer.Join("gpt", 1).Get().ok());
  const std::string state = Pattern(3 << 20);
  trainer.SetState({{"w", state}}, {});
  REQUIRE(trainer.Save(1, 1)->phase() == v1::SAVE_PHASE_DURABLE);
  const v1::Piece piece = fixture.coordinator.commits()[0].pieces(0).piece();
  const std::string path =
      fixture.StorePath() + "/gpt/" + fixture.coordinator.commits()[0].files(0).path();
  UniqueFd file(open(path.c_str(), O_WRONLY));
  const char flipped = static_cast<char>(~state[kChunkBytes + 5]);
  REQUIRE(pwrite(file.get(), &flipped, 1, piece.file_offset() + kChunkBytes + 5) == 1);
  REQUIRE(fsync(file.get()) == 0);
  const absl::Status status = trainer.Load("w", state.size(), 1).status();
  CHECK(absl::IsDataLoss(status));
  const std::string message(status.message());
  CHECK(message.find(path) != std::string::npos);
  CHECK(message.find("chunk 1 of tensor w") != std::string::npos);
  CHECK(fixture.probe.mismatches() == 1);
}

}  // namespace
}  // namespace ckptd
