// Writes JSON text, keys in the order given. Integers keep all 64 bits.
#ifndef CKPTD_DAEMON_RUNTIME_JSON_WRITER_H_
#define CKPTD_DAEMON_RUNTIME_JSON_WRITER_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace ckptd {

// The caller calls in a valid order (Key before each value of an object, Begin
// and End in pairs); commas are put by the writer. One thread.
class JsonWriter {
 public:
  JsonWriter& BeginObject();
  JsonWriter& EndObject();
  JsonWriter& BeginArray();
  JsonWriter& EndArray();
  JsonWriter& Key(std::string_view key);

  // Bytes that are not UTF-8 become U+FFFD, so that the text is always valid.
  JsonWriter& Text(std::string_view value);
  JsonWriter& Unsigned(uint64_t value);
  JsonWriter& Signed(int64_t value);
  JsonWriter& Real(double value);
  JsonWriter& Bool(bool value);
  JsonWriter& Null();

  const std::string& text() const { return text_; }

 private:
  void BeforeValue();

  std::string text_;
  bool needs_comma_ = false;
};

}  // namespace ckptd

#endif  // CKPTD_DAEMON_RUNTIME_JSON_WRITER_H_
