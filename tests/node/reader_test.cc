#include "daemon/node/reader.h"

#include "storage/file_system/posix_file_system.h"
#include "tests/catch.h"
#include "tests/temporary_folder.h"

namespace ckptd {
namespace {

TEST_CASE("bytes read are those that came from storage: a block that two reads share counts once") {
  const TemporaryFolder folder;
  WriteAll(folder.path() + "/data", std::string(4 * kIoAlignmentBytes, 'x'));
  const std::unique_ptr<FileSystem> files = MakePosixFileSystem();
  NodeProbe probe;
  auto plan = std::make_shared<v1::PlanLoadResponse>();
  plan->add_files()->set_path("data");
  LoadReader reader(*files, probe, folder.path(), plan, /*direct_io=*/false);
  alignas(kIoAlignmentBytes) std::byte buffer[2 * kIoAlignmentBytes];
  // The read before it doesn't come to storage at all.
  REQUIRE(reader
              .Read({.file_offset = 2 * kIoAlignmentBytes,
                     .length = 2 * kIoAlignmentBytes,
                     .shares_first_block = true},
                    buffer)
              .ok());
  CHECK(reader.bytes_read() == 2 * kIoAlignmentBytes);
  // Now it does.
  REQUIRE(reader
              .Read({.file_offset = kIoAlignmentBytes,
                     .length = 2 * kIoAlignmentBytes,
                     .shares_last_block = true},
                    buffer)
              .ok());
  CHECK(reader.bytes_read() == 3 * kIoAlignmentBytes);
}

}  // namespace
}  // namespace ckptd
