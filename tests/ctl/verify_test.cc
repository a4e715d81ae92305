#include "client/ctl/verify.h"

#include "storage/file_system/posix_file_system.h"
#include "storage/format/checksum.h"
#include "tests/catch.h"
#include "tests/ctl/checkpoint_on_disk.h"

namespace ckptd {
namespace {

using Catch::Matchers::Contains;

VerifyReport Verify(const CheckpointOnDisk& checkpoint) {
  auto file_system = MakePosixFileSystem();
  auto report = VerifyCheckpoint(*file_system, checkpoint.folder(), {});
  REQUIRE(report.ok());
  return *std::move(report);
}

TEST_CASE("a whole checkpoint is found whole, every chunk of it read") {
  CheckpointOnDisk checkpoint;
  const VerifyReport report = Verify(checkpoint);
  for (const Problem& problem : report.problems) UNSCOPED_INFO(problem.message);
  CHECK(report.ok());
  CHECK(report.files == 2);
  CHECK(report.tensors == 4);
  CHECK(report.chunks == 2 * 5 + 1 + 2 + 1);
  CHECK(report.bytes == 600 * 1000 * 4 + 3 * 16 + 2 * 4 + 5);
}

TEST_CASE("progress ends with all bytes done") {
  CheckpointOnDisk checkpoint;
  auto file_system = MakePosixFileSystem();
  uint64_t last = 0;
  uint64_t whole = 0;
  VerifyOptions options{.progress = [&](uint64_t done, uint64_t total) {
    CHECK(done > last);
    last = done;
    whole = total;
  }};
  auto report = VerifyCheckpoint(*file_system, checkpoint.folder(), options);
  REQUIRE(report.ok());
  CHECK(last == report->bytes);
  CHECK(whole == report->bytes);
}

TEST_CASE("flipped bits in data are found with file, chunk and tensor, all of them") {
  CheckpointOnDisk checkpoint;
  const v1::Piece& second_half = checkpoint.manifest().tensors(1).pieces(1);
  CheckpointOnDisk::Flip(checkpoint.data_file(1), second_half.file_offset() + kChunkBytes);
  const v1::Piece& moment = checkpoint.manifest().tensors(0).pieces(0);
  CheckpointOnDisk::Flip(checkpoint.data_file(0), moment.file_offset() + 47);

  const VerifyReport report = Verify(checkpoint);
  REQUIRE(report.problems.size() == 2);
  CHECK(report.problems[0].kind == ProblemKind::kChunkChecksum);
  CHECK(report.problems[0].file == "step-40/data-e1s3-n0-0.safetensors");
  CHECK(report.problems[0].tensor == "moment");
  CHECK(report.problems[0].chunk == 0);
  CHECK(report.problems[1].file == "step-40/data-e1s3-n1-0.safetensors");
  CHECK(report.problems[1].tensor == "weight");
  CHECK(report.problems[1].chunk == 1);
}

TEST_CASE("a flipped bit in any byte of a small piece is found") {
  const uint64_t byte = GENERATE(range(0, 5));
  CheckpointOnDisk checkpoint;
  const v1::Piece& value = checkpoint.manifest().values(0).copies(0).piece();
  CheckpointOnDisk::Flip(checkpoint.data_file(0), value.file_offset() + byte);
  const VerifyReport report = Verify(checkpoint);
  REQUIRE(report.problems.size() == 1);
  CHECK(report.problems[0].tensor == "epoch");
}

TEST_CASE("a flipped bit in a header is found, in its padding too") {
  CheckpointOnDisk checkpoint;
  CheckpointOnDisk::Flip(checkpoint.data_file(0),
                         checkpoint.manifest().files(0).header_bytes() - 1);
  const VerifyReport report = Verify(checkpoint);
  REQUIRE_FALSE(report.ok());
  CHECK(report.problems[0].kind == ProblemKind::kHeaderChecksum);
  CHECK(report.problems[0].file == "step-40/data-e1s3-n0-0.safetensors");
}

TEST_CASE("a header that disagrees with the manifest is found though its checksum is right") {
  CheckpointOnDisk checkpoint;
  v1::Manifest manifest = checkpoint.manifest();
  manifest.mutable_tensors(1)->set_data_type(v1::DATA_TYPE_I32);
  checkpoint.CommitManifest(manifest);
  const VerifyReport report = Verify(checkpoint);
  REQUIRE(report.problems.size() == 2);
  CHECK(report.problems[0].kind == ProblemKind::kHeaderContent);
  CHECK_THAT(report.problems[0].message, Contains("F32 [300,1000]") && Contains("I32 [300,1000]"));
}

TEST_CASE("a flipped bit anywhere in the manifest is found") {
  CheckpointOnDisk checkpoint;
  const uint64_t size = ReadAll(checkpoint.manifest_file()).size();
  const uint64_t offset = GENERATE_COPY(range<uint64_t>(0, size, 17));
  CheckpointOnDisk::Flip(checkpoint.manifest_file(), offset);
  const VerifyReport report = Verify(checkpoint);
  REQUIRE(report.problems.size() == 1);
  CHECK(report.problems[0].kind == ProblemKind::kManifest);
  CHECK(report.problems[0].file == "step-40/manifest.pb");
}

TEST_CASE("missing, short and long files are found beside each other") {
  CheckpointOnDisk checkpoint;
  std::filesystem::remove(checkpoint.data_file(0));
  const uint64_t size = checkpoint.manifest().files(1).size_bytes();
  std::filesystem::resize_file(checkpoint.data_file(1), size - 1);
  VerifyReport report = Verify(checkpoint);
  REQUIRE(report.problems.size() == 3);
  CHECK(report.problems[0].kind == ProblemKind::kMissingFile);
  CHECK(report.problems[1].kind == ProblemKind::kWrongSize);
  CHECK(report.problems[2].kind == ProblemKind::kUnreadable);
  CHECK(report.problems[2].tensor == "rng");

  CheckpointOnDisk longer;
  std::filesystem::resize_file(longer.data_file(1), size + 1);
  report = Verify(longer);
  REQUIRE(report.problems.size() == 1);
  CHECK(report.problems[0].kind == ProblemKind::kWrongSize);
}

TEST_CASE("a folder without a manifest is no checkpoint") {
  CheckpointOnDisk checkpoint;
  std::filesystem::remove(checkpoint.manifest_file());
  auto file_system = MakePosixFileSystem();
  CHECK(absl::IsNotFound(VerifyCheckpoint(*file_system, checkpoint.folder(), {}).status()));
}

}  // namespace
}  // namespace ckptd
