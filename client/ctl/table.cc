#include "client/ctl/table.h"

#include <algorithm>
#include <utility>

namespace ckptd {
namespace {

// Columns that a terminal shows for UTF-8 text without wide characters.
size_t Width(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

}  // namespace

Table::Table(std::vector<std::string> headings) {
  for (std::string& heading : headings) {
    right_aligned_.push_back(heading.starts_with(">"));
    if (right_aligned_.back()) heading.erase(0, 1);
  }
  rows_.push_back(std::move(headings));
}

void Table::AddRow(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }

std::string Table::ToString() const {
  std::vector<size_t> widths(right_aligned_.size(), 0);
  for (const auto& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], Width(row[i]));
  }
  std::string text;
  for (const auto& row : rows_) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string padding(widths[i] - Width(row[i]), ' ');
      line += i == 0 ? "" : "  ";
      line += right_aligned_[i] ? padding + row[i] : row[i] + padding;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

}  // namespace ckptd
