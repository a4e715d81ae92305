// A table of text for people: columns as wide as their widest cell.
#ifndef CKPTD_CLIENT_CTL_TABLE_H_
#define CKPTD_CLIENT_CTL_TABLE_H_

#include <string>
#include <vector>

namespace ckptd {

class Table {
 public:
  // A heading that begins with '>' stands, without it, over a right-aligned column.
  explicit Table(std::vector<std::string> headings);
  void AddRow(std::vector<std::string> cells);  // as many as headings
  // With the headings; no spaces at line ends.
  std::string ToString() const;

 private:
  std::vector<bool> right_aligned_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace ckptd

#endif  // CKPTD_CLIENT_CTL_TABLE_H_
