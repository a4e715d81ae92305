// A committed checkpoint in a folder, made by storage/format as a daemon makes it:
// job "gpt", step 40, two data files.
//
//   weight  F32 [600, 1000], two boxes, one in each file (5 chunks each)
//   moment  C128 [3], whole, in the first file
//   rng     U8 [4], a copy of each of two ranks, one in each file
//   epoch   a value
#ifndef CKPTD_TESTS_CTL_CHECKPOINT_ON_DISK_H_
#define CKPTD_TESTS_CTL_CHECKPOINT_ON_DISK_H_

#include <string>

#include "ckptd/v1/manifest.pb.h"
#include "tests/temporary_folder.h"

namespace ckptd {

class CheckpointOnDisk {
 public:
  CheckpointOnDisk();

  std::string folder() const { return temporary_ / "gpt/step-40"; }
  std::string job_folder() const { return temporary_ / "gpt"; }
  std::string data_file(int i) const { return job_folder() + "/" + manifest_.files(i).path(); }
  std::string manifest_file() const { return folder() + "/manifest.pb"; }
  const v1::Manifest& manifest() const { return manifest_; }

  void CommitManifest(const v1::Manifest& manifest);
  // Inverts one bit of a file's byte.
  static void Flip(const std::string& path, uint64_t offset);

 private:
  void WriteFirst();
  void WriteSecond();

  TemporaryFolder temporary_;
  v1::Manifest manifest_;
};

}  // namespace ckptd

#endif  // CKPTD_TESTS_CTL_CHECKPOINT_ON_DISK_H_
