// The manifest's frame, and its checks. The content is proto/ckptd/v1/manifest.proto.
//
//   offset  bytes  what
//   0       8      magic "CKPTDMF\n"
//   8       4      u32 LE format version, 1
//   12      8      u64 LE required-feature bits: a reader that lacks one refuses
//   20      8      u64 LE length of the body
//   28      4      u32 LE CRC32C of bytes 0..27 and the body
//   32      length the serialized Manifest
#ifndef CKPTD_STORAGE_FORMAT_MANIFEST_H_
#define CKPTD_STORAGE_FORMAT_MANIFEST_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "ckptd/v1/manifest.pb.h"

namespace ckptd {

std::string EncodeManifest(const v1::Manifest& manifest);

// Checks the frame, then everything a load will rely on: file indices, ranges
// inside their files, boxes inside their shapes, sizes that agree with them, as
// many checksums as chunks, relative paths without "..". DATA_LOSS with what is
// wrong and at which entry; FAILED_PRECONDITION for an unknown version or feature.
// `path` is only for messages.
absl::StatusOr<v1::Manifest> DecodeManifest(std::string_view bytes, std::string_view path);

}  // namespace ckptd

#endif  // CKPTD_STORAGE_FORMAT_MANIFEST_H_
