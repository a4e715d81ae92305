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

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ckptd/v1/manifest.pb.h"

namespace ckptd {

// The frame and the manifest, of which nothing is checked: a writer decodes what it
// encoded before it commits it. Equal manifests give equal bytes. Above Protobuf's
// limit of 2 GiB the body is empty, which DecodeManifest refuses.
// The frame in front of the body.
inline constexpr size_t kManifestFrameBytes = 32;

// How large the file is whose first kManifestFrameBytes bytes are `frame`; 0 if it is shorter.
uint64_t ManifestFileBytes(std::string_view frame);

std::string EncodeManifest(const v1::Manifest& manifest);

// The frame alone: what begins it, and the length and checksum of what follows. Errors
// as DecodeManifest.
[[nodiscard]] absl::Status CheckManifestFrame(std::string_view bytes, std::string_view path);

// Checks the frame, then everything a load will rely on (CheckManifest). DATA_LOSS
// with what is wrong and at which entry; FAILED_PRECONDITION for an unknown version,
// feature or encoding, which a newer ckptd can read.
// `path` is only for messages.
absl::StatusOr<v1::Manifest> DecodeManifest(std::string_view bytes, std::string_view path);

// What a load relies on: valid job name and numbers; relative paths without "..",
// each once; names valid, sorted, and each in one list only; boxes inside their
// shapes and covering them exactly; sizes that agree with the boxes; ranges inside
// their files, behind the header; as many checksums as chunks; aliases that lead to an
// entry of the same type and shape with pieces; copies whose ranks are ascending,
// below the world size and in one copy only. Errors as DecodeManifest, without a path.
[[nodiscard]] absl::Status CheckManifest(const v1::Manifest& manifest);

}  // namespace ckptd

#endif  // CKPTD_STORAGE_FORMAT_MANIFEST_H_
