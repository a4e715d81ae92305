// Element types of tensors: sizes and names. Knows nothing of protos or torch.
#ifndef CKPTD_STORAGE_LAYOUT_DATA_TYPE_H_
#define CKPTD_STORAGE_LAYOUT_DATA_TYPE_H_

#include <cstdint>
#include <optional>
#include <string_view>

namespace ckptd {

// The numbers are those of proto/ckptd/v1/manifest.proto, and so on disk.
enum class DataType : uint8_t {
  kUnspecified = 0,
  kBool = 1,
  kU8 = 2,
  kI8 = 3,
  kU16 = 4,
  kI16 = 5,
  kU32 = 6,
  kI32 = 7,
  kU64 = 8,
  kI64 = 9,
  kF8E4M3FN = 10,
  kF8E5M2 = 11,
  kF16 = 12,
  kBF16 = 13,
  kF32 = 14,
  kF64 = 15,
  kC64 = 16,
  kC128 = 17,
};

// Bytes of one element; 0 for kUnspecified and for numbers that are no type.
uint64_t ElementBytes(DataType type);

// "F32", "BF16", ...: for people and error messages. "?" for what is no type.
std::string_view DataTypeName(DataType type);

// From a wire or disk number; nullopt for kUnspecified and unknown numbers.
std::optional<DataType> DataTypeFromNumber(int number);

}  // namespace ckptd

#endif  // CKPTD_STORAGE_LAYOUT_DATA_TYPE_H_
