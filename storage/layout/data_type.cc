#include "storage/layout/data_type.h"

namespace ckptd {
namespace {

struct TypeInfo {
  std::string_view name;
  uint64_t bytes;
};

// Indexed by the type's number.
constexpr TypeInfo kTypes[] = {
    {"?", 0},   {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"U16", 2},     {"I16", 2},
    {"U32", 4}, {"I32", 4},  {"U64", 8}, {"I64", 8}, {"F8_E4M3", 1}, {"F8_E5M2", 1},
    {"F16", 2}, {"BF16", 2}, {"F32", 4}, {"F64", 8}, {"C64", 8},     {"C128", 16},
};
constexpr int kTypeCount = sizeof(kTypes) / sizeof(kTypes[0]);
static_assert(kTypeCount == static_cast<int>(DataType::kC128) + 1);

const TypeInfo& Info(DataType type) {
  const int number = static_cast<int>(type);
  return kTypes[number < kTypeCount ? number : 0];
}

}  // namespace

uint64_t ElementBytes(DataType type) { return Info(type).bytes; }

std::string_view DataTypeName(DataType type) { return Info(type).name; }

std::optional<DataType> DataTypeFromNumber(int number) {
  if (number <= 0 || number >= kTypeCount) return std::nullopt;
  return static_cast<DataType>(number);
}

}  // namespace ckptd
