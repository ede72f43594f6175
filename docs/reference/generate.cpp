// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// Makes the pages of this directory, and the module interface, from the headers: every public name, with its doc
// comment. Complains about a public name that nothing is said about.
//
//     generate <root>           compares, and fails when a page differs or a name is not described
//     generate <root> --write   writes
//
// It reads the headers as they are formatted here, and is no C++ parser: namespaces, classes, enumerations, functions,
// aliases and variables at namespace and class scope, up to the brace or the semicolon that ends each.

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace {

std::string trimmed(const std::string& text) {
  const auto begin = text.find_first_not_of(" \t\n");
  return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(" \t\n") - begin + 1);
}

/// Behind the `>` that closes the `template <` with which \p text begins.
std::size_t end_of_template_head(const std::string& text) {
  auto at = text.find('<');
  unsigned depth = 0;
  do {
    if (text[at] == '<') ++depth;
    if (text[at] == '>') --depth;
    ++at;
  } while (depth != 0 && at < text.size());
  return at;
}

bool starts(const std::string& text, const std::string& with) {
  return text.rfind(with, 0) == 0;
}

bool is_name(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

/// A declaration, or an enumerator, with what is said about it.
struct entity {
  std::string scope;  // of classes, without curfew::
  std::string space;  // namespace, without curfew
  std::string name;
  std::string text;  // the declaration
  std::string doc;
  std::string kind;    // class, enum, enumerator, function, alias, variable, concept
  bool group = false;  // follows the one before it without a blank line: what is said there holds for it, too
  unsigned line = 0;
};

struct header {
  std::string file_doc;
  std::vector<entity> entities;
  std::vector<std::string> macros;  // asked for or defined
  bool understood = false;          // every brace that was opened was closed
};

class reader {
 public:
  explicit reader(const std::string& text) : text_(text) {}

  header read() {
    while (at_ < text_.size()) step();
    found_.understood = scopes_.empty() && depth_ == 0 && trimmed(pending_).empty();
    return std::move(found_);
  }

 private:
  enum class level { space, type, enumeration };
  struct scope {
    level what;
    std::string name;
    bool open;  // names in it are public
  };

  char now() const { return text_[at_]; }
  bool meets(const char* what) const { return text_.compare(at_, std::strlen(what), what) == 0; }

  void step() {
    if (now() == '\n') {
      line_ += 1;
      if (at_ > 0 && trimmed(text_.substr(line_begin_, at_ - line_begin_)).empty() && trimmed(pending_).empty()) {
        doc_.clear();
        adjacent_ = false;
      }
      line_begin_ = at_ + 1;
      pending_ += ' ';
      at_ += 1;
    } else if (now() == '#' && trimmed(text_.substr(line_begin_, at_ - line_begin_)).empty()) {
      directive();
    } else if (meets("//")) {
      comment();
    } else if (now() == '"' || now() == '\'') {
      literal();
    } else if (now() == '(' || now() == '[') {
      depth_ += 1;
      pending_ += text_[at_++];
    } else if (now() == ')' || now() == ']') {
      depth_ -= 1;
      pending_ += text_[at_++];
    } else if (depth_ > 0 && now() == '{') {
      const std::size_t from = at_;
      skip_braces();
      pending_ += text_.substr(from, at_ - from);
    } else if (depth_ > 0) {
      pending_ += text_[at_++];
    } else if (now() == '{') {
      open_brace();
    } else if (now() == '}') {
      if (in(level::enumeration)) enumerator();
      close_scope();
    } else if (now() == ';') {
      at_ += 1;
      declaration();
    } else if (now() == ',' && in(level::enumeration)) {
      at_ += 1;
      enumerator();
    } else if (now() == ':' && in(level::type) && label()) {
      at_ += 1;
    } else {
      pending_ += text_[at_++];
      const std::string word = trimmed(pending_);
      if (word == "CURFEW_BEGIN_NAMESPACE") {
        scopes_.push_back({level::space, "curfew", true});
        forget();
      } else if (word == "CURFEW_END_NAMESPACE") {
        scopes_.pop_back();
        forget();
      }
    }
  }

  bool in(level what) const { return !scopes_.empty() && scopes_.back().what == what; }

  void forget() {
    pending_.clear();
    doc_.clear();
  }

  void directive() {
    std::string whole;
    for (bool more = true; more;) {
      const auto end = std::min(text_.find('\n', at_), text_.size());
      whole += text_.substr(at_, end - at_);
      more = end > at_ && text_[end - 1] == '\\';
      at_ = end;
      if (more) {
        at_ += 1;
        line_ += 1;
        line_begin_ = at_;
      }
    }
    for (auto p = whole.find("CURFEW_"); p != std::string::npos; p = whole.find("CURFEW_", p + 1)) {
      auto end = p;
      while (end < whole.size() && is_name(whole[end])) ++end;
      const std::string name = whole.substr(p, end - p);
      if (!name.ends_with("_HPP")) found_.macros.push_back(name);
    }
  }

  void comment() {
    const auto end = std::min(text_.find('\n', at_), text_.size());
    const std::string line = text_.substr(at_, end - at_);
    const bool alone = trimmed(text_.substr(line_begin_, at_ - line_begin_)).empty();
    if (alone && starts(line, "///") && trimmed(pending_).empty()) {
      doc_ += line.size() > 3 && line[3] == ' ' ? line.substr(4) : line.substr(3);
      doc_ += '\n';
      if (starts(trimmed(doc_), "\\file")) in_file_doc_ = true;
      if (in_file_doc_ && text_.compare(end, 2, "\n\n") == 0) {
        found_.file_doc = trimmed(trimmed(doc_).substr(5)) + "\n";
        doc_.clear();
        in_file_doc_ = false;
      }
    } else if (!alone) {
      trailing(line.substr(starts(line, "///<") ? 4 : 2), line_);
    } else if (last_trailing_line_ != 0 && last_trailing_line_ + 1 == line_ && last_column_ == at_ - line_begin_) {
      trailing(line.substr(starts(line, "///<") ? 4 : 2), line_);  // goes on below
    }
    at_ = end;
  }

  // Said after a declaration, on its line. An enumerator without a comma after it is still pending.
  void trailing(const std::string& said, unsigned line) {
    last_trailing_line_ = line;
    last_column_ = at_ - line_begin_;
    if (in(level::enumeration) && !trimmed(pending_).empty()) {
      doc_ += trimmed(said) + "\n";
    } else if (last_ != nullptr_index && found_.entities[last_].line + 1 >= line) {
      entity& one = found_.entities[last_];
      one.doc += trimmed(said) + "\n";
      one.line = line;
    }
  }

  void literal() {
    if (now() == '"' && at_ > 0 && text_[at_ - 1] == 'R') {
      const auto open = text_.find('(', at_);
      const std::string close = ")" + text_.substr(at_ + 1, open - at_ - 1) + "\"";
      const auto end = text_.find(close, open) + close.size();
      line_ += static_cast<unsigned>(std::count(text_.begin() + static_cast<std::ptrdiff_t>(at_),
                                                text_.begin() + static_cast<std::ptrdiff_t>(end), '\n'));
      pending_ += text_.substr(at_, end - at_);
      at_ = end;
      return;
    }
    const char quote = now();
    if (quote == '\'' && at_ > 0 && is_name(text_[at_ - 1])) {  // 1'000
      pending_ += text_[at_++];
      return;
    }
    const auto from = at_++;
    while (at_ < text_.size() && now() != quote) at_ += now() == '\\' ? 2 : 1;
    at_ += 1;
    pending_ += text_.substr(from, at_ - from);
  }

  // From an opening brace to behind the one that closes it.
  void skip_braces() {
    unsigned depth = 0;
    std::string scratch;
    std::swap(scratch, pending_);
    do {
      if (now() == '\n') {
        line_ += 1;
        line_begin_ = at_ + 1;
        at_ += 1;
      } else if (meets("//")) {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else if (now() == '"' || now() == '\'') {
        literal();
      } else {
        if (now() == '{') depth += 1;
        if (now() == '}') depth -= 1;
        at_ += 1;
      }
    } while (depth != 0 && at_ < text_.size());
    std::swap(scratch, pending_);
  }

  char next_visible() const {
    const auto next = text_.find_first_not_of(" \t\n", at_);
    return next == std::string::npos ? '\0' : text_[next];
  }

  // The declaration without `template <...>`, a requires clause, attributes and macros in front.
  static std::string core_of(std::string text) {
    text = trimmed(text);
    if (starts(text, "template")) {
      return core_of(text.substr(end_of_template_head(text)));
    }
    return text;
  }

  static std::string without_attributes(std::string text) {
    for (auto at = text.find("[["); at != std::string::npos; at = text.find("[[")) {
      const auto end = text.find("]]", at);
      if (end == std::string::npos) break;
      text.erase(at, end + 2 - at);
    }
    return text;
  }

  static bool heads_type(const std::string& core) {
    for (const char* word : {"class ", "struct ", "union ", "enum "}) {
      if (starts(core, word)) return true;
    }
    return false;
  }

  static std::string type_name(std::string core) {
    core = core.substr(core.find(' ') + 1);
    for (bool again = true; again;) {
      again = false;
      for (const char* word : {"class ", "struct ", "CURFEW_VISIBLE "}) {
        if (starts(core, word)) core = core.substr(std::strlen(word)), again = true;
      }
      if (starts(core, "[[")) core = trimmed(core.substr(core.find("]]") + 2)), again = true;
      if (starts(core, "alignas(")) core = trimmed(core.substr(core.find(')') + 1)), again = true;
    }
    // basic_fence<Core, Trace>::pass : ...; the template's arguments go
    std::string name;
    unsigned depth = 0;
    for (std::size_t i = 0; i < core.size(); ++i) {
      const char c = core[i];
      if (c == '<') {
        depth += 1;
      } else if (c == '>') {
        depth -= 1;
      } else if (depth == 0 && (is_name(c) || (c == ':' && i + 1 < core.size() && core[i + 1] == ':') ||
                                (c == ':' && i > 0 && core[i - 1] == ':'))) {
        name += c;
      } else if (depth == 0) {
        break;
      }
    }
    return name;
  }

  void open_brace() {
    const std::string text = trimmed(pending_);
    const std::string core = core_of(without_attributes(text));
    if (starts(core, "namespace") || starts(core, "inline namespace")) {
      const auto space = core.find("namespace") + 9;
      scopes_.push_back({level::space, trimmed(core.substr(space)), true});
      at_ += 1;
      forget();
    } else if (core == "extern \"C\"") {  // the system's
      scopes_.push_back({level::space, "", false});
      at_ += 1;
      forget();
    } else if (core.ends_with("requires") || (core.ends_with(")") && ends_with_requires(core))) {
      const auto from = at_;
      skip_braces();
      pending_ += text_.substr(from, at_ - from);
    } else if (heads_type(core) && (core.find('(') == std::string::npos || core.find("alignas") != std::string::npos) &&
               core.find('=') == std::string::npos) {
      const bool enumeration = starts(core, "enum ");
      add(type_name(core), enumeration ? "enum" : "class", text);
      scopes_.push_back(
          {enumeration ? level::enumeration : level::type, type_name(core), enumeration || !starts(core, "class ")});
      at_ += 1;
      forget();
    } else {
      const auto from = at_;
      skip_braces();
      const char next = next_visible();
      if (call_paren(core) == std::string::npos) {  // a variable, a concept
        pending_ += text_.substr(from, at_ - from);
      } else if (next == ',' || next == '{') {
        pending_ += "{}";
      } else {
        declaration();
      }
    }
  }

  static bool ends_with_requires(const std::string& core) {
    int depth = 0;
    for (auto i = core.size(); i-- > 0;) {
      if (core[i] == ')') ++depth;
      if (core[i] == '(' && --depth == 0) return trimmed(core.substr(0, i)).ends_with("requires");
    }
    return false;
  }

  void close_scope() {
    at_ += 1;
    if (!scopes_.empty()) {
      if (scopes_.back().what != level::space && next_visible() == ';') at_ = text_.find(';', at_) + 1;
      scopes_.pop_back();
    }
    forget();
    adjacent_ = true;
  }

  bool label() {
    if (at_ + 1 < text_.size() && text_[at_ + 1] == ':') return false;
    const std::string word = trimmed(pending_);
    if (word != "public" && word != "private" && word != "protected") return false;
    scopes_.back().open = word == "public";
    forget();
    adjacent_ = false;
    return true;
  }

  void enumerator() {
    std::string text = trimmed(pending_);
    if (!text.empty()) add(text.substr(0, text.find_first_of(" =")), "enumerator", text);
    pending_.clear();
    doc_.clear();
  }

  void declaration() {
    const std::string text = trimmed(pending_);
    const std::string core = core_of(without_attributes(text));
    if (core.empty() || starts(core, "friend ") || starts(core, "static_assert") || core.ends_with("= delete") ||
        starts(core, "extern template")) {
      forget();
      return;
    }
    if (heads_type(core) && core.find('(') == std::string::npos && core.find('=') == std::string::npos) {
      forget();  // declared only; described where it is defined
      return;
    }
    if (starts(core, "using namespace") || starts(core, "using enum")) return forget();
    if (starts(core, "using ")) {
      const auto equals = core.find('=');
      const std::string named = trimmed(core.substr(6, equals - 6));
      if (equals == std::string::npos) return forget();  // inherited: constructors, or described where it comes from
      add(named, "alias", text);
    } else if (starts(core, "concept ")) {
      add(trimmed(core.substr(8, core.find('=') - 8)), "concept", text);
    } else if (const auto paren = call_paren(core); paren != std::string::npos) {
      auto end = paren;
      while (end > 0 && core[end - 1] == ' ') --end;
      auto begin = end;
      if (const auto op = core.find("operator"); op < paren) {
        begin = op;
      } else {
        while (begin > 0 && (is_name(core[begin - 1]) || core[begin - 1] == '~')) --begin;
      }
      if (begin > 0 && core[begin - 1] == ':') return forget();  // a member, declared in its class
      add(core.substr(begin, end - begin), "function", signature(text));
    } else {
      auto end = core.find_first_of("={");
      if (end == std::string::npos) end = core.size();
      while (end > 0 && core[end - 1] == ' ') --end;
      auto begin = end;
      while (begin > 0 && is_name(core[begin - 1])) --begin;
      add(core.substr(begin, end - begin), "variable", text);
    }
    forget();
  }

  // The parenthesis that opens the parameters.
  static std::size_t call_paren(const std::string& core) {
    if (const auto op = core.find("operator"); op != std::string::npos) {
      const auto from = op + 8;
      return core.find('(', core.compare(from, 2, "()") == 0 ? from + 2 : from);
    }
    unsigned depth = 0;
    for (std::size_t i = 0; i < core.size(); ++i) {
      if (core[i] == '<' || core[i] == '{') ++depth;
      if ((core[i] == '>' || core[i] == '}') && depth > 0) --depth;
      if (depth == 0 && core[i] == '=') return std::string::npos;
      if (depth != 0 || core[i] != '(') continue;
      const std::string before = core.substr(0, i);
      if (before.ends_with("alignas") || before.ends_with("requires") || before.ends_with("decltype")) {
        i = core.find(')', i);
        continue;
      }
      return i;
    }
    return std::string::npos;
  }

  // Without the initialisers of a constructor.
  static std::string signature(const std::string& text) {
    int depth = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (std::strchr("(<[{", text[i]) != nullptr) ++depth;
      if (std::strchr(")>]}", text[i]) != nullptr) --depth;
      if (depth == 0 && text[i] == ':' && i > 0 && text[i - 1] == ' ' && text[i + 1] == ' ') {
        return trimmed(text.substr(0, i));
      }
    }
    return text;
  }

  void add(const std::string& name, const std::string& kind, const std::string& text) {
    entity one;
    bool open = true;
    for (const scope& each : scopes_) {
      open = open && each.open;
      std::string& path = each.what == level::space ? one.space : one.scope;
      if (each.name != "curfew") path += (path.empty() ? "" : "::") + each.name;
    }
    // pass, defined outside of its fence
    std::string bare = name;
    if (const auto colons = name.rfind("::"); colons != std::string::npos && kind == "class") {
      one.scope = name.substr(0, colons);
      bare = name.substr(colons + 2);
    }
    one.name = bare;
    one.kind = kind;
    one.doc = doc_;
    one.line = line_;
    one.group = adjacent_ && doc_.empty();
    bool last_space = true;
    for (const char c : text) {  // one space where there is any
      const bool space = std::isspace(static_cast<unsigned char>(c)) != 0;
      if (!space || !last_space) one.text += space ? ' ' : c;
      last_space = space;
    }
    one.text = trimmed(one.text);
    last_ = nullptr_index;
    if (open) {
      found_.entities.push_back(one);
      last_ = found_.entities.size() - 1;
    }
    adjacent_ = kind != "class" && kind != "enum";
  }

  static constexpr std::size_t nullptr_index = static_cast<std::size_t>(-1);
  const std::string text_;
  std::size_t at_ = 0, line_begin_ = 0;
  unsigned line_ = 1;
  int depth_ = 0;
  std::string pending_, doc_;
  std::vector<scope> scopes_;
  bool adjacent_ = false, in_file_doc_ = false;
  std::size_t last_ = nullptr_index, last_column_ = 0;
  unsigned last_trailing_line_ = 0;
  header found_;
};

struct page {
  const char* file;
  const char* title;
  std::vector<const char*> headers;
};

const std::vector<page> pages = {
    {"admission_fence", "Admission fences", {"admission_fence.hpp", "detail/drain.hpp", "detail/occupants.hpp"}},
    {"guarded_singleton",
     "Guarded singletons",
     {"guarded_singleton.hpp", "detail/singleton_handle.hpp", "detail/singleton_engine.hpp",
      "detail/singleton_core.hpp"}},
    {"teardown", "Teardown", {"teardown.hpp", "detail/teardown_reason.hpp"}},
    {"ordered_lifespan",
     "Ordered lifespans",
     {"ordered_lifespan.hpp", "detail/lifespan_types.hpp", "detail/lifespan_report.hpp",
      "detail/lifespan_control.hpp"}},
    {"signals", "Signals", {"signals.hpp"}},
    {"keyed_serializer", "Keyed serializer", {"keyed_serializer.hpp"}},
    {"slot_ledger", "Slot ledger", {"slot_ledger.hpp"}},
    {"periodic_worker", "Periodic worker", {"periodic_worker.hpp"}},
    {"systemd_notifier", "systemd", {"systemd_notifier.hpp"}},
    {"sandbox",
     "Sandbox providers",
     {"sandbox/aio.hpp", "sandbox/e2b.hpp", "sandbox/pool_front.hpp", "sandbox/lease.hpp", "sandbox/lease_store.hpp",
      "sandbox/redis_lease_store.hpp"}},
    {"sandbox_backends",
     "Sandbox backends",
     {"sandbox/backend.hpp", "sandbox/process_backend.hpp", "sandbox/docker_cli_backend.hpp",
      "sandbox/aio_rest_backend.hpp", "sandbox/e2b_rest_backend.hpp", "sandbox/transport.hpp",
      "sandbox/curl_transport.hpp", "detail/http_types.hpp"}},
    {"testing",
     "Testing",
     {"testing/race.hpp", "testing/explore.hpp", "testing/outcome.hpp", "testing/search.hpp", "testing/model_sync.hpp",
      "testing/noise_sync.hpp", "testing/restartable_model_sync.hpp"}},
    {"sync", "The seam", {"detail/sync.hpp"}},
};

// The engine under the providers: names that users do not write, outside of a namespace detail.
const std::set<std::string> internal_headers = {"sandbox/pool_core.hpp",    "sandbox/pool_finish.hpp",
                                                "sandbox/pool_room.hpp",    "sandbox/pool_upkeep.hpp",
                                                "sandbox/sandbox_pool.hpp", "sandbox/sandbox_table.hpp"};

// Classes of detail whose members users call, by the name that users know them by.
const std::map<std::string, std::string> published = {{"singleton_front", "guarded_singleton and scoped_singleton"}};

// Headers that need a package, and those for tests, are no part of the module.
bool in_module(const std::string& file) {
  return !starts(file, "testing/") && file != "sandbox/curl_transport.hpp" && file != "sandbox/redis_lease_store.hpp";
}

bool is_public(const entity& one) {
  if (starts(one.name, "__") || one.name == "environ") return false;  // the system's
  const bool inner = one.space.find("detail") != std::string::npos || one.space.find("engine") != std::string::npos ||
                     one.space.find("model") != std::string::npos;
  const std::string outermost = (one.scope.empty() ? one.name : one.scope).substr(0, one.scope.find("::"));
  return !inner || published.contains(outermost);
}

// Policies: their members are what the comment on std_sync asks of such a class.
const std::set<std::string> policies = {"std_sync", "model_sync", "noise_sync", "restartable_model_sync"};

// Constructors without a comment, destructors, moves, dereferences: what each does is fixed by the language.
bool speaks_for_itself(const entity& one) {
  const auto colons = one.scope.rfind("::");
  const std::string type = colons == std::string::npos ? one.scope : one.scope.substr(colons + 2);
  return one.kind == "enumerator" || one.kind == "variable" || one.name == type || starts(one.name, "~") ||
         starts(one.name, "operator") || policies.contains(one.scope.substr(0, one.scope.find("::")));
}

// A doc comment as Markdown.
std::string markdown(const std::string& doc) {
  std::string out;
  std::istringstream lines(doc);
  for (std::string line; std::getline(lines, line);) {
    if (starts(line, "    ")) {
      out += line + '\n';
      continue;
    }
    if (starts(line, "\\par ")) {
      out += "\n**" + line.substr(5) + ".**\n";
      continue;
    }
    if (const auto at = line.find("\\throws"); at != std::string::npos) line.replace(at, 7, "Throws");
    bool quoted = false;
    unsigned stars = 0;
    for (std::size_t i = 0; i < line.size(); ++i) {
      if (line[i] == '`') quoted = !quoted;
      if (!quoted && line.compare(i, 3, "\\p ") == 0) {
        auto end = i + 3;
        while (end < line.size() && is_name(line[end])) ++end;
        out += "`" + line.substr(i + 3, end - i - 3) + "`";
        i = end - 1;
      } else if (!quoted && line.compare(i, 5, "docs/") == 0 && line.find(".md", i) != std::string::npos) {
        const std::string page = line.substr(i, line.find(".md", i) + 3 - i);
        out += "[" + page + "](../" + page.substr(5) + ")";
        i += page.size() - 1;
      } else if (!quoted && line[i] == '<') {
        out += "&lt;";
      } else if (!quoted && line[i] == '*' && stars % 2 == 0 && i > 0 && is_name(line[i - 1])) {
        out += "\\*";
      } else {
        if (line[i] == '*') ++stars;
        out += line[i];
      }
    }
    out += '\n';
  }
  return out;
}

std::string in_one_line(const std::string& doc) {
  std::string out = trimmed(markdown(doc));
  std::replace(out.begin(), out.end(), '\n', ' ');
  for (auto at = out.find('|'); at != std::string::npos; at = out.find('|', at + 2)) out.insert(at, "\\");
  return out;
}

std::string first_sentence(const std::string& doc) {
  const std::string whole = trimmed(doc);
  auto paragraph = whole.find("\n\n");
  if (const auto par = whole.find("\n\\par"); par < paragraph) paragraph = par;
  std::string text = in_one_line(whole.substr(0, paragraph));
  for (auto stop = text.find_first_of(".:"); stop != std::string::npos; stop = text.find_first_of(".:", stop + 1)) {
    if (stop + 1 == text.size()) break;
    if (text[stop + 1] != ' ') continue;
    return text.substr(0, stop) + ".";
  }
  return text;
}

// `template <...> requires ...` on lines of their own, and lines of at most 110 columns where there is a comma.
std::string laid_out(std::string text) {
  for (const char* noise : {"CURFEW_VISIBLE ", "CURFEW_COLD ", "CURFEW_ALWAYS_INLINE ", "CURFEW_NOINLINE "}) {
    for (auto at = text.find(noise); at != std::string::npos; at = text.find(noise)) text.erase(at, std::strlen(noise));
  }
  for (auto at = text.find("[[nodiscard("); at != std::string::npos; at = text.find("[[nodiscard(", at + 1)) {
    text.erase(at + 11, text.find("]]", at) - at - 11);  // the reason is in the words below
  }
  if (const auto base = text.find(" : "); text.find("class ") < base && base != std::string::npos &&
                                          text.find('(') == std::string::npos && !starts(text, "enum ") &&
                                          !starts(text.substr(base + 3), "public ")) {
    text.erase(base);  // private
  }
  if (text.ends_with(" = default")) text.erase(text.size() - 10);
  // Seen from outside the two are one class.
  for (auto at = text.find("singleton_front"); at != std::string::npos; at = text.find("singleton_front")) {
    text.replace(at, std::strlen("singleton_front"), "guarded_singleton");
  }
  if (const auto base = text.find(" : public detail::"); base != std::string::npos) text.erase(base);
  std::string out;
  if (starts(text, "template <")) {
    const auto at = end_of_template_head(text);
    out = text.substr(0, at) + "\n";
    text = trimmed(text.substr(at));
  }
  if (const auto end = text.find("} "); starts(text, "requires") && end != std::string::npos) {
    out += text.substr(0, end + 1) + "\n";
    text = text.substr(end + 2);
  }
  while (text.size() > 110) {
    const auto comma = text.rfind(", ", 108);
    if (comma == std::string::npos || comma < 12) break;
    out += text.substr(0, comma + 1) + "\n";
    text = "    " + text.substr(comma + 2);
  }
  return out + text + ";\n";
}

class generator {
 public:
  generator(std::string root, bool write) : root_(std::move(root)), write_(write) {}

  int run(const std::vector<std::string>& files) {
    for (const std::string& file : files) {
      const std::string text = slurp("include/curfew/" + file);
      headers_[file] = reader(text).read();
      if (!headers_[file].understood) complain(file, 1, "generate.cpp has lost its way in this header");
    }
    std::set<std::string> shown = internal_headers;
    std::string index;
    for (const page& each : pages) {
      index += "- [" + std::string(each.title) + "](" + each.file + ".md):";
      put("docs/reference/" + std::string(each.file) + ".md", page_text(each, index));
      index += "\n";
      for (const char* file : each.headers) shown.insert(file);
    }
    for (const auto& [file, found] : headers_) {
      if (shown.contains(file)) continue;
      for (const entity& one : found.entities) {
        if (is_public(one)) complain(file, one.line, "'" + one.name + "' is on no page of the reference");
      }
    }
    put("docs/reference/index.md", "# Every public name\n\n" + notice() + index);
    put("include/curfew/curfew.cppm", module_text());
    check_macros();
    if (complaints_ == 0) std::printf("reference: %zu public names\n", names_);
    return complaints_ == 0 ? 0 : 1;
  }

 private:
  static std::string notice() {
    return "<!-- Made from the headers by docs/reference/generate.cpp; a change here does not last. -->\n\n";
  }

  std::string slurp(const std::string& file) const {
    std::ifstream in(root_ + "/" + file);
    std::stringstream all;
    all << in.rdbuf();
    return all.str();
  }

  void complain(const std::string& file, unsigned line, const std::string& what) {
    std::fprintf(stderr, "%s:%u: %s\n", file.c_str(), line, what.c_str());
    complaints_ += 1;
  }

  void put(const std::string& file, const std::string& text) {
    if (slurp(file) == text) return;
    if (write_) {
      std::ofstream(root_ + "/" + file) << text;
    } else {
      complain(file, 1, "differs from what the headers say; build the target curfew_reference");
    }
  }

  static std::string spelled(const entity& one) {
    std::string scope = one.scope;
    for (const auto& [inner, outer] : published) {
      if (starts(scope, inner)) scope = outer + scope.substr(inner.size());
    }
    return scope;
  }

  std::string page_text(const page& of, std::string& index) {
    std::string text = "# " + std::string(of.title) + "\n\n" + notice();
    std::string details;
    std::vector<std::string> includes;
    for (const char* file : of.headers) {
      if (!headers_.contains(file)) complain("generate.cpp", 1, std::string(file) + " is not in the list of headers");
      if (!starts(file, "detail/")) includes.push_back(file);
    }
    if (!includes.empty()) text += includes.size() == 1 ? "Header: " : "Headers: ";
    for (std::size_t i = 0; i < includes.size(); ++i)
      text += (i != 0 ? ", `<curfew/" : "`<curfew/") + includes[i] + ">`";
    text += includes.empty() ? "" : ".\n\n";
    text += markdown(headers_[of.headers.front()].file_doc) + "\n";
    std::string overview = "| name | |\n|---|---|\n";
    std::string general;  // what the names above are aliases of
    for (const char* file : of.headers) {
      const auto& all = headers_[file].entities;
      for (std::size_t i = 0; i < all.size(); ++i) {
        const entity& one = all[i];
        if (!is_public(one)) continue;
        names_ += 1;
        std::string said = one.doc;
        for (std::size_t j = i; said.empty() && all[j].group && j > 0; --j) said = all[j - 1].doc;
        if (said.empty() && !speaks_for_itself(one))
          complain(file, one.line, "nothing is said about '" + one.name + "'");
        if (one.scope.empty() && !published.contains(one.name)) {
          std::string& table = starts(one.name, "basic_") ? general : overview;
          const std::string row = "| `" + one.name + "` | ";
          std::string about = first_sentence(said);
          if (about == "The one to use.") {  // an alias: what it is stands at the template
            for (const entity& other : all)
              if (other.scope.empty() && other.name == "basic_" + one.name)
                about = first_sentence(other.doc) + " The one to use.";
          }
          if (table.find(row) == std::string::npos) table += row + about + " |\n";
          if (index.find(" `" + one.name + "`", index.rfind('\n') + 1) == std::string::npos)
            index += " `" + one.name + "`";
        }
      }
      details += entities_text(file);
    }
    return text + overview + general + "\n" + details;
  }

  std::string entities_text(const char* file) {
    std::string text;
    std::string section = "?";
    const auto& all = headers_[file].entities;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const entity& one = all[i];
      if (!is_public(one)) continue;
      const bool heads = one.kind == "class" || one.kind == "enum" || one.scope.empty();
      if (heads) {
        section = one.scope.empty() ? one.name : spelled(one) + "::" + one.name;
        if (published.contains(one.name)) section = "Members of " + published.at(one.name);
        std::string title = "## " + section + "\n\n";
        if (one.kind == "function" && i > 0 && all[i - 1].name == one.name && all[i - 1].scope == one.scope) title = "";
        text += title;
      } else if (const std::string now = spelled(one); now != section) {  // back from a class inside
        section = now;
        text += published.contains(one.scope) ? "" : "## " + section + ", continued\n\n";
      }
      if (one.kind == "enumerator" || one.kind == "variable") {
        text += "| | |\n|---|---|\n";
        for (; i < all.size() && all[i].kind == one.kind && all[i].scope == one.scope; ++i) {
          const bool value = one.kind == "enumerator";
          text += "| `" + (value ? all[i].name : all[i].text) + "` | " + in_one_line(all[i].doc) + " |\n";
        }
        --i;
        text += "\n";
        continue;
      }
      if (starts(one.name, "~") && one.doc.empty()) continue;
      // Declarations that share what is said.
      std::string declarations = laid_out(one.text);
      std::string doc = one.doc;
      if (!(one.kind == "class" || one.kind == "enum")) {
        while (i + 1 < all.size() && all[i + 1].group && all[i + 1].scope == one.scope && all[i + 1].kind == one.kind &&
               (one.scope.empty() ? all[i + 1].name == one.name : true)) {
          ++i;
          if (!starts(all[i].name, "~")) declarations += laid_out(all[i].text);
        }
      }
      if (one.kind != "class" || !published.contains(one.name)) text += "```cpp\n" + declarations + "```\n\n";
      if (!trimmed(doc).empty()) text += trimmed(markdown(doc)) + "\n\n";
    }
    return text;
  }

  std::string module_text() {
    std::string text =
        "// SPDX-License-Identifier: MIT\n// Copyright (c) 2026 the curfew authors\n\n"
        "// The kit as a C++20 module: `import curfew;`. Made by docs/reference/generate.cpp; a change here does not "
        "last.\n"
        "// What needs a package of somebody else's, curfew/testing and the macros are not in it: include those.\n\n"
        "module;\n\n#include <curfew/curfew.hpp>\n#include <curfew/systemd_notifier.hpp>\n\nexport module curfew;\n";
    std::map<std::string, std::vector<std::string>> by_space;
    for (const auto& [file, found] : headers_) {
      if (!in_module(file) || internal_headers.contains(file)) continue;
      for (const entity& one : found.entities) {
        auto& names = by_space[one.space];
        if (!is_public(one) || !one.scope.empty() || published.contains(one.name)) continue;
        if (std::find(names.begin(), names.end(), one.name) == names.end()) names.push_back(one.name);
      }
    }
    for (auto& [space, names] : by_space) {
      if (names.empty()) continue;
      std::sort(names.begin(), names.end());
      const std::string whole = space.empty() ? "curfew" : "curfew::" + space;
      const bool by_exception = space == "sandbox";  // as in curfew/curfew.hpp
      text += by_exception ? "\n#if CURFEW_EXCEPTIONS\n" : "\n";
      text += "export namespace " + whole + " {\n";
      for (const std::string& name : names) text += "using " + whole + "::" + name + ";\n";
      text += "}  // namespace " + whole + "\n";
      if (by_exception) text += "#endif\n";
    }
    return text;
  }

  // Each macro that a header asks for or defines is on the page of the macros.
  void check_macros() {
    const std::string said = slurp("docs/reference/macros.md");
    std::set<std::string> all;
    for (const auto& [file, found] : headers_) {
      for (const std::string& name : found.macros) {
        if (all.insert(name).second && said.find("`" + name + "`") == std::string::npos) {
          complain(file, 1, "the macro " + name + " is not in docs/reference/macros.md");
        }
      }
    }
    for (auto at = said.find("`CURFEW_"); at != std::string::npos; at = said.find("`CURFEW_", at + 1)) {
      const auto end = said.find('`', at + 1);
      const std::string name = said.substr(at + 1, end - at - 1);
      if (!all.contains(name)) complain("docs/reference/macros.md", 1, "no header knows " + name);
    }
    names_ += all.size();
  }

  std::string root_;
  bool write_;
  std::map<std::string, header> headers_;
  std::size_t names_ = 0;
  int complaints_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  const std::string root = argv[1];
  // The list that the build installs.
  std::ifstream list(root + "/cmake/headers.cmake");
  std::vector<std::string> files;
  for (std::string line; std::getline(list, line);) {
    line = trimmed(line);
    if (line.ends_with(")")) line.pop_back();
    if (starts(line, "curfew/") && line.ends_with(".hpp")) files.push_back(line.substr(7));
  }
  return generator(root, argc > 2 && std::strcmp(argv[2], "--write") == 0).run(files);
}
