#include "storage/format/manifest.h"

#include <span>

#include "absl/strings/str_cat.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "storage/format/checksum.h"

namespace ckptd {
namespace {

constexpr std::string_view kMagic = "CKPTDMF\n";
constexpr uint32_t kVersion = 1;
constexpr uint64_t kKnownFeatures = 0;

constexpr size_t kVersionAt = 8;
constexpr size_t kFeaturesAt = 12;
constexpr size_t kLengthAt = 20;
constexpr size_t kChecksumAt = 28;

template <typename Number>
void AppendLittleEndian(Number value, std::string* out) {
  for (size_t i = 0; i < sizeof(value); ++i) out->push_back(static_cast<char>(value >> (8 * i)));
}

template <typename Number>
Number ReadLittleEndian(std::string_view bytes, size_t at) {
  Number value = 0;
  for (size_t i = 0; i < sizeof(value); ++i) {
    value |= static_cast<Number>(static_cast<uint8_t>(bytes[at + i])) << (8 * i);
  }
  return value;
}

std::span<const std::byte> AsBytes(std::string_view text) {
  return std::as_bytes(std::span<const char>(text.data(), text.size()));
}

uint32_t FrameChecksum(std::string_view head, std::string_view body) {
  return Crc32c(AsBytes(body), Crc32c(AsBytes(head)));
}

std::string SerializeBody(const v1::Manifest& manifest) {
  std::string body;
  google::protobuf::io::StringOutputStream stream(&body);
  google::protobuf::io::CodedOutputStream coded(&stream);
  coded.SetSerializationDeterministic(true);  // maps in order
  const bool serialized = manifest.SerializeToCodedStream(&coded);
  coded.Trim();
  return serialized ? body : std::string();
}

// The body, if the frame around it is whole.
absl::StatusOr<std::string_view> OpenFrame(std::string_view bytes) {
  if (bytes.size() < kManifestFrameBytes) {
    return absl::DataLossError(
        absl::StrCat("it has ", bytes.size(), " bytes, too few for a manifest"));
  }
  if (bytes.substr(0, kMagic.size()) != kMagic) {
    return absl::DataLossError("it does not begin as a manifest does");
  }
  const uint32_t version = ReadLittleEndian<uint32_t>(bytes, kVersionAt);
  const uint64_t features = ReadLittleEndian<uint64_t>(bytes, kFeaturesAt);
  const uint64_t length = ReadLittleEndian<uint64_t>(bytes, kLengthAt);
  const std::string_view body = bytes.substr(kManifestFrameBytes);
  if (length != body.size()) {
    return absl::DataLossError(absl::StrCat("it should have ", length, " bytes behind its frame, ",
                                            "it has ", body.size()));
  }
  // Before version and features: a damaged number is damage, not news.
  const uint32_t recorded = ReadLittleEndian<uint32_t>(bytes, kChecksumAt);
  const uint32_t computed = FrameChecksum(bytes.substr(0, kChecksumAt), body);
  if (recorded != computed) {
    return absl::DataLossError(absl::StrCat("its CRC32C is ", absl::Hex(computed, absl::kZeroPad8),
                                            ", recorded is ",
                                            absl::Hex(recorded, absl::kZeroPad8)));
  }
  if (version != kVersion) {
    return absl::FailedPreconditionError(absl::StrCat("it has format version ", version,
                                                      ", this ckptd reads version ", kVersion,
                                                      "; read it with a newer ckptd"));
  }
  if (const uint64_t unknown = features & ~kKnownFeatures; unknown != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("it needs the features 0x", absl::Hex(unknown),
                     ", which this ckptd does not have; read it with a newer ckptd"));
  }
  return body;
}

absl::Status WithPath(const absl::Status& status, std::string_view path) {
  return absl::Status(status.code(),
                      absl::StrCat("manifest ", absl::string_view(path.data(), path.size()), ": ",
                                   status.message()));
}

}  // namespace

uint64_t ManifestFileBytes(std::string_view frame) {
  if (frame.size() < kManifestFrameBytes) return 0;
  return kManifestFrameBytes + ReadLittleEndian<uint64_t>(frame, kLengthAt);
}

std::string EncodeManifest(const v1::Manifest& manifest) {
  const std::string body = SerializeBody(manifest);
  std::string bytes(kMagic);
  AppendLittleEndian<uint32_t>(kVersion, &bytes);
  AppendLittleEndian<uint64_t>(0, &bytes);  // no feature is required
  AppendLittleEndian<uint64_t>(body.size(), &bytes);
  AppendLittleEndian<uint32_t>(FrameChecksum(bytes, body), &bytes);
  return bytes + body;
}

absl::Status CheckManifestFrame(std::string_view bytes, std::string_view path) {
  const absl::Status status = OpenFrame(bytes).status();
  return status.ok() ? status : WithPath(status, path);
}

absl::StatusOr<v1::Manifest> DecodeManifest(std::string_view bytes, std::string_view path) {
  const absl::StatusOr<std::string_view> body = OpenFrame(bytes);
  if (!body.ok()) return WithPath(body.status(), path);
  v1::Manifest manifest;
  if (body->size() > INT32_MAX ||
      !manifest.ParseFromArray(body->data(), static_cast<int>(body->size()))) {
    return WithPath(absl::DataLossError("its content is no Manifest message"), path);
  }
  if (absl::Status status = CheckManifest(manifest); !status.ok()) return WithPath(status, path);
  return manifest;
}

}  // namespace ckptd
